# SPDX-License-Identifier: Apache-2.0
"""Deviations of a measured machine at sizes that were not measured.

What few sizes cannot determine is not used: which of two that contradict one another is that of other sizes,
and a deviation within the scatter of a machine's own sizes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cclbench.ground.errors import UsageError
from cclbench.hardware.collectives import Group, NoPrice, price_group
from cclbench.hardware.collectives.cost import Floats
from cclbench.hardware.residuals import current_residuals
from cclbench.hardware.sweep import Sweep

LEAST_SPREAD: Final = 0.05
"""Half-width of the band in log time at measured points: at least what runs of one machine differ by (Alps
with another release of its plug-in: 1 to 2 %, machines of one kind more)."""
# Doublings of the size from which a deviation counts no more: beside one that contradicts it, if two sizes
# were measured, and beside one that agrees; and what each further size adds to the first.  Chosen by hand on
# half of the sweeps.
_REACH: Final = (1.0, 12.0)
_REACH_PER_SIZE: Final = 1.5
_MOST_CONTRADICTED: Final = 5.0


def interpolate_deviation(sweep: Sweep, group: Group, sizes: Floats) -> tuple[Floats, Floats]:
    """Expected log(measured / expected) by size given the sweep's, and the share of its variance explained.

    Deviations, in units of the learned band there, correlate by r(x, y) = max(0, 1 − |x − y| / reach), x and
    y log2 of the sizes, with the reach of `_agreed_reach`.  With measured neighbours a and b the weight of a
    is (r(a, x) − r(b, x) r(a, b)) / (1 − r(a, b)²), that of b the same with both exchanged, and the share
    explained is the sum of weight × r; beyond the sizes measured there is one neighbour, with weight r.
    A deviation that hardly exceeds the scatter of a machine's own sizes is reduced (`_recurring_share`).
    Within the reach that is linear interpolation; between sizes farther apart it sags toward 0.
    (Simple kriging; Rasmussen and Williams 2006, section 2.2.)
    """
    spec = price_group(sweep.kind, sweep.sizes_bytes, group, library_version=sweep.library_version)
    if isinstance(spec, NoPrice):
        raise UsageError(f"{sweep.display_name} cannot be priced: {spec.reason}")
    widths = current_residuals().band_half_widths
    scale, own_scale = (
        np.maximum(sum(widths(spec.setting, each)), LEAST_SPREAD) for each in (sizes, sweep.sizes_bytes)
    )
    scaled = np.log(sweep.times_s / spec.time_s) / own_scale
    x, measured = np.log2(np.maximum(sizes, 1.0)), np.log2(sweep.sizes_bytes)
    after = np.searchsorted(measured, x, side="right")
    noise = LEAST_SPREAD / own_scale
    reach = _agreed_reach(scaled, noise, after)
    below, above = ((each.clip(0, len(measured) - 1), each) for each in (after - 1, after))
    near_below, near_above = (
        np.where(inside == each, _size_correlation(measured[inside] - x, reach), 0.0)
        for inside, each in (below, above)
    )
    both = _size_correlation(measured[above[0]] - measured[below[0]], reach) * (below[0] != above[0])
    weight_below, weight_above = (
        (near - other * both) / (1 - both**2)
        for near, other in ((near_below, near_above), (near_above, near_below))
    )
    known_below, known_above = (
        scaled[inside] * _recurring_share(scaled, noise, inside, measured[inside] - x)
        for inside, _ in (below, above)
    )
    explained = weight_below * near_below + weight_above * near_above
    return (
        np.asarray(scale * (weight_below * known_below + weight_above * known_above), np.float64),
        np.asarray(np.clip(explained, 0.0, 1.0), np.float64),
    )


def _agreed_reach(deviations: Floats, noise: Floats, after: NDArray[np.intp]) -> Floats:
    """Doublings from which a deviation counts no more, where `after` is the next size measured.

    l + (12 − l) a with the agreement a of the two nearest ones, y and z, on either side or at the end:
    a = 1 − |y − z| / max(|y|, |z|, |y − z|, noise), 0 if their signs differ; 1/2 if only one was measured.
    l is 1 for two sizes, and 3/2 more for each further one, at most 5: of more sizes it is better known where
    software switches between them.
    """
    least, most = _REACH
    if len(deviations) == 1:
        return np.full(len(after), (least + most) / 2)
    least = min(least + _REACH_PER_SIZE * (len(deviations) - 2), _MOST_CONTRADICTED)
    first = (after - 1).clip(0, len(deviations) - 2)
    lower, upper = deviations[first], deviations[first + 1]
    apart = np.abs(lower - upper)
    largest = np.maximum.reduce([np.abs(lower), np.abs(upper), apart, noise[first], noise[first + 1]])
    return np.asarray(most - (most - least) * apart / largest, np.float64)


def _recurring_share(deviations: Floats, noise: Floats, at: NDArray[np.intp], octaves: Floats) -> Floats:
    """The share of the deviations `at` that recurs at a size so many doublings away: 1 at the size itself.

    From the next doubling on it is 0 up to noise / √n, what n sizes of one machine scatter by, and 1 from
    twice that on, linear between.
    """
    scatter = noise[at] / len(deviations) ** 0.5
    recurring = np.clip(np.abs(deviations[at]) / scatter - 1, 0.0, 1.0)
    return np.asarray(1 - np.minimum(np.abs(octaves), 1.0) * (1 - recurring), np.float64)


def _size_correlation(octaves: Floats, reach: Floats) -> Floats:
    return np.asarray(np.maximum(1 - np.abs(octaves) / reach, 0.0), np.float64)

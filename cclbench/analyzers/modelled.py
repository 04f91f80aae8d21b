# SPDX-License-Identifier: Apache-2.0
"""Modelled values from the hardware model, with bounds, for ranks whose trace states none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, count_words
from cclbench.analyzers.stand_ins import stand_in
from cclbench.analyzers.view import platform
from cclbench.analyzers.view.collectives import collective_durations
from cclbench.analyzers.view.columns import word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.transfers import Float64, TimedCollectives, timed_collectives
from cclbench.analyzers.view.values import NS_PER_S, banded_values
from cclbench.ground.units import EIB
from cclbench.hardware.system import System
from cclbench.machine import mpi_version

if TYPE_CHECKING:
    from cclbench.hardware.calibration import Calibration

PRICED: Final = ("nccl", "rccl", "xla")
"""Libraries whose algorithms are modelled."""
_MOST_BYTES: Final = EIB


@stand_in("comm.transfer")
def transfer(rank: RankView) -> Iterator[Value]:
    """min(modelled time of the collective, its own duration), per step; by kind.

    A transfer lies within its collective, so the collective's duration bounds it.
    """
    if not len(rank.collectives):
        return
    rank.needs_accelerator("the model prices collectives over accelerators' links")
    chosen = timed_collectives(rank)
    system, assumed = platform.run_system(rank)
    calibration = _card_calibration(rank)
    band, lacking, assumptions = _collective_prices(rank, chosen, system, calibration)
    priced = ~np.isnan(band[0])
    if not priced.any():
        raise NotApplicable(f"no collective in the window can be modelled: {count_words(lacking)}")
    ns = chosen.ns[priced]
    faster = ns < band[1, priced]
    if 2 * faster.sum() > len(ns):
        raise NotApplicable(
            f"{faster.sum()} of {len(ns)} collectives took less than the modelled minimum on {system.id}:"
            " the machine is another one, or the trace misstates them"
        )
    basis = [
        f"modelled on {system.id} by {'its calibration' if calibration else 'its specification'}"
        " without contention, at most each collective's own duration",
        assumed,
        *sorted(assumptions),
        "the duration of collectives that took less than the modelled minimum" if faster.any() else None,
    ]
    reason, left_out = "; ".join(filter(None, basis)), {**chosen.left_out, **lacking}
    seconds = np.minimum(band[:, priced], ns) / (NS_PER_S * len(rank.windows))
    coverage = Coverage.from_rows(priced, collective_durations(chosen.table))
    if len(chosen.unknown):
        coverage += Coverage(0, len(chosen.unknown), 0, int(collective_durations(chosen.unknown).sum()))
    yield from banded_values(
        seconds.sum(axis=1).tolist(), reason=reason, left_out=left_out, coverage=coverage
    )
    kinds = chosen.kinds[priced]
    for kind in np.unique(kinds).tolist():
        amounts = seconds[:, kinds == kind].sum(axis=1).tolist()
        yield from banded_values(amounts, collective=kind, reason=reason)


def _card_calibration(rank: RankView) -> Calibration | None:
    """The machine's calibration that the card names (hardware.calibration)."""
    if rank.card is None or rank.card.hardware.calibration is None:
        return None
    from cclbench.hardware.calibration import OF_RUN, read_calibration

    return read_calibration(rank.card.root / OF_RUN)


def _collective_prices(
    rank: RankView, chosen: TimedCollectives, system: System, calibration: Calibration | None
) -> tuple[Float64, dict[str, int], set[str]]:
    """Modelled ns, shape (3, rows): expected, low, high, NaN for none; why, by count; assumptions."""
    from cclbench.hardware.collectives import NoPrice, price_collective
    from cclbench.hardware.collectives.open_mpi import reason_without_rules

    devices_by_group, row = platform.devices_of(rank, chosen.table, system)
    version = mpi_version(rank.card)
    without_rules = reason_without_rules(version)
    libraries = (*PRICED, "mpi") if without_rules is None else PRICED
    library, names = word_codes(chosen.table, "library")
    modelled_library = np.isin(library, [i for i, name in enumerate(names) if name in libraries])
    mpi = np.isin(library, [i for i, name in enumerate(names) if name == "mpi"])
    small = chosen.payload <= _MOST_BYTES
    band = np.full((3, len(row)), np.nan)
    lacking = {
        f"of MPI, whose algorithms are {without_rules}": int((mpi & ~modelled_library).sum()),
        "of libraries whose algorithms are not modelled": int((~mpi & ~modelled_library).sum()),
        "of more than 1 EiB": int((modelled_library & ~small).sum()),
    }
    assumptions: set[str] = set()
    priced = calibration.price_collective if calibration else price_collective
    kinds, kind = np.unique(chosen.kinds, return_inverse=True)
    usable = modelled_library & small
    pairs, pair_code = np.unique(np.stack([row, kind, mpi])[:, usable], axis=1, return_inverse=True)
    rows: npt.NDArray[np.intp] = np.flatnonzero(usable)
    for number, (group, kind_code, by_mpi) in enumerate(pairs.T.tolist()):
        of_pair = rows[pair_code.reshape(-1) == number]
        sizes, size = np.unique(chosen.payload[of_pair], return_inverse=True)
        devices = devices_by_group[group]
        price = (
            NoPrice(devices)
            if isinstance(devices, str)
            else priced(
                str(kinds[kind_code]),
                sizes,
                devices,
                system,
                library_version=version if by_mpi else rank.facts.library_version,
            )
        )
        if isinstance(price, NoPrice):
            lacking[price.reason] = lacking.get(price.reason, 0) + len(of_pair)
            continue
        band[:, of_pair] = np.stack([price.time_s, price.low_s, price.high_s])[:, size] * NS_PER_S
        assumptions |= {*filter(None, [price.reason]), *price.all_marks}
    return band, {why: number for why, number in lacking.items() if number}, assumptions

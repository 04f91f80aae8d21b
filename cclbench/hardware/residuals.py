# SPDX-License-Identifier: Apache-2.0
"""Residuals of the collective formulas, log(measured / formula), learned from published sweeps.

A prediction's residual is a centre (shrunk medians by regime) plus the machine's own deviation.  The centre
corrects the time; the spread of deviations between machines is the band.  Two predictions on one machine
share a part of their deviation (`deviation_correlation`), those on two machines share none.
`scripts/hardware_residuals.py` writes the table, `residual_learning` computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cclbench.ground.units import KIB, MIB
from cclbench.hardware.shipped_table import read_shipped_table

Floats = NDArray[np.float64]

BANDS: Final = {"below 64 KiB": 64.0 * KIB, "64 KiB to 16 MiB": 16.0 * MIB + 1, "above 16 MiB": float("inf")}
"""Size bands by name, with the upper end of each (exclusive), B."""
KNOTS: Final = (2.0**13, 2.0**20, 2.0**27)
"""Sizes, B, at which figures by size band are placed: linear over log size between them, constant beyond."""

_ALONG_RINGS_AND_TREES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class ResidualSetting:
    """What a residual depends on, besides the size.

    `machine` names the system, its fabric and its network software; `network` is that software, or the
    topology of an island; `swept` is False for kinds of machines without any published
    sweep; `architecture` is that of the accelerators; `between_domains`: among several
    scale-up domains of several nodes, such as racks.
    """

    machine: str
    several_nodes: bool
    network: str
    kind: str
    ranks: int
    swept: bool = True
    architecture: str = ""
    between_domains: bool = False

    @property
    def regime_names(self) -> tuple[str, ...]:
        """Its regimes, from the widest to the narrowest; pairwise collectives have one of their own."""
        if not self.swept:
            return ()
        if self.kind not in _ALONG_RINGS_AND_TREES:
            return ("pairs",)
        return (
            "rings and trees",
            "several nodes" if self.several_nodes else "one node",
            self.network,
            self.kind,
        )


class KeptShares(msgspec.Struct, frozen=True):
    """The share of a deviation that persists with other ranks, another collective, or other sizes.

    `ranks` and `sizes` are the shares at 2, 4, 8, ... times the ranks or the size, or at that fraction of
    them; beyond the last it is 0.
    """

    ranks: tuple[float, ...]
    kind: float
    sizes: tuple[float, ...]

    def share_among_ranks(self, octaves: ArrayLike) -> Floats:
        """The share kept so many doublings of the ranks away, interpolated linearly."""
        return _interpolated_share(self.ranks, octaves)

    def at_size(self, octaves: ArrayLike) -> Floats:
        """The share kept so many doublings of the size away, interpolated linearly."""
        return _interpolated_share(self.sizes, octaves)


def _interpolated_share(shares: tuple[float, ...], octaves: ArrayLike) -> Floats:
    every = (1.0, *shares, 0.0)
    return np.interp(np.abs(np.asarray(octaves, np.float64)), np.arange(len(every)), every)


class Swept(msgspec.Struct, frozen=True):
    """A sweep that the table was learned from: its file, machine, system in the catalog, SHA-256."""

    name: str
    machine: str
    system: str
    rows: int
    sha256: str


class Residuals(msgspec.Struct, frozen=True):
    """The learned table; figures of `centre` (by regime), `low` and `high` are log factors at `KNOTS`.

    Four machines in five are expected within exp(−low) and exp(high) of the corrected time.
    `between_domains` is the largest |log(measured / formula)| of published sweeps between scale-up domains of
    several nodes, 0 without any.
    """

    centre: Mapping[str, tuple[float, ...]]
    low: tuple[float, ...]
    high: tuple[float, ...]
    kept: KeptShares
    between_domains: float = 0.0

    def log_correction(self, setting: ResidualSetting, sizes: Floats) -> Floats:
        """The centre by size, log(expected / formula): the sum over the setting's regimes."""
        centres = [self.centre[name] for name in setting.regime_names if name in self.centre]
        return at_sizes(np.sum(centres, axis=0) if centres else np.zeros(len(KNOTS)), sizes)

    def band_half_widths(self, setting: ResidualSetting, sizes: Floats) -> tuple[Floats, Floats]:
        """Half-widths of the band of one prediction by size, in log time: below and above.

        Between scale-up domains of several nodes, where hardly a machine is published, those of the widest
        size band, above also, in squares, the largest deviation published: √(max(high)² + between_domains²).
        """
        if setting.between_domains:
            above = np.hypot(max(self.high), self.between_domains)
            return np.full(sizes.shape, max(self.low)), np.full(sizes.shape, above)
        return at_sizes(self.low, sizes), at_sizes(self.high, sizes)

    def deviation_correlation(
        self, setting: ResidualSetting, other: ResidualSetting, octaves: Floats | float
    ) -> Floats:
        """Correlation of two deviations whose sizes are `octaves` doublings apart.

        0 between machines, and between one node and several of one machine; else the product of
        kept.share_among_ranks(|log2 ranks / ranks|), kept.at_size(octaves) and, if collectives differ,
        kept.kind.
        """
        if (setting.machine, setting.several_nodes) != (other.machine, other.several_nodes):
            return np.zeros(np.shape(octaves))
        shared = float(self.kept.share_among_ranks(abs(np.log2(setting.ranks / other.ranks))))
        if setting.kind != other.kind:
            shared *= self.kept.kind
        return np.asarray(shared * self.kept.at_size(octaves), np.float64)


class ClassScore(msgspec.Struct, frozen=True):
    """How far off predictions of a class were, by size band: median |predicted / measured − 1| over published
    sweeps, each without what its system taught, in which each machine weighs the same (None without any), and
    the number of machines."""

    errors: tuple[float | None, ...]
    machines: tuple[int, ...]


class ResidualTable(msgspec.Struct, frozen=True):
    """The table file: what was learned, when, by which version, and from which sweeps.

    `classes`: scores by class (`weak_classes`); `scored`: sweeps that only these are made of.
    """

    date: str
    version: str
    residuals: Residuals
    sweeps: tuple[Swept, ...]
    classes: Mapping[str, ClassScore] = {}
    scored: tuple[Swept, ...] = ()


_USED: ContextVar[Residuals | None] = ContextVar("residuals", default=None)


def at_sizes(figures: Any, sizes: Floats) -> Floats:
    """Interpolate figures given at `KNOTS`, shape (knots,), to sizes, B."""
    return np.interp(np.log2(np.maximum(sizes, 1.0)), np.log2(KNOTS), np.asarray(figures, np.float64))


def residual_table() -> ResidualTable:
    """The table shipped with this version."""
    return _read_table()


def current_residuals() -> Residuals:
    """The residuals in use: the table's, or those set by `replaced_residuals`."""
    return _USED.get() or _read_table().residuals


@contextmanager
def replaced_residuals(other: Residuals) -> Iterator[None]:
    """Use other residuals within the context, such as those learned without the machine under test."""
    token = _USED.set(other)
    try:
        yield
    finally:
        _USED.reset(token)


@cache
def _read_table() -> ResidualTable:
    return read_shipped_table("residuals.yaml", ResidualTable)

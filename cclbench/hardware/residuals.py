# SPDX-License-Identifier: Apache-2.0
"""What the formulas of collectives miss, learned from published sweeps: log(measured / formula).

A prediction's residual is a centre, shrunk means by regime, and a deviation that is the machine's own.
The centre corrects the time; the spread of deviations between machines is its band.  Two predictions of
one machine share a part of their deviation (`remembered`), those of two machines share none.
`scripts/hardware_residuals.py` writes the table, `residual_learning` says how it is learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

KNOTS: Final = (2.0**13, 2.0**20, 2.0**27)
"""Sizes, B, at which figures by size band stand; straight lines over log size between, level beyond."""

_ALONG_RINGS_AND_TREES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class ResidualSetting:
    """What a residual depends on besides the size.

    `machine` names the system, its fabric and its network software; `network` is that software, or how the
    accelerators of one island are joined; `swept` says whether published sweeps are of its kind at all.
    """

    machine: str
    several_nodes: bool
    network: str
    kind: str
    ranks: int
    swept: bool = True

    @property
    def regime_names(self) -> tuple[str, ...]:
        """The regimes it is in, from the widest to the narrowest; pairs have formulas of their own."""
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
    """The share of a deviation that is found again: among other ranks, another collective, at other sizes.

    `ranks` and `sizes` are the shares at 2, 4, 8, ... times the ranks or the size, or at as many times fewer;
    beyond the last none is.
    """

    ranks: tuple[float, ...]
    kind: float
    sizes: tuple[float, ...]

    def share_among_ranks(self, octaves: ArrayLike) -> Floats:
        """The share that is found again so many doublings of the ranks away, straight between whole ones."""
        return _interpolated_share(self.ranks, octaves)

    def at_size(self, octaves: ArrayLike) -> Floats:
        """The share that is found again so many doublings of the size away, straight between whole ones."""
        return _interpolated_share(self.sizes, octaves)


def _interpolated_share(shares: tuple[float, ...], octaves: ArrayLike) -> Floats:
    every = (1.0, *shares, 0.0)
    return np.interp(np.abs(np.asarray(octaves, np.float64)), np.arange(len(every)), every)


class Swept(msgspec.Struct, frozen=True):
    """A sweep that was learned from: its file, the machine, the system of the catalog, the file's SHA-256."""

    name: str
    machine: str
    system: str
    rows: int
    sha256: str


class Residuals(msgspec.Struct, frozen=True):
    """The learned table; figures of `centre` (by regime), `low` and `high` are log factors at `KNOTS`.

    Four machines in five are expected within exp(−low) and exp(high) of the corrected time.
    """

    centre: Mapping[str, tuple[float, ...]]
    low: tuple[float, ...]
    high: tuple[float, ...]
    kept: KeptShares

    def log_correction(self, setting: ResidualSetting, sizes: Floats) -> Floats:
        """The centre by size, log(expected / formula): the sum over the setting's regimes."""
        known = [self.centre[name] for name in setting.regime_names if name in self.centre]
        return at_sizes(np.sum(known, axis=0) if known else np.zeros(len(KNOTS)), sizes)

    def band_half_widths(self, sizes: Floats) -> tuple[Floats, Floats]:
        """Half-widths of the band of one prediction by size, in log time: below and above."""
        return at_sizes(self.low, sizes), at_sizes(self.high, sizes)

    def deviation_correlation(
        self, one: ResidualSetting, other: ResidualSetting, octaves: Floats | float
    ) -> Floats:
        """Correlation of two deviations whose sizes are so many doublings apart.

        0 between machines, and between one node and several of one machine; else
        kept.among(|log2 ranks / ranks|) · kept.kind where collectives differ · kept.at_size(octaves).
        """
        if (one.machine, one.several_nodes) != (other.machine, other.several_nodes):
            return np.zeros(np.shape(octaves))
        shared = float(self.kept.share_among_ranks(abs(np.log2(one.ranks / other.ranks))))
        if one.kind != other.kind:
            shared *= self.kept.kind
        return np.asarray(shared * self.kept.at_size(octaves), np.float64)


class ResidualTable(msgspec.Struct, frozen=True):
    """The file: what was learned, when, by which version, and from which sweeps."""

    date: str
    version: str
    residuals: Residuals
    sweeps: tuple[Swept, ...]


_USED: ContextVar[Residuals | None] = ContextVar("residuals", default=None)


def at_sizes(figures: Any, sizes: Floats) -> Floats:
    """Figures at `KNOTS`, shape (knots,), carried to sizes, B."""
    return np.interp(np.log2(np.maximum(sizes, 1.0)), np.log2(KNOTS), np.asarray(figures, np.float64))


def residual_table() -> ResidualTable:
    """The table that comes with this version."""
    return _read_table()


def current_residuals() -> Residuals:
    """What was learned: the table's, or what `replaced_residuals` states."""
    return _USED.get() or _read_table().residuals


@contextmanager
def replaced_residuals(other: Residuals) -> Iterator[None]:
    """Within it these are `current_residuals`: how those learned without a machine do on it."""
    token = _USED.set(other)
    try:
        yield
    finally:
        _USED.reset(token)


@cache
def _read_table() -> ResidualTable:
    import yaml  # lazily: most commands price nothing

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files("cclbench.hardware").joinpath("residuals.yaml").read_text("utf-8")
    return msgspec.convert(yaml.load(text, loader), ResidualTable)  # noqa: S506 - both loaders are safe ones

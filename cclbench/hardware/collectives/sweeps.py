# SPDX-License-Identifier: Apache-2.0
"""Measured times of collectives by size, and how far predictions are from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from cclbench.errors import InputError
from cclbench.hardware.collectives.price import Prediction
from cclbench.hardware.system import System
from cclbench.schema import COLLECTIVE_KINDS

BANDS: Final = {"below 64 KiB": 2.0**16, "64 KiB to 16 MiB": 2.0**24 + 1, "above 16 MiB": float("inf")}
"""Size bands by name, with the size that each ends before, B."""

_NS_PER_S: Final = 1e9
_MOST_BYTES: Final = 1 << 50
_MOST_S: Final = 1e6
_MOST_RANKS: Final = 1 << 20
# A run whose network plug-in was not loaded is tens of times slower; no software generation is more than 4.
_SUSPECT: Final = 4.0


class Sweep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of one collective among so many ranks and nodes: `seconds` for each of the rising `bytes` (S)."""

    kind: str
    ranks: int
    nodes: int
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    library_version: str | None = None

    def __post_init__(self) -> None:
        """`InputError` where it cannot be one: unequal lists, sizes that do not rise, absurd figures."""
        what = f"sweep of {self.kind[:40]} among {self.ranks:,} ranks"
        if self.kind not in COLLECTIVE_KINDS:
            raise InputError(f"{what}: no known collective", hint="known: " + ", ".join(COLLECTIVE_KINDS))
        if not (2 <= self.ranks <= _MOST_RANKS and 1 <= self.nodes <= self.ranks):
            raise InputError(f"{what} on {self.nodes:,} nodes: no group of ranks")
        if not self.bytes or len(self.bytes) != len(self.seconds):
            raise InputError(f"{what}: {len(self.bytes):,} sizes and {len(self.seconds):,} times")
        if any(b <= a for a, b in zip(self.bytes, self.bytes[1:], strict=False)):
            raise InputError(f"{what}: sizes do not rise")
        if self.bytes[0] <= 0 or self.bytes[-1] > _MOST_BYTES:
            raise InputError(f"{what}: sizes are not within 1 B and 1 PiB")
        if not all(0 < time <= _MOST_S for time in self.seconds):
            raise InputError(f"{what}: times are not above 0 s and at most 1,000,000 s")

    @property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Sizes, B."""
        return np.array(self.bytes, np.float64)

    @property
    def times(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Times, s."""
        return np.array(self.seconds, np.float64)

    def members(self, system: System) -> tuple[int, ...] | None:
        """The global ranks that it is about: the first of each node; None where nodes hold unequal parts."""
        per_node, rest = divmod(self.ranks, self.nodes)
        if rest or per_node > system.per_node:
            return None
        return tuple(
            node * system.per_node + local for node in range(self.nodes) for local in range(per_node)
        )

    def without(self, at: int) -> Sweep:
        """The sweep without its size number `at`."""
        return msgspec.structs.replace(
            self,
            bytes=self.bytes[:at] + self.bytes[at + 1 :],
            seconds=self.seconds[:at] + self.seconds[at + 1 :],
        )


def sweeps(timings: pa.Table, library_version: str | None = None) -> tuple[list[Sweep], dict[str, int]]:
    """Sweeps in a `timings` table, median time by size, and the rows that are in none, counted by reason."""
    needed = ["kind", "group_size", "nodes", "bytes", "dur_ns"]
    frame = timings.select([*needed, "in_place"]).to_pandas()
    frame = frame.assign(kind=frame["kind"].astype(object))
    unusable: dict[str, Callable[[Any], Any]] = {
        "in place, where out of place is compared": lambda rows: rows["in_place"].eq(True).fillna(False),
        "without collective, ranks, nodes, size or time": lambda rows: rows[needed].isna().any(axis=1),
        "of no bytes, no time or a single rank": lambda rows: (
            (rows["bytes"] < 1) | (rows["dur_ns"] < 1) | (rows["group_size"] < 2)
        ),
    }
    left_out: dict[str, int] = {}
    for reason, of in unusable.items():
        out = of(frame)
        if out.any():
            left_out[reason] = int(out.sum())
            frame = frame[~out]
    found = []
    for (kind, ranks, nodes), own in frame.groupby(["kind", "group_size", "nodes"], sort=True):
        median = own.groupby("bytes")["dur_ns"].median().sort_index()
        found.append(
            Sweep(
                str(kind),
                int(ranks),
                int(nodes),
                tuple(int(size) for size in median.index),
                tuple(float(ns) / _NS_PER_S for ns in median),
                library_version,
            )
        )
    return found, left_out


@dataclass(frozen=True, slots=True)
class Deviation:
    """A measured time beside the predicted one with its band, s."""

    size: int
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def error(self) -> float:
        """predicted / measured − 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def within(self) -> bool:
        """Whether the band holds the measured time."""
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def band(self) -> str:
        """The size band, of `BANDS`."""
        return next(name for name, end in BANDS.items() if self.size < end)


def compared(sweep: Sweep, prediction: Prediction) -> list[Deviation]:
    """Deviations of a prediction for the sweep's own sizes."""
    return [
        Deviation(*row)
        for row in zip(
            sweep.bytes,
            sweep.seconds,
            prediction.time_s.tolist(),
            prediction.low_s.tolist(),
            prediction.high_s.tolist(),
            strict=True,
        )
    ]


@dataclass(frozen=True, slots=True)
class Summary:
    """|error|: median and 90th percentile; share within the band; median of measured / predicted."""

    count: int
    median: float
    p90: float
    within: float
    slower: float

    @property
    def suspect(self) -> bool:
        """Whether the machine did not run as its specification says: far slower, and outside the band."""
        return self.slower > _SUSPECT and self.within < 0.5


def summary(deviations: Sequence[Deviation]) -> Summary | None:
    """The summary of deviations; None of none."""
    if not deviations:
        return None
    errors = np.abs([each.error for each in deviations])
    return Summary(
        len(deviations),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(np.mean([each.within for each in deviations])),
        float(np.median([each.measured_s / each.predicted_s for each in deviations])),
    )

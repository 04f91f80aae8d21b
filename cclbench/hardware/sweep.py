# SPDX-License-Identifier: Apache-2.0
"""A sweep: measured times of one collective by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.ground.units import PIB

_NS_PER_S: Final = 1e9
_MOST_S: Final = 1e6
_MOST_RANKS: Final = 1 << 20


class Sweep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of one collective among `ranks` on `nodes`: `seconds` for each of the ascending `bytes` (S)."""

    kind: str
    ranks: int
    nodes: int
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    library_version: str | None = None
    source: str | msgspec.UnsetType = msgspec.UNSET
    """The file or run it was read from; a calibration does not store it."""

    def __post_init__(self) -> None:
        """`InputError` if it is invalid: unequal lists, sizes that do not ascend, impossible figures."""
        what = f"sweep of {self.kind[:40]} among {self.ranks:,} ranks"
        if self.kind not in COLLECTIVE_KINDS:
            raise InputError(f"{what}: unknown collective", hint="known: " + ", ".join(COLLECTIVE_KINDS))
        if not (2 <= self.ranks <= _MOST_RANKS and 1 <= self.nodes <= self.ranks):
            raise InputError(f"{what} on {self.nodes:,} nodes: impossible group")
        if not self.bytes or len(self.bytes) != len(self.seconds):
            raise InputError(f"{what}: {len(self.bytes):,} sizes and {len(self.seconds):,} times")
        if any(b <= a for a, b in zip(self.bytes, self.bytes[1:], strict=False)):
            raise InputError(f"{what}: sizes do not ascend")
        if self.bytes[0] <= 0 or self.bytes[-1] > PIB:
            raise InputError(f"{what}: sizes are not between 1 B and 1 PiB")
        if not all(0 < time <= _MOST_S for time in self.seconds):
            raise InputError(f"{what}: times are not above 0 s and at most 1,000,000 s")

    @property
    def display_name(self) -> str:
        """Its source, for messages."""
        return "a sweep" if isinstance(self.source, msgspec.UnsetType) else self.source

    @property
    def group_words(self) -> str:
        """The collective and its group, for messages."""
        return group_words(self.kind, self.ranks, self.nodes)

    @property
    def without_origin(self) -> Sweep:
        """The same times without the source."""
        return msgspec.structs.replace(self, source=msgspec.UNSET)

    @property
    def sizes_bytes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Sizes, B."""
        return np.array(self.bytes, np.float64)

    @property
    def times_s(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Times, s."""
        return np.array(self.seconds, np.float64)

    def without_size(self, at: int) -> Sweep:
        """The sweep without the size at index `at`."""
        return msgspec.structs.replace(
            self,
            bytes=self.bytes[:at] + self.bytes[at + 1 :],
            seconds=self.seconds[:at] + self.seconds[at + 1 :],
        )


def group_words(kind: str, ranks: int, nodes: int) -> str:
    """A collective and its group, for messages."""
    return f"{kind}, {ranks:,} ranks on {nodes:,} node{'s' * (nodes > 1)}"


def sweeps_of(
    timings: pa.Table, library_version: str | None = None, *, source: str | msgspec.UnsetType = msgspec.UNSET
) -> tuple[list[Sweep], dict[str, int]]:
    """Sweeps in a `timings` table (median time by size), and the number of unused rows by reason."""
    needed = ["kind", "group_size", "nodes", "bytes", "dur_ns"]
    frame = timings.select([*needed, "in_place"]).to_pandas()
    frame = frame.assign(kind=frame["kind"].astype(object))
    unusable: dict[str, Callable[[Any], Any]] = {
        "in place (only out-of-place is compared)": lambda rows: rows["in_place"].eq(True).fillna(False),
        "without collective, ranks, nodes, size or time": lambda rows: rows[needed].isna().any(axis=1),
        "with zero bytes, zero time or a single rank": lambda rows: (
            (rows["bytes"] < 1) | (rows["dur_ns"] < 1) | (rows["group_size"] < 2)
        ),
    }
    left_out: dict[str, int] = {}
    for reason, condition in unusable.items():
        out = condition(frame)
        if out.any():
            left_out[reason] = int(out.sum())
            frame = frame[~out]
    sweeps = []
    for (kind, ranks, nodes), group in frame.groupby(["kind", "group_size", "nodes"], sort=True):
        times = group.groupby("bytes")["dur_ns"].median().sort_index()
        sweeps.append(
            Sweep(
                str(kind),
                int(ranks),
                int(nodes),
                tuple(int(size) for size in times.index),
                tuple(float(ns) / _NS_PER_S for ns in times),
                library_version,
                source,
            )
        )
    return sweeps, left_out


def merge_sweeps(sweeps: Iterable[Sweep]) -> list[Sweep]:
    """One sweep per group, with medians by size over repeated sweeps; `UsageError` across releases."""
    groups: dict[tuple[str, int, int], list[Sweep]] = {}
    for sweep in sweeps:
        groups.setdefault((sweep.kind, sweep.ranks, sweep.nodes), []).append(sweep)
    return [_merge_group(group) for group in groups.values()]


def _merge_group(sweeps: list[Sweep]) -> Sweep:
    first = sweeps[0]
    times: dict[int, list[float]] = {}
    for sweep in sweeps:
        if sweep.library_version != first.library_version:
            releases = [each.library_version or "unknown" for each in (first, sweep)]
            both = f"{first.display_name} and {sweep.display_name}"
            raise UsageError(
                f"{both} both measure {first.group_words}, with releases {' and '.join(releases)}",
                hint="a calibration covers one release: give one of them",
            )
        for size, seconds in zip(sweep.bytes, sweep.seconds, strict=True):
            times.setdefault(size, []).append(seconds)
    sizes = tuple(sorted(times))
    return msgspec.structs.replace(
        first.without_origin, bytes=sizes, seconds=tuple(median(times[size]) for size in sizes)
    )

# SPDX-License-Identifier: Apache-2.0
"""Rows of sweeps, common to all layouts, and notes on rows that contradict themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from cclbench.classify import element_bytes
from cclbench.formats import Evidence
from cclbench.formats.texts import damaged_error
from cclbench.formats.timing_rows import (
    MOST_BYTES,
    Timings,
    bandwidth_contradiction,
    bytes_per_s,
    exact_nanoseconds,
    is_believable,
)
from cclbench.ground.text import first_few

_NS_PER_US = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What the rows of one table have in common; None if it is not stated."""

    kind: str | None = None
    library: str | None = None
    ranks: int | None = None
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """A row's figures for one placement: time in µs, bandwidths in GB/s, wrong results."""

    time: Decimal | None
    algbw: Decimal | None
    busbw: Decimal | None
    errors: int | None = None


class SweepRows:
    """Collects rows, facts and notes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, str | int | float | list[str]] = {}
        self.notes: list[str] = []
        self._timings = Timings(path)
        self.left_out: Counter[str] = Counter()
        """Number of rows or half rows that are left out, by reason."""
        self._contradicting: dict[str, list[int]] = {}
        self._wrong: list[int] = []
        self._unnamed = 0
        self._gpus: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._timings)

    def add_gpu(self, name: str) -> None:
        """Add the model of a device."""
        if len(self._gpus) < 64:
            self._gpus[name] = None

    def add_row(
        self, heading: Heading, size: int, dtype: str | None, figures: Figures, *, in_place: bool, line: int
    ) -> None:
        """Add a row, unless it has no time; `line` (in JSON: the number of the result) is for messages."""
        time = figures.time
        if time is None or time == 0:
            self.left_out["without a time"] += 1
            return
        ns = exact_nanoseconds(time, per_unit=_NS_PER_US)
        is_plausible = all(rate is None or is_believable(rate) for rate in (figures.algbw, figures.busbw))
        if ns is None or not is_plausible or not 0 <= size <= MOST_BYTES:
            raise damaged_error(self.path, "has an impossible size, time or bandwidth", line=line)
        figure = row_contradiction(heading, size, figures)
        if figure is not None:
            self._contradicting.setdefault(figure, []).append(line)
        if figures.errors:
            self._wrong.append(line)
        self._unnamed += heading.kind is None
        self._timings.add_row(
            kind=heading.kind,
            library=heading.library,
            group_size=heading.ranks,
            nodes=heading.nodes,
            dtype=dtype if element_bytes(dtype) is not None else None,
            in_place=in_place,
            bytes=size,
            dur_ns=ns,
            algbw=bytes_per_s(figures.algbw),
            busbw=bytes_per_s(figures.busbw),
            errors=figures.errors,
        )

    def evidence(self) -> Evidence:
        """All rows, facts and notes."""
        notes = list(self.notes)
        for figure, lines in self._contradicting.items():
            notes.append(f"{figure} does not follow from size and time in {_line_list(lines, len(self))}")
        if self._wrong:
            notes.append(f"wrong results in {_line_list(self._wrong, len(self))}")
        if not len(self):
            notes.append(
                "contains no results: the benchmark did not get that far, or its lines have unknown prefixes"
            )
        if self._unnamed:
            notes.append(
                f"the collective of {self._unnamed:,} rows is not stated: write"
                ' "# Collective test starting: all_reduce_perf", or what it was, before their table'
            )
        gpus = list(self._gpus)
        if gpus:
            self.facts["device_name"] = gpus[0] if len(gpus) == 1 else gpus
        return Evidence(
            timings=self._timings.timing_table(), facts=self.facts, left_out=dict(self.left_out), notes=notes
        )


def row_contradiction(heading: Heading, size: int, figures: Figures) -> str | None:
    """The name of the bandwidth that does not follow from a row's size and time; None if both do."""
    if figures.time is None:
        return None
    return bandwidth_contradiction(
        heading.kind, heading.ranks, size, figures.time, figures.algbw, figures.busbw, per_unit=_NS_PER_US
    )


def _line_list(lines: list[int], total: int) -> str:
    first = first_few([f"{line:,}" for line in lines])
    return f"{len(lines):,} of {total:,} rows: line{'s'[: len(lines) > 1]} {first}"


def even_groups(devices: Iterable[tuple[int, str]]) -> tuple[int | None, int | None]:
    """Number of devices and hosts in a group, from each device's group and host; None if groups differ."""
    groups: dict[int, list[str]] = {}
    for group, host in devices:
        groups.setdefault(group, []).append(host)
    sizes = {(len(hosts), len(set(hosts))) for hosts in groups.values()}
    return sizes.pop() if len(sizes) == 1 else (None, None)


def wrong_count(value: Decimal | None) -> int | None:
    """Wrong results as an integer; None if the value is not a count."""
    return None if value is None or not 0 <= value < 1 << 60 else int(value)


def library_version(code: int) -> str:
    """NCCL's version code as a version: 22907 is 2.29.7; before 2.9, 2708 is 2.7.8."""
    unit = 10_000 if code >= 10_000 else 1000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"

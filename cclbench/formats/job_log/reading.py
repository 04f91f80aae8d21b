# SPDX-License-Identifier: Apache-2.0
"""Step lines of a log as columns, a block of lines at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from cclbench.formats.job_log.columns import (
    UNKNOWN,
    Float64,
    numbers,
    scaled,
    stamp_ns,
    whole_numbers,
)
from cclbench.formats.job_log.families import (
    FACTS,
    FAMILIES,
    LABEL,
    MESH,
    PROFILER,
    PROFILER_MARKS,
    RUN_FACTS,
    Fact,
    Family,
)
from cclbench.formats.job_log.layout import alike_lines, separated_columns
from cclbench.formats.job_log.step_table import StepColumns
from cclbench.formats.texts import line_blocks
from cclbench.ground.intervals import Int64

MOST_BYTES: Final = 1 << 36
_FACT_BYTES: Final = 16 << 20
"""Bytes of a log's beginning in which its settings are looked for."""
_MOST_MARKS: Final = 1 << 12
"""Most lines of profilers that are used."""


class FamilyLines(StepColumns):
    """Columns of a family's lines so far."""

    def __init__(self, family: Family) -> None:
        super().__init__(family.name, is_server=family.is_server)
        self.family = family

    def read_block(self, block: bytes, lines: int) -> int:
        """Append the step lines of a block of so many lines of text; returns how many they are."""
        family, at = self.family, block.find(self.family.mark)
        if at < 0:
            return 0
        labelled = LABEL.match(block, block.rfind(b"\n", 0, at) + 1) is not None
        pattern = family.labelled if labelled else family.pattern
        columns = None if labelled else separated_columns(family, block)
        if columns is None:
            columns = _matched_columns(family, pattern, block)
        count = len(next(iter(columns.values()), ()))
        if count < lines and any(mark in block for mark in PROFILER_MARKS):
            for match in PROFILER.finditer(block):
                if len(self.profiled) < _MOST_MARKS:
                    before = len(pattern.findall(block, 0, match.start()))
                    self.profiled.append((self.count + before, str(match.lastgroup)))
        self.count += count
        if count:
            self.append("rank", columns.pop("rank", np.full(count, UNKNOWN)))
            for name in pattern.groupindex.keys() - {"task", "rank"}:
                values = columns.get(name, np.full(count, np.nan))
                self.append(name, values if name == "stamp" else scaled(values, family.factors.get(name, 1)))
        return count


def _matched_columns(family: Family, pattern: re.Pattern[bytes], block: bytes) -> dict[str, Float64 | Int64]:
    """The groups of each line as columns; empty without a line."""
    lines = (alike_lines(family, block) if pattern is family.pattern else None) or pattern.findall(block)
    names = sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)
    if not lines:
        return {}
    texts = dict(zip(names, zip(*lines, strict=True), strict=True))
    labels = [texts.pop(name) for name in ("task", "rank") if name in texts]
    columns = {name: stamp_ns(cells) if name == "stamp" else numbers(cells) for name, cells in texts.items()}
    if labels:
        columns["rank"] = whole_numbers(numbers([a or b for a, b in zip(*labels, strict=True)]))
    return columns


class StepLogReading:
    """A log's step lines and settings."""

    def __init__(self) -> None:
        self.facts: dict[str, int] = {}
        self.has_library_lines = False
        """Whether NCCL's or RCCL's lines are among the others."""
        self._families = [FamilyLines(family) for family in FAMILIES]

    def read(self, path: Path) -> None:
        """Read all lines of a file, once."""
        done = 0
        for block in line_blocks(path, MOST_BYTES):
            by_count = sorted(self._families, key=lambda lines: -lines.count)
            # several times faster than to count in bytes
            size = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n"))) + 1
            count = next(filter(None, (lines.read_block(block, size) for lines in by_count)), 0)
            if count < size:
                self.has_library_lines = self.has_library_lines or b"CCL INFO" in block
                self._read_facts(block, (*FACTS, *RUN_FACTS) if done < _FACT_BYTES else RUN_FACTS)
            done += len(block)
        if all(name in self.facts for name in MESH):
            self.facts.setdefault("devices", prod(self.facts[name] for name in MESH))

    def _read_facts(self, block: bytes, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if fact.name not in self.facts and fact.mark in block and (match := fact.pattern.search(block)):
                self.facts[fact.name] = int(match[1])

    def chosen_family(self) -> FamilyLines:
        """The family with most lines, in the order of `FAMILIES`."""
        return max(self._families, key=lambda lines: lines.count)

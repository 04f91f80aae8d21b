# SPDX-License-Identifier: Apache-2.0
"""Step lines of a log as columns, a block of lines at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from cclbench.formats.job_log.columns import (
    UNKNOWN,
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
    Family,
)
from cclbench.formats.job_log.layout import alike_lines, separated_columns
from cclbench.formats.job_log.step_table import StepColumns
from cclbench.formats.texts import line_blocks

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
            columns = _matched_columns(family, pattern, block), {}
        texts, values = columns
        count = len(next(iter(texts.values()), ()))
        if count < lines and any(mark in block for mark in PROFILER_MARKS):
            for match in PROFILER.finditer(block):
                if len(self.profiled) < _MOST_MARKS:
                    before = len(pattern.findall(block, 0, match.start()))
                    self.profiled.append((self.count + before, str(match.lastgroup)))
        self.count += count
        if not count:
            return 0
        labels = [texts.pop(name, None) for name in ("task", "rank")]
        rank = np.full(count, UNKNOWN)
        if labels[0] is not None and labels[1] is not None:
            rank = whole_numbers(numbers([task or rank for task, rank in zip(*labels, strict=True)]))
        self.append("rank", rank)
        for name in pattern.groupindex.keys() - {"task", "rank"}:
            factor = family.factors.get(name, 1.0)
            if name in values:
                self.append(name, scaled(values[name], factor))
            elif name == "stamp":
                self.append(name, stamp_ns(texts[name]))
            else:
                self.append(name, numbers(texts.get(name, [b""] * count), factor))
        return count


def _matched_columns(family: Family, pattern: re.Pattern[bytes], block: bytes) -> dict[str, Sequence[bytes]]:
    """The groups of each line as columns; empty without a line."""
    lines = (alike_lines(family, block) if pattern is family.pattern else None) or pattern.findall(block)
    names = sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)
    return dict(zip(names, zip(*lines, strict=True), strict=True)) if lines else {}


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
            size = block.count(b"\n") + 1
            count = next(filter(None, (lines.read_block(block, size) for lines in by_count)), 0)
            if count < size:
                self.has_library_lines = self.has_library_lines or b"CCL INFO" in block
                if done < _FACT_BYTES:
                    self._read_facts(block)
            done += len(block)
        if all(name in self.facts for name in MESH):
            self.facts.setdefault("devices", prod(self.facts[name] for name in MESH))

    def _read_facts(self, block: bytes) -> None:
        for fact in FACTS:
            if fact.name not in self.facts and fact.mark in block and (match := fact.pattern.search(block)):
                self.facts[fact.name] = int(match[1])

    def chosen_family(self) -> FamilyLines:
        """The family with most lines, in the order of `FAMILIES`."""
        return max(self._families, key=lambda lines: lines.count)

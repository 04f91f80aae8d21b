# SPDX-License-Identifier: Apache-2.0
"""Step lines of a log as rows of `LOG_STEPS`, a block of lines at a time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.formats.job_log.columns import (
    UNKNOWN,
    Attempts,
    Float64,
    nanoseconds,
    numbers,
    split_attempts,
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
    literal_pattern,
)
from cclbench.formats.texts import line_blocks
from cclbench.formats.trace import LATEST_NS
from cclbench.ground.evidence_schema import LOG_STEPS
from cclbench.ground.intervals import Int64

MOST_BYTES: Final = 1 << 36
_FACT_BYTES: Final = 16 << 20
"""Bytes of a log's beginning in which its settings are looked for."""
_MOST_MARKS: Final = 1 << 12
"""Most lines of profilers that are used."""
_AMOUNTS: Final = ("tokens_per_s_per_device", "prompt_tokens_per_s", "generated_tokens_per_s")
_FLOATS: Final = ("loss", "flops_per_s", "mfu", *_AMOUNTS)


class FamilyLines:
    """Columns of a family's lines so far: a list of arrays by column."""

    def __init__(self, family: Family) -> None:
        self.family, self.count = family, 0
        self._columns: dict[str, list[Any]] = defaultdict(list)
        self.profiled: list[tuple[int, str]] = []
        """Number of lines before a profiler's own line, and which."""

    def read_block(self, block: bytes) -> bool:
        """Append the lines of a block of text; False if it has none."""
        family, at = self.family, block.find(self.family.mark)
        if at < 0:
            return False
        line = block.rfind(b"\n", 0, at) + 1
        pattern = family.labelled if LABEL.match(block, line) else family.pattern
        lines = self._matched_lines(pattern, block)
        if any(mark in block for mark in PROFILER_MARKS):
            for match in PROFILER.finditer(block):
                if len(self.profiled) < _MOST_MARKS:
                    before = len(pattern.findall(block, 0, match.start()))
                    self.profiled.append((self.count + before, str(match.lastgroup)))
        self.count += len(lines)
        if not lines:
            return False
        names = sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)
        columns = dict(zip(names, zip(*lines, strict=True), strict=True))
        labels = [columns.pop(name, None) for name in ("task", "rank")]
        rank = np.full(len(lines), UNKNOWN)
        if labels[0] is not None and labels[1] is not None:
            rank = whole_numbers(numbers([task or rank for task, rank in zip(*labels, strict=True)]))
        self._columns["rank"].append(rank)
        for name, texts in columns.items():
            values = stamp_ns(texts) if name == "stamp" else numbers(texts, family.factors.get(name, 1.0))
            self._columns[name].append(values)
        return True

    def _matched_lines(self, pattern: re.Pattern[bytes], block: bytes) -> list[tuple[bytes, ...]]:
        """The groups of each line."""
        match = pattern.search(block)
        if match is not None and not self.family.at_line_begin and pattern is self.family.pattern:
            lines: list[tuple[bytes, ...]] = literal_pattern(match).findall(block)
            if len(lines) == block.count(self.family.mark):
                return lines
        return pattern.findall(block)

    def column(self, name: str) -> Float64:
        """Values of all lines, and no longer kept; NaN if the family lacks the column."""
        parts = self._columns.pop(name, None)
        return np.concatenate(parts) if parts else np.full(self.count, np.nan)

    def whole_column(self, name: str) -> Int64:
        """Whole values of all lines; `UNKNOWN` where there is none."""
        return whole_numbers(self.column(name))

    def stamps(self) -> Int64:
        """When the lines were written, ns."""
        if (parts := self._columns.pop("stamp", None)) is not None:
            return np.concatenate(parts)
        milliseconds = self.whole_column("time_ms")
        fits = (milliseconds != UNKNOWN) & (milliseconds < LATEST_NS // 1_000_000)
        return np.where(fits, milliseconds, 0) * 1_000_000 + np.where(fits, 0, UNKNOWN)

    def ranks(self) -> Int64:
        """Labels of the lines; `UNKNOWN` without one."""
        return np.concatenate(self._columns.pop("rank"))


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
            any(lines.read_block(block) for lines in by_count)
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


def step_table(lines: FamilyLines, facts: dict[str, int]) -> tuple[pa.Table, int]:
    """Rows of `LOG_STEPS`, and the number of lines that say a step again."""
    rank, end, samples = lines.ranks(), lines.stamps(), lines.whole_column("samples")
    if (batch := facts.get("global_batch")) is not None:
        samples = np.where(samples == UNKNOWN, batch, samples)
    consumed = lines.whole_column("consumed_samples")
    step = lines.whole_column("step")
    if lines.family.name == "mlperf throughput":
        step = np.where((consumed == UNKNOWN) | (samples <= 0), UNKNOWN, consumed // np.maximum(samples, 1))
    attempts = _attempts(rank, step)
    order = attempts.order
    rank, end, samples, step = rank[order], end[order], samples[order], step[order]
    dur, timed = _durations(lines, attempts, end, samples)
    length = facts.get("sequence_length")
    tokens = (
        np.where(samples == UNKNOWN, UNKNOWN, samples * length) if length else np.full_like(step, UNKNOWN)
    )
    columns = {
        "rank": _nullable(rank, pa.int32()),
        "restart": pa.array(attempts.restart.astype(np.int32)),
        "step": _nullable(step, pa.int64()),
        "steps": _nullable(attempts.steps, pa.int64()),
        "end_ns": _nullable(end, pa.int64()),
        "dur_ns": _nullable(dur, pa.int64()),
        "timed_by": _words(timed, ("stated", "rate", "stamps")),
        "profiler": _words(_profiled(lines, order), ("recorded", "saved")),
        "samples": _nullable(samples, pa.int64()),
        "tokens": _nullable(tokens, pa.int64()) if length else pa.nulls(len(order), pa.int64()),
        "memory_bytes": _nullable(whole_numbers(np.rint(lines.column("memory_bytes")[order])), pa.int64()),
        **{name: _nullable(lines.whole_column(name)[order], pa.int64()) for name in ("running", "waiting")},
        **{name: pa.array(lines.column(name)[order], from_pandas=True) for name in _FLOATS},
    }
    arrays = [
        columns.pop(field.name) if field.name in columns else pa.nulls(len(order), field.type)
        for field in LOG_STEPS
    ]
    return pa.table(arrays, LOG_STEPS.names).cast(LOG_STEPS), attempts.repeated


def _attempts(rank: Int64, step: Int64) -> Attempts:
    """Attempts by step numbers; lines without any, as servers write them, are kept as they are."""
    if (step == UNKNOWN).all():
        ones = np.ones_like(step)
        return Attempts(np.arange(len(step)), 0 * ones, UNKNOWN * ones, ones == 0, 0)
    numbered = np.flatnonzero(step != UNKNOWN)
    found = split_attempts(rank[numbered], step[numbered])
    order = numbered[found.order]
    return Attempts(order, found.restart, found.steps, found.first, len(rank) - len(order))


def _durations(lines: FamilyLines, attempts: Attempts, end: Int64, samples: Int64) -> tuple[Int64, Int64]:
    """Time of a step in each line, and where it is from: 0 stated, 1 a rate, 2 stamps, −1 unknown."""
    order = attempts.order
    stated = nanoseconds(lines.column("step_s")[order])
    stated = np.where(stated == UNKNOWN, nanoseconds(lines.column("step_ms")[order]), stated)
    with np.errstate(divide="ignore"):
        rate = nanoseconds(1 / lines.column("steps_per_s")[order])
        by_samples = np.where(samples == UNKNOWN, np.nan, samples) / lines.column("samples_per_s")[order]
    rate = np.where(rate == UNKNOWN, nanoseconds(by_samples), rate)
    before = np.roll(end, 1)
    known = ~attempts.first & (end != UNKNOWN) & (before != UNKNOWN) & (end > before)
    if lines.family.is_server:
        known[:] = False
    stamps = np.where(known, (end - before) // np.maximum(attempts.steps, 1), UNKNOWN)
    dur, timed = np.full_like(end, UNKNOWN), np.full_like(end, -1)
    for number, values in reversed(list(enumerate((stated, rate, stamps)))):
        use = values != UNKNOWN
        dur, timed = np.where(use, values, dur), np.where(use, number, timed)
    return dur, timed


def _profiled(lines: FamilyLines, order: Int64) -> Int64:
    """Of each line: 0 if a profiler recorded its step, 1 if the profile was written during it, else −1."""
    of_line = np.full(lines.count + 1, -1)
    for before, what in lines.profiled:
        if what == "started":
            of_line[before] = 0
        else:
            of_line[max(before - 1, 0)], of_line[before] = 0, 1
    return of_line[order]


def _nullable(values: Int64, kind: pa.DataType) -> pa.Array:
    missing = values == UNKNOWN
    return pa.array(np.where(missing, 0, values), mask=missing).cast(kind)


def _words(codes: Int64, words: tuple[str, ...]) -> pa.Array:
    indices = pa.array(np.maximum(codes, 0).astype(np.int8), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words))

# SPDX-License-Identifier: Apache-2.0
"""Differences in device time by operator and by module, exact, with each machine's roofline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from cclbench.analyzers.view.durations import Durations
from cclbench.analyzers.view.operator_rows import OperatorRow
from cclbench.analyzers.view.ordered_calls import merge_ordered_calls
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.analyzers.view.work_keys import NO_MODULE, Words
from cclbench.comparison.attribution import round_to_total
from cclbench.comparison.comparison import KernelChange, WorkChange, WorkDifference, WorkTime
from cclbench.comparison.interval import Captures
from cclbench.comparison.matched_work import match_work
from cclbench.comparison.replaced_calls import replaced_calls
from cclbench.comparison.subject import ComparisonSubject
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import UsageError
from cclbench.operator_table import OperatorTable, has_operators, operator_costs_by

_NUMBER: Final = re.compile(r"_\d+$")
_KEYS: Final = ("op", "shape", "module", "program", "shape,kernel")
_DIGITS: Final = 12
"""Significant digits of FLOPs compared, since they are floating-point sums."""

Pair = tuple["_WorkSum | None", "_WorkSum | None"]


@dataclass(slots=True)
class _WorkSum:
    """Totals of one operator or module in one run, over its ranks and steps."""

    name: str
    calls: int
    time_ns: int
    roofline_s: float
    """Roofline time of the calls that have one."""
    modelled_s: float
    """Device time of those calls."""
    model: tuple[str, str] | None
    """Cost-model family, and FLOPs per step and rank."""


@dataclass(frozen=True, slots=True)
class OperatorTables:
    """A run's operators, by operator, by shapes, by module, by compiled program, and by shapes and kernel."""

    ops: OperatorTable
    shapes: OperatorTable
    modules: OperatorTable
    programs: OperatorTable
    kernels: OperatorTable | None = None
    """None where a CPU is the device, which runs no kernels."""

    @property
    def each_table(self) -> tuple[OperatorTable | None, ...]:
        """The tables, in the order of the fields."""
        return self.ops, self.shapes, self.modules, self.programs, self.kernels


def work_differences(
    subjects: Sequence[ComparisonSubject],
    tables: Mapping[str, OperatorTables],
    repeats: Sequence[Captures] = (),
) -> tuple[WorkDifference, ...]:
    """Each further subject against the first, where both have operators in `tables`, by letter.

    `repeats`: captures of other jobs, for the intervals of matched work.
    """
    base, *others = subjects
    if base.letter not in tables:
        return ()
    return tuple(
        replace(
            work_difference(base.letter, other.letter, tables[base.letter], tables[other.letter]),
            matched=match_work(
                base,
                other,
                tables[base.letter].ops.equal_work,
                tables[other.letter].ops.equal_work,
                repeats,
            ),
        )
        for other in others
        if other.letter in tables
    )


def subject_operator_tables(
    subjects: Sequence[ComparisonSubject], engine: Engine = SERIAL, progress: Progress | None = None
) -> dict[str, OperatorTables]:
    """Operators by subject letter, for subjects that have some; several captures' steps are joined."""
    by_letter = {}
    for subject in subjects:
        capture_tables = [_operator_tables(capture, engine, progress) for capture in subject.each_capture]
        present = [tables for tables in capture_tables if tables is not None]
        if present and len(present) == len(capture_tables):
            each = [[table for table in tables.each_table if table is not None] for tables in present]
            by_letter[subject.letter] = OperatorTables(*map(_join_tables, zip(*each, strict=True)))
    return by_letter


def _operator_tables(
    subject: ComparisonSubject, engine: Engine, progress: Progress | None
) -> OperatorTables | None:
    """A run's tables; None where no rank has operators in its windows."""
    if not has_operators(subject.stored):
        return None
    try:
        tables = operator_costs_by(
            subject.stored,
            _KEYS[:-1] if subject.stored.record.is_on_host else _KEYS,
            window=subject.window_policy or "steps",
            engine=engine,
            progress=progress,
            in_order=True,
        )
    except UsageError:
        return None
    return OperatorTables(*tables) if tables[0].windows else None


def _join_tables(tables: Sequence[OperatorTable]) -> OperatorTable:
    """The operators of several captures, as of one capture with all their steps."""
    first = tables[0]
    if len(tables) == 1:
        return first
    time_ns = sum(table.time_ns for table in tables)
    rows: dict[Words, list[OperatorRow]] = {}
    for table in tables:
        for row in table.rows:
            rows.setdefault(row.words, []).append(row)
    return replace(
        first,
        windows=sum(table.windows for table in tables),
        time_ns=time_ns,
        modelled_share=min(table.modelled_share for table in tables),
        rows=tuple(_joined_row(key_rows, time_ns) for key_rows in rows.values()),
        all_rows=len(rows),
        calls_in_order=merge_ordered_calls([table.calls_in_order for table in tables]),
        equal_work=tuple(work for table in tables for work in table.equal_work),
    )


def _joined_row(rows: Sequence[OperatorRow], total_ns: int) -> OperatorRow:
    time_ns = sum(row.time_ns for row in rows)
    sums: dict[str, float | None] = {}
    for name in ("flops", "bytes", "roofline_s", "gap_s"):
        present = [value for row in rows if (value := getattr(row, name)) is not None]
        sums[name] = sum(present) if present else None
    modelled_ns = sum(row.modelled_share * row.time_ns for row in rows)
    return replace(
        rows[0],
        calls=sum(row.calls for row in rows),
        time_ns=time_ns,
        durations=sum((row.durations for row in rows), Durations()),
        share=time_ns / total_ns if total_ns else 0.0,
        modelled_share=min(modelled_ns / time_ns, 1.0) if time_ns else rows[0].modelled_share,
        **sums,  # type: ignore[arg-type]
    )


def work_difference(base: str, other: str, before: OperatorTables, after: OperatorTables) -> WorkDifference:
    """Change in device time per step and rank, by operator and by module."""
    steps = before.ops.windows, after.ops.windows
    change_ns = round(Fraction(after.ops.time_ns, steps[1]) - Fraction(before.ops.time_ns, steps[0]))
    ops = _work_changes(_table_sums(before.ops), _table_sums(after.ops), steps, change_ns)
    modules: tuple[WorkChange, ...] = ()
    if all(any(row.key != NO_MODULE for row in tables.modules.rows) for tables in (before, after)):
        modules = _work_changes(
            _module_classes(before.modules), _module_classes(after.modules), steps, change_ns
        )
    shapes = _by_operator(before.shapes), _by_operator(after.shapes)
    return WorkDifference(
        base=base,
        other=other,
        before_s=before.ops.time_s / steps[0],
        after_s=after.ops.time_s / steps[1],
        change_ns=change_ns,
        operators=tuple(_with_shapes(change, *shapes, steps) for change in ops),
        modules=modules,
        kernels=tuple(_kernel_changes(before.kernels, after.kernels, steps))
        if before.kernels and after.kernels
        else (),
        replaced=replaced_calls(before.ops, after.ops, change_ns),
    )


def _kernel_changes(
    before: OperatorTable, after: OperatorTable, steps: tuple[int, int]
) -> list[KernelChange]:
    """The calls that both runs have with the same shapes, and that run other kernels."""
    times_before, times_after = _kernel_times(before), _kernel_times(after)
    changes = []
    for name in times_before.keys() & times_after.keys():
        a, b = times_before[name], times_after[name]
        if a.keys() != b.keys():
            before_ns, after_ns = (
                Fraction(sum(times.values()), count) for times, count in zip((a, b), steps, strict=True)
            )
            changes.append(
                KernelChange(
                    name=name,
                    before=tuple(sorted(a.keys() - b.keys())),
                    after=tuple(sorted(b.keys() - a.keys())),
                    before_s=float(before_ns) / NS_PER_S,
                    after_s=float(after_ns) / NS_PER_S,
                    change_ns=round(after_ns - before_ns),
                )
            )
    return sorted(changes, key=lambda change: (-abs(change.change_ns), change.name))


def _kernel_times(table: OperatorTable) -> dict[str, dict[str, int]]:
    """Time by operator with shapes, and kernel, ns; without kernels that no operator launches."""
    times: dict[str, dict[str, int]] = {}
    for row in table.rows:
        name, kernel = row.words
        if name != kernel:
            times.setdefault(name, {})[kernel] = row.time_ns
    return times


def _table_sums(table: OperatorTable) -> list[_WorkSum]:
    """Totals of each row of a table."""
    return [_row_sum(row.key, row, table.windows) for row in table.rows]


def _row_sum(name: str, row: OperatorRow, steps: int) -> _WorkSum:
    flops = f"{row.flops / steps:.{_DIGITS}g}" if row.flops and row.modelled_share == 1 else ""
    roofline_s, gap_s = row.roofline_s or 0.0, row.gap_s or 0.0
    model = (row.family, flops) if row.family and flops else None
    return _WorkSum(name, row.calls, row.time_ns, roofline_s, roofline_s + gap_s, model)


def _module_classes(table: OperatorTable) -> list[_WorkSum]:
    """Totals by module, added up over modules that differ only in their numbers."""
    sums: dict[str, _WorkSum] = {}
    for row in table.rows:
        name = "/".join(_NUMBER.sub("", part) for part in row.key.split("/"))
        row_sum = _row_sum(name, row, table.windows)
        total = sums.setdefault(name, _WorkSum(name, 0, 0, 0.0, 0.0, None))
        total.calls += row_sum.calls
        total.time_ns += row_sum.time_ns
        total.roofline_s += row_sum.roofline_s
        total.modelled_s += row_sum.modelled_s
    return list(sums.values())


def _work_changes(
    before: Sequence[_WorkSum], after: Sequence[_WorkSum], steps: tuple[int, int], change_ns: int
) -> tuple[WorkChange, ...]:
    """The shares of `change_ns` in whole ns, largest first; exact before rounding."""
    pairs = _pair_sums(before, after)
    exact = [
        Fraction(b.time_ns if b else 0, steps[1]) - Fraction(a.time_ns if a else 0, steps[0])
        for a, b in pairs
    ]
    changes = [
        _work_change(pair, steps, ns)
        for pair, ns in zip(pairs, round_to_total(exact, change_ns), strict=True)
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_ns), change.name)))


def _work_change(pair: Pair, steps: tuple[int, int], change_ns: int) -> WorkChange:
    a, b = pair
    names = [work.name for work in pair if work]
    return WorkChange(
        name=names[0],
        other_name=names[-1] if names[-1] != names[0] else None,
        before=_work_time(a, steps[0]),
        after=_work_time(b, steps[1]),
        change_ns=change_ns,
    )


def _work_time(work: _WorkSum | None, steps: int) -> WorkTime | None:
    if work is None:
        return None
    has_roofline = work.modelled_s > 0
    return WorkTime(
        time_s=work.time_ns / steps / NS_PER_S,
        calls=work.calls / steps,
        roofline_s=work.roofline_s / steps if has_roofline else None,
        reached=work.roofline_s / work.modelled_s if has_roofline else None,
    )


def _pair_sums(before: Sequence[_WorkSum], after: Sequence[_WorkSum]) -> list[Pair]:
    """Sums paired by name, else by unambiguous cost-model family and FLOPs; the rest unpaired."""
    after_by_name = {work.name: work for work in after}
    pairs: list[Pair] = [
        (work, after_by_name.pop(work.name)) for work in before if work.name in after_by_name
    ]
    paired = {work.name for work, _ in pairs if work}
    unpaired = [work for work in before if work.name not in paired]
    unique_before, unique_after = _unshared_sums(unpaired), _unshared_sums(after_by_name.values())
    for work in unpaired:
        match = unique_after.get(work.model) if work.model and unique_before.get(work.model) is work else None
        pairs.append((work, after_by_name.pop(match.name) if match else None))
    return [*pairs, *((None, work) for work in after_by_name.values())]


def _unshared_sums(sums: Iterable[_WorkSum]) -> dict[tuple[str, str], _WorkSum]:
    """Sums by cost-model family and FLOPs, where only one sum has them."""
    works = list(sums)
    counts = Counter(work.model for work in works)
    return {work.model: work for work in works if work.model and counts[work.model] == 1}


def _with_shapes(
    change: WorkChange,
    before: Mapping[str, Sequence[_WorkSum]],
    after: Mapping[str, Sequence[_WorkSum]],
    steps: tuple[int, int],
) -> WorkChange:
    """The change with its shares by shape, where both call the operator with the same shapes."""
    before_shapes = before.get(change.name, ())
    after_shapes = after.get(change.other_name or change.name, ())
    if len(before_shapes) < 2 or {work.name for work in before_shapes} != {
        work.name for work in after_shapes
    }:
        return change
    return replace(change, shapes=_work_changes(before_shapes, after_shapes, steps, change.change_ns))


def _by_operator(table: OperatorTable) -> dict[str, list[_WorkSum]]:
    """Totals by operator, one per shapes, named by the shapes alone."""
    sums: dict[str, list[_WorkSum]] = {}
    for row in table.rows:
        operator, shapes = row.operator_and_shapes
        sums.setdefault(operator, []).append(_row_sum(shapes, row, table.windows))
    return sums

# SPDX-License-Identifier: Apache-2.0
"""Operators of a run on a page: by operator and shapes, by module, and operators without a cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.analyzers.view.operator_rows import OperatorRow
from cclbench.analyzers.view.work_keys import NO_MODULE
from cclbench.classify.kernel_labels import shorten_name
from cclbench.comparison.operators import OperatorTables
from cclbench.comparison.subject import ComparisonSubject
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import UsageError
from cclbench.ground.text import first_few, printable
from cclbench.ground.units import humanise
from cclbench.operator_table import (
    OperatorTable,
    TableOptions,
    has_operators,
    operator_costs,
    operator_costs_by,
)
from cclbench.present.charts.chart import Chart
from cclbench.present.charts.modules import module_chart
from cclbench.present.charts.operator_roofline import operator_roofline
from cclbench.present.charts.phases import phase_charts
from cclbench.present.operator_columns import SHOWN, OperatorColumn, percent

MOST_ROWS: Final = 100
NO_OPERATORS: Final = (
    "no operators: the traces record no operator calls; profile CPU activities to record them, with"
    " record_shapes for FLOPs and bytes and with_stack for modules"
)
PROFILE_KEYS: Final = "program,category,shape"
_PROFILE_COLUMNS: Final = ("calls", "time", "share", "achieved", "roofline", "gap", "of peak", "wasted")
_LONGEST_KERNEL: Final = 100
_MOST_UNMODELLED: Final = 6


@dataclass(frozen=True, slots=True)
class OperatorSection:
    """A run's operators on a page; only notes if there are none."""

    rows: tuple[OperatorRow, ...] = ()
    """By operator and shapes, most time first."""
    columns: tuple[OperatorColumn, ...] = ()
    """Those with a value in any row."""
    windows: int = 0
    """Total number of steps over all ranks."""
    coverage: str = ""
    """Share of the time that is linked to operators and has a cost."""
    unmodelled: tuple[str, ...] = ()
    """Kernels without a cost, most time first."""
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    profile: OpProfile | None = None
    """Of compiled programs; None without any."""


@dataclass(frozen=True, slots=True)
class OpProfile:
    """Compiled programs, in each its categories, in each its operators with equal operands."""

    rows: tuple[OperatorRow, ...]
    """Those with most time, each before the rows in it."""
    columns: tuple[OperatorColumn, ...]
    """Those with a value in any row."""
    more: int
    """Number of rows with less time."""


def operator_section(
    run: ComparisonSubject,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
    operators: OperatorTables | None = None,
) -> OperatorSection:
    """The section of a single run; `operators` spares summing them again."""
    if not has_operators(run.stored):
        return OperatorSection(notes=(NO_OPERATORS,))
    try:
        options = TableOptions(window=run.window_policy or "steps", engine=engine, progress=progress)
        by_shape, by_module, by_program = (
            (operators.shapes, operators.modules, operators.programs)
            if operators
            else operator_costs_by(run.stored, ("shape", "module", "program"), **options)
        )
        profile = None
        if any(row.key != NO_MODULE for row in by_program.rows):
            profile = op_profile(operator_costs(run.stored, PROFILE_KEYS, **(options | {"tree": True})))
    except UsageError as error:
        return OperatorSection(notes=(str(error),))
    more = by_shape.rows[MOST_ROWS:]
    rest = sum(row.time_ns for row in more) / 1e9
    listed = f"{len(more):,} more rows with {humanise(rest, 's')}: cclbench ops --by shape lists all"
    return OperatorSection(
        rows=by_shape.rows[:MOST_ROWS],
        columns=tuple(column for column in SHOWN if any(map(column.text, by_shape.rows[:MOST_ROWS]))),
        windows=by_shape.windows,
        coverage=linked_shares(by_shape),
        unmodelled=tuple(unmodelled_lines(by_shape))[:_MOST_UNMODELLED],
        charts=(operator_roofline(by_shape), module_chart(by_module), *phase_charts(run)),
        notes=(*([listed] if more else []), *by_shape.notes),
        profile=profile,
    )


def op_profile(tree: OperatorTable) -> OpProfile:
    """The `MOST_ROWS` rows of a tree with most time: with a row all that hold it."""
    most = sorted(tree.rows, key=lambda row: (-row.time_ns, row.row))[:MOST_ROWS]
    rows = tuple(sorted(most, key=lambda row: row.row))
    columns = (column for column in SHOWN if column.heading in _PROFILE_COLUMNS)
    return OpProfile(
        rows, tuple(column for column in columns if any(map(column.text, rows))), len(tree.rows) - len(rows)
    )


def linked_shares(table: OperatorTable) -> str:
    """Share of the time linked to operators, and share of the compute time with a cost."""
    return (
        f"linked to operators {humanise(table.linked_share, '1')}; of compute time"
        f" {humanise(table.modelled_share, '1')} has FLOPs and bytes"
    )


def unmodelled_lines(table: OperatorTable) -> Iterator[str]:
    """`kernel of operator: 1.20 ms, 3.7 %: reason`, for kernels alike without a cost, most time first."""
    for kernels in table.unmodelled:
        kernel, operator = (
            name and shorten_name(printable(name), _LONGEST_KERNEL)
            for name in (kernels.kernel, kernels.operator)
        )
        name = " of ".join(filter(None, (kernel, operator)))
        time = f"{humanise(kernels.time_s, 's')}, {percent(kernels.share)}"
        yield f"{name}: {time}: {kernels.why_not or 'unknown'}"


def assumption_lines(rows: Sequence[OperatorRow]) -> Iterator[str]:
    """`operator, operator: assumption`, a line for each set of assumptions, in the order of the rows."""
    assumed: dict[str, list[str]] = {}
    for row in rows:
        if row.assumes:
            assumed.setdefault(row.assumes, []).append(f"{row.row}")
    for assumption, numbers in assumed.items():
        yield f"row{'s'[: len(numbers) != 1]} {first_few(numbers, 8)}: {printable(assumption)}"

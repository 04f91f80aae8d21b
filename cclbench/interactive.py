# SPDX-License-Identifier: Apache-2.0
"""The public API for Python sessions and notebooks: `api`, runs that answer questions, pictures, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, Unpack

from cclbench import api
from cclbench.analyzers.metric import METRICS
from cclbench.api import project, runs, search, whatif
from cclbench.comparison.build import compare, run_subject
from cclbench.comparison.comparison import Comparison
from cclbench.comparison.gate import parse_figure
from cclbench.ground.errors import UsageError, near
from cclbench.ground.text import html_of
from cclbench.record.run import Run as StoredRun

if TYPE_CHECKING:
    from cclbench.findings.finding import Finding
    from cclbench.operator_table import TableOptions
    from cclbench.present.picture import Picture
    from cclbench.record.rows import Row
    from cclbench.record.sql import QueryResult

P = ParamSpec("P")

__all__ = [
    "Comparison",
    "Run",
    "compare",
    "ingest",
    "metrics",
    "plot",
    "project",
    "report",
    "run",
    "runs",
    "search",
    "timeline",
    "whatif",
]


class SessionRun(StoredRun):
    """A run that answers questions: `run["time.step"]`, `findings`, `ops()` and `memory()`.

    Its metrics are computed when they are first needed.  Tables are Arrow tables, which have `.to_pandas()`.
    """

    @cached_property
    def _computed(self) -> StoredRun:
        return self if len(self.figures) else api.metrics(self)

    def __getitem__(self, figure: str) -> Row:
        """The run's row of a metric, or of a part of it such as `time.step[stat=p95]`.

        A row has `value`, `unit` and `status`; where there is no value it is None, with a `reason`.
        `UsageError` if the run has no such row.

            run["time.step"].value
        """
        metric, keys = parse_figure(figure)
        row = self._computed.figures.row(metric, **keys)
        if row is None:
            metrics = self._computed.figures.metrics
            hint = near(metric, metrics) if metric not in metrics else "the metric has no such part"
            raise UsageError(f"run {self.id} has no {figure}", hint=hint)
        return row

    @cached_property
    def findings(self) -> list[Finding]:
        """What makes the run slow, ranked by the step time that each would gain.

        They are those of the ranks and steps that the metrics are of.  `UsageError` if only some metrics are
        computed.
        """
        from cclbench.findings.diagnosis import diagnose_run

        computed = self._computed
        if computed.record.published is not None:
            return []
        if missing := set(METRICS) - {*computed.figures.metrics}:
            raise UsageError(
                f"findings need all metrics, and {len(missing)} are not computed",
                hint="cclbench.run(SOURCE) without `metrics`",
            )
        return diagnose_run(computed).findings

    def ops(self, by: str = "op", **options: Unpack[TableOptions]) -> QueryResult:
        """Operators by cost, a row for each key `by`: op, shape, module, class, phase, kernel, ...

        The options are those of `cclbench ops`: `sort`, `top`, `where`, `window`, `steps`, `ranks`.

            run.ops(by="module", sort="gap", top=10).to_pandas()
        """
        from cclbench.operator_table import operator_costs

        costs = operator_costs(self, by, **options)
        return _as_table(costs.table, costs.columns)

    def memory(self, by: Literal["device", "category", "module", "call_site"] = "device") -> QueryResult:
        """Allocated bytes: a row for each device with its peaks, or for each owner at a device's peak.

        No rows if no allocations were recorded.
        """
        from cclbench.analyzers.view.memory_owners import owner_rows
        from cclbench.present.memory import allocator_histories, device_numbers

        histories = allocator_histories(self)
        if by == "device":
            return _as_table([device_numbers(history) for history in histories])
        return _as_table(
            [
                {"rank": history.rank, "device": history.device, **row}
                for history in histories
                for row in owner_rows(history, by)
            ]
        )


Run = SessionRun


def _as_table(rows: Sequence[dict[str, object]], columns: Sequence[str] | None = None) -> QueryResult:
    import pyarrow as pa

    from cclbench.record.sql import QueryResult

    names = columns or list(rows[0] if rows else ())
    return QueryResult(pa.table({name: [row[name] for row in rows] for name in names}))


def _for_sessions(function: Callable[P, StoredRun]) -> Callable[P, SessionRun]:
    """The function with runs that answer questions."""

    @wraps(function)
    def session_function(*args: P.args, **options: P.kwargs) -> SessionRun:
        stored = function(*args, **options)
        run = SessionRun(stored.path, stored.figures, stored.window, stored.origin)
        vars(run).update((name, value) for name, value in vars(stored).items() if name == "record")
        return run

    return session_function


run, ingest = _for_sessions(api.run), _for_sessions(api.ingest)
metrics = run
"""The same as `run`, for stored runs."""


def plot(shown: StoredRun | Comparison) -> Picture:
    """The step partition as a picture: of a run one bar per rank, of a comparison all runs on one axis.

    `UsageError` if no run has a step partition; metrics of a run are computed on demand.
    """
    from cclbench.present.charts.partition import partition_picture, picture_of_runs
    from cclbench.present.picture import Picture

    if isinstance(shown, Comparison):
        return Picture(picture_of_runs(shown.subjects))
    computed = shown if len(shown.figures) else metrics(shown)
    return Picture(partition_picture(list(computed.figures.summary), title=shown.id))


def timeline(
    run: StoredRun,
    *,
    step: int | None = None,
    ranks: Sequence[int] | None = None,
    from_ms: float | None = None,
    to_ms: float | None = None,
) -> Picture:
    """One step, ranks over time, by default the first complete one; `from_ms`, `to_ms` are from its start.

    `UsageError` for a step or a rank that the run lacks.
    """
    from cclbench.present.picture import Picture
    from cclbench.present.timeline import step_timeline as timeline_of
    from cclbench.present.timeline_picture import draw_timeline, title_of

    drawn = timeline_of(run, step=step, ranks=ranks, from_ms=from_ms, to_ms=to_ms)
    return Picture(draw_timeline(drawn, title=title_of(run, drawn)))


def report(shown: StoredRun | Comparison, path: str | Path) -> Path:
    """Write the report of a run or a comparison as one self-contained HTML file, and return its path."""
    from cclbench.present.html import check_page, write_page
    from cclbench.present.page import comparison_page, run_page

    target = Path(path)
    check_page(target)
    page = run_page(run_subject("A", shown)) if isinstance(shown, StoredRun) else comparison_page(shown)
    write_page(page, target)
    return target


@html_of.register
def _(shown: StoredRun) -> str:
    from cclbench.present.cell import run_cell

    return run_cell(shown)


@html_of.register
def _(shown: Comparison) -> str:
    from cclbench.present.cell import comparison_cell

    return comparison_cell(shown)

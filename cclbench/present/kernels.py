# SPDX-License-Identifier: Apache-2.0
"""Kernel table: time in the windows by name, for one run or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.rank_view import RankView
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.normalize.steps import SOURCES
from cclbench.present.charts.chart import merge_alike
from cclbench.record.metric_name import metric_name
from cclbench.record.run import Run

_STEP: Final = metric_name("time.step")
_KERNELS: Final = metric_name("compute.kernel_count")

MOST_ROWS: Final = 300
MOST_NAMES: Final = 20_000
"""Most names read from a run; beyond it a comparison cannot tell whether a run lacks a name."""
SHORT_NAME: Final = "if(length(name) > 200, left(name, 119) || '...' || right(name, 78), name)"
"""SQL of a name shortened as pages do: names may be megabytes."""
LONG_NAME: Final = "if(length(name) > 2000, left(name, 1919) || '...' || right(name, 78), name)"
"""With the template arguments of real kernels, of which a label is made."""
_SQL: Final = """
    WITH windows AS (SELECT rank, start_ns, end_ns FROM steps WHERE {windows}),
    counted AS (
        SELECT e.name::VARCHAR AS name, e.category::VARCHAR AS category, e.dur_ns
        FROM events e ASOF JOIN windows w ON e.rank = w.rank AND e.start_ns >= w.start_ns
        WHERE e.kind IN ({kinds}) AND e.start_ns < w.end_ns
    )
    SELECT md5(name) AS key, {name} AS name, length(name) AS length, min(category) AS category,
        count(*) AS calls, sum(dur_ns)::BIGINT AS ns, count(*) OVER () AS names,
        sum(sum(dur_ns)) OVER ()::BIGINT AS all_ns,
        (SELECT count(*) FROM windows) AS windows,
        (SELECT sum(end_ns - start_ns)::BIGINT FROM windows) AS window_ns
    FROM counted GROUP BY counted.name ORDER BY ns DESC, key LIMIT {most}
"""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The calls of one name in a run's windows: their number, summed time and category."""

    key: str
    """Hash of the whole name: identifies names that are shortened."""
    name: str
    length: int
    """Length of the whole name."""
    category: str
    calls: int
    ns: int


@dataclass(frozen=True, slots=True)
class RunKernels:
    """Kernels and graphs of a run (`kind` kernel) or, on a CPU, its operators (`op`), longest first; sums."""

    kind: str
    times: tuple[KernelTime, ...]
    names: int
    all_ns: int
    windows: int
    window_ns: int

    @property
    def is_complete(self) -> bool:
        """Whether `times` has every name."""
        return self.names <= len(self.times)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One name in each run, in their order; None if it did not run or is beyond `MOST_NAMES`."""

    first: KernelTime
    """Its entry in the first run that has it, for name and category."""
    times: tuple[KernelTime | None, ...]
    per_step: tuple[float, ...]
    """Seconds per step and rank; 0 for None."""
    changes: tuple[int | None, ...]
    """For each further run, ns per step and rank more than in the first; None if either is unknown."""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The lines of a page, and notes on lines left out and runs without kernels."""

    runs: tuple[tuple[ComparisonSubject, RunKernels], ...]
    lines: tuple[KernelLine, ...]
    notes: tuple[str, ...]


def kernel_table(runs: Sequence[ComparisonSubject]) -> KernelTable:
    """The names with the most time per step and rank in any of the runs."""
    run_kernels, notes = [], []
    for run in runs:
        step = run.results.run.get(_STEP)
        kernels = kernels_of(run.stored, step.window if step else "steps")
        if kernels is None:
            notes.append((run, "no kernels: " + run.results.missing_reason(_KERNELS)))
        else:
            run_kernels.append((run, kernels))
    lines = _kernel_lines(run_kernels)
    shown = lines[:MOST_ROWS]
    for place, (run, kernels) in enumerate(run_kernels):
        listed = [time for line in shown if (time := line.times[place])]
        ns = sum(time.ns for time in listed)
        if len(listed) < kernels.names:
            rest, share = (kernels.all_ns - ns) / 1e9, 1 - ns / kernels.all_ns if kernels.all_ns else 0.0
            more = f"{kernels.names - len(listed):,} more names with {humanise(rest, 's')}"
            notes.append((run, f"{more} ({humanise(share, '1')} of the summed time) are not listed"))
        if kernels.kind == "op":
            notes.append((run, "CPU operators nest: their time includes that of the operators they call"))
    return KernelTable(tuple(run_kernels), tuple(shown), merge_alike(notes))


def kernels_of(stored: Run, window: str) -> RunKernels | None:
    """Kernels and graphs, else operators, that begin in the ranks' windows; None if there are none.

    Each rank's windows are those of its metrics: of the policy `window`, or the next one that its trace has.
    """
    policies = _ranks_by_policy(stored, window)
    if not policies:
        return None
    windows = " OR ".join(
        f"(source IN ({', '.join(map(repr, SOURCES[policy]))}) AND open = {still_open}"
        f" AND rank IN ({', '.join(map(str, ranks))}))"
        for (policy, still_open), ranks in policies.items()
    )
    for kind, kinds in (("kernel", ("kernel", "graph")), ("op", ("op",))):
        if stored.record.event_kinds.isdisjoint(kinds):
            continue
        listed = ", ".join(map(repr, kinds))
        rows = stored.sql(
            _SQL.format(name=LONG_NAME, windows=windows, kinds=listed, most=MOST_NAMES)
        ).to_pylist()
        if rows:
            times = tuple(KernelTime(*(row[field.name] for field in fields(KernelTime))) for row in rows)
            totals = (rows[0][key] for key in ("names", "all_ns", "windows", "window_ns"))
            return RunKernels(kind, times, *totals)
    return None


def _ranks_by_policy(stored: Run, window: str) -> dict[tuple[str, bool], list[int]]:
    """Ranks by the policy of their windows and whether these are open."""
    by_policy: dict[tuple[str, bool], list[int]] = {}
    for rank in stored.ranks:
        try:
            windows = RankView(stored.rank(rank), rank=rank, window=window).windows
        except NotApplicable:
            continue
        by_policy.setdefault((windows.policy, windows.open), []).append(rank)
    return by_policy


def _kernel_lines(run_kernels: Sequence[tuple[ComparisonSubject, RunKernels]]) -> list[KernelLine]:
    by_name: dict[str, list[KernelTime | None]] = {}
    for place, (_, kernels) in enumerate(run_kernels):
        for time in kernels.times:
            by_name.setdefault(time.key, [None] * len(run_kernels))[place] = time
    lines = []
    for times in by_name.values():
        per_step = tuple(
            t.ns / k.windows / 1e9 if t else 0.0 for t, (_, k) in zip(times, run_kernels, strict=True)
        )
        has_time = [t is not None or k.is_complete for t, (_, k) in zip(times, run_kernels, strict=True)]
        changes = tuple(
            round(1e9 * (seconds - per_step[0])) if has_time[0] and has_time[place] else None
            for place, seconds in enumerate(per_step)
            if place
        )
        lines.append(KernelLine(next(t for t in times if t), tuple(times), per_step, changes))
    return sorted(lines, key=lambda line: (-max(line.per_step), line.first.name))


def absence_words(kernels: RunKernels) -> str:
    """Why a run does not list a name."""
    return "did not run" if kernels.is_complete else f"not among the {MOST_NAMES:,} names with the most time"

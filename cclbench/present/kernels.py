# SPDX-License-Identifier: Apache-2.0
"""The kernel table: what ran longest in the windows, by name, of one run or of several beside each other."""

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
"""Names read from a run; of those beyond a comparison can't say whether another run lacks them."""
SHORT_NAME: Final = "if(length(name) > 200, left(name, 119) || '...' || right(name, 78), name)"
"""SQL of a name as `shortened` to what a page keeps: names may be megabytes."""
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
    """The calls of one name in a run's windows: how many, their summed time, and of what."""

    key: str
    """Tells names apart of which only head and tail are kept."""
    name: str
    length: int
    """Characters of the whole name."""
    category: str
    calls: int
    ns: int


@dataclass(frozen=True, slots=True)
class RunKernels:
    """What ran in one run: `kernel`s and graphs or, on a CPU, `op`s, longest first, and what they sum to."""

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
    """A name in each run, in the order of the runs; None where it did not run, or is beyond `MOST_NAMES`."""

    first: KernelTime
    """Of the first run that has it: its name and category."""
    times: tuple[KernelTime | None, ...]
    per_step: tuple[float, ...]
    """Seconds per step and rank; 0 where None."""
    changes: tuple[int | None, ...]
    """Of each further run, ns per step and rank longer than in the first; None where either is not known."""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The lines of a page, how the rest of them sum up, and which runs have none and why."""

    runs: tuple[tuple[ComparisonSubject, RunKernels], ...]
    lines: tuple[KernelLine, ...]
    notes: tuple[str, ...]


def kernel_table(runs: Sequence[ComparisonSubject]) -> KernelTable:
    """The names with most time in any of the runs; in a comparison, most time per step and rank."""
    found, notes = [], []
    for run in runs:
        step = run.results.run.get(_STEP)
        kernels = kernels_of(run.stored, step.window if step else "steps")
        if kernels is None:
            notes.append((run, "no kernels: " + run.results.missing_reason(_KERNELS)))
        else:
            found.append((run, kernels))
    lines = _kernel_lines(found)
    shown = lines[:MOST_ROWS]
    for place, (run, kernels) in enumerate(found):
        listed = [time for line in shown if (time := line.times[place])]
        ns = sum(time.ns for time in listed)
        if len(listed) < kernels.names:
            rest, share = (kernels.all_ns - ns) / 1e9, 1 - ns / kernels.all_ns if kernels.all_ns else 0.0
            more = f"{kernels.names - len(listed):,} more names with {humanise(rest, 's')}"
            notes.append((run, f"{more} ({humanise(share, '1')} of the summed time) are not listed"))
        if kernels.kind == "op":
            notes.append((run, "operators of the CPU nest: the time of one holds that of those it calls"))
    return KernelTable(tuple(found), tuple(shown), merge_alike(notes))


def kernels_of(stored: Run, window: str) -> RunKernels | None:
    """Kernels and graphs, else operators, that begin in the ranks' windows of that policy; None without any.

    Each rank's windows are those its metrics are about: of the policy, or of the next one its trace can give.
    """
    policies = _ranks_by_policy(stored, window)
    if not policies:
        return None
    windows = " OR ".join(
        f"(source IN ({', '.join(map(repr, SOURCES[policy]))}) AND open = {still_open}"
        f" AND rank IN ({', '.join(map(str, ranks))}))"
        for (policy, still_open), ranks in policies.items()
    )
    for kind, kinds in (("kernel", "'kernel', 'graph'"), ("op", "'op'")):
        rows = stored.sql(
            _SQL.format(name=SHORT_NAME, windows=windows, kinds=kinds, most=MOST_NAMES)
        ).to_pylist()
        if rows:
            times = tuple(KernelTime(*(row[field.name] for field in fields(KernelTime))) for row in rows)
            whole = (rows[0][key] for key in ("names", "all_ns", "windows", "window_ns"))
            return RunKernels(kind, times, *whole)
    return None


def _ranks_by_policy(stored: Run, window: str) -> dict[tuple[str, bool], list[int]]:
    """Ranks by the policy of their windows and by whether those are open."""
    found: dict[tuple[str, bool], list[int]] = {}
    for rank in stored.ranks:
        try:
            windows = RankView(stored.rank(rank), rank=rank, window=window).windows
        except NotApplicable:
            continue
        found.setdefault((windows.policy, windows.open), []).append(rank)
    return found


def _kernel_lines(found: Sequence[tuple[ComparisonSubject, RunKernels]]) -> list[KernelLine]:
    by_name: dict[str, list[KernelTime | None]] = {}
    for place, (_, kernels) in enumerate(found):
        for time in kernels.times:
            by_name.setdefault(time.key, [None] * len(found))[place] = time
    lines = []
    for times in by_name.values():
        per_step = tuple(t.ns / k.windows / 1e9 if t else 0.0 for t, (_, k) in zip(times, found, strict=True))
        known = [t is not None or k.is_complete for t, (_, k) in zip(times, found, strict=True)]
        changes = tuple(
            round(1e9 * (seconds - per_step[0])) if known[0] and known[place] else None
            for place, seconds in enumerate(per_step)
            if place
        )
        lines.append(KernelLine(next(t for t in times if t), tuple(times), per_step, changes))
    return sorted(lines, key=lambda line: (-max(line.per_step), line.first.name))


def absence_words(kernels: RunKernels) -> str:
    """What it means that a run does not list a name."""
    return "did not run" if kernels.is_complete else f"not among the {MOST_NAMES:,} names with most time"

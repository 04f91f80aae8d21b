# SPDX-License-Identifier: Apache-2.0
"""Stragglers of a run over its steps, and of several captures of a job: who is late, why, and again?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import erfc, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import NotApplicable, Value
from cclbench.analyzers.view.arrivals import Arrivals, arrivals_of
from cclbench.analyzers.view.lateness import (
    SIGNIFICANT,
    Foremost,
    arrives_last,
    cause,
    foremost,
    last_arrivals,
    lateness,
)
from cclbench.analyzers.view.meetings import Instances, meetings
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.analyzers.view.rank_view import RankView
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.errors import InputError, UsageError
from cclbench.intervals import Int64
from cclbench.record.run import Rank, Run
from cclbench.record.selection import Selection, Steps
from cclbench.replay.stragglers import coordinates, job_slowdown
from cclbench.schema import group_id
from cclbench.units import humanise

Float = npt.NDArray[np.float64]

COLUMNS: Final = ("run", "rank", "step", "late_s", "last", "collectives", "cause")
ALWAYS: Final = 0.8
"""Share of steps from which on the same rank is latest always."""
_NS_PER_S: Final = 10**9
_FEWEST_BLOCKS: Final = 8
_MOST_BLOCKS: Final = 16
_LISTED: Final = 4


@dataclass(frozen=True, slots=True)
class LateStep:
    """One rank in one step."""

    rank: int
    step: int | None
    late_s: float
    """Σ over collectives that it is last at of latest − median arrival: what the others waited for it."""
    last: float
    """Collectives it is last at; ranks that are last together share one."""
    collectives: int
    cause: str | None
    """Of `arrivals.SPENT` what it does longer than the others before those; None where nothing is."""


@dataclass(frozen=True, slots=True)
class LateRank:
    """One rank over all steps."""

    rank: int
    mean_s: float
    """Of `late_s` over the run's steps."""
    most_s: float
    most_step: int | None
    latest: int
    """Steps in which no rank is later than it."""
    share: float
    """Of the collectives it takes part in, those it is last at."""
    cause: str | None


@dataclass(frozen=True, slots=True, eq=False)
class RunStragglers:
    """Who is late in one run."""

    run: str
    steps: tuple[int | None, ...]
    ranks: tuple[LateRank, ...]
    rows: tuple[LateStep, ...]
    late_s: Float
    """Shape (ranks, steps)."""
    named: int | None
    """The rank that stands out over all steps."""
    pattern: str
    """always, drifting, intermittent, moving, none; one step: nothing over time can be told."""
    words: str
    slowdown: float | None
    """`balance.straggler_slowdown`, where the run can be replayed."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Who is late in each capture of a job, and whether it is the same rank again."""

    runs: tuple[RunStragglers, ...]
    words: str | None
    """Of several captures."""

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row a run, rank and step, with the columns of `COLUMNS`."""
        return [
            {name: run.run if name == "run" else getattr(row, name) for name in COLUMNS}
            for run in self.runs
            for row in run.rows
        ]

    @property
    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        rows = self.table
        runs = [
            {
                "run": run.run,
                "steps": list(run.steps),
                "named": run.named,
                "pattern": run.pattern,
                "words": run.words,
                "slowdown": run.slowdown,
                "ranks": [{name: getattr(rank, name) for name in LateRank.__slots__} for rank in run.ranks],
                "notes": list(run.notes),
            }
            for run in self.runs
        ]
        return {"schema": "stragglers.v1", "words": self.words, "runs": runs, "rows": rows}


def stragglers(
    runs: Sequence[Run],
    *,
    steps: Steps | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> Stragglers:
    """Of each run, in order; `UsageError` for one in which no rank is seen to be late, and why."""
    found = tuple(_of_run(run, steps, engine, progress) for run in runs)
    return Stragglers(found, _across(found) if len(found) > 1 else None)


def _of_run(run: Run, steps: Steps | None, engine: Engine, progress: Progress | None) -> RunStragglers:
    Selection("steps", steps, None).check(run)
    answers, notes = answers_by_rank(
        run,
        partial(_of_rank, steps),
        None,
        noun="stragglers",
        engine=engine,
        progress=progress,
        what="looking for stragglers",
    )
    found, beside = _compared(run, answers)
    arrivals = {rank: one for rank, value in answers.items() if isinstance(one := value.detail, Arrivals)}
    residual_ns = max(one.clock_residual_ns for one in arrivals.values())
    on_host = {rank: one.on_host for rank, one in arrivals.items()}
    by_step = _by_step(found)
    ranks = sorted(answers)
    rows = tuple(row for step, own in by_step.items() for row in _of_step(step, own, on_host))
    place = {rank: i for i, rank in enumerate(ranks)}
    column = {step: i for i, step in enumerate(by_step)}
    late = np.zeros((len(ranks), len(by_step)))
    for row in rows:
        late[place[row.rank], column[row.step]] = row.late_s
    whole = foremost([found], last_arrivals([found]), residual_ns)
    each = {
        step: foremost([own], last_arrivals([own]), residual_ns, len(by_step))
        for step, own in by_step.items()
    }
    pattern, words = _recurrence(whole, each, late, place[whole.rank])
    longer = cause([found], whole.rank, on_host=on_host[whole.rank]) if whole.stands_out else None
    if longer is not None:
        words += f"; it {longer.words}, by {humanise(longer.excess_ns / _NS_PER_S, 's')} on average"
    ratio, reason = _slowdown(run) if steps is None else (None, None)
    unknown = [f"how much it slows the job down is not known: {reason}"] if reason else []
    return RunStragglers(
        run=run.id,
        steps=(*by_step,),
        ranks=tuple(_late_ranks(found, ranks, (*by_step,), late, on_host)),
        rows=rows,
        late_s=late,
        named=whole.rank if whole.stands_out else None,
        pattern=pattern,
        words=words,
        slowdown=ratio,
        notes=(*notes, *beside, *unknown),
    )


def _compared(run: Run, answers: Mapping[int, Value]) -> tuple[Instances, list[str]]:
    """The collectives whose ranks are compared, and what is left out; `UsageError` where none is."""
    try:
        found = meetings({rank: [value] for rank, value in answers.items()}).of_groups().whole()
    except NotApplicable as none:
        raise UsageError(f"no stragglers: {none}", where=run.id) from None
    beside = []
    if found.incomplete:
        beside.append(f"{found.incomplete:,} collectives that not all their ranks have in a window")
    found, across = _within_stages(found, coordinates(run).get("pp", {}))
    if across:
        beside.append(f"{across:,} collectives of several pipeline stages, whose ranks differ by design")
    if not len(found.count):
        all_across = "all matched collectives are of ranks of several pipeline stages, which differ by design"
        raise UsageError(f"no stragglers: {all_across}", where=run.id)
    return found, beside


def _by_step(found: Instances) -> dict[int | None, Instances]:
    """The collectives of each step, in order; None are those of no step."""
    return {None if step < 0 else step: own for step, own in found.by(found.step[found.first]).items()}


def _within_stages(found: Instances, stage: Mapping[int, int]) -> tuple[Instances, int]:
    """The instances whose ranks are of one pipeline stage, and how many others there are."""
    of_row = np.array([stage.get(rank, -1) for rank in found.rank.tolist()], np.int64)
    same = np.minimum.reduceat(of_row, found.first) == np.maximum.reduceat(of_row, found.first)
    return found.chosen(same), int((~same).sum())


def _of_rank(steps: Steps | None, tables: Rank) -> Value | NotApplicable:
    """One rank's arrivals, or why it has none."""
    return answer_or_reason(
        RankView(tables, rank=tables.entry.rank, window="steps", steps=steps), arrivals_of
    )


def _slowdown(run: Run) -> tuple[float | None, str | None]:
    """The job's slowdown, or why it has none."""
    try:
        return job_slowdown(run), None
    except InputError as error:
        return None, error.what


def _of_step(step: int | None, found: Instances, on_host: Mapping[int, bool]) -> list[LateStep]:
    """Each rank of one step, in order."""
    late = _waited_for(found)
    return [
        LateStep(
            rank=rank,
            step=step,
            late_s=late.get(rank, 0.0),
            last=float(own.last),
            collectives=own.instances,
            cause=_cause(found, rank, on_host) if late.get(rank) else None,
        )
        for rank, own in sorted(last_arrivals([found]).items())
    ]


def _waited_for(found: Instances) -> dict[int, float]:
    """By rank Σ over instances it is last in of latest − median arrival, s; ranks last together share."""
    rows = arrives_last(found)
    together = np.bincount(found.of[rows], minlength=len(found.count))[found.of]
    ranks, of = np.unique(found.rank[rows], return_inverse=True)
    total = np.bincount(of, lateness(found)[rows] / together[rows])
    return dict(zip(ranks.tolist(), (total / _NS_PER_S).tolist(), strict=True))


def _cause(found: Instances, rank: int, on_host: Mapping[int, bool]) -> str | None:
    longer = cause([found], rank, on_host=on_host[rank])
    return None if longer is None else longer.spent


def _late_ranks(
    found: Instances,
    ranks: Sequence[int],
    steps: Sequence[int | None],
    late: Float,
    on_host: Mapping[int, bool],
) -> list[LateRank]:
    """Each rank over all steps, the latest on average first."""
    last = last_arrivals([found])
    latest = (late == late.max(axis=0)) & (late > 0)
    listed = [
        LateRank(
            rank=rank,
            mean_s=float(late[place].mean()),
            most_s=float(late[place].max()),
            most_step=steps[int(late[place].argmax())],
            latest=int(latest[place].sum()),
            share=last[rank].share if rank in last else 0.0,
            cause=_cause(found, rank, on_host) if late[place].any() else None,
        )
        for place, rank in enumerate(ranks)
    ]
    return sorted(listed, key=lambda one: (-one.mean_s, one.rank))


def _recurrence(
    whole: Foremost, each: Mapping[int | None, Foremost], late: Float, place: int
) -> tuple[str, str]:
    """The pattern over steps and how it is said; `place` is the foremost rank's row of `late`."""
    steps = late.shape[1]
    out = [(number, one.rank) for number, one in each.items() if one.stands_out]
    if not whole.stands_out:
        return _without_one(whole, out, steps)
    own = late[place]
    latest = int(((own == late.max(axis=0)) & (own > 0)).sum())
    mean = humanise(float(own.mean()), "s")
    said = f"rank {whole.rank} stands out: the others wait {mean} a step for it"
    if steps == 1:
        return "one step", f"{said}; one step does not tell whether it does so again"
    of = f"latest in {latest} of {steps} steps"
    if (p := trend(own)) is not None and p < SIGNIFICANT:
        quarter = max(steps // 4, 1)
        begin, end = (humanise(float(part.mean()), "s") for part in (own[:quarter], own[-quarter:]))
        return "drifting", f"{said}, {of}; its lateness drifts, from {begin} to {end} (p = {p:.1g})"
    if latest >= ALWAYS * steps:
        return "always", f"{said}; always the same rank: {of}"
    return "intermittent", f"{said}; intermittent: {of}"


def _without_one(whole: Foremost, out: Sequence[tuple[int | None, int]], steps: int) -> tuple[str, str]:
    """The same where nobody stands out over all steps; `out` are the steps in which somebody does."""
    ranks = Counter(rank for _, rank in out)
    if len(ranks) > 1:
        most = ", ".join(f"rank {rank} in {times}" for rank, times in ranks.most_common(_LISTED))
        return "moving", (
            f"no rank stands out over all steps; in {len(out)} of {steps} one does, and not the same: {most}:"
            " it moves with the work"
        )
    if ranks:
        numbers = group_id(tuple(number for number, _ in out if number is not None))
        where = f"steps {numbers}" if numbers else "some"
        (rank,) = ranks
        return "intermittent", (
            f"rank {rank} stands out in {len(out)} of {steps} steps ({where}), and not over all"
        )
    if whole.by_chance:
        share = f"{whole.own.share:.0%} of its collectives"
        why = f"rank {whole.rank} is last most, in {share}, which chance explains (p = {whole.p:.2g})"
    else:
        residual = humanise(whole.residual_ns / _NS_PER_S, "s")
        why = f"rank {whole.rank} is last most, and the ranks' clocks agree to {residual} only"
    return "none", f"no rank stands out: {why}"


def trend(values: Float) -> float | None:
    """Probability that a series rises or falls so evenly by chance; None of fewer than 16 values.

    Mann-Kendall on means of 8 to 16 blocks of successive values, since neighbouring steps are alike.
    """
    blocks = min(_MOST_BLOCKS, len(values) // 2)
    if blocks < _FEWEST_BLOCKS:
        return None
    means = np.array([block.mean() for block in np.array_split(values, blocks)], np.float64)
    later, earlier = np.triu_indices(blocks, 1)[::-1]
    signs = int(np.sign(means[later] - means[earlier]).sum())
    _, ties = np.unique(means, return_counts=True)
    variance = (blocks * (blocks - 1) * (2 * blocks + 5) - _tied(ties)) / 18
    return erfc((abs(signs) - 1) / sqrt(2 * variance)) if signs and variance > 0 else 1.0


def _tied(ties: Int64) -> int:
    return int((ties * (ties - 1) * (2 * ties + 5)).sum())


def _across(found: Sequence[RunStragglers]) -> str:
    """Whether captures have the same straggler; a rank is a number, on whatever machine it ran."""
    named = [run.named for run in found if run.named is not None]
    count = len(found)
    if not named:
        return f"no rank stands out in any of {count} captures"
    ranks = Counter(named)
    if len(ranks) == 1:
        (rank,) = ranks
        if len(named) == count:
            return (
                f"rank {rank} stands out in all {count} captures: it comes back with its machine or its work"
            )
        return f"rank {rank} stands out in {len(named)} of {count} captures, and in the others nobody does"
    most = ", ".join(f"rank {rank} in {times}" for rank, times in ranks.most_common(_LISTED))
    return f"another rank stands out from capture to capture ({most} of {count}): it moves"

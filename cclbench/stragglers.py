# SPDX-License-Identifier: Apache-2.0
"""Stragglers of a run over its steps, and of several captures of a job: which ranks, why, how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cclbench.analyzers.metric import NotApplicable, Value
from cclbench.analyzers.view.arrivals import SPENT, Arrivals, arrivals_of
from cclbench.analyzers.view.late_cause import LateCause, late_cause, rank_work, serves_experts
from cclbench.analyzers.view.late_rank import LEAST_SHARE, StragglerVerdict, late_rank
from cclbench.analyzers.view.lateness import Float, Lateness, step_lateness
from cclbench.analyzers.view.meetings import CollectiveInstances, rank_meetings
from cclbench.analyzers.view.per_rank import Answer, answer_or_reason, answers_by_rank
from cclbench.analyzers.view.rank_view import RankView
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import ChangedRunError, InputError, UsageError
from cclbench.ground.units import humanise
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps
from cclbench.replay.stragglers import job_slowdown

COLUMNS: Final = ("run", "rank", "step", "late_s", "latest", "cause")
_NS_PER_S: Final = 10**9
_LISTED: Final = 4
_OF_SPENT: Final = {"compute": "compute", "copy": "copy", "idle": "launch"}
"""The cause of lateness for each of `SPENT`; time in other communication is not a cause."""


@dataclass(frozen=True, slots=True)
class LateStep:
    """One rank in one step."""

    rank: int
    step: int | None
    late_s: float
    """How much later than other ranks of its role it arrives at collectives, because of its own work."""
    latest: bool
    """Whether it is the latest rank of its role."""
    cause: str | None
    """What takes longer than on the other ranks before that: compute, copy or launch; None if nothing."""


@dataclass(frozen=True, slots=True)
class LateRank:
    """One rank over all steps."""

    rank: int
    mean_s: float
    """Mean of `late_s` over the run's steps."""
    max_s: float
    max_step: int | None
    latest: int
    """Number of steps in which it is the latest rank of its role."""
    cause: str | None
    """For the named rank one of `late_cause.CAUSES`, for others as in `LateStep`."""


@dataclass(frozen=True, slots=True, eq=False)
class RunStragglers:
    """Late ranks of one run."""

    run: str
    steps: tuple[int | None, ...]
    ranks: tuple[LateRank, ...]
    rows: tuple[LateStep, ...]
    late_s: Float
    """Lateness, shape (ranks, steps)."""
    named: int | None
    """The rank that is significantly late over all steps."""
    pattern: str
    """always, since, periodic, drifting, intermittent; without a named rank: moving, none or one step."""
    period: int | None
    """The named rank is late in every `period`-th step."""
    since: int | None
    """The step since which it is late."""
    p_value: float
    cause: str | None
    """Why the named rank is late, one of `late_cause.CAUSES`."""
    words: str
    slowdown: float | None
    """`balance.straggler_slowdown`, if the run can be replayed."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Late ranks in each capture of a job, and whether it is always the same one."""

    runs: tuple[RunStragglers, ...]
    words: str | None
    """A sentence on several captures."""

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per run, rank and step, with the columns of `COLUMNS`."""
        return [
            {name: run.run if name == "run" else getattr(row, name) for name in COLUMNS}
            for run in self.runs
            for row in run.rows
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        rows = self.table
        runs = [
            {
                "run": run.run,
                "steps": list(run.steps),
                "named": run.named,
                "pattern": run.pattern,
                "period": run.period,
                "since": run.since,
                "p_value": run.p_value,
                "cause": run.cause,
                "words": run.words,
                "slowdown": run.slowdown,
                "ranks": [{name: getattr(rank, name) for name in LateRank.__slots__} for rank in run.ranks],
                "notes": list(run.notes),
            }
            for run in self.runs
        ]
        return {"schema": "stragglers.v2", "words": self.words, "runs": runs, "rows": rows}


def find_stragglers(
    runs: Sequence[Run],
    *,
    steps: Steps | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> Stragglers:
    """The stragglers of each run, in order; `UsageError` with the reason if a run has no comparable ranks."""
    captures = tuple(_run_stragglers(run, steps, engine, progress) for run in runs)
    return Stragglers(captures, _words_across_captures(captures) if len(captures) > 1 else None)


def _run_stragglers(
    run: Run, steps: Steps | None, engine: Engine, progress: Progress | None
) -> RunStragglers:
    Selection("steps", steps, None).check(run)
    ask_ranks = partial(_answers_by_rank, run, steps, engine, progress)
    answers, notes = ask_ranks(arrivals_of)
    instances, lateness = _lateness_at_collectives(run, answers)
    windows = sum(
        arrivals.window_ns for value in answers.values() if isinstance(arrivals := value.detail, Arrivals)
    )
    verdict = late_rank(lateness, windows / (len(answers) * len(lateness.steps)))
    cause = None
    if verdict.stands_out:
        cause = late_cause(verdict, ask_ranks(rank_work)[0], experts=serves_experts(instances))
    words, pattern = verdict.verdict_words, verdict.pattern
    if not verdict.stands_out:
        words, pattern = _words_without_straggler(verdict, lateness)
    elif cause is not None:
        words += f"; it {cause.words}, by {humanise(cause.excess_ns / _NS_PER_S, 's')} a step"
    if lateness.across:
        notes.append(
            f"{lateness.across:,} collectives of several pipeline stages, whose ranks differ by design"
        )
    if instances.incomplete:
        notes.append(f"{instances.incomplete:,} collectives that not all their ranks have in a window")
    ratio, reason = _job_slowdown(run) if steps is None else (None, None)
    if reason:
        notes.append(f"slowdown of the job unknown: {reason}")
    return RunStragglers(
        run=run.id,
        steps=lateness.steps,
        ranks=tuple(_late_ranks(lateness, verdict, cause)),
        rows=tuple(_late_steps(lateness)),
        late_s=lateness.late_ns / _NS_PER_S,
        named=verdict.rank if verdict.stands_out else None,
        pattern=pattern,
        period=verdict.period if verdict.stands_out else None,
        since=verdict.since if verdict.stands_out else None,
        p_value=verdict.p,
        cause=None if cause is None else cause.name,
        words=words,
        slowdown=ratio,
        notes=tuple(notes),
    )


def _answers_by_rank(
    run: Run,
    steps: Steps | None,
    engine: Engine,
    progress: Progress | None,
    question: Callable[[RankView], Answer],
) -> tuple[dict[int, Answer], list[str]]:
    """The answers of the ranks to a question, and notes on those that have none."""
    return answers_by_rank(
        run,
        partial(_rank_answer, steps, question),
        None,
        noun="stragglers",
        engine=engine,
        progress=progress,
        what="looking for stragglers",
    )


def _rank_answer(
    steps: Steps | None, question: Callable[[RankView], Answer], tables: Rank
) -> Answer | NotApplicable:
    """One rank's answer, or why it has none."""
    return answer_or_reason(RankView(tables, rank=tables.entry.rank, window="steps", steps=steps), question)


def _lateness_at_collectives(run: Run, answers: Mapping[int, Value]) -> tuple[CollectiveInstances, Lateness]:
    """The collectives and the lateness of ranks at them; `UsageError` if none can be compared."""
    residual_ns = max(
        arrivals.clock_residual_ns
        for value in answers.values()
        if isinstance(arrivals := value.detail, Arrivals)
    )
    try:
        instances = rank_meetings({rank: [value] for rank, value in answers.items()})
        return instances, step_lateness(instances, residual_ns)
    except NotApplicable as none:
        raise UsageError(f"no stragglers: {none}", where=run.id) from None


def _job_slowdown(run: Run) -> tuple[float | None, str | None]:
    """The job's slowdown, or why it has none."""
    try:
        return job_slowdown(run), None
    except ChangedRunError:
        raise
    except InputError as error:
        return None, error.what


def _late_steps(late: Lateness) -> list[LateStep]:
    """Each rank of each step, in order of steps and ranks."""
    latest = late.latest_mask
    return [
        LateStep(
            rank=rank,
            step=step,
            late_s=float(late.late_ns[place, column]) / _NS_PER_S,
            latest=bool(latest[place, column]),
            cause=_longest_cause(late.spent_ns[:, place, column]) if late.late_ns[place, column] else None,
        )
        for column, step in enumerate(late.steps)
        for place, rank in enumerate(late.ranks)
    ]


def _late_ranks(late: Lateness, verdict: StragglerVerdict, why: LateCause | None) -> list[LateRank]:
    """Each rank over all steps, the latest on average first."""
    seconds, latest = late.late_ns / _NS_PER_S, late.latest_mask
    listed = [
        LateRank(
            rank=rank,
            mean_s=float(seconds[place].mean()),
            max_s=float(seconds[place].max()),
            max_step=late.steps[int(seconds[place].argmax())],
            latest=int(latest[place].sum()),
            cause=why.name
            if why is not None and rank == verdict.rank
            else _longest_cause(late.spent_ns[:, place].sum(axis=1)),
        )
        for place, rank in enumerate(late.ranks)
    ]
    return sorted(listed, key=lambda rank_row: (-rank_row.mean_s, rank_row.rank))


def _longest_cause(excess: Float) -> str | None:
    """The cause with the largest excess over other ranks, None if there is no excess."""
    longer = {cause: float(excess[SPENT.index(spent)]) for spent, cause in _OF_SPENT.items()}
    most = max(longer, key=lambda cause: longer[cause])
    return most if longer[most] > 0 else None


def _words_without_straggler(verdict: StragglerVerdict, late: Lateness) -> tuple[str, str]:
    """Verdict and pattern if no rank is significantly late over all steps."""
    if verdict.steps == 1:
        return verdict.verdict_words, "one step"
    much = late.latest_mask & (late.late_ns > LEAST_SHARE * verdict.step_ns)
    ranks = Counter({rank: int(times) for rank, times in zip(late.ranks, much.sum(axis=1), strict=True)})
    out = int(much.any(axis=0).sum())
    if sum(times > 0 for times in ranks.values()) < 2:
        return verdict.verdict_words, "none"
    most = ", ".join(f"rank {rank} in {times}" for rank, times in ranks.most_common(_LISTED) if times)
    return (
        f"{verdict.verdict_words}; in {out} of {verdict.steps} steps one is late by more than 1 %,"
        " and not the same:"
        f" {most}: it moves with the work"
    ), "moving"


def _words_across_captures(captures: Sequence[RunStragglers]) -> str:
    """Whether captures have the same straggler; ranks are compared by number, on any machine."""
    named = [run.named for run in captures if run.named is not None]
    count = len(captures)
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

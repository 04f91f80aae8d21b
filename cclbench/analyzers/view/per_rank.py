# SPDX-License-Identifier: Apache-2.0
"""A function of each rank of a run, which may not apply to some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.rank_view import RankView
from cclbench.engine import Engine, Progress
from cclbench.ground.errors import UsageError
from cclbench.ground.schema import group_id
from cclbench.record.rank import Rank
from cclbench.record.run import Run

Answer = TypeVar("Answer")


def answer_or_reason(view: RankView, answer: Callable[[RankView], Answer]) -> Answer | NotApplicable:
    """The function's result for one rank, or why it does not apply."""
    try:
        return answer(view)
    except NotApplicable as why:
        return NotApplicable(str(why))


def answers_by_rank(
    run: Run,
    ask: Callable[[Rank], Answer | NotApplicable],
    ranks: Sequence[int] | None,
    *,
    noun: str,
    engine: Engine,
    progress: Progress | None,
    what: str,
) -> tuple[dict[int, Answer], list[str]]:
    """Results of the ranks that have one, ordered by rank, and notes on the others.

    `ranks`: all where None. `noun`: names the result in the `UsageError` where no rank has one. `what`: label
    of the progress.
    """
    chosen = run.ranks if ranks is None else sorted(set(ranks))
    answers = engine.map(ask, [run.rank(rank) for rank in chosen], progress=progress, what=what)
    results: dict[int, Answer] = {}
    silent: dict[str, list[int]] = {}
    for rank, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, NotApplicable):
            silent.setdefault(str(answer), []).append(rank)
        else:
            results[rank] = answer
    if not results:
        raise UsageError(f"no {noun}: {'; '.join(silent) or 'it has no trace'}", where=run.id)
    return results, [f"rank {group_id(tuple(left_out))} left out: {why}" for why, left_out in silent.items()]

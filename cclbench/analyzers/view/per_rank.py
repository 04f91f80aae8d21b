# SPDX-License-Identifier: Apache-2.0
"""One question to each of a run's ranks, of which some have no answer."""

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
    """What the function finds of one rank, or why that is not applicable."""
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
    """The answers of the ranks that have one, in rank order, and a note of the others and why.

    `ranks` are all where None.  `UsageError`, which names the `noun`, where no rank has an answer; `what` is
    said of the progress.
    """
    wanted = run.ranks if ranks is None else sorted(set(ranks))
    answers = engine.map(ask, [run.rank(rank) for rank in wanted], progress=progress, what=what)
    found: dict[int, Answer] = {}
    silent: dict[str, list[int]] = {}
    for rank, one in zip(wanted, answers, strict=True):
        if isinstance(one, NotApplicable):
            silent.setdefault(str(one), []).append(rank)
        else:
            found[rank] = one
    if not found:
        raise UsageError(f"no {noun}: {'; '.join(silent) or 'it has no trace'}", where=run.id)
    return found, [f"rank {group_id(tuple(of))} left out: {why}" for why, of in silent.items()]

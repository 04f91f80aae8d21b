# SPDX-License-Identifier: Apache-2.0
"""One question to each of a run's ranks, of which some have no answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.hand_made import a_rank

from cclbench.analyzers.metric import NotApplicable, Unknown
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.engine import Serial
from cclbench.ground.errors import UsageError


def answers(of: dict[int, Any], ranks: list[int] | None = None, **more: Any) -> Any:
    run = SimpleNamespace(id="job", ranks=tuple(of), rank=lambda number: number)
    told = {"noun": "operators", "engine": Serial(), "progress": None, "what": "asked"} | more
    return answers_by_rank(run, of.__getitem__, ranks, **told)


def test_an_answer_or_why_there_is_none() -> None:
    rank = a_rank(rank=5)
    assert answer_or_reason(rank, lambda view: view.rank) == 5

    def nobody_knows(view: Any) -> int:
        raise Unknown(f"nobody knows of {view.rank}")

    found = answer_or_reason(rank, nobody_knows)
    assert type(found) is NotApplicable
    assert str(found) == "nobody knows of 5"


def test_ranks_that_have_an_answer_and_a_note_of_each_reason() -> None:
    of = dict.fromkeys((1, 4, 6), NotApplicable("no kernels")) | {
        0: "a",
        2: "c",
        3: NotApplicable("no trace"),
    }
    of = {rank: of[rank] for rank in sorted(of)}
    notes = ["rank 1,4,6 left out: no kernels", "rank 3 left out: no trace"]
    assert answers(of) == ({0: "a", 2: "c"}, notes)
    assert answers(of, [2, 3, 2]) == ({2: "c"}, notes[1:])
    assert list(answers(of, [2, 0])[0]) == [0, 2]
    calls: list[tuple[Any, ...]] = []
    answers({0: "a", 1: "b"}, progress=lambda *told: calls.append(told))
    assert calls[-1] == ("asked", 2, 2)


def test_no_answer_at_all_is_an_error_that_says_why() -> None:
    of = {0: NotApplicable("no kernels"), 1: NotApplicable("no trace"), 2: NotApplicable("no kernels")}
    with pytest.raises(UsageError) as error:
        answers(of)
    assert str(error.value) == "job: no operators: no kernels; no trace"
    with pytest.raises(UsageError) as error:
        answers({})
    assert str(error.value) == "job: no operators: it has no trace"

# SPDX-License-Identifier: Apache-2.0
"""Ranks' answers on their way to the run's rows."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cclbench.analyzers import answers
from cclbench.analyzers.answers import Answers, RankAnswers
from cclbench.analyzers.metric import Coverage, Value
from cclbench.ground.errors import InputError


def values(rank: int) -> list[Value]:
    detail = np.arange(rank + 1)
    told = Value(value=rank / 3, left_out={"rows": rank}, coverage=Coverage(1, 2), detail=detail)
    return [told, Value(value=1.0, step=rank)]


@pytest.fixture(autouse=True, params=[1, answers.IN_MEMORY])
def bound(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in a file, or nothing."""
    monkeypatch.setattr(answers, "IN_MEMORY", request.param)


def test_all_ranks_values_of_a_metric_come_back() -> None:
    kept = Answers(["a", "b"])
    for rank in (0, 3, 4):
        kept.add_answer(rank, RankAnswers.from_values("steps" if rank else "trace", {"a": values(rank)}))
        kept.add_answer(rank, RankAnswers.from_values("steps" if rank else "trace", {"b": []}))
    assert kept.policies == {0: "trace", 3: "steps", 4: "steps"}
    found = kept.values_of("a")
    assert found == {rank: values(rank) for rank in (0, 3, 4)}
    assert [len(own[0].detail) for own in found.values()] == [1, 4, 5]  # type: ignore[arg-type]
    assert kept.values_of("b") == {0: [], 3: [], 4: []}
    assert kept.values_of("a") == found
    # Without ranks nobody answers.
    assert Answers(["a"]).values_of("a") == {}


def test_arrays_come_back() -> None:
    kinds = ((0, np.int64), (3, np.int8), (5, np.int32), (7, np.float64), (0, np.bool_))
    arrays = [np.arange(n, dtype=kind) for n, kind in kinds]
    kept = Answers(["a", "b"])
    for rank in range(3):
        orders = {"a": arrays, "b": arrays[::-1]}
        kept.add_answer(
            rank,
            RankAnswers.from_values(
                "steps",
                {
                    name: [Value(value=1.0, detail=[one + rank for one in own])]
                    for name, own in orders.items()
                },
            ),
        )
    for rank, own in kept.values_of("a").items():
        assert [(one.dtype, one.tolist()) for one in own[0].detail] == [  # type: ignore[attr-defined]
            ((one + rank).dtype, (one + rank).tolist()) for one in arrays
        ]


@pytest.mark.parametrize("told", [*values(2), Coverage(1, 2, 3, 4), Value(value=None, status="failed")])
def test_what_is_pickled_comes_back_whole(told: Value | Coverage) -> None:
    found = pickle.loads(pickle.dumps(told))  # noqa: S301 - its own
    assert type(found) is type(told)
    assert found == told
    assert [getattr(found, one.name) for one in fields(told) if one.compare] == [
        getattr(told, one.name) for one in fields(told) if one.compare
    ]
    assert repr(copy(told)) == repr(told)


def test_a_full_disk_is_said_with_what_helps() -> None:
    """/dev/full takes no byte."""
    found = Answers(["time.step"])
    found._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - the next line closes it
    with found._file, pytest.raises(InputError, match="No space left on device") as told:
        found.add_answer(0, RankAnswers("steps", {"time.step": b"x"}))
    assert told.value.hint == "free some space, or set TMPDIR to a folder on a larger disk"

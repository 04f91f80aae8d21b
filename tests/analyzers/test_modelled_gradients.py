# SPDX-License-Identifier: Apache-2.0
"""Payloads that no trace states, by the card: 1100 parameters on two ranks, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, card, collective, comm, window
from helpers.hand_values import values

from cclbench.analyzers.metric import METRICS, Coverage, Value
from cclbench.analyzers.rows import rank_rows
from cclbench.analyzers.view.rank_view import RankView

METRIC = "comm.volume"
BATCH = {"global": 4, "micro": 2, "sequence_length": 10}


def a_job(*kinds: str, facts: Any = None, **changes: Any) -> RankView:
    """A rank that calls these collectives in every step, bytes unknown; `changes` are the card's."""
    begin = (0, 1000)
    calls = [
        collective(kind, at + 20 * n, at + 20 * n + 10, group="0-1", group_size=2)
        for at in begin
        for n, kind in enumerate(kinds)
    ]
    ours = card(**{"parallelism": {"dp_replicate": 2}, "workload__batch": BATCH, **changes})
    return a_rank(
        [comm(c["start_ns"], c["end_ns"]) for c in calls],
        [window(at, at + 1000, n) for n, at in enumerate(begin)],
        calls,
        card=ours,
        **(facts or {}),
    )


def modelled(rank: RankView) -> list[Value]:
    return rank_rows(rank, [METRICS.get(METRIC)], model=True)[METRIC]


def band(values: list[Value], collective: str | None = None, category: str | None = None) -> tuple[Any, ...]:
    own = {v.stat: v.value for v in values if (v.collective, v.category) == (collective, category)}
    return own["low"], own[None], own["high"]


def test_replicas_reduce_every_gradient_once() -> None:
    """1100 parameters of 2 to 4 bytes, in however many buckets."""
    found = modelled(a_job("all_reduce", "all_reduce", "broadcast"))
    for key in ({}, {"collective": "all_reduce"}, {"category": "dp"}):
        assert band(found, **key) == (2200, 2200, 4400)
    assert {v.provenance for v in found} == {"modelled"}
    assert found[0].left_out == {"of other kinds or groups": 2}
    assert "; by the card's parameters" in (found[0].reason or "")


ONCE, TWICE = ("all_gather", "reduce_scatter"), ("all_gather", "all_gather", "reduce_scatter")
SHARDED = {"parallelism": {"dp_shard": 2}}
BOTH = {"parallelism": {"dp_shard": 2, "dp_replicate": 2}, "workload__batch": {**BATCH, "micro": 1}}


@pytest.mark.parametrize(
    ("calls", "changes", "expected"),
    [
        # 3 gathers to 2 scatters: weights 1.5 times 2200 bytes, once at least, twice in 32 bits at most.
        (*(("all_gather",) * 3 + ("reduce_scatter",) * 2, SHARDED),
         {"reduce_scatter": (2200, 2200, 4400), "all_gather": (2200, 3300, 8800), None: (4400, 5500, 13200)}),
        (ONCE, SHARDED, {"all_gather": (2200, 2200, 8800)}),
        (TWICE, SHARDED, {"all_gather": (2200, 4400, 8800)}),
        # Replicas of shards reduce a shard each.
        (*((*ONCE, "all_reduce"), BOTH),
         {"all_reduce": (1100, 1100, 2200), "all_gather": (2200, 2200, 8800)}),
        # Training reduces in its own bits, or in 16 or 32.
        *(
            (("all_reduce",), {"workload__precision": precision}, {None: (2200, value, 4400)})
            for precision, value in (("bf16", 2200), ("fp16", 2200), ("fp32", 4400), ("tf32", 4400))
        ),
    ],
)  # fmt: skip
def test_bytes_that_data_parallelism_exchanges(
    calls: tuple[str, ...], changes: dict[str, Any], expected: dict[str | None, tuple[int, ...]]
) -> None:
    found = modelled(a_job(*calls, **changes))
    assert {kind: band(found, kind) for kind in expected} == expected
    assert band(found, category="dp") == band(found)
    assert found[0].coverage == Coverage(2 * len(calls), 2 * len(calls))


def test_exchanges_of_other_groups_are_counted_and_of_unknown_ones_taken() -> None:
    """Of four all-reduces in a step one is of one rank, one of four, one of nobody knows how many."""
    job = a_job(*["all_reduce"] * 4)
    calls = [row | {"group_size": (2, 1, 4, None)[n % 4]} for n, row in enumerate(job.tables._collectives)]
    steps = [window(1000 * n, 1000 * n + 1000, n) for n in range(3)]
    found = modelled(a_rank([comm(0, 10)], steps[:2], calls, card=job.card))
    assert band(found) == (2200, 2200, 4400)
    assert found[0].left_out == {"of other kinds or groups": 4}
    assert found[0].coverage == Coverage(4, 8)
    # A step without the exchange, or with none but of one rank, is not modelled.
    lacks = "the card's data parallelism needs all_reduce in every step, which the trace lacks"
    lone = [row | {"group_size": 1} for row in calls]
    for windows, own in ((steps[:2], lone), (steps, job.tables._collectives)):
        (only,) = modelled(a_rank([comm(0, 10)], windows, own, card=job.card))
        assert (only.reason or "").endswith(lacks)


CALL = collective("all_reduce", 0, 10, group="0-1", group_size=2)


def test_stated_bytes_stay() -> None:
    told, silent = CALL | {"in_bytes": 7, "out_bytes": 7}, CALL | {"start_ns": 20, "end_ns": 30}
    rank = a_rank([comm(0, 10)], [window(0, 1000, 0)], [told, silent], card=a_job("all_reduce").card)
    assert modelled(rank) == values(rank, METRIC)
    assert modelled(rank)[0].value == 7
    # Switched off, there is no number.
    (only,) = values(a_job("all_reduce"), METRIC)
    assert (only.value, only.reason) == (None, "none of the 2 collectives in the window states its payload")


REDUCE = ("all_reduce",)


@pytest.mark.parametrize(
    ("kinds", "changes", "why"),
    [
        (REDUCE, {"parallelism": {"dp_replicate": 2, "tp": 2}}, "the exchange of tp 2 needs model sizes"),
        (REDUCE, {"parallelism": {}}, "the card states no data parallelism"),
        (REDUCE, {"workload__phase": "inference"}, "is known only for training"),
        (REDUCE, {"workload__precision": "fp8"}, "the type of gradients in fp8 training"),
        (REDUCE, {"workload__precision": None}, "the workload card lacks workload.precision"),
        (REDUCE, {"workload__model__parameters": None}, "lacks workload.model.parameters"),
        (REDUCE, {"workload__batch": {"global": 4}}, "needs workload.batch.global and .micro"),
        (REDUCE, {"workload__batch": {"micro": 2}}, "needs workload.batch.global and .micro"),
        (REDUCE, {"workload__batch": {"global": 4, "micro": 1}}, "a step has several passes"),
        (REDUCE, {"facts": {"world_size": 8}}, "the card has 2 ranks, the trace 8"),
        (
            *(REDUCE, {"parallelism": {"dp_replicate": 2, "pp": 4, "cp": 2, "ep": 3}}),
            "the exchange of pp 4, cp 2, ep 3 needs model sizes",
        ),
        (("broadcast",), {}, "needs all_reduce in every step"),
        (("all_reduce", "reduce_scatter"), {}, "the card no dp_shard"),
        (("all_reduce", "all_gather"), {}, "the card no dp_shard"),
        (("all_gather",) * 3 + ("reduce_scatter",), SHARDED, "3 all_gather per"),
        (("all_gather",) + ("reduce_scatter",) * 2, SHARDED, "0.5 all_gather per"),
        (("reduce_scatter",), SHARDED, "needs all_gather in every step"),
        (("all_gather",), SHARDED, "needs reduce_scatter in every step"),
    ],
)
def test_a_job_that_does_not_fit_has_none(kinds: tuple[str, ...], changes: dict[str, Any], why: str) -> None:
    (only,) = modelled(a_job(*kinds, **changes))
    assert (only.status, only.value) == ("not_applicable", None)
    assert why in (only.reason or "")


def test_without_steps_or_a_card_the_reason_names_what_is_needed() -> None:
    own = a_job("all_reduce").card
    (only,) = modelled(a_rank([comm(0, 10)], [window(0, 1000, source="whole_trace")], [CALL], card=own))
    assert "the window is the whole trace" in (only.reason or "")
    (only,) = modelled(a_rank([comm(0, 10)], [window(0, 1000, 0)], [CALL]))
    assert (only.reason or "").endswith("not modelled: needs a workload card with parallelism")

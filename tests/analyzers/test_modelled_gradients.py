# SPDX-License-Identifier: Apache-2.0
"""Payloads that no trace states, by the card: 1100 parameters on two ranks, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, card, collective, comm, values, window

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
    assert (found[0].reason or "").startswith(
        "modelled, since no collective in the window states its payload; by the card's parameters"
    )


def test_shards_scatter_gradients_and_gather_weights_once_or_twice() -> None:
    """3 gathers to 2 scatters: weights 1.5 times 2200 bytes, once at least, twice in 32 bits at most."""
    calls = ("all_gather",) * 3 + ("reduce_scatter",) * 2
    found = modelled(a_job(*calls, parallelism={"dp_shard": 2}))
    assert band(found, "reduce_scatter") == (2200, 2200, 4400)
    assert band(found, "all_gather") == (2200, 3300, 8800)
    assert band(found) == (4400, 5500, 13200)
    assert band(found, category="dp") == band(found)


def test_replicas_of_shards_reduce_a_shard_each() -> None:
    calls = ("all_gather", "reduce_scatter", "all_reduce")
    found = modelled(
        a_job(*calls, parallelism={"dp_shard": 2, "dp_replicate": 2}, workload__batch={**BATCH, "micro": 1})
    )
    assert band(found, "all_reduce") == (1100, 1100, 2200)
    assert band(found, "all_gather") == (2200, 2200, 8800)


@pytest.mark.parametrize(
    ("gathers", "scatters", "expected"), [(1, 1, (2200, 2200, 8800)), (2, 1, (2200, 4400, 8800))]
)
def test_weights_are_gathered_once_or_twice(gathers: int, scatters: int, expected: tuple[int, ...]) -> None:
    calls = ("all_gather",) * gathers + ("reduce_scatter",) * scatters
    found = modelled(a_job(*calls, parallelism={"dp_shard": 2}))
    assert band(found, "all_gather") == expected
    assert found[0].coverage == Coverage(2 * len(calls), 2 * len(calls))


def test_exchanges_of_other_groups_are_counted_and_of_unknown_ones_taken() -> None:
    """Of four all-reduces in a step one is of one rank, one of four, one of nobody knows how many."""
    job = a_job("all_reduce", "all_reduce", "all_reduce", "all_reduce")
    sizes = (2, 1, 4, None)
    calls = [row | {"group_size": sizes[n % 4]} for n, row in enumerate(job.tables._collectives)]
    steps = [window(0, 1000, 0), window(1000, 2000, 1)]
    found = modelled(a_rank([comm(0, 10)], steps, calls, card=job.card))
    assert band(found) == (2200, 2200, 4400)
    assert found[0].left_out == {"of other kinds or groups": 4}
    assert found[0].coverage == Coverage(4, 8)
    lone = [row | {"group_size": 1} for row in calls]
    (only,) = modelled(a_rank([comm(0, 10)], steps, lone, card=job.card))
    assert "needs all_reduce in every step" in (only.reason or "")


def test_a_step_without_the_exchange_is_not_modelled() -> None:
    job = a_job("all_reduce")
    steps = [window(0, 1000, 0), window(1000, 2000, 1), window(2000, 3000, 2)]
    (only,) = modelled(a_rank([comm(0, 10)], steps, job.tables._collectives, card=job.card))
    assert only.reason.endswith(
        "the card's data parallelism needs all_reduce in every step, which the trace lacks"
    )


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("bf16", (2200, 2200, 4400)),
        ("fp16", (2200, 2200, 4400)),
        ("fp32", (2200, 4400, 4400)),
        ("tf32", (2200, 4400, 4400)),
    ],
)
def test_training_reduces_in_its_own_bits_or_in_16_or_32(precision: str, expected: tuple[int, ...]) -> None:
    assert band(modelled(a_job("all_reduce", workload__precision=precision))) == expected


def test_stated_bytes_stay() -> None:
    told = collective("all_reduce", 0, 10, group="0-1", group_size=2, in_bytes=7, out_bytes=7)
    silent = {**told, "start_ns": 20, "end_ns": 30, "in_bytes": None, "out_bytes": None}
    rank = a_rank([comm(0, 10)], [window(0, 1000, 0)], [told, silent], card=a_job("all_reduce").card)
    assert modelled(rank) == values(rank, METRIC)
    assert modelled(rank)[0].value == 7


def test_switched_off_there_is_no_number() -> None:
    (only,) = values(a_job("all_reduce"), METRIC)
    assert (only.value, only.reason) == (None, "none of the 2 collectives in the window states its payload")


@pytest.mark.parametrize(
    ("kinds", "changes", "why"),
    [
        (
            ("all_reduce",),
            {"parallelism": {"dp_replicate": 2, "tp": 2}},
            "the exchange of tp 2 needs model sizes",
        ),
        (("all_reduce",), {"parallelism": {}}, "the card states no data parallelism"),
        (("all_reduce",), {"workload__phase": "inference"}, "is known only for training"),
        (("all_reduce",), {"workload__precision": "fp8"}, "the type of gradients in fp8 training"),
        (("all_reduce",), {"workload__precision": None}, "the workload card lacks workload.precision"),
        (("all_reduce",), {"workload__model__parameters": None}, "lacks workload.model.parameters"),
        (("all_reduce",), {"workload__batch": {"global": 4}}, "needs workload.batch.global and .micro"),
        (("all_reduce",), {"workload__batch": {"global": 4, "micro": 1}}, "a step has several passes"),
        (("all_reduce",), {"facts": {"world_size": 8}}, "the card has 2 ranks, the trace 8"),
        (("broadcast",), {}, "needs all_reduce in every step"),
        (("all_reduce", "reduce_scatter"), {}, "the card no dp_shard"),
        (("all_gather",) * 3 + ("reduce_scatter",), {"parallelism": {"dp_shard": 2}}, "3 all_gather per"),
        (("all_gather",) + ("reduce_scatter",) * 2, {"parallelism": {"dp_shard": 2}}, "0.5 all_gather per"),
        (("all_reduce", "all_gather"), {}, "the card no dp_shard"),
        (("reduce_scatter",), {"parallelism": {"dp_shard": 2}}, "needs all_gather in every step"),
        (("all_gather",), {"parallelism": {"dp_shard": 2}}, "needs reduce_scatter in every step"),
        (
            ("all_reduce",),
            {"parallelism": {"dp_replicate": 2, "pp": 4, "cp": 2, "ep": 3}},
            "the exchange of pp 4, cp 2, ep 3 needs model sizes",
        ),
        (("all_reduce",), {"workload__batch": {"micro": 2}}, "needs workload.batch.global and .micro"),
    ],
)
def test_a_job_that_does_not_fit_is_not_modelled(
    kinds: tuple[str, ...], changes: dict[str, Any], why: str
) -> None:
    (only,) = modelled(a_job(*kinds, **changes))
    assert (only.status, only.value) == ("not_applicable", None)
    assert why in (only.reason or "")


def test_an_amount_per_step_needs_steps() -> None:
    job = a_job("all_reduce")
    call = collective("all_reduce", 0, 10, group="0-1", group_size=2)
    rank = a_rank([comm(0, 10)], [window(0, 1000, source="whole_trace")], [call], card=job.card)
    (only,) = modelled(rank)
    assert "the window is the whole trace" in (only.reason or "")


def test_without_a_card_the_reason_names_what_is_needed() -> None:
    call = collective("all_reduce", 0, 10, group="0-1", group_size=2)
    (only,) = modelled(a_rank([comm(0, 10)], [window(0, 1000, 0)], [call]))
    assert only.reason == (
        "none of the 1 collectives in the window states its payload; not modelled: needs a workload card with"
        " parallelism"
    )

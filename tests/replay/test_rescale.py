# SPDX-License-Identifier: Apache-2.0
"""What settings of layouts share: which nodes compute, what cards say; what changes are set to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import item, rank
from helpers.replay_subjects import card, subject

from cclbench.ground.errors import InputError, UsageError
from cclbench.replay import nodes as n
from cclbench.replay import rescale
from cclbench.replay.change import TimeBounds, amount_of, count_of, factor_of, read_choice, share_of, time_of
from cclbench.replay.graph import Graph, build_graph

FULL: Mapping[str, Any] = {"model": {"hidden": 64, "layers": 3, "parameters": 7_000}}
FULL |= {"batch": {"global": 48, "micro": 2, "sequence_length": 128}}


def kernels() -> Graph:
    """A product, an optimizer's kernel and an all-reduce on each of two ranks."""
    work = [item("mm", 0, 10, category="gemm"), item("adam", 10, 14, category="optimizer")]
    work.append(item("nccl", 14, 20, category="communication", call=0))
    return build_graph([rank(r, work=work, instances=[0], windows=[(0, 0, 20)]) for r in (0, 1)])


def test_what_computes_and_what_goes_with_tokens() -> None:
    graph = kernels()
    one, names = subject(graph), [graph.names[code] if code >= 0 else "" for code in graph.nodes.name]
    computing = [name for name, chosen in zip(names, rescale.compute_nodes(one), strict=True) if chosen]
    assert computing == ["mm", "adam"] * 2
    chosen, what = rescale.token_nodes(one)
    assert [name for name, here in zip(names, chosen, strict=True) if here] == ["mm"] * 2
    assert what == "kernels without the optimizer,"
    optimizer = rescale.category_nodes(one, "optimizer", "unknown")
    assert [name for name, here in zip(names, optimizer, strict=True) if here] == ["adam"] * 2
    scale = rescale.scale_nodes(chosen, 0.5)
    assert all((bound[chosen] == 0.5).all() for bound in (scale.expected, scale.low, scale.high))
    assert (scale.expected[~chosen] == 1).all()
    # of a cpu gaps that hold operators compute
    graph.nodes.busy[graph.nodes.kind == n.RENDEZVOUS] = 1
    one = subject(graph)
    chosen, what = rescale.token_nodes(one)
    assert chosen.tolist() == rescale.compute_nodes(one).tolist()
    assert chosen.sum() == 5
    assert what == "operators of the CPU, including the optimizer's,"


def test_the_share_of_the_windows_that_nodes_take() -> None:
    """Of 50 µs the kernels of both ranks take 28, of which one's lie before the windows; and 1 on a host."""
    graph = kernels()
    graph.nodes.busy[graph.nodes.kind == n.ARRIVAL] = 500
    since = np.where((graph.nodes.rank == 1) & (graph.nodes.kind == n.COMPUTE), -1, 0)
    one = subject(graph, since=since.tolist(), window_ns=50_000)
    assert one.window_share(graph.nodes.kind == n.COMPUTE) == 14 / 50
    assert one.window_share(np.isin(graph.nodes.kind, (n.COMPUTE, n.ARRIVAL))) == 15 / 50
    assert subject(graph, window_ns=0).window_share(graph.nodes.kind == n.ARRIVAL) == 1_000


@pytest.mark.parametrize(
    ("kinds", "dimension", "cut"),
    [
        *((("all_gather", "broadcast"), "tp", True), (("broadcast", "reduce_scatter"), "tp", True)),
        (("all_reduce", "broadcast"), "tp", False),
        (("all_gather", "reduce_scatter"), "dp", False),
    ],
)
def test_sequences_are_cut_as_tensors_are(kinds: tuple[str, str], dimension: Any, cut: bool) -> None:
    graph = kernels()
    object.__setattr__(graph.transfers, "kind", kinds)
    assert rescale.cuts_sequences(graph, {"0-1": dimension}) == cut
    object.__setattr__(graph.transfers, "group", (None, None))
    assert not rescale.cuts_sequences(graph, {"0-1": dimension})


def test_a_card_states_sizes() -> None:
    fields = ("model.hidden", "batch.micro", "element")
    sizes = {"model.hidden": 64.0, "batch.micro": 2.0, "element": 2.0}
    assert rescale.card_sizes(card(**FULL), "it", *fields) == sizes
    for precision, element in {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}.items():
        assert rescale.card_sizes(card(precision=precision), "it", "element") == {"element": element}
    # sizes that a card lacks are named
    for known, lacking in (
        (None, "workload.model.hidden, workload.precision"),
        (card(precision=None), "workload.model.hidden, workload.precision"),
        (card(precision="int8", model={"hidden": 8}), "workload.precision"),
    ):
        with pytest.raises(InputError, match=r"^memory cannot be sized; state ") as refused:
            rescale.card_sizes(known, "memory", "model.hidden", "element")
        assert str(refused.value.hint) == f"state {lacking} in a card"


@pytest.mark.parametrize(
    ("known", "count"),
    [
        *((None, None), (card(microbatches=5, **FULL), 5), (card(dp_replicate=2, dp_shard=3, **FULL), 4)),
        *((card(dp_replicate=24, **FULL), 1), (card(dp_replicate=48, **FULL), None)),
        *((card(dp_replicate=5, **FULL), None), (card(batch={"micro": 2}), None)),
        (card(batch={"global": 2}), None),
    ],
)
def test_micro_batches_are_stated_or_follow_from_the_global_batch(known: Any, count: int | None) -> None:
    assert rescale.microbatch_count(known) == count


def test_values_as_people_write_them() -> None:
    assert [factor_of(f"k={text}", text) for text in ("x2", "×0.5", "x1000000")] == [2, 0.5, 1e6]
    assert [share_of("k", value) for value in ("0", "x0", "×0", "none", "x0.25")] == [0, 0, 0, 0, 0.25]
    assert [time_of(f"k={text}", text) for text in ("25ms", "1.5us", "1 s")] == [25_000_000, 1_500, 10**9]
    assert amount_of("k=100TB/s", "100TB/s", "bandwidth") == 1e14
    assert amount_of("k=400Gb/s", "400 Gb/s", "bandwidth") == 5e10
    assert (count_of("k=64", "64"), count_of("k=999999999", "999999999")) == (64, 999_999_999)
    assert read_choice("off")("k=off", "off") == 0
    assert read_choice("off", "on")("k=on", "on") == 1
    # a time as often
    assert TimeBounds(1.0, 2.0, 4.0).times_count(3) == TimeBounds(3.0, 6.0, 12.0)
    marked = TimeBounds.total([TimeBounds(1.0, 2.0, 4.0, ("a",)), TimeBounds(1.0, 1.0, 1.0, ("b", "a"))])
    assert marked == TimeBounds(2.0, 3.0, 5.0, ("a", "b"))
    assert marked.times_count(2).marks == ("a", "b")
    assert TimeBounds(1.0, None, 4.0).times_count(2) == TimeBounds(2.0, None, 8.0)


@pytest.mark.parametrize(
    ("read", "value", "says"),
    [
        (
            factor_of,
            "x0",
            "k=x0: 'x0' is not a factor above 0 and up to 1,000,000 with at most 6 decimals; such as x2 or"
            " x0.5",
        ),
        (factor_of, "x1000000.000001", "not a factor above 0"),
        (count_of, "0", "k=0: '0' is not a whole number from 1 to 999,999,999; such as 64"),
        (count_of, "1000000000", "not a whole number from 1"),
        (count_of, "2.5", "not a whole number from 1"),
        (read_choice("off"), "on", "k=on: k cannot be 'on'; use off"),
        (time_of, "1.000001s", "k=1.000001s is more than 1 s; is the unit right"),
    ],
)
def test_values_that_mean_nothing_are_quoted(read: Any, value: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(f"k={value}", value)
    assert says in str(refused.value)

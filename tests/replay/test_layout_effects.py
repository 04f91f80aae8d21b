# SPDX-License-Identifier: Apache-2.0
"""What each setting of the layout does to a graph made by hand: factors, what is added, what is said."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import alone, item, launch, rank
from helpers.replay_subjects import a_run, card, degrees, subject
from msgspec import structs

from cclbench.card import Card
from cclbench.ground.errors import InputError, UsageError
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect, TimeBounds
from cclbench.replay.changes import tensor_parallel
from cclbench.replay.changes.batch import batch
from cclbench.replay.changes.context_parallel import context
from cclbench.replay.changes.data_parallel import replicas
from cclbench.replay.changes.expert_parallel import experts
from cclbench.replay.changes.failed_ranks import remove, spare
from cclbench.replay.changes.pipeline_parallel import interleave, pipeline, schedule
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.key_values import key_value_elements
from cclbench.replay.layout import DIMENSIONS, Layout
from cclbench.replay.rescale import SAME_LAYOUT
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.schedules import SCHEDULES
from cclbench.replay.sharded_operators import BoundedFactor, CutKernels

MODEL = {"parameters": 3_000_000, "hidden": 1000, "layers": 8, "heads": 12}
BATCH = {"micro": 2, "sequence_length": 500}
ELEMENTS = 2 * 500 * 1000


def two() -> Graph:
    """On two ranks a product of 10 µs, an optimizer's kernel of 4, one of unknown category of 2, an
    all-reduce."""
    names = (("mm", 5, 15, "gemm"), ("adam", 15, 19, "optimizer"), ("odd", 19, 21, "other"))
    work = [item(name, begin, end, i, category=of) for i, (name, begin, end, of) in enumerate(names)]
    work.append(item("nccl", 21, 31, 3, category="communication", call=0))
    calls = [launch(i / 2, i, took=0.1) for i in range(4)]
    made = (rank(r, work=work, launches=calls, instances=[0], windows=[(0, 0, 31)]) for r in (0, 1))
    return build_graph([*made])


CARD = card(MODEL, BATCH, microbatches=4)
KEYS = {name: f"parallelism.{name}" for name in (*DIMENSIONS, "interleave", "schedule")}
KEYS |= {"batch": "batch", "remove": "ranks.remove", "replace": "ranks.replace"}


def asked(old: Layout, graph: Graph | None = None, of_card: Card | None = CARD, **more: Any) -> ChangeSubject:
    """A job in that layout, and what is set, by the last words of its keys."""
    made = two() if graph is None else graph
    settings = {KEYS[name]: more.pop(name) for name in list(more) if name in KEYS}
    return subject(made, old=old, settings=settings, of_card=of_card, window_ns=100_000, **more)


def effect(found: Any) -> LayoutEffect:
    assert isinstance(found, LayoutEffect), found
    return found


def staged(old: Layout, graph: Graph | None = None, **more: Any) -> LayoutEffect:
    return effect(pipeline(asked(old, graph, **more), more["pp"]))


def batched(old: Layout, of_card: Card | None = CARD, **more: Any) -> LayoutEffect:
    """What twice the replicas of the same global batch do."""
    return effect(batch(asked(old, of_card=of_card, dp=4, batch=1, **more), 1))


def factors_by_name(made: LayoutEffect, graph: Graph) -> dict[str, tuple[float, float, float]]:
    """The factors of rank 0's kernels: expected, low, high."""
    scale, found = made.scale, {}
    for i in np.flatnonzero((graph.nodes.kind == n.COMPUTE) & (graph.nodes.rank == 0)).tolist():
        found[graph.names[graph.nodes.name[i]]] = scale.expected[i], scale.low[i], scale.high[i]
    assert (scale.expected[graph.nodes.kind != n.COMPUTE] == 1).all()
    return found


def test_twice_the_stages_halve_kernels_and_fill_the_pipeline_longer() -> None:
    """Four micro-batches: of a stage's work 3 / 4 in place of 1 / 4, and 2 · (3 − 1) hops."""
    graph = two()
    made = staged(degrees(pp=2, dp=1), graph, pp=4)
    assert factors_by_name(made, graph) == dict.fromkeys(("mm", "adam", "odd"), (0.5, 0.5, 0.5))
    assert (made.payload, made.repeats) == ({"dp": 0.5}, {"tp": 0.5, "cp": 0.5, "ep": 0.5})
    assert (made.fill, made.hops, made.added) == (0.5, 4.0, ())
    assert made.notes == (
        "layers split evenly into 4 in place of 2 stages: kernels, 32.0% of the step, take 0.5 of their time",
        "pipeline of 4 micro-batches, 1f1b: filling and draining it takes 75.0% of the busiest stage's work",
    )
    # 8 layers as 3, 3 and 2: of 4 the first stage keeps 3, the last 2. The second works 4 · 3, behind F of 1
    # and before B of 2 of the first, and waits for 1 until B of the first micro-batch is back
    made = staged(degrees(pp=2), graph, pp=3)
    kernels = graph.nodes.kind == n.COMPUTE
    for number, share in ((0, 3 / 4), (1, 2 / 4)):
        assert {*made.scale.expected[kernels & (graph.nodes.rank == number)].tolist()} == {share}
    assert made.fill == pytest.approx(16 / 12 - 1 - 1 / 4)
    assert "as evenly as they can be" in made.notes[0]


WITH_HEAD = card({**MODEL, "vocabulary": 26_000}, BATCH, microbatches=4)
"""A head of 26,000 / (12 · 1000 + 2 · 500) = 2 layers, beside 8."""


def test_the_last_stage_keeps_the_head() -> None:
    """Of 4 layers and the head 2 and the head remain; at the bounds the head is nothing, or 4 layers."""
    graph = two()
    made = staged(degrees(pp=2), graph, pp=4, of_card=WITH_HEAD)
    assert factors_by_name(made, graph)["mm"] == (0.5, 0.5, 0.5)
    last = (graph.nodes.kind == n.COMPUTE) & (graph.nodes.rank == 1)
    for bound, factor in (("expected", 4 / 6), ("low", 0.5), ("high", 6 / 8)):
        assert getattr(made.scale, bound)[last].tolist() == pytest.approx([factor] * 3)
    # 3 stages of 2 layers before and after 4 micro-batches of 4; of 4 layers before those of 6
    assert made.fill == pytest.approx((3 * 2) / (4 * 4) - 4 / (4 * 6))
    fewer = staged(degrees(pp=2), graph, pp=1, of_card=WITH_HEAD)
    for bound, factor in (("expected", 10 / 6), ("low", 12 / 8), ("high", 2.0)):
        assert getattr(fewer.scale, bound)[last].tolist() == pytest.approx([factor] * 3)
    # of 8 layers and the head 2 and the head; at the upper bound the head has 4 layers of 12
    made = staged(degrees(), graph, pp=4, of_card=WITH_HEAD)
    assert factors_by_name(made, graph)["mm"] == (0.4, 0.25, 0.5)
    assert made.added[0].what.startswith("6 sends")
    assert factors_by_name(staged(degrees(), graph, pp=4), graph)["mm"] == (0.25, 0.25, 1.41 / 4)


def test_pipelines_are_filled_by_parts_micro_batches_and_schedules() -> None:
    made = staged(degrees(pp=2), pp=4, interleave=2)
    assert (made.fill, made.hops) == (pytest.approx((3 / 2 - 1) / 4), 4.0)
    assert "4 micro-batches, 1f1b, 2 parts a stage: filling and draining it takes 37.5%" in made.notes[1]
    same = staged(degrees(pp=2), pp=2, interleave=2)
    assert (same.fill, same.hops) == (pytest.approx((1 / 2 - 1) / 4), 0.0)
    # one stage takes micro-batches in any number, a fixed batch fills a pipeline with fewer
    three, both = card(MODEL, BATCH, microbatches=3), degrees(pp=2, dp=2)
    one = staged(both, of_card=three, pp=1, interleave=2, dp=4, batch=1)
    assert "pipeline of 1.5 micro-batches" in one.notes[1]
    fewer = staged(both, pp=4, dp=4, batch=1)
    assert (fewer.fill, fewer.hops) == (pytest.approx((3 - 1 * 0.5) / 2), 5.0)
    assert "pipeline of 2 micro-batches" in fewer.notes[1]
    # with F = B = W zero bubble leaves a third of what 1F1B idles; GPipe of even stages leaves as much
    many, even = card(MODEL, BATCH, microbatches=8), degrees(pp=4)
    gpipe, bubble = (SCHEDULES.index(name) for name in ("gpipe", "zero_bubble"))
    assert staged(even, of_card=many, pp=4, schedule=gpipe).fill == pytest.approx(0)
    assert staged(even, of_card=many, pp=4, schedule=bubble).fill == pytest.approx(1 / 8 - 3 / 8)
    assert schedule(asked(even, pp=4, schedule=0), 0) == "1F1B is the default"
    with pytest.raises(InputError, match=r"requires parallelism\.pp; set both"):
        schedule(asked(degrees(pp=2), schedule=1), 1)
    with pytest.raises(InputError, match="interleaved stages are those of 1f1b, not of zero_bubble"):
        staged(degrees(pp=2), pp=4, schedule=bubble, interleave=2)


def test_stages_for_the_first_time_send_activations() -> None:
    """Forth and back past three of four stages: 6 of 2 MB, of two ranks 3 · 2 µs a MB; as stages are even,
    4 more of the three other micro-batches lengthen the step."""
    made = staged(degrees(tp=3), pp=4)
    ns = 6 * 3 * 2 * 1_000 * ELEMENTS * 2 / 1e6
    # at worst two sends of each of four micro-batches are exposed, of which two are among the 6
    most = ns * (6 + 2 * 3) / 6
    assert made.hops == 0
    (added,) = made.added
    assert added.what == "10 sends of 2 MB past 4 stages, not hidden"
    assert added.time == TimeBounds(ns / 2, pytest.approx(ns * 10 / 6), 2 * most)
    assert staged(degrees(cp=2), pp=2).added[0].what == "4 sends of 1 MB past 2 stages, not hidden"
    assert staged(degrees(pp=2), pp=1).added == staged(degrees(), pp=1, interleave=2).added == ()


def test_a_host_launches_as_much_less_as_its_stage_has_fewer_layers() -> None:
    graph = two()
    host = graph.nodes.kind == n.HOST
    since = np.where(host, 200, 1 << 40)
    made = staged(degrees(pp=2), graph, pp=4, since=since.tolist())
    # of gaps of 500 ns 200 are within windows
    assert (graph.nodes.gap - made.graph.nodes.gap)[host].tolist() == [0, 100, 100, 100] * 2
    assert (made.graph.nodes.gap[~host] == graph.nodes.gap[~host]).all()
    for outside in (0, -1):
        early = staged(degrees(pp=2), graph, pp=8, since=[outside] * len(host))
        assert early.graph.nodes.gap.tolist() == graph.nodes.gap.tolist()
    graph.nodes.busy[host] = 1
    assert staged(degrees(pp=2), graph, pp=4).graph.nodes.gap.tolist() == graph.nodes.gap.tolist()


@pytest.mark.parametrize(
    ("new", "of_card", "says"),
    [
        ({"pp": 9}, card(MODEL, microbatches=4), "8 layers are too few for 9 parts"),
        ({"pp": 4, "interleave": 4}, card(MODEL, microbatches=4), "8 layers are too few for 16 parts"),
        (
            *({"pp": 4, "interleave": 2}, card(MODEL, microbatches=6)),
            "interleaved stages need micro-batches in multiples of pp 4, not 6",
        ),
        ({"pp": 4}, card(MODEL), "the number of micro-batches of a step is unknown; state"),
        ({"pp": 4}, None, "the number of micro-batches of a step is unknown"),
    ],
)
def test_pipelines_that_cannot_be_are_refused(new: dict[str, int], of_card: Card | None, says: str) -> None:
    with pytest.raises(InputError) as refused:
        staged(degrees(pp=2), of_card=of_card, **new)
    assert says in str(refused.value)


def test_settings_that_leave_the_layout_as_it_is() -> None:
    same: list[tuple[Any, dict[str, int]]] = [(pipeline, {"pp": 2}), (replicas, {"dp": 2})]
    same += [(context, {"cp": 2}), (experts, {"ep": 2}), (tensor_parallel.tensors, {"tp": 2})]
    for change, sizes in same:
        assert change(asked(degrees(**sizes), **sizes), 2) == SAME_LAYOUT
    both = asked(degrees(pp=2), pp=4, interleave=2)
    assert effect(interleave(both, 2)).notes == ()
    assert interleave(both, 1) == "stages have one part"
    with pytest.raises(InputError, match=r"requires parallelism\.pp; set both"):
        interleave(asked(degrees(pp=2), interleave=2), 2)


def test_a_fixed_batch_leaves_a_rank_its_share() -> None:
    """Of two micro-batches one stays, on twice the replicas: as many transfers of activations less."""
    one = asked(degrees(dp=2), dp=4, batch=1, of_card=card(MODEL, BATCH, microbatches=2))
    made = effect(batch(one, 1))
    assert factors_by_name(made, one.graph) == {"mm": (0.5,) * 3, "adam": (1, 1, 1), "odd": (0.5,) * 3}
    assert (made.payload, made.repeats) == ({}, dict.fromkeys(("tp", "cp", "ep", "pp"), 0.5))
    assert (made.fill, made.hops) == (0.0, 0.0)
    assert made.notes == (
        "the global batch stays: 0.5 times as many micro-batches on a rank; kernels without the optimizer,"
        " 24.0% of the step, are assumed to scale with it",
    )
    # of one micro batch samples stay out
    for of_card in (card(MODEL, BATCH, microbatches=1), None):
        made = batched(degrees(dp=2), of_card)
        assert (made.payload, made.repeats) == (dict.fromkeys(("tp", "cp", "ep", "pp"), 0.5), {})
        assert "0.5 times as many samples in a micro-batch" in made.notes[0]
    # a pipeline of unknown micro batches has no fill
    with pytest.raises(InputError, match="micro-batches of a step is unknown"):
        batched(degrees(dp=2, pp=4), of_card=None)


def test_a_pipeline_that_stays_is_filled_as_before() -> None:
    """Two of four micro-batches, four stages: (4 − 1) · 0.5 / 2 of the work, 2 · 3 · 0.5 hops."""
    four, named = degrees(dp=2, pp=4), {name: at for at, name in enumerate(SCHEDULES)}
    for same in ({}, {"interleave": 1, "schedule": named["1f1b"]}):
        made = batched(four, **same)
        assert (made.fill, made.hops) == (pytest.approx(0.75), 3.0)
    # a slow last stage is filled by its others: 3 · 2 layers by 2 and 4 micro-batches of 4
    assert batched(four, of_card=WITH_HEAD).fill == pytest.approx(3 * 2 / (2 * 4) - 3 * 2 / (4 * 4))
    of_two = batched(degrees(dp=2, pp=2))
    assert (of_two.fill, of_two.hops) == (pytest.approx(0.25), 1.0)
    # what sets other stages, parts or another schedule counts their fill
    for other in ({"pp": 6}, {"interleave": 2}, {"schedule": named["gpipe"]}):
        made = batched(four, **other)
        assert (made.fill, made.hops) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("old", "new", "count", "refused"),
    [
        *((degrees(dp=2), {"dp": 8}, 4, False), (degrees(dp=2), {"dp": 16}, 4, True)),
        *((degrees(dp=2), {"dp": 4}, 3, True), (degrees(dp=2), {"dp": 4}, 1, False)),
        (degrees(dp=2, pp=2), {"dp": 4}, 1, True),
        # stages become one of three, or three of one
        *((degrees(dp=2, pp=3), {"dp": 4, "pp": 1}, 1, True), (degrees(dp=4), {"dp": 8, "pp": 3}, 1, True)),
    ],
)
def test_micro_batches_stay_whole(old: Layout, new: dict[str, int], count: int, refused: bool) -> None:
    one = asked(old, of_card=card(MODEL, microbatches=count), batch=1, **new)
    if not refused:
        effect(batch(one, 1))
        return
    with pytest.raises(InputError, match=f"{count} micro-batches of a rank are .* with ") as told:
        batch(one, 1)
    assert told.value.hint == "a number of replicas that divides them"


def test_a_batch_of_as_many_replicas_is_as_it_was() -> None:
    same = "each replica has as many samples as before"
    assert batch(asked(degrees(dp=2), batch=1), 1) == same
    assert batch(asked(degrees(dp=2), dp=4, batch=0), 0) == same
    assert parse_scenario(["batch=rank"]).changes == {"batch": 0}
    assert parse_scenario(["batch=global"]).changes == {"batch": 1}
    with pytest.raises(UsageError, match=r"^batch=all: batch cannot be 'all'; use rank or global$"):
        parse_scenario(["batch=all"])


def test_more_replicas_and_what_is_said_of_them() -> None:
    one = asked(degrees(dp=2, tp=2), dp=8)
    made = effect(replicas(one, None))
    assert made.notes == (
        "the 4 traced ranks stand for 16: 8 replicas of 2",
        "each replica's batch stays, so the global batch is 4 times as large (batch=rank)",
    )
    assert (made.scale, made.added) == (None, ())
    fixed = effect(replicas(asked(degrees(dp=2, tp=2), dp=1, batch=1), None))
    assert fixed.notes == ("the 4 traced ranks stand for 2: 1 replica of 2",)
    # a sharded optimizer has less to do
    graph = two()
    object.__setattr__(graph.transfers, "kind", ("reduce_scatter", "reduce_scatter"))
    one = asked(degrees(dp=2), graph, dp=8, dimensions={"0-1": "dp"})
    made = effect(replicas(one, None))
    assert factors_by_name(made, graph) == {"mm": (1, 1, 1), "adam": (0.25,) * 3, "odd": (1, 1, 1)}
    assert made.notes[-1] == "a sharded optimizer, 8.0% of the step, has 1/4 to do"
    other = asked(degrees(dp=2), graph, dp=8, dimensions={"0-1": "tp"})
    assert effect(replicas(other, None)).scale is None


def test_gradients_that_nobody_exchanged_are_added() -> None:
    """3 million parameters of 2 bytes, of tp 2 and pp 3 a sixth; of 4 ranks 4 µs a MB, twice that at most."""
    made = effect(replicas(asked(degrees(tp=2, pp=3), dp=4), None))
    assert [(each.what, each.time) for each in made.added] == [
        ("all-reduce of 1 MB of gradients", TimeBounds(0.0, None, 8_000.0))
    ]
    assert made.notes[-1].startswith("the all-reduce of gradients is not in the trace: bounds are all of it")
    unsized = asked(degrees(tp=2), of_card=card(MODEL, precision=None), dp=4)
    says = "the all-reduce of gradients, which a single replica does not need, cannot be"
    with pytest.raises(InputError, match=says):
        replicas(unsized, None)


def test_experts_of_one_rank_are_spread() -> None:
    """Two routers' calls for 100 tokens, 2 of 8 experts each: 0.4 MB each way, twice in forward and backward.
    Of 3 million parameters a token uses 1.5: 1 million are no expert's, and a rank of four keeps a half."""
    word = {"name": "aten::topk", "shapes": "[[100,8],[],[],[],[]]", "step": 0}
    word |= {"dtypes": '["c10::BFloat16","Scalar","Scalar","Scalar","Scalar"]'}
    word |= {"values": '["","2","-1","True","False"]'}
    of_card = card(MODEL | {"active_parameters": 1_500_000, "vocabulary": 64}, BATCH)
    sampled = word | {"shapes": "[[100,64],[],[],[],[]]"}
    run = a_run(of_card, operators=[word, word, sampled, word | {"recomputed": True}])
    made = effect(experts(asked(degrees(), ep=4, of_card=of_card, run=run), 4))
    tokens, gradients = made.added
    assert tokens.what == "8 all-to-alls of 0.4 MB of tokens among 4 ranks"
    assert tokens.time.expected == pytest.approx(8 * 4 * 400)
    assert (gradients.what, gradients.time.high) == ("all-reduce of 3 MB of gradients", 2 * 4 * 3_000)
    with pytest.raises(InputError, match="8 experts cannot be spread over 3 ranks"):
        experts(asked(degrees(), ep=3, of_card=of_card, run=run), 3)
    # experts over more ranks
    made = effect(experts(asked(degrees(ep=2), ep=4), 4))
    assert made.notes[0].startswith("experts over 4 ranks in place of 2: ")
    says = "does not show to how many experts a token goes; trace steps whose routers"
    with pytest.raises(InputError, match=says):
        experts(asked(degrees(), ep=2), 2)


def test_sequences_cut_among_more_ranks() -> None:
    graph = two()
    one = asked(degrees(cp=2), graph, cp=8, dimensions={"0-1": "cp"})
    made = effect(context(one, 8))
    assert factors_by_name(made, graph) == {"mm": (0.25,) * 3, "adam": (1, 1, 1), "odd": (0.25,) * 3}
    assert (made.payload, made.repeats) == (dict.fromkeys(("tp", "ep", "pp"), 0.25), {})
    assert made.notes == (
        "tokens of a rank scale as 1 / cp: kernels without the optimizer, 24.0% of the step, take 0.25 of"
        " their time, by the ratio of work",
    )
    object.__setattr__(graph.transfers, "kind", ("send", "recv"))
    ring = effect(context(one, 8))
    assert (ring.payload["cp"], ring.repeats) == (0.25, {"cp": 7})
    elsewhere = asked(degrees(cp=2), graph, cp=8, dimensions={"0-1": "pp"})
    assert effect(context(elsewhere, 8)).repeats == {}


def test_whole_sequences_are_split() -> None:
    """Keys and values of 1,000 tokens are 1,000 · 12 · 2 · 83.3 elements of 2 bytes; of 4 ranks 4 µs a MB,
    twice that at most, gathered twice and scattered once by 8 layers for each of 4 micro-batches."""
    one = asked(degrees(), cp=4)
    made = effect(context(one, 4))
    assert factors_by_name(made, one.graph) == {"mm": (0.25,) * 3, "adam": (1, 1, 1), "odd": (0.25,) * 3}
    keys, gradients = made.added
    assert keys.what == "exchange of 4 MB of keys and values among 4 ranks"
    assert keys.time == TimeBounds(0.0, None, pytest.approx(3 * 2 * 16_000 * 8 * 4))
    assert keys.in_stage
    assert (gradients.what, gradients.time.high) == ("all-reduce of 6 MB of gradients", 2 * 4 * 6_000)
    fewer = card({**MODEL, "kv_heads": 3, "head_dim": 100}, BATCH, microbatches=4)
    (keys, _) = effect(context(asked(degrees(), of_card=fewer, cp=2, tp=3, pp=2), 2)).added
    assert keys.what == "exchange of 0.4 MB of keys and values among 2 ranks"
    assert keys.time.high == pytest.approx(3 * 2 * (2 * 400) * 4 * 4)
    # of dp 2 and cp 4 once, by the setting of replicas
    one = asked(degrees(), cp=4, dp=2)
    (keys,) = effect(context(one, 4)).added
    assert keys.what.startswith("exchange of 4 MB")
    (gradients,) = effect(replicas(one, None)).added
    assert gradients.time.high == 2 * 8 * 6_000


SERVES = structs.replace(CARD, workload=structs.replace(CARD.workload, phase="inference"))


@pytest.mark.parametrize(
    ("old", "of_card", "says"),
    [
        (
            *(degrees(), card({"hidden": 1000}, BATCH)),
            "exchange of keys and values, which whole sequences do not need, can",
        ),
        # the all-reduces of several traced replicas are among replicas alone
        (degrees(dp=2), CARD, "dp 2 exchange gradients among replicas, and split sequences among"),
        # of prompts a rank has a part, of single tokens none: neither card nor trace tells them apart
        (degrees(), SERVES, "reads prompts, which can be split, or generates single tokens"),
    ],
)
def test_sequences_that_are_not_split(old: Layout, of_card: Card, says: str) -> None:
    with pytest.raises(InputError, match=says):
        context(asked(old, of_card=of_card, cp=2), 2)


@pytest.mark.parametrize(
    ("sizes", "elements"),
    [
        *(({}, 2 * 4096), ({"heads": 32}, 2 * 4096), ({"heads": 32, "kv_heads": 8}, 8 * 2 * 128)),
        ({"heads": 32, "head_dim": 160}, 32 * 2 * 160),
        ({"heads": 128, "query_key_dim": 192, "value_dim": 128}, 128 * 320),
    ],
)
def test_keys_and_values_of_a_token(sizes: dict[str, int], elements: int) -> None:
    assert key_value_elements(card({"hidden": 4096, **sizes})) == elements


def cut(monkeypatch: pytest.MonkeyPatch, one: ChangeSubject, shaped: float = 0.75) -> LayoutEffect:
    """With a product whose calls are recorded, by 0.6, 0.5 and 0.7."""
    found = CutKernels({"mm": BoundedFactor(0.6, 0.5, 0.7)}, BoundedFactor(0.55, 0.45, 0.65), shaped)
    monkeypatch.setattr(tensor_parallel, "cut_kernels", lambda *_: found)
    return effect(tensor_parallel.tensors(one, 0))


def test_tensors_cut_among_more_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    one = asked(degrees(tp=2), tp=4)
    made = cut(monkeypatch, one)
    factors = {"mm": (0.6, 0.5, 0.7), "adam": (0.5, 0.5, 0.5), "odd": (np.sqrt(0.5), 0.5, 1.0)}
    assert factors_by_name(made, one.graph) == factors
    assert (made.payload, made.added) == ({"dp": 0.5}, ())
    assert made.notes == (
        "kernels whose calls are recorded: by roofline times of split shapes, 20.0% of the step",
        "kernels without recorded shapes: by the ratio of work, 8.0% of the step",
        "kernels that may be split or not: bounds, expected is their geometric mean, 4.0% of the step",
    )
    # of a cpu all operators are cut together
    graph = two()
    arrivals = graph.nodes.kind == n.ARRIVAL
    graph.nodes.busy[arrivals] = [1_999, 1]
    made = cut(monkeypatch, asked(degrees(tp=2), graph, tp=4))
    scale = made.scale
    for own, factor in zip((scale.expected, scale.low, scale.high), (0.55, 0.45, 0.65), strict=True):
        assert own[arrivals].tolist() == [factor] * 2
        assert (own[graph.nodes.kind == n.TRANSFER] == 1).all()
    said = (
        "operators of the CPU, 75% of their time by recorded shapes: by the ratio of work, 2.0% of the step"
    )
    assert said in made.notes
    assert len(made.notes) == 4


@pytest.mark.parametrize(
    ("old", "more", "microbatches", "calls", "nbytes"),
    [
        *((degrees(), {}, None, 4 * 8, 2), (degrees(pp=2), {}, 3, 4 * 4 * 3, 2)),
        (degrees(cp=2), {}, None, 4 * 8, 1),
        # half of the samples: half as large in one micro-batch, half as many of several
        (degrees(dp=2), {"dp": 4, "batch": 1}, None, 4 * 8, 1),
        (degrees(dp=2), {"dp": 4, "batch": 1}, 2, 4 * 8, 2),
        (degrees(dp=2, pp=2), {"dp": 4, "batch": 1}, None, 4 * 4 / 2, 2),
    ],
)
def test_layers_cut_for_the_first_time_reduce_activations(
    monkeypatch: pytest.MonkeyPatch,
    old: Layout,
    more: dict[str, int],
    microbatches: int | None,
    calls: float,
    nbytes: float,
) -> None:
    """Four all-reduces a layer and micro-batch of 2 MB, of four ranks 4 µs a MB."""
    of_card = card(MODEL, BATCH, **({"microbatches": microbatches} if microbatches else {}))
    one = asked(old, of_card=of_card, tp=4, **more)
    (added,) = cut(monkeypatch, one).added
    assert added.what == f"{calls:g} all-reduces of {nbytes:g} MB of activations among 4 ranks"
    assert added.time.expected == pytest.approx(calls * 4_000 * nbytes)
    assert cut(monkeypatch, one).notes[-1].endswith("they are added to the step without overlap")


def test_heads_are_cut_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="12 heads cannot be split over 8 ranks"):
        tensor_parallel.tensors(asked(degrees(tp=2), tp=8), 8)
    known: list[Any] = []

    def seen(_run: object, ranks: list[int], cutting: Any) -> CutKernels:
        known.append((ranks, cutting.k, cutting.hidden, cutting.tokens, cutting.sequences))
        return CutKernels({}, BoundedFactor(1, 1, 1), 0.0)

    monkeypatch.setattr(tensor_parallel, "cut_kernels", seen)
    for of_card in (CARD, card(batch={"micro": 2}), None):
        tensor_parallel.tensors(asked(degrees(tp=2), of_card=of_card, tp=6), 6)
    assert known == [([0, 1], 3.0, 1000, 1000, False)] + [([0, 1], 3.0, None, None, False)] * 2


def test_ranks_taken_out_and_spares() -> None:
    graph = two()
    one = asked(degrees(dp=2), graph, remove=(1,))
    made = effect(remove(one, (1,)))
    assert [rank.rank for rank in made.graph.windowed] == [0]
    source, target, _ = made.graph.wait_edges()
    rank_of = graph.nodes.rank
    assert not ((rank_of[source] == 1) & (rank_of[target] != 1)).any()
    assert len(source) == len(graph.wait_edges()[0]) - 1
    assert made.notes == (
        "rank 1 removed: 2 replicas become 1; each replica's batch stays, so a step has 0.5 of the"
        " samples (batch=rank)",
    )
    fixed = effect(remove(asked(degrees(dp=2), graph, remove=(1,), batch=1), (1,)))
    assert fixed.notes == ("rank 1 removed: 2 replicas become 1",)
    assert fixed.added == ()
    # a spare does what its rank does
    one = asked(degrees(dp=2), replace=((0, 2), (1, 3)))
    made = effect(spare(one, ((0, 2), (1, 3))))
    said = "rank 0 at place 2, rank 1 at place 3: a spare at another place computes as"
    assert made.notes[0].startswith(said)
    graph = build_graph([alone(item("mm", 0, 10))])
    assert spare(asked(degrees(dp=2), graph, replace=((0, 2),)), ()) == "the run has no collectives"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ranks.remove=a", "'a' is not a rank; such as 3, or 3+11"),
        ("ranks.replace=3", "'3' is not RANK:PLACE; such as 3:8"),
        ("ranks.replace=3:8+3:9", "a rank has one place, and a place one rank"),
        ("ranks.replace=3:8+4:8", "a rank has one place, and a place one rank"),
    ],
)
def test_ranks_and_places_as_people_write_them(text: str, says: str) -> None:
    assert parse_scenario(["ranks.remove=11+3+3"]).changes == {"ranks.remove": (3, 11)}
    assert parse_scenario(["ranks.replace=3:8+1:9"]).changes == {"ranks.replace": ((3, 8), (1, 9))}
    with pytest.raises(UsageError, match=re.escape(f"{text}: {says}")):
        parse_scenario([text])

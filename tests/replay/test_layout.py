# SPDX-License-Identifier: Apache-2.0
"""Layouts of a job and operators sharded among its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from helpers.replay_subjects import card, degrees

import cclbench
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.operators.call import Call, Tensor
from cclbench.replay.layout import MOST_RANKS, Layout, Relayout, changes_layout, layout_of, target_relayout
from cclbench.replay.regroup import RegroupedGroup, dimension_in, even_ranks, regroup_all
from cclbench.replay.sharded_operators import BoundedFactor, TensorCutting, cut_kernels

CUBE = degrees(tp=2, dp=3, pp=4)
NESTED = degrees(ep=2, dp=4, tp=2, nested=True)


def run(world: int, *groups: tuple[str, Sequence[int]], of_card: object = None) -> Any:
    """A run whose traces describe those groups."""
    table = pa.table(
        {"descriptions": [[text] for text, _ in groups], "ranks": [[*ranks] for _, ranks in groups]},
        pa.schema([("descriptions", pa.list_(pa.string())), ("ranks", pa.list_(pa.int64()))]),
    )
    facts = SimpleNamespace(world_size=world)
    told = {"card": of_card, "rank": lambda _: SimpleNamespace(facts=facts), "groups": lambda: table}
    return SimpleNamespace(id="a run", ranks=[0, 1], **told)


def test_strides_are_products_of_the_degrees_inside() -> None:
    assert (CUBE.world_size, CUBE.model_size, CUBE.batch_groups) == (24, 8, 3)
    strides = {name: CUBE.group_stride(name) for name in CUBE.degrees}
    assert strides == {"tp": 1, "cp": 2, "ep": 2, "dp": 2, "pp": 6}
    assert [CUBE.place_along(13, name) for name in ("tp", "dp", "pp")] == [1, 0, 2]
    assert str(CUBE) == "tp 2 x dp 3 x pp 4"
    assert str(degrees()) == "one rank"
    # experts spread over replicas are part of them
    assert (NESTED.world_size, NESTED.model_size, NESTED.batch_groups) == (8, 2, 4)
    assert (NESTED.group_stride("ep"), NESTED.group_stride("dp"), NESTED.group_stride("pp")) == (2, 2, 8)
    assert degrees(ep=2, dp=4).batch_groups == 8


def test_degrees_come_from_the_groups_that_traces_describe() -> None:
    """Of several groups of a dimension the largest; data parallelism is what is left of the world."""
    found = layout_of(run(16, ("mesh_tp", [0, 1]), ("mesh_tp", [0, 1, 2, 3]), ("mesh_pp", [0, 8])))
    assert found == degrees(tp=4, pp=2, dp=2)
    # stages are neighbours here; what no trace shows stands where it usually does
    found = layout_of(run(8, ("mesh_pp", [0, 1]), ("mesh_tp", [0, 2])))
    assert [*found.degrees] == ["pp", "tp", "cp", "ep", "dp"]
    assert (found.group_stride("pp"), found.group_stride("tp"), found.group_stride("dp")) == (1, 2, 4)
    # a group of two descriptions tells no dimension
    traced = run(4, ("mesh_tp", [0, 1]))
    table = pa.table({"descriptions": [["mesh_tp"], ["mesh_tp", "mesh_dp"]], "ranks": [[0, 1], [0, 1, 2, 3]]})
    assert layout_of(SimpleNamespace(**{**vars(traced), "groups": lambda: table})).degrees["tp"] == 2
    # a world that nobody states is that of the traced ranks
    assert layout_of(run(0, ("mesh_tp", [0, 1]))).world_size == 2


@pytest.mark.parametrize(
    ("parallelism", "found"),
    [
        ({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, degrees(tp=2, dp=4)),
        ({"dp_replicate": 4, "ep": 2, "tp": 2}, degrees(tp=2, ep=2, dp=4, nested=True)),
        ({"dp_replicate": 2, "ep": 2, "tp": 2}, degrees(tp=2, ep=2, dp=2)),
        ({"dp_replicate": 2, "cp": 2, "pp": 2}, degrees(cp=2, pp=2, dp=2)),
    ],
)
def test_degrees_come_from_the_card(parallelism: dict[str, int], found: Layout) -> None:
    assert layout_of(run(8, of_card=card(**parallelism))) == found


def test_degrees_that_do_not_make_the_job_are_refused() -> None:
    with pytest.raises(InputError, match="3 ranks of each replica do not make the 8 ranks"):
        layout_of(run(8, ("mesh_tp", [0, 1, 2])))
    with pytest.raises(InputError, match="dp 2 x 2 ranks of each replica do not make the 8 ranks"):
        layout_of(run(8, of_card=card(dp_replicate=2, tp=2)))
    with pytest.raises(InputError, match="are unknown"):
        layout_of(run(8))
    # of six replicas experts over four ranks are no part: 6 x 4 ranks are not the six of the job
    with pytest.raises(
        InputError, match=r"dp 6 x 4 ranks of each replica do not make the 6 ranks of the job"
    ):
        layout_of(run(6, of_card=card(dp_replicate=6, ep=4)))
    assert layout_of(run(8, ("mesh_ep", [0, 1]), ("mesh_dp", range(8)))).nested
    assert not layout_of(run(8, ("mesh_ep", [0, 1]), ("mesh_dp", range(0, 8, 2)))).nested
    # Replicas that no group shows are one: 2 x 2 ranks are the job of 4.
    assert layout_of(run(4, ("mesh_tp", [0, 1]), ("mesh_ep", [0, 2]))) == degrees(tp=2, ep=2)


@pytest.mark.parametrize(
    ("settings", "new"),
    [
        ({"ranks": 16}, degrees(tp=4, dp=4)),
        ({"ranks.add": 4}, degrees(tp=4, dp=3)),
        ({"ranks": 16, "parallelism.tp": 8}, degrees(tp=8, dp=2)),
        ({"parallelism.dp": 5}, degrees(tp=4, dp=5)),
        ({"ranks.remove": (5,)}, degrees(tp=4, dp=1)),
    ],
)
def test_the_new_layout_is_what_settings_ask_for(settings: dict[str, Any], new: Layout) -> None:
    old = degrees(tp=4, dp=2)
    found = target_relayout(old, settings)
    assert (found.old, found.new) == (old, new)
    assert found.removed == (frozenset(range(4, 8)) if "ranks.remove" in settings else frozenset())
    assert found.degree_growth("dp") == new.degrees["dp"] / 2
    assert not found.fixed_batch
    assert found.sample_share == 1


def test_what_new_layouts_are_allowed() -> None:
    found = target_relayout(degrees(dp=2), {"parallelism.dp": 8, "batch": 1})
    assert (found.fixed_batch, found.sample_share) == (True, 0.25)
    assert target_relayout(degrees(dp=2), {"parallelism.dp": 8, "batch": 0}).sample_share == 1
    # the largest layout and the first spare are allowed
    assert target_relayout(degrees(dp=2), {"parallelism.dp": MOST_RANKS}).new.world_size == MOST_RANKS
    assert target_relayout(degrees(tp=4, dp=2), {"ranks.replace": ((7, 8),)}).places == {7: 8}
    # experts over replicas stay a part of them
    with pytest.raises(UsageError, match="experts over 3 ranks do not divide dp 4"):
        target_relayout(NESTED, {"parallelism.ep": 3})
    assert target_relayout(NESTED, {"parallelism.ep": 4}).new.degrees["ep"] == 4
    with pytest.raises(InputError, match="spread over replicas, so no replica can continue"):
        target_relayout(NESTED, {"ranks.remove": (0,)})
    # the last replica is not taken out
    with pytest.raises(InputError, match=r"no replica of the model is left \(tp 2 x dp 2\)"):
        target_relayout(degrees(tp=2, dp=2), {"ranks.remove": (0, 2)})
    assert target_relayout(degrees(tp=2, dp=3), {"ranks.remove": (0, 2)}).removed == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"parallelism.dp": MOST_RANKS // 4 + 1}, "1,048,580 ranks are more than 1,048,576"),
        ({"ranks.replace": ((8, 9),)}, "no rank 8 to replace"),
        ({"ranks.replace": ((3, 7),)}, "place 7 belongs to a rank of the job; spares are from 8 on"),
        ({"ranks.remove": (8,)}, "the job has no rank 8: it has 8"),
        ({"ranks.remove": (0,), "parallelism.tp": 2}, "from the traced layout only"),
        ({"ranks.remove": (0,), "ranks.replace": ((1, 9),)}, "no rank 1 to replace"),
        ({"ranks": 10}, r"10 ranks are not a multiple of the 4 of a replica \(tp 4 x dp 2\)"),
        ({"ranks": 64, "parallelism.dp": 8}, "both set the number of replicas"),
    ],
)
def test_what_makes_no_layout_says_why(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        target_relayout(degrees(tp=4, dp=2), settings)


def test_members_of_a_group_in_another_layout() -> None:
    """tp 2, dp 3, pp 4 become tp 4, dp 2, pp 4: strides of 1, 4 and 8."""
    change = target_relayout(CUBE, {"parallelism.tp": 4, "parallelism.dp": 2})
    assert change.new_members((6, 7), "tp") == (0, 1, 2, 3)
    assert change.new_members((1, 3, 5), "dp") == (0, 4)
    assert change.new_members((0, 6, 12, 18), "pp") == (0, 8, 16, 24)
    assert change.new_members((3, 4), None) == (3, 4)
    assert change.new_members(range(24), None) == tuple(range(32))
    # a part of a dimension: the inner one stays, of the outer one there are as many as the inner ones leave
    assert change.new_members((0, 6), "pp") == (0, 8)
    assert change.new_members((0,), "pp") == (0,)
    outer = target_relayout(degrees(dp=8), {"parallelism.dp": 12})
    assert outer.new_members((1, 5), "dp") == (0, 4, 8)
    assert outer.new_members((0, 1, 2, 3), "dp") == (0, 1, 2, 3)
    wider = target_relayout(degrees(ep=4, dp=8, nested=True), {"parallelism.ep": 8})
    assert wider.new_members((0, 1, 2, 3), "ep") == tuple(range(8))
    with pytest.raises(UsageError, match="dp 6 is no multiple of the 4 ranks that share a part"):
        target_relayout(degrees(dp=8), {"parallelism.dp": 6}).new_members((1, 5), "dp")
    with pytest.raises(UsageError, match="dp 2 is no multiple of the 4 ranks"):
        target_relayout(degrees(dp=8), {"parallelism.dp": 2}).new_members((1, 5), "dp")
    # of tensors alone it stays that dimension's; one of replicas alone, or of two dimensions, has all
    tensors = target_relayout(degrees(tp=4), {"parallelism.tp": 2, "parallelism.dp": 3})
    assert tensors.new_members(range(4), None) == (0, 1)
    replicas = target_relayout(degrees(dp=4), {"parallelism.tp": 2})
    assert replicas.new_members(range(4), None) == tuple(range(8))
    assert target_relayout(degrees(), {"parallelism.dp": 4}).new_members((0,), None) == (0,)


def test_ranks_taken_out_and_spares() -> None:
    smaller = target_relayout(degrees(tp=2, dp=3), {"ranks.remove": (3,)})
    assert smaller.new_members((0, 2, 4), "dp") == (0, 4)
    assert smaller.new_members((4, 5), "tp") == (0, 1)
    assert smaller.new_members(range(6), None) == (0, 1, 4, 5)
    assert smaller.new_members((1, 2), None) == (1,)
    moved = target_relayout(degrees(tp=2, dp=3), {"ranks.replace": ((4, 9),)})
    assert moved.new_members((0, 2, 4), "dp") == (0, 2, 9)
    assert moved.new_members(range(6), None) == (0, 1, 2, 3, 9, 5)
    larger = Relayout(degrees(dp=3), degrees(dp=6), places={4: 9})
    assert larger.new_members((0, 1, 2), "dp") == (0, 1, 2, 3, 9, 5)


def test_which_settings_are_about_layouts() -> None:
    keys = "parallelism.tp parallelism.pp ranks ranks.add ranks.remove ranks.replace batch"
    assert all(changes_layout(["copies", key]) for key in keys.split())
    assert not changes_layout(["copies", "parallelism.interleave"])


def test_the_dimension_of_a_group_is_the_one_along_which_its_ranks_differ() -> None:
    found = [dimension_in(CUBE, ranks) for ranks in ((0, 1), (1, 3, 5), (0, 18), (0, 3), (2,), (2, 2))]
    assert found == ["tp", "dp", "pp", None, None, None]
    assert dimension_in(NESTED, (0, 2)) == "dp"
    assert dimension_in(degrees(ep=2, dp=2), (0, 1)) == "ep"
    # groups that change have members payload and repeats
    change = target_relayout(degrees(tp=2, dp=2), {"parallelism.dp": 4})
    groups = {"tensors": (0, 1), "data": (0, 2), "told": (0, 1, 3), "all": (0, 1, 2, 3), "alone": (0,)}
    expected = {"data": RegroupedGroup((0, 2, 4, 6), dimension="dp"), "all": RegroupedGroup(tuple(range(8)))}
    assert regroup_all(groups, {}, change, {}, {}) == expected
    found = regroup_all(groups, {"told": "tp"}, change, {"tp": 0.5, "dp": 2.0}, {"tp": 3.0})
    assert found["tensors"] == RegroupedGroup((), 0.5, 3.0, "tp")
    assert found["data"] == RegroupedGroup((0, 2, 4, 6), 2.0, 1.0, "dp")
    assert found["told"][1:] == (0.5, 3.0, "tp")
    assert set(found) == {"tensors", "data", "told", "all"}


@pytest.mark.parametrize(
    ("ranks", "even", "more"),
    [
        *((range(8), range(8), (1.0, 1.0, 1.0)), (range(16), range(16), (1.0, 1.0, 1.0))),
        ((0, 1, 2), (0, 1, 2), (1.0, 1.0, 1.0)),
        # nine ranks on two nodes, of which one holds one: 2 · 8/9 for 2 · 1/2, at best as of 4.5 each
        ((*range(8), 8), (0, 8), (16 / 9, 2 / 9, 16 / 9)),
        # 5 on three nodes of 2, 2 and 1: 2 · 4/5 for 2 · 2/3
        ((0, 1, 8, 9, 16), (0, 8, 16), (1.2, 0.6, 1.2)),
        ((0, 1, 2, 8, 9), (0, 1, 8, 9), (16 / 15, 0.8, 16 / 15)),
    ],
)
def test_uneven_as_the_fewest(ranks: Sequence[int], even: Sequence[int], more: tuple[float, ...]) -> None:
    found, factors = even_ranks("all_reduce", ranks, catalog.system("dgx-h100"))
    assert (tuple(found), factors) == (tuple(even), pytest.approx(more))


def test_what_moves_no_more_in_larger_groups_has_no_larger_low_bound() -> None:
    _, factors = even_ranks("broadcast", (*range(8), 8), catalog.system("dgx-h100"))
    assert factors == pytest.approx((1.0, 2 / 9, 1.0))


H100 = catalog.accelerator("nvidia-h100-sxm")
HALF, WHOLE = BoundedFactor(0.5, 0.5, 0.5), BoundedFactor(1.0, 1.0, 1.0)


def product(m: int, k: int, n: int, name: str = "aten::mm") -> Call:
    return Call(name, (Tensor((m, k), "bf16"), Tensor((k, n), "bf16")))


def test_a_product_goes_as_its_flops_or_its_bytes() -> None:
    cutting = TensorCutting(2, hidden=8192, tokens=16384, accelerator=H100)
    for sizes in ((16384, 8192, 28672), (16384, 28672, 8192), (28672, 16384, 8192)):
        found = cutting.call_factor(product(*sizes), "forward")
        assert found == pytest.approx(HALF, rel=1e-6)
    # 65,536 tokens of 64, by 64 x 128: of 4.19 + 0.008 + 8.39 million elements the first stay, half of others
    m, k, n = 65_536, 64, 128
    cut = (m * k + k * n / 2 + m * n / 2) / (m * k + k * n + m * n)
    found = TensorCutting(2, hidden=k, tokens=m, accelerator=H100).call_factor(product(m, k, n), "forward")
    assert found == pytest.approx(BoundedFactor(cut, cut, cut))
    unknown = TensorCutting(2, accelerator=H100).call_factor(product(m, k, n), "forward")
    other = ((m * k / 2 + k * n + m * n / 2), (m * k / 2 + k * n / 2 + m * n))
    cuts = [cut, *(each / (m * k + k * n + m * n) for each in other)]
    assert (unknown.low, unknown.high) == pytest.approx((min(cuts), max(cuts)))


@pytest.mark.parametrize(
    ("call", "phase", "expected"),
    [
        (Call("aten::add", (Tensor((4, 128, 512), "bf16"),) * 2), "forward", WHOLE),
        (Call("aten::silu", (Tensor((4, 128, 1376), "bf16"),)), "forward", HALF),
        (Call("aten::_fused_adamw_", ((Tensor((512, 512), "float"),),)), "optimizer", HALF),
        (Call("aten::bmm", (Tensor((8, 64, 64), "bf16"),) * 2), "forward", HALF),
        (Call("aten::_scaled_dot_product_flash_attention"), "forward", HALF),
        (Call("aten::fill_"), "forward", None),
    ],
)
def test_other_calls(call: Call, phase: str, expected: BoundedFactor | None) -> None:
    assert TensorCutting(2, hidden=512).call_factor(call, phase) == expected


def test_what_may_be_cut_or_not_lies_between() -> None:
    found = TensorCutting(4).call_factor(Call("aten::add", (Tensor((4, 512), "bf16"),) * 2), "forward")
    assert found == BoundedFactor(0.5, 0.25, 1.0)
    assert TensorCutting(4, sequences=True).category_factor("elementwise") == BoundedFactor(0.25, 0.25, 0.25)
    assert TensorCutting(4).category_factor("normalization") == WHOLE
    assert TensorCutting(4).category_factor("gemm") == BoundedFactor(0.25, 0.25, 0.25)
    # fewer ranks take longer
    assert TensorCutting(0.25).cut_factor == BoundedFactor(4.0, 4.0, 4.0)
    assert TensorCutting(0.25).cut_or_whole_factor == BoundedFactor(2.0, 1.0, 4.0)
    assert TensorCutting(4).cut_or_whole_factor == BoundedFactor(0.5, 0.25, 1.0)
    assert TensorCutting(4).category_factor("other") == BoundedFactor(0.5, 0.25, 1.0)
    assert TensorCutting(4, sequences=True).category_factor("normalization") == BoundedFactor(
        0.25, 0.25, 0.25
    )
    whole = Call("aten::add", (Tensor((4, 512), "bf16"),))
    assert TensorCutting(4, hidden=512).call_factor(whole, "forward") == WHOLE
    cut = TensorCutting(4, hidden=512, sequences=True).call_factor(whole, "forward")
    assert cut == BoundedFactor(0.25, 0.25, 0.25)
    scalar = Call("aten::fill_", (Tensor((), "bf16"),))
    assert TensorCutting(4).call_factor(scalar, "forward") is None


def test_operators_of_a_recorded_run(repository: Path, tmp_path: Path) -> None:
    """Its products are most of the time and go as 1/2; what is added to activations of 512 stays."""
    run = cclbench.ingest(
        repository / "workload_cards" / "tiny-llama-operators-ddp2-gloo-cpu.yaml", store=tmp_path
    )
    found = cut_kernels(run, [0], TensorCutting(2, hidden=512, tokens=512))
    assert found.shaped > 0.95
    assert 0.5 < found.together.expected < 0.6
    assert found.together.low <= found.together.expected <= found.together.high
    same = cut_kernels(run, [0], TensorCutting(1, hidden=512, tokens=512))
    assert same.together == pytest.approx(WHOLE)


def test_a_product_is_cut_along_neither_tokens_nor_the_hidden_size() -> None:
    """Where sizes are both, any of them may be cut; FLOPs alone count where no accelerator is known."""
    alone = TensorCutting(4, hidden=512, tokens=128)
    assert alone.call_factor(product(128, 512, 2048), "forward") == BoundedFactor(0.25, 0.25, 0.25)
    assert alone.call_factor(product(128, 512, 512), "forward") == BoundedFactor(0.25, 0.25, 0.25)
    # of 6 columns a quarter is 2, not 1.5; never less than 1
    found = alone.call_factor(product(128, 512, 6), "forward")
    assert found == pytest.approx(BoundedFactor(1 / 3, 1 / 3, 1 / 3))
    assert alone.call_factor(product(128, 512, 1), "forward") == pytest.approx(WHOLE)
    # products by name and by their shapes
    first = Tensor((64,), "bf16")
    added = Call("aten::addmm", (first, Tensor((32, 16), "bf16"), Tensor((16, 64), "bf16")))
    assert TensorCutting(2).call_factor(added, "forward") == pytest.approx(HALF)
    flat = Call("aten::mm", (Tensor((8,), "bf16"), Tensor((8, 4), "bf16")))
    assert TensorCutting(2).call_factor(flat, "forward") in (HALF, None)
    assert TensorCutting(2).call_factor(Call("aten::mm", ()), "forward") is None


@pytest.mark.parametrize("category", ["optimizer", "moe", "attention"])
def test_categories_that_are_cut(category: str) -> None:
    assert TensorCutting(3).category_factor(category) == BoundedFactor(1 / 3, 1 / 3, 1 / 3)

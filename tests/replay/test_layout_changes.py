# SPDX-License-Identifier: Apache-2.0
"""Other numbers of ranks and other parallel degrees: worked out by hand, and simulated again in that
layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest
from helpers.replay_jobs import SYSTEM, traced
from helpers.scaled_jobs import PricedNetwork
from helpers.synthetic import (
    Await,
    Collective,
    Compute,
    Layout,
    Link,
    Network,
    Program,
    Transfer,
    Truth,
    simulate,
)
from helpers.synthetic.program import Op
from helpers.true_steps import _true_step

from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario

LINK = Link(5_000, 100)
MIB = 1 << 20


def simulated(layout: Layout, *ops: Op, slow: dict[int, int] | None = None) -> Truth:
    return simulate(layout, Program(ops, steps=3, closing=True, slow=slow or {}), Network(LINK))


def predicted(replay: Replay, *texts: str) -> tuple[float, str]:
    found = replay.predict(parse_scenario(texts))
    assert (found.idle, found.step_ns is None) == (None, False)
    return found.step_ns or 0.0, "\n".join(found.basis)


def step(replay: Replay, *texts: str) -> float:
    return predicted(replay, *texts)[0]


def priced(kind: str, ranks: int | Sequence[int], nbytes: int) -> float:
    """By the release of NCCL that the simulated traces name, ns."""
    members = range(ranks) if isinstance(ranks, int) else ranks
    found = price_collective(kind, nbytes, members, catalog.system(SYSTEM), library_version="2.26.2")
    return float(found.time_s[0]) * 1e9


def refused(replay: Replay, text: str, says: str) -> str:
    with pytest.raises(InputError, match=says) as error:
        replay.predict(parse_scenario([text]))
    return str(error.value.hint)


@pytest.fixture(scope="module")
def eight() -> Iterator[Replay]:
    """400 µs of kernel and an all-reduce of eight ranks."""
    with traced(simulated(Layout(dp=8), *REDUCED)) as replay:
        yield replay


REDUCED = (Compute(400_000), Collective("all_reduce", "dp", 64 * MIB))


def test_replicas_wait_for_the_larger_group_s_collective(eight: Replay) -> None:
    """The all-reduce takes the model's ratio times as long among 64."""
    old = LINK.transfer_ns(64 * MIB)
    new = old * priced("all_reduce", 64, 64 * MIB) / priced("all_reduce", 8, 64 * MIB)
    for text in ("parallelism.dp=64", "ranks=64", "ranks.add=56"):
        assert step(eight, text) - eight.unchanged.step_ns == pytest.approx(new - old, abs=500)
    _, said = predicted(eight, "ranks=1024")
    assert "global batch is 128 times as large (batch=rank)" in said
    assert "modelled among 1,024 ranks in place of 8" in said
    # a thousand ranks take no more nodes than eight
    graph, _, _, relaid = eight._change_graph(parse_scenario(["ranks=1024"]))
    assert len(graph.nodes) == len(eight.graph.nodes)
    assert [len(one.members) for one in relaid.regrouped_groups().values()] == [1024]


def test_with_the_global_batch_fixed_replicas_have_less_to_do(eight: Replay) -> None:
    """Twice the replicas: half of the 400 µs stays, beside the all-reduce of the same gradients among 16."""
    larger = step(eight, "parallelism.dp=16")
    fixed, said = predicted(eight, "parallelism.dp=16", "batch=global")
    assert fixed == pytest.approx(larger - 200_000, abs=500)
    assert "0.5 times as many" in said


def test_the_last_of_more_ranks_is_later_by_order_statistics() -> None:
    """Ranks of 0, 1, ..., 7 ‰ more than 1 ms: s = √6 µs; of 64 the last is s · (d(64) − d(8)) later."""
    slow = {rank: 1000 + rank for rank in range(8)}
    ops = (Compute(1_000_000), Collective("all_reduce", "dp", 64 * MIB))
    with traced(simulated(Layout(dp=8), *ops, slow=slow)) as replay:
        even = (Compute(1_007_000), ops[1])
        with traced(simulated(Layout(dp=8), *even)) as alike:
            assert alike.unchanged.step_ns == pytest.approx(replay.unchanged.step_ns, abs=10)
            waited = step(replay, "ranks=64") - step(alike, "ranks=64")
        assert waited == pytest.approx(math.sqrt(6e6) * 1.0 * (2.3437 - 1.4236), rel=0.01)


KERNELS = (Compute(40_000, "layer_norm_kernel"), Compute(30_000, "vectorized_elementwise_kernel"))
CUT = (Compute(800_000), *KERNELS)
CUT += (Collective("all_reduce", "tp", 16 * MIB), Collective("all_reduce", "dp", 64 * MIB))


def test_tensors_cut_among_twice_the_ranks() -> None:
    """Half of the product, all of the norm, all of the activation or half of it, half of the gradients'
    bytes."""
    with traced(simulated(Layout(dp=2, tp=4), *CUT)) as replay:
        found = replay.predict(parse_scenario(["parallelism.tp=8"]))
        tp, dp = LINK.transfer_ns(16 * MIB), LINK.transfer_ns(64 * MIB)
        tp *= priced("all_reduce", 8, 16 * MIB) / priced("all_reduce", 4, 16 * MIB)
        dp *= priced("all_reduce", (0, 8), 32 * MIB) / priced("all_reduce", (0, 4), 64 * MIB)
        moved = tp + dp - LINK.transfer_ns(16 * MIB) - LINK.transfer_ns(64 * MIB)
        kernels = -400_000 + 30_000 * (math.sqrt(0.5) - 1)
        assert found.step_ns == pytest.approx(replay.unchanged.step_ns + kernels + moved, abs=1_000)
        assert found.low_ns < found.step_ns < found.high_ns
        assert "without recorded shapes: by the ratio of work" in "\n".join(found.basis)


def test_layers_cut_for_the_first_time_exchange_activations() -> None:
    """Two layers, two micro-batches: 4 · 2 · 2 all-reduces of 4 · 1,024 · 4,096 elements of 2 bytes."""
    model = {"layers": 2, "hidden": 4096, "heads": 32}
    batch = {"micro": 4, "sequence_length": 1024}
    job = simulated(Layout(dp=2), Compute(40_000_000), REDUCED[1])
    with traced(job, model=model, batch=batch, microbatches=2) as replay:
        found, said = predicted(replay, "parallelism.tp=4")
        assert step(replay, "parallelism.tp=4", "rank[0].kernels.time=x1") == found
        assert "16 all-reduces of 33.55 MB of activations among 4 ranks are not in the trace" in said
        plain = 10_000_000 + 16 * priced("all_reduce", 4, 4 * 1024 * 4096 * 2)
        assert plain < found < plain + LINK.transfer_ns(64 * MIB) * 2
    with traced(job, microbatches=2) as replay:
        assert "workload.model.hidden" in refused(replay, "parallelism.tp=4", "cannot be sized")


def pipeline(layout: Layout, microbatches: int = 4) -> Truth:
    """4 layers of 600 µs forth and twice that back, all micro-batches forth and then all back."""
    layers, ops = 8 // layout.pp, list[Op]()
    for way in (1, -1):
        for turn in range(microbatches):
            ops += [
                Transfer("recv", 4 * MIB, way),
                *[Compute(100_000 if way == 1 else 200_000)] * layers,
                Transfer("send", 4 * MIB, way, f"{way} {turn}"),
            ]
    ops.append(Collective("all_reduce", "dp", 8 * MIB))
    return simulate(layout, Program(tuple(ops), steps=2, closing=True), Network(Link(1_000, 1)))


def test_layers_recut_into_more_stages() -> None:
    """(m + p − 1) · t: 5 slots of 4 layers become 7 of 2, t falling from 1.2 ms to 0.6."""
    with traced(pipeline(Layout(dp=2, pp=2)), model={"layers": 8}, microbatches=4) as replay:
        true = _true_step(pipeline(Layout(dp=2, pp=4)))
        assert replay.unchanged.step_ns == pytest.approx(5 * 1_200_000, rel=0.03)
        assert true == pytest.approx(7 * 600_000, rel=0.03)
        found = step(replay, "parallelism.pp=4")
        assert found == pytest.approx(true, rel=0.02)
        interleaved = step(replay, "parallelism.pp=4", "parallelism.interleave=2")
        assert found - interleaved == pytest.approx(1.5 * 600_000, rel=0.02)
        refused(replay, "parallelism.pp=16", "8 layers are too few for 16 parts")
    with traced(pipeline(Layout(dp=2, pp=2)), model={"layers": 8}) as replay:
        assert "parallelism.microbatches" in refused(replay, "parallelism.pp=4", "micro-batches")


def test_fewer_micro_batches_flow_through_a_pipeline_that_is_filled_as_before() -> None:
    """Twice the replicas: 4 + 1 slots become 2 + 1."""
    with traced(pipeline(Layout(dp=2, pp=2)), model={"layers": 8}, microbatches=4) as replay:
        true = _true_step(pipeline(Layout(dp=4, pp=2), microbatches=2))
        assert true == pytest.approx(3 * 1_200_000, rel=0.03)
        assert step(replay, "parallelism.dp=4", "batch=global") == pytest.approx(true, rel=0.02)


def test_experts_over_more_ranks_exchange_as_much_among_more() -> None:
    with traced(
        simulated(Layout(ep=4), Compute(500_000), Collective("all_to_all", "ep", 16 * MIB))
    ) as replay:
        ratio = priced("all_to_all", 8, 16 * MIB) / priced("all_to_all", 4, 16 * MIB)
        grown = step(replay, "parallelism.ep=8") - replay.unchanged.step_ns
        assert grown == pytest.approx(LINK.transfer_ns(16 * MIB) * (ratio - 1), abs=500)


def test_what_is_not_known_is_refused_with_what_to_supply(eight: Replay) -> None:
    refused(eight, "parallelism.cp=2", "split sequences among all their ranks")
    refused(eight, "parallelism.ep=2", "to how many experts a token goes")
    with traced(simulated(Layout(dp=8), *REDUCED), card=False, described=False) as replay:
        assert "a card with `parallelism`" in refused(replay, "ranks=64", "are unknown")
    with traced(simulated(Layout(dp=2, tp=4), *CUT), card=False) as replay:
        assert replay.layout.degrees == {"tp": 4, "cp": 1, "ep": 1, "dp": 2, "pp": 1}
    with traced(simulated(Layout(dp=2, tp=4), *CUT), tp=2) as replay:
        refused(replay, "ranks=64", "tp 4 in the traces, 2 in the card")


def test_a_failed_rank_takes_its_replica_along() -> None:
    """Rank 1 is slow; without it and rank 0 the step is that of the others, with one replica fewer to wait
    for."""
    tensors, data = Collective("all_reduce", "tp", 4 * MIB), Collective("all_reduce", "dp", 16 * MIB)
    with traced(simulated(Layout(dp=4, tp=2), Compute(500_000), tensors, data, slow={1: 2000})) as replay:
        found, said = predicted(replay, "ranks.remove=1")
        ratio = priced("all_reduce", (2, 4, 6), 16 * MIB) / priced("all_reduce", (0, 2, 4, 6), 16 * MIB)
        moved = LINK.transfer_ns(16 * MIB) * (ratio - 1)
        assert found == pytest.approx(replay.unchanged.step_ns - 500_000 + moved, abs=1_000)
        assert "removed: 4 replicas become 3" in said
        assert "0.75 of the samples (batch=rank)" in said
        third = priced("all_reduce", 2, 4 * MIB * 4 // 3) / priced("all_reduce", 2, 4 * MIB) - 1
        grown = 500_000 / 3 + LINK.transfer_ns(4 * MIB) * third
        assert step(replay, "ranks.remove=1", "batch=global") == pytest.approx(found + grown, abs=1_000)
    with traced(simulated(Layout(tp=2), *CUT[:4])) as replay:
        assert "ranks.replace" in refused(replay, "ranks.remove=1", "no replica of the model is left")


def test_a_spare_on_another_node_is_reached_by_the_network(eight: Replay) -> None:
    """Eight ranks, one of them elsewhere: the ring passes one interface, as that of two single ranks does."""
    found, said = predicted(eight, "ranks.replace=3:8")
    ratio = priced("all_reduce", (0, 8), 64 * MIB) * (7 / 4) / priced("all_reduce", 8, 64 * MIB)
    old = LINK.transfer_ns(64 * MIB)
    assert found == pytest.approx(eight.unchanged.step_ns + old * (ratio - 1), rel=1e-3)
    assert ratio > 2
    assert "rank 3 at place 8" in said


def true_job(layout: Layout, places: dict[int, int] | None = None) -> Truth:
    """Two micro-batches of kernels and tensors' all-reduces, then the gradients', as the catalog prices
    them."""
    ops = (
        *(op for _ in range(2) for op in (Compute(300_000), Collective("all_reduce", "tp", 8 * MIB))),
        *(Collective("all_reduce", "dp", 64 * MIB, "gradients"), Compute(150_000), Await("gradients")),
    )
    network = PricedNetwork(places=places or {})
    return simulate(layout, Program(ops, steps=3, closing=True, jitter=20), network, seed=3)


def test_jobs_simulated_again_without_a_replica_and_with_a_spare() -> None:
    layout = Layout(dp=4, tp=2)
    with traced(true_job(layout)) as replay:
        smaller = _true_step(true_job(Layout(dp=3, tp=2)))
        assert step(replay, "ranks.remove=7") == pytest.approx(smaller, rel=0.01)
        elsewhere = _true_step(true_job(layout, {3: 8}))
        assert elsewhere > 1.2 * replay.unchanged.step_ns
        assert step(replay, "ranks.replace=3:8") == pytest.approx(elsewhere, rel=0.01)

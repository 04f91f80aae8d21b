# SPDX-License-Identifier: Apache-2.0
"""When gradients are ready, which collectives a framework calls for them, and what these add to a step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import item, rank
from helpers.replay_subjects import a_run, card, degrees, price, subject
from msgspec.structs import replace

import cclbench
from cclbench.ground.errors import InputError
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.change import ChangeSubject, LayoutEffect, PlacedTransfer, TimeBounds
from cclbench.replay.changes.data_parallel import replicas, strategy
from cclbench.replay.gradient_exchange import BUCKET, FIRST_BUCKET, bucket_ends
from cclbench.replay.gradients import recorded_gradients, updated_bytes
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.placed import graph_with_transfers
from cclbench.replay.simulate import simulate_nodes

MIB = 1 << 20
LAYERS = {"parameters": 786_432, "layers": 2}


def one_step() -> Graph:
    """Two kernels of forward, two of backward, 10 µs each, and 4 of the optimizer; launched 1 µs apart."""
    names = ("f0", "f1", "b1", "b0")
    work = [item(name, 10 + 10 * i, 20 + 10 * i, corr=i, category="gemm") for i, name in enumerate(names)]
    work.append(item("adam", 50, 54, corr=4, category="optimizer"))
    launches = [item("cudaLaunchKernel", i, i + 0.1, corr=i) for i in range(5)]
    return build_graph([rank(0, work=work, launches=launches, windows=[(0, 10, 54)])])


def events(shapes: tuple[str | None, ...] = ("[[262144]]", "[[524288]]")) -> list[dict[str, Any]]:
    """Phases of the kernels, and a gradient's row after each launch of backward: of 1 and 2 MiB."""
    phases = ("forward", "forward", "backward", "backward", "optimizer")
    kernels = [
        {"kind": "kernel", "start_ns": 10_000 * (i + 1), "end_ns": 10_000 * (i + 2), "phase": phase}
        for i, phase in enumerate(phases)
    ]
    rows = [
        {"kind": "op", "name": "torch::autograd::AccumulateGrad", "start_ns": 2_300 + 1_000 * i}
        | {"end_ns": 2_500 + 1_000 * i, "shapes": shape, "dtypes": '["float"]'}
        for i, shape in enumerate(shapes)
    ]
    return kernels + rows


def asked(made: list[dict[str, Any]], *, fsdp: bool = False, **plan: int) -> ChangeSubject:
    of_card = card(LAYERS, {"micro": 1}, precision="fp32", **plan)
    settings = {"parallelism.dp": 4, "strategy": int(fsdp)}
    run = a_run(of_card, made)
    return subject(one_step(), old=degrees(), settings=settings, of_card=of_card, run=run)


def placed(one: ChangeSubject) -> tuple[PlacedTransfer, ...]:
    return replicas(one, None).added[0].placed


def named(one: ChangeSubject, node: int) -> str:
    name = int(one.graph.nodes.name[node])
    return "host" if name < 0 else one.graph.names[name]


def end_us(one: ChangeSubject, case: Any = "expected") -> float:
    graph = graph_with_transfers(one.graph, placed(one), case)
    times = simulate_nodes(graph.nodes, graph.cut)
    return float(times.end[np.flatnonzero(graph.nodes.kind == n.COMPUTE)].max()) / 1_000


def test_buckets_are_full_as_soon_as_they_have_their_size() -> None:
    sizes = np.array([MIB / 2, MIB / 2, 20 * MIB, 6 * MIB, MIB], np.float64)
    assert bucket_ends(sizes, FIRST_BUCKET, BUCKET).tolist() == [1, 3, 4]
    assert bucket_ends(np.array([5.0]), FIRST_BUCKET, BUCKET).tolist() == [0]


def test_a_bucket_begins_when_its_last_gradient_is_ready_and_the_optimizer_waits() -> None:
    """Of four ranks 4 µs a MB: 1 MiB from 40 µs on takes 4.194, 2 MiB from 50 on 8.389; then the optimizer. 1
    MiB twice as long does not delay it."""
    one = asked(events())
    expected = [("all_reduce", MIB, "b1", "adam"), ("all_reduce", 2 * MIB, "b0", "adam")]
    assert [(t.kind, t.nbytes, named(one, t.after), named(one, t.before)) for t in placed(one)] == expected
    assert end_us(one) == pytest.approx(50 + 8.389 + 4, abs=0.01)
    assert end_us(one, "high") == pytest.approx(50 + 2 * 8.389 + 4, abs=0.01)


def test_without_sizes_the_cards_parameters_are_spread_over_backward() -> None:
    """786,432 parameters of 4 bytes: 1 MiB is ready within the first of two kernels, the rest with the other.
    Of 64 parts the first 22 fill it."""
    for shapes in ((None, None), ()):
        one = asked(events(shapes))
        expected = [(MIB + 32_768, "b1"), (2 * MIB - 32_768, "b0")]
        assert [(round(t.nbytes), named(one, t.after)) for t in placed(one)] == expected


def test_parameters_that_the_optimizer_updates_come_before_the_cards() -> None:
    """Of two steps' calls with 1,000 and 24 parameters, of the card's 4 bytes; momentum is none of them."""
    call = {"name": "aten::_fused_adamw_", "shapes": "[[[1000],[4,6]],[[1000],[4,6]]]", "phase": "optimizer"}
    call |= {"dtypes": '["TensorList","TensorList"]'}
    single = {"name": "aten::addcdiv_", "shapes": "[[50],[50],[50]]"}
    single |= {"dtypes": '["double","double","double"]'}
    other = {"name": "aten::_foreach_lerp_", "shapes": "[[[9000]]]", "dtypes": '["TensorList"]', "step": 0}
    of_card = card(LAYERS, precision="fp32")
    for calls, expected in (([call], 4 * 1024), ([single], 8 * 50), ([other], None)):
        rows = [row | {"step": step} for row in calls for step in (0, 1)]
        one = subject(one_step(), of_card=of_card, run=a_run(of_card, operators=rows))
        assert updated_bytes(one) == expected
    untyped = a_run(None, operators=[call | {"step": 0}])
    assert updated_bytes(subject(one_step(), run=untyped)) is None


def test_without_phases_the_exchange_lies_between_hidden_and_exposed() -> None:
    (added,) = replicas(asked([]), None).added
    high = price("all_reduce", (0, 1, 2, 3), 3 * MIB).high
    assert (added.placed, added.time) == ((), TimeBounds(0.0, None, high))
    # of several micro batches the last exchanges gradients
    one = asked(events(), microbatches=2)
    assert [t.nbytes for t in placed(one)] == [2 * MIB]


def test_units_are_gathered_one_ahead_and_scattered_when_ready() -> None:
    """Two units of 1.5 MiB; the optimizer has a fourth to do."""
    one = asked(events(("[[393216]]", "[[393216]]")), fsdp=True)
    assert [(t.kind, t.nbytes / MIB, named(one, t.after), named(one, t.before)) for t in placed(one)] == [
        *(("all_gather", 1.5, "host", "f0"), ("all_gather", 1.5, "f0", "f1")),
        *(("all_gather", 1.5, "f1", "b1"), ("all_gather", 1.5, "b1", "b0")),
        *(("reduce_scatter", 1.5, "b1", "adam"), ("reduce_scatter", 1.5, "b0", "adam")),
    ]
    made = replicas(one, None)
    adam = one.graph.names.index("adam")
    assert made.scale.expected[one.graph.nodes.name == adam].tolist() == [0.25]


def test_a_job_that_does_not_train_exchanges_nothing() -> None:
    one = asked(events())
    training = one.run.card
    one.run.card = replace(training, workload=replace(training.workload, phase="inference"))
    assert replicas(one, None).added == ()
    one.run.card = None  # type: ignore[misc]
    with pytest.raises(InputError, match="whether the job trains"):
        replicas(one, None)
    # a strategy needs replicas of one
    assert isinstance(strategy(asked(events()), 1), LayoutEffect)
    single = subject(one_step(), old=degrees(dp=2), settings={"parallelism.dp": 4})
    assert isinstance(strategy(single, 1), str)


def test_buckets_of_a_traced_job_follow_from_its_gradients(test_data: Path, evidence_store: Path) -> None:
    """ResNet-18 in 16 bits under DDP: each step's all-reduces have the bytes of its buckets."""
    run = cclbench.ingest(test_data / "kineto" / "resnet_mi300x", store=evidence_store)
    replay = Replay(run)
    one = SimpleNamespace(run=run, graph=replay.graph, since=replay.since, step=replay.step)
    found = []
    for step in recorded_gradients(one):  # type: ignore[arg-type]
        ends = bucket_ends(step.nbytes, FIRST_BUCKET, BUCKET)
        found.append(np.add.reduceat(step.nbytes, np.append(0, ends[:-1] + 1)).tolist())
    calls = run.collectives().to_pylist()
    traced = [call["in_bytes"] for call in calls if call["kind"] == "all_reduce"]
    assert found == [[5_746_640, 17_632_384]] * 2  # the third step has no end
    assert traced == found[0] * 3

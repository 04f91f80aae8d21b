# SPDX-License-Identifier: Apache-2.0
"""What a host works for, on runs of a few calls whose phases can be read off."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from cclbench.classify.python_rows import starts_backward
from cclbench.ground.schema import PHASES
from cclbench.normalize.operators import Ranges
from cclbench.normalize.phases import HostActivity, Named, Phases, Vocabulary, phase_told, runs_node

MAIN, ENGINE = 1, 2


class Call(NamedTuple):
    """An operator's call: [begin, end) on a thread, with autograd's number; or a range around calls."""

    name: str
    begin: int
    end: int
    sequence: int = -1
    track: int = MAIN
    node: bool = False
    """Whether it is of the backward graph, so that its number is that of its forward op."""


def named(calls: list[Call]) -> Named:
    """The calls, in the order of `Ranges`."""
    ranges = Ranges(*(np.array([getattr(c, n) for c in calls], np.int64) for n in ("track", "begin", "end")))
    names = sorted({call.name for call in calls})
    return Named(ranges, np.array([names.index(c.name) for c in calls], np.int32), Vocabulary(names))


def activity(calls: list[Call], marks: list[Call]) -> HostActivity:
    sequence = np.array([call.sequence for call in calls], np.int64)
    node = np.array([call.node for call in calls], np.bool_)
    return HostActivity(named(calls), sequence, node, [named(marks)])


def phases(calls: list[Call], marks: list[Call], instants: list[int], track: int = MAIN) -> list[str]:
    """The thread's phase at each instant."""
    calls, marks = (sorted(some, key=lambda c: (c.track, c.begin, -c.end)) for some in (calls, marks))
    found = Phases(activity(calls, marks))
    at = np.array(instants, np.int64)
    return [PHASES[i] for i in found.phase_at(np.full(len(at), track), at).tolist()]


def backward(name: str, begin: int, end: int, sequence: int = -1, track: int = ENGINE) -> Call:
    return Call(f"autograd::engine::evaluate_function: {name}", begin, end, sequence, track, node=True)


# Forward ops 0 and 1 at [10, 20) and [30, 40), their backward on the engine's thread, then an optimizer.
STEP = [
    Call("aten::mm", 10, 20, 0),
    Call("aten::relu", 30, 40, 1),
    backward("ReluBackward0", 60, 70, 1),
    backward("MmBackward0", 75, 80, 0),
]
OPTIMIZER = Call("Optimizer.step#SGD.step", 90, 95)


def test_forward_lasts_from_the_first_op_of_the_graph_to_the_end_of_the_last() -> None:
    assert phases(STEP, [OPTIMIZER], [9, 10, 19, 25, 39, 40, 65, 90, 94, 95]) == [
        *("other", "forward", "forward", "forward", "forward", "other", "other"),
        *("optimizer", "optimizer", "other"),
    ]
    assert phases(STEP, [OPTIMIZER], [15, 59, 60, 69, 70, 75, 80], ENGINE) == [
        *("other", "other", "backward", "backward", "other", "backward", "other")
    ]


def test_forward_ends_with_the_op_that_ends_last() -> None:
    calls = [*STEP, Call("aten::linear", 5, 55, 2), backward("LinearBackward0", 81, 85, 2)]
    assert phases(calls, [OPTIMIZER], [4, 5, 54, 55]) == ["other", "forward", "forward", "other"]


def test_ops_without_a_node_of_the_graph_are_no_forward() -> None:
    calls = [*STEP, Call("aten::zeros", 2, 4), Call("aten::rand", 44, 46, 7)]
    assert phases(calls, [OPTIMIZER], [3, 45]) == ["other", "other"]
    unnumbered = backward("torch::autograd::AccumulateGrad", 86, 88)
    assert phases([*calls, unnumbered], [OPTIMIZER], [3, 45]) == ["other", "other"]


def test_each_forward_lasts_till_the_next_backward_begins() -> None:
    second = [Call(c.name, c.begin + 100, c.end + 100, c.sequence + 2, c.track, c.node) for c in STEP]
    assert phases([*STEP, *second], [OPTIMIZER], [50, 109, 110, 125, 139, 140]) == [
        *("other", "other", "forward", "forward", "forward", "other")
    ]


def test_an_optimizer_ends_a_forward_too() -> None:
    """Ops of two graphs before one backward, with an optimizer's step in between."""
    calls = [Call("aten::mm", 10, 20, 0), Call("aten::mm", 50, 60, 1)]
    calls += [backward("MmBackward0", 70, 75, 1), backward("MmBackward0", 80, 85, 0)]
    between = Call("Optimizer.step#SGD.step", 30, 35)
    assert phases(calls, [between], [15, 25, 40, 55]) == ["forward", "other", "other", "forward"]


def test_threads_have_forwards_of_their_own() -> None:
    calls = [*STEP, Call("aten::mm", 12, 14, 5, 3), Call("aten::mm", 50, 52, 6, 3)]
    calls += [backward("MmBackward0", 81, 83, 5), backward("MmBackward0", 84, 86, 6)]
    assert phases(calls, [OPTIMIZER], [11, 12, 45, 51, 52], 3) == [
        *("other", "forward", "forward", "forward", "other")
    ]
    assert phases(calls, [OPTIMIZER], [11, 39, 40]) == ["forward", "forward", "other"]


@pytest.mark.parametrize(
    ("around", "phase"),
    [
        ("Optimizer.step#SGD.step", "optimizer"),
        ("## backward ##", "backward"),
        ("enumerate(DataLoader)#x", "data"),
    ],
)
def test_ops_of_the_graph_within_another_phase_are_no_forward(around: str, phase: str) -> None:
    """An op at [42, 44), which a backward op names, within a range of another phase at [41, 45)."""
    calls = [*STEP, Call("aten::mul", 42, 44, 3), backward("MulBackward0", 82, 84, 3)]
    assert phases(calls, [Call(around, 41, 45)], [39, 40, 43, 45]) == ["forward", "other", phase, "other"]


def test_without_numbers_forward_is_what_comes_before_a_backward() -> None:
    """A second backward has no optimizer behind it; what comes before the optimizer is none."""
    calls = [Call("aten::mm", 10, 20), Call("aten::relu", 30, 40), backward("ReluBackward0", 60, 70)]
    calls += [Call("aten::add", 82, 84), Call("aten::mm", 110, 120), backward("MmBackward0", 150, 160)]
    calls += [Call("aten::item", 170, 175)]
    assert phases(calls, [OPTIMIZER], [9, 10, 39, 40, 83, 110, 119, 120, 172]) == [
        *("other", "forward", "forward", "other", "other", "forward", "forward", "other", "other")
    ]


def test_an_op_that_begins_with_a_backward_comes_before_it() -> None:
    calls = [Call("aten::mm", 60, 65), backward("MmBackward0", 60, 70)]
    assert phases(calls, [OPTIMIZER], [62]) == ["forward"]


def test_what_the_engines_thread_runs_besides_nodes_is_backward() -> None:
    """It waits for the graph's end there; a thread that runs forward ops too is no thread of the engine."""
    calls = [*STEP, Call("aten::add_", 85, 88, track=ENGINE)]
    assert phases(calls, [OPTIMIZER], [84, 85, 88], ENGINE) == ["other", "backward", "other"]
    for sequence, expected in ((0, "other"), (9, "other"), (-1, "backward")):
        forward = Call("aten::mul", 5, 6, sequence, ENGINE)
        assert phases([*calls, forward], [OPTIMIZER], [86], ENGINE) == [expected]
    within = Call("aten::mm", 62, 66, 9, ENGINE)  # recomputed in a node
    assert phases([*calls, within], [OPTIMIZER], [86], ENGINE) == ["backward"]


def test_calls_after_the_graph_are_backward() -> None:
    calls = [*STEP, Call("torch.distributed.ddp.reducer::copy_bucket_to_grad", 85, 88, track=ENGINE)]
    assert phases(calls, [OPTIMIZER], [86], ENGINE) == ["backward"]


def test_a_range_called_backward_is_backward_on_its_thread() -> None:
    python = Call("torch/_tensor.py(492): backward", 55, 88)
    assert phases(STEP, [OPTIMIZER, python], [54, 55, 87, 88]) == ["other", "backward", "backward", "other"]


def test_losses_and_annotated_phases_of_training() -> None:
    calls = [*STEP, Call("aten::nll_loss", 32, 36), Call("aten::nll_loss_nobody_knows", 42, 43)]
    marks = [OPTIMIZER, Call("loss", 44, 46), Call("forward", 47, 50), Call("nn.Module: Net_0", 51, 53)]
    assert phases(calls, marks, [31, 33, 36, 42, 45, 48, 52]) == [
        *("forward", "loss", "forward", "other", "loss", "forward", "forward")
    ]


def test_an_optimizer_alone_is_training() -> None:
    """Without a backward: what a run of calls does besides is no forward of serving."""
    assert phases([Call("aten::mm", 10, 20)], [OPTIMIZER], [15, 92]) == ["other", "optimizer"]


def test_a_rank_without_backward_serves() -> None:
    calls = [Call("aten::mm", 10, 20), Call("aten::mm", 110, 120), Call("aten::mm", 210, 220)]
    calls += [Call("aten::mm", 310, 320)]
    marks = [
        Call("execute_context_1(8)_generation_0(0)", 5, 25),
        Call("execute_context_0(0)_generation_3(3)", 105, 125),
        Call("execute_context_1(8)_generation_3(3)", 205, 225),
    ]
    instants = [15, 24, 115, 215, 315, 319, 320]
    assert phases(calls, marks, instants) == [
        *("prefill", "prefill", "decode", "mixed", "forward", "forward", "other")
    ]


def test_as_many_backwards_as_optimizers_are_training() -> None:
    calls = [Call("aten::mm", 10, 20, 0), Call("aten::item", 30, 40), backward("MmBackward0", 60, 70, 0)]
    assert phases(calls, [OPTIMIZER], [15, 35]) == ["forward", "other"]


def test_without_any_rows_nothing_is_known() -> None:
    assert phases([], [], [5]) == ["other"]
    assert runs_node(named([])).tolist() == []


def test_some_of_named_ranges_keep_their_names() -> None:
    some = named(STEP).select_ranges(np.array([False, True, True, False]))
    assert (some.ranges.start_ns.tolist(), some.name_matches("aten::").tolist()) == ([30, 60], [True, False])
    assert some.name_is(lambda name: name.endswith("0")).tolist() == [False, True]


def test_loading_data_goes_before_all_and_the_optimizer_before_backward() -> None:
    marks = [Call("Optimizer.step#SGD.step", 0, 100), Call("backward", 0, 100), Call("data_loading", 50, 60)]
    assert phases([], marks, [40, 55]) == ["optimizer", "data"]


@pytest.mark.parametrize(
    ("annotation", "phase"),
    [
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("the optimizer", "optimizer"),
        ("optimizers", None),
        ("## backward ##", "backward"),
        ("backward-pass", "backward"),
        ("backwards", None),
        ("compute loss", "loss"),
        ("lossless", None),
        ("nn.Module: CrossEntropyLoss_0", "loss"),
        ("nn.Module: Linear_3", "forward"),
        ("forward_step", "forward"),
        ("step 3", None),
    ],
)
def test_the_phase_that_an_annotation_names(annotation: str, phase: str | None) -> None:
    assert phase_told(annotation) == phase


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("torch/_tensor.py(492): backward", True),
        ("/usr/lib/torch/autograd/__init__.py(303): grad", True),
        ("torch/_tensor.py(492): backward_hook", False),
        ("torch/optim/sgd.py(1): backward", False),
    ],
)
def test_the_call_that_has_the_engine_run(name: str, starts: bool) -> None:
    assert starts_backward(name) == starts


def test_nodes_are_known_by_the_engines_name_and_in_old_torch_by_their_own() -> None:
    names = ["autograd::engine::evaluate_function: MmBackward0", "AddmmBackward", "torch::autograd::CopyBack"]
    calls = [Call(name, n, n + 1) for n, name in enumerate([*names, "aten::mm", "MmBackward0_hook"])]
    assert runs_node(named(calls)).tolist() == [True, True, True, False, False]

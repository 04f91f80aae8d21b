# SPDX-License-Identifier: Apache-2.0
"""What a host works for, and what takes long there because it is the first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from cclbench.classify.python_rows import starts_backward
from cclbench.ground.schema import PHASES
from cclbench.normalize.host_calls import cold_operators
from cclbench.normalize.operators import Ranges
from cclbench.normalize.phases import HostActivity, Named, Phases, Vocabulary, runs_node, stated_phase

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


def at(calls: list[Call], expected: dict[int, str], *marks: Call, track: int = MAIN) -> None:
    """Checks the phase at each instant, beside an optimizer's step."""
    assert phases(calls, [*marks, OPTIMIZER], [*expected], track) == [*expected.values()]


NO, F, B, OPT = "other", "forward", "backward", "optimizer"


def backward(name: str, begin: int, end: int, sequence: int = -1, track: int = ENGINE) -> Call:
    return Call(f"autograd::engine::evaluate_function: {name}", begin, end, sequence, track, node=True)


# Forward ops 0 and 1 at [10, 20) and [30, 40), their backward on the engine's thread, then an optimizer.
STEP = [
    *(Call("aten::mm", 10, 20, 0), Call("aten::relu", 30, 40, 1), backward("ReluBackward0", 60, 70, 1)),
    backward("MmBackward0", 75, 80, 0),
]
OPTIMIZER = Call("Optimizer.step#SGD.step", 90, 95)


def test_forward_lasts_from_the_first_op_of_the_graph_to_the_end_of_the_last() -> None:
    at(STEP, {9: NO, 10: F, 19: F, 25: F, 39: F, 40: NO, 65: NO, 90: OPT, 94: OPT, 95: NO})
    at(STEP, {15: NO, 59: NO, 60: B, 69: B, 70: NO, 75: B, 80: NO}, track=ENGINE)
    # It ends with the op that ends last.
    calls = [*STEP, Call("aten::linear", 5, 55, 2), backward("LinearBackward0", 81, 85, 2)]
    at(calls, {4: NO, 5: F, 54: F, 55: NO})
    # Ops without a node of the graph are none.
    calls = [*STEP, Call("aten::zeros", 2, 4), Call("aten::rand", 44, 46, 7)]
    for own in (calls, [*calls, backward("torch::autograd::AccumulateGrad", 86, 88)]):
        at(own, {3: NO, 45: NO})


def test_each_forward_lasts_till_the_next_backward_begins_or_an_optimizer() -> None:
    second = [Call(c.name, c.begin + 100, c.end + 100, c.sequence + 2, c.track, c.node) for c in STEP]
    at([*STEP, *second], {50: NO, 109: NO, 110: F, 125: F, 139: F, 140: NO})
    # Ops of two graphs before one backward, with an optimizer's step in between.
    calls = [Call("aten::mm", 10, 20, 0), Call("aten::mm", 50, 60, 1)]
    calls += [backward("MmBackward0", 70, 75, 1), backward("MmBackward0", 80, 85, 0)]
    between = Call("Optimizer.step#SGD.step", 30, 35)
    assert phases(calls, [between], [15, 25, 40, 55]) == ["forward", "other", "other", "forward"]
    # Threads have forwards of their own.
    calls = [*STEP, Call("aten::mm", 12, 14, 5, 3), Call("aten::mm", 50, 52, 6, 3)]
    calls += [backward("MmBackward0", 81, 83, 5), backward("MmBackward0", 84, 86, 6)]
    at(calls, {11: NO, 12: F, 45: F, 51: F, 52: NO}, track=3)
    at(calls, {11: F, 39: F, 40: NO})


@pytest.mark.parametrize(
    ("around", "phase"),
    [("Optimizer.step#SGD.step", OPT), ("## backward ##", B), ("enumerate(DataLoader)#x", "data")],
)
def test_ops_of_the_graph_within_another_phase_are_no_forward(around: str, phase: str) -> None:
    """An op at [42, 44), which a backward op names, within a range of another phase at [41, 45)."""
    calls = [*STEP, Call("aten::mul", 42, 44, 3), backward("MulBackward0", 82, 84, 3)]
    expected = ["forward", "other", phase, "other"]
    assert phases(calls, [Call(around, 41, 45)], [39, 40, 43, 45]) == expected


def test_without_numbers_forward_is_what_comes_before_a_backward() -> None:
    """A second backward has no optimizer behind it; what comes before the optimizer is none."""
    calls = [Call("aten::mm", 10, 20), Call("aten::relu", 30, 40), backward("ReluBackward0", 60, 70)]
    calls += [Call("aten::add", 82, 84), Call("aten::mm", 110, 120), backward("MmBackward0", 150, 160)]
    calls += [Call("aten::item", 170, 175)]
    at(calls, {9: NO, 10: F, 39: F, 40: NO, 83: NO, 110: F, 119: F, 120: NO, 172: NO})
    # An op that begins with a backward comes before it.
    at([Call("aten::mm", 60, 65), backward("MmBackward0", 60, 70)], {62: F})


def test_what_the_engines_thread_runs_besides_nodes_is_backward() -> None:
    """It waits for the graph's end there; a thread that runs forward ops too is no thread of the engine."""
    calls = [*STEP, Call("aten::add_", 85, 88, track=ENGINE)]
    at(calls, {84: NO, 85: B, 88: NO}, track=ENGINE)
    for sequence, expected in ((0, NO), (9, NO), (-1, B)):
        at([*calls, Call("aten::mul", 5, 6, sequence, ENGINE)], {86: expected}, track=ENGINE)
    # recomputed in a node
    at([*calls, Call("aten::mm", 62, 66, 9, ENGINE)], {86: B}, track=ENGINE)
    reducer = Call("torch.distributed.ddp.reducer::copy_bucket_to_grad", 85, 88, track=ENGINE)
    at([*STEP, reducer], {86: B}, track=ENGINE)


def test_losses_and_annotated_phases_of_training() -> None:
    calls = [*STEP, Call("aten::nll_loss", 32, 36), Call("aten::nll_loss_nobody_knows", 42, 43)]
    marks = [Call("loss", 44, 46), Call("forward", 47, 50), Call("nn.Module: Net_0", 51, 53)]
    at(calls, {31: F, 33: "loss", 36: F, 42: NO, 45: "loss", 48: F, 52: F}, *marks)
    # An optimizer alone is training: what a run of calls does besides is no forward of serving.
    at([Call("aten::mm", 10, 20)], {15: NO, 92: OPT})


def test_a_rank_without_backward_serves() -> None:
    calls = [Call("aten::mm", begin, begin + 10) for begin in (10, 110, 210, 310)]
    names = ("context_1(8)_generation_0(0)", "context_0(0)_generation_3(3)", "context_1(8)_generation_3(3)")
    marks = [Call(f"execute_{name}", 100 * n + 5, 100 * n + 25) for n, name in enumerate(names)]
    expected = {15: "prefill", 24: "prefill", 115: "decode", 215: "mixed", 315: F, 319: F, 320: NO}
    assert phases(calls, marks, [*expected]) == [*expected.values()]
    # As many backwards as optimizers are training.
    calls = [Call("aten::mm", 10, 20, 0), Call("aten::item", 30, 40), backward("MmBackward0", 60, 70, 0)]
    at(calls, {15: F, 35: NO})


def test_some_of_named_ranges_keep_their_names() -> None:
    some = named(STEP).select_ranges(np.array([False, True, True, False]))
    assert (some.ranges.start_ns.tolist(), some.name_matches("aten::").tolist()) == ([30, 60], [True, False])
    assert some.name_is(lambda name: name.endswith("0")).tolist() == [False, True]
    # Without any rows nothing is known.
    assert phases([], [], [5]) == ["other"]
    assert runs_node(named([])).tolist() == []


def test_loading_data_goes_before_all_and_the_optimizer_before_backward() -> None:
    marks = [Call("Optimizer.step#SGD.step", 0, 100), Call("backward", 0, 100), Call("data_loading", 50, 60)]
    assert phases([], marks, [40, 55]) == ["optimizer", "data"]
    # A range called backward is backward on its thread.
    at(STEP, {54: NO, 55: B, 87: B, 88: NO}, Call("torch/_tensor.py(492): backward", 55, 88))


@pytest.mark.parametrize(
    ("annotations", "phase"),
    [
        *((["Optimizer.step#AdamW.step", "the optimizer"], OPT), (["## backward ##", "backward-pass"], B)),
        (["compute loss", "nn.Module: CrossEntropyLoss_0"], "loss"),
        (["nn.Module: Linear_3", "forward_step"], F),
        (["optimizers", "backwards", "lossless", "step 3"], None),
    ],
)
def test_the_phase_that_an_annotation_names(annotations: list[str], phase: str | None) -> None:
    assert [stated_phase(annotation) for annotation in annotations] == [phase] * len(annotations)


def test_the_call_that_has_the_engine_run() -> None:
    names = ["torch/_tensor.py(492): backward", "/usr/lib/torch/autograd/__init__.py(303): grad"]
    names += ["torch/_tensor.py(492): backward_hook", "torch/optim/sgd.py(1): backward"]
    assert [starts_backward(name) for name in names] == [True, True, False, False]


def test_nodes_are_known_by_the_engines_name_and_in_old_torch_by_their_own() -> None:
    names = ["autograd::engine::evaluate_function: MmBackward0", "AddmmBackward", "torch::autograd::CopyBack"]
    calls = [Call(name, n, n + 1) for n, name in enumerate([*names, "aten::mm", "MmBackward0_hook"])]
    assert runs_node(named(calls)).tolist() == [True, True, True, False, False]


US = 1_000


def cold(
    rows: list[tuple[int, int, int]], calls: list[tuple[int, int]] | None = None, until: int | None = 10_000
) -> list[int]:
    """Places of the cold ones among operators (name, begin, end), beside calls of the runtime; µs."""
    name, start, end = np.array(rows, np.int64).T
    thread = np.zeros(len(name), np.int64)
    made = np.array(calls or np.empty((0, 2)), np.int64).reshape(-1, 2).T * US
    told = cold_operators(
        (name, thread, start * US, end * US),
        (np.zeros(made.shape[1], np.int64), *made),
        None if until is None else until * US,
    )
    return np.flatnonzero(told).tolist()


LATER = [(0, 10_000 + 100 * i, 10_020 + 100 * i) for i in range(5)]
"""Five calls of 20 µs in later steps."""


@pytest.mark.parametrize(("took", "found"), [(1_000, [0]), (999, [])])
def test_from_fifty_times_the_usual_on(took: int, found: list[int]) -> None:
    assert cold([(0, 0, took), *LATER]) == found


def test_what_comes_back_is_not_cold_nor_what_waits_or_calls_another() -> None:
    assert cold([(0, 0, 5_000), (0, 20_000, 25_000), *LATER]) == []
    # 5 ms around 4.5 ms of waiting, or around an inner operator that is the cold one.
    assert cold([(0, 0, 5_000), *LATER], calls=[(400, 4_900)]) == []
    assert cold([(0, 0, 5_000), (1, 100, 4_900), *LATER]) == [1]
    assert cold([(0, 0, 5_000), *LATER], calls=[(400, 4_300)]) == [0]


def test_of_a_single_step_the_first_call_of_a_name() -> None:
    rows = [(0, 0, 5_000), (0, 6_000, 11_000), *[(0, 20_000 + 100 * i, 20_020 + 100 * i) for i in range(5)]]
    assert cold(rows, until=None) == [0]
    # What only the first of several steps has; of a single step nobody can tell.
    assert cold([(3, 0, 1_000)]) == [0]
    assert cold([(3, 0, 999)]) == []
    assert cold([(3, 0, 1_000)], until=None) == []

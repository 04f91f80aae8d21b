# SPDX-License-Identifier: Apache-2.0
"""Whose an execution trace is, and where its calls are put among what the rank's own trace tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cclbench.formats import BackendCall, ExecutionTrace, Payload, StatedPayloads
from cclbench.normalize.execution_traces import place_calls, traces_by_process
from cclbench.record.facts import ProcessGroup, TraceFacts

A, B = Path("run/et_0.json.gz"), Path("run/et_1.json")


@pytest.mark.parametrize(
    ("processes", "ranks", "found"),
    [
        ({A: 10, B: 11}, {0: 11, 1: 10}, {0: B, 1: A}),  # the process decides, not the name
        ({A: 10, B: 11}, {0: 10, 1: 12}, {0: A}),  # of another process
        ({A: 7, B: 7}, {0: 7, 1: 7}, {0: A, 1: B}),  # containers
        *(({A: 7, B: 7}, {0: 7, 2: 7}, {0: A}), ({A: 7}, {0: 7, 1: 7}, {0: A})),
        ({A: 10, B: 11}, {1: None}, {1: B}),
        ({A: 10, Path("new/et_0.json"): 10}, {0: 10}, {}),  # which of the two is unknown
        ({A: 10, B: 10}, {0: 10}, {0: A}),  # one process, two files: the one of its number
        *(({A: 10, B: 11}, {7: None}, {}), ({Path("run/trace.json"): 7, B: 7}, {1: 7}, {1: B})),
        ({}, {0: 10}, {}),
    ],
)
def test_owners(processes, ranks, found):
    assert traces_by_process(processes, ranks) == found


def annotated(
    told: StatedPayloads, kind: str, start: int, *, track: int = 3, elements: int | None = None
) -> None:
    payload = Payload(source="annotation", collective=kind, in_elements=elements, dtype="float")
    told.add_payload(payload, track=track, start_ns=start, end_ns=start + 5)


def call(kind: str, group: str = "9", seq: int = 0, in_bytes: int | None = None, **more: Any) -> BackendCall:
    payload = Payload(source="execution_trace", collective=kind, group_name=group, **more)
    return BackendCall(f"nccl:{kind}", in_bytes, payload, seq)


def trace(*calls: BackendCall, groups: tuple[ProcessGroup, ...] = ()) -> ExecutionTrace:
    return ExecutionTrace(7, calls, groups)


def added(told: StatedPayloads, since: int) -> list[tuple[Any, ...]]:
    payloads = list(told.payloads)
    columns = zip(told.code, told.row, told.track, told.start_ns, told.end_ns, told.seq, strict=True)
    return [(payloads[code], *rest) for code, *rest in list(columns)[since:]]


def test_calls_go_to_annotations_in_order_of_start() -> None:
    told = StatedPayloads()
    told.add_payload(Payload(source="kernel", collective="broadcast"), row=0)
    annotated(told, "all_reduce", 50, elements=10)
    annotated(told, "all_to_all", 20, track=4)
    told.add_payload(Payload(source="host_op", collective="broadcast"), track=3, start_ns=30, end_ns=40)
    first, second = call("all_to_all", seq=1, in_bytes=8), call("all_reduce", seq=2, in_bytes=40)
    _, notes = place_calls(told, trace(first, second), TraceFacts(world_size=2))
    assert notes == []
    assert added(told, 4) == [(first.payload, -1, 4, 20, 25, 1), (second.payload, -1, 3, 50, 55, 2)]


NOT_USED = "the execution trace beside it is not used: "


@pytest.mark.parametrize(
    ("calls", "difference"),
    [
        ([], "it has 0 calls, the trace 1"),
        ([call("all_reduce"), call("all_reduce")], "it has 2 calls, the trace 1"),
        ([call("broadcast")], "call 1 is broadcast, the trace's all_reduce"),
        ([call("all_reduce", in_bytes=44)], "call 1 (all_reduce) is of 44 bytes, the trace's of 40"),
    ],
)
def test_nothing_is_placed_where_the_calls_differ(calls: list[BackendCall], difference: str) -> None:
    told = StatedPayloads()
    annotated(told, "all_reduce", 0, elements=10)
    facts, groups = TraceFacts(world_size=2), (ProcessGroup("9", None, (0, 1)),)
    assert place_calls(told, trace(*calls, groups=groups), facts) == (facts, [NOT_USED + difference])
    assert len(told) == 1


def test_nothing_told_and_no_calls_fit() -> None:
    told = StatedPayloads()
    assert place_calls(told, trace(), TraceFacts()) == (TraceFacts(), [])
    _, notes = place_calls(told, trace(call("all_reduce")), TraceFacts())
    assert notes == [f"{NOT_USED}it has 1 calls, the trace 0"]


def test_what_a_kernel_states_is_no_annotation_of_a_call() -> None:
    told = StatedPayloads()
    told.add_payload(Payload(source="annotation", collective="all_reduce"), row=0, track=3)
    annotated(told, "all_reduce", 50)
    one = call("all_reduce")
    assert place_calls(told, trace(one), TraceFacts())[1] == []
    assert added(told, 2) == [(one.payload, -1, 3, 50, 55, 0)]


def test_a_call_of_which_nothing_is_told_takes_its_place_and_adds_nothing() -> None:
    told = StatedPayloads()
    annotated(told, "barrier", 10)
    annotated(told, "all_reduce", 20)
    silent, spoken = BackendCall("nccl:barrier", None, None, 0), call("all_reduce", seq=4, group_size=2)
    _, notes = place_calls(told, trace(silent, spoken), TraceFacts(world_size=2))
    ((payload, row, track, start, end, seq),) = added(told, 2)
    assert (payload.ranks, payload.group_size, row, track, start, end, seq) == ((0, 1), 2, -1, 3, 20, 25, 4)
    assert notes == ["the execution trace's one process group is of 2 ranks: taken as all of the job"]


def occurrences(calls: list[BackendCall], facts: TraceFacts, groups: tuple[ProcessGroup, ...] = ()) -> Any:
    told = StatedPayloads()
    for start, one in enumerate(calls):
        annotated(told, one.name.removeprefix("nccl:"), start)
    _, notes = place_calls(told, trace(*calls, groups=groups), facts)
    placed = [(payload.ranks, payload.group_size) for payload, *_ in added(told, len(calls))]
    return placed, bool(notes)


EXCHANGE, REDUCTION = call("all_to_all", group_size=2), call("all_reduce")
OTHER, TOLD = call("all_reduce", group="10"), call("all_reduce", group_size=2, ranks=(0, 5))


@pytest.mark.parametrize(
    ("calls", "world", "placed"),
    [
        # The split sizes of one call tell the size of the group of all: the only group is the job.
        ([EXCHANGE, REDUCTION], 2, [((0, 1), 2)] * 2),
        # A group is never guessed.
        *(([EXCHANGE, REDUCTION], world, [(None, 2)] * 2) for world in (4, None)),
        *(([REDUCTION], 2, [(None, None)]), ([EXCHANGE, OTHER], 2, [(None, 2), (None, None)])),
        *(([TOLD], 2, [((0, 5), 2)]), ([EXCHANGE, call("all_to_all", group_size=3)], 2, [(None, None)] * 2)),
    ],
)
def test_the_only_group_may_be_all(calls: list[BackendCall], world: int | None, placed: list[Any]) -> None:
    noted = placed == [((0, 1), 2)] * 2
    assert occurrences(calls, TraceFacts(world_size=world)) == (placed, noted)


def test_listed_groups_stand_in_the_facts() -> None:
    told = StatedPayloads()
    annotated(told, "all_to_all", 0)
    listed = (ProcessGroup("9", "mesh_tp", (0, 1)),)
    exchange = call("all_to_all", group_size=2)
    facts, notes = place_calls(told, trace(exchange, groups=listed), TraceFacts(world_size=2))
    assert (facts.groups, notes) == (listed, [])
    own = (ProcessGroup("9", "default_pg", (0, 1)),)
    facts, _ = place_calls(told, trace(exchange, groups=listed), TraceFacts(world_size=2, groups=own))
    assert facts.groups == own

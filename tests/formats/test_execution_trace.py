# SPDX-License-Identifier: Apache-2.0
"""Execution traces: both layouts, what each call tells, and what damaged ones say of themselves."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import ExecutionTrace, Payload, execution_trace_reader
from cclbench.record.facts import ProcessGroup

READER = execution_trace_reader("execution_trace")
Node = dict[str, Any]
Write = Callable[..., Path]
FLOATS = [5, 6, 0, 100, 4, "cuda:0"]
HALVES = [7, 8, 0, 50, 2, "cuda:0"]
RECORDS = "record_param_comms"


def old(number: int, name: str, parent: int, inputs: list[Any], types: list[str], outputs: Any = ()) -> Node:
    """A node of schema 1.0.1."""
    node = {"name": name, "id": number, "rf_id": number, "parent": parent, "tid": 1}
    return {**node, "inputs": inputs, "input_types": types, "outputs": list(outputs), "output_types": []}


def new(number: int, name: str, parent: int, inputs: list[Any], types: list[str], outputs: Any = ()) -> Node:
    """A node of schema 1.1.1-chakra.0.0.4."""
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {"values": inputs, "shapes": [], "types": types, "strides": []},
        "outputs": {"values": list(outputs), "shapes": [], "types": [], "strides": []},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": number}],
    }


@pytest.fixture
def written(written: Write) -> Write:
    """Writes an execution trace of process 42."""
    trace = {"schema": "1.0.1", "pid": 42, "time": "2023-09-07", "start_ts": 1}
    return lambda *nodes, **more: written(
        json.dumps(trace | more | {"nodes": nodes, "finish_ts": 2}), "et_3.json"
    )


def told(trace: ExecutionTrace) -> list[tuple[str, Payload | None, int | None]]:
    return [(call.name, call.payload, call.seq) for call in trace.calls]


def test_old_layout(written: Write) -> None:
    """Nodes are written when they end: a call before the record around it."""
    group, types = (94_594_108, 3), ["GenericList[Tensor(float),Tensor(c10::Half)]", "Int"]
    reduced = [[FLOATS, HALVES], 8, *group, "allreduce", [], []]
    halves = ["Tensor(c10::Half)", "Int"]
    exchanged = [HALVES, 7, *group, "all_to_allv", [10, 40], [60, 40]]
    nodes = [
        old(21, "nccl:all_reduce", 20, [FLOATS], ["Tensor(float)"]),
        old(20, RECORDS, 19, reduced, types, [[FLOATS, HALVES]]),
        old(11, "nccl:all_to_all", 10, [HALVES], halves[:1]),
        old(10, RECORDS, 9, exchanged, halves, [FLOATS]),
        old(12, RECORDS, 9, [7, 0, 3, "wait", [], []], ["Int"]),
        old(30, "aten::add", 9, [FLOATS, 1], ["Tensor(float)", "Int"]),
    ]
    trace = READER.read(written(*nodes))
    assert trace.process_id == 42
    common: dict[str, Any] = {"source": "execution_trace", "group_name": "94594108"}
    sizes = {"in_bytes": 100, "out_bytes": 400, "group_size": 2}
    exchange = Payload(collective="all_to_allv", dtype="c10::Half", **sizes, **common)
    reduction = Payload(collective="allreduce", in_bytes=500, out_bytes=500, **common)
    assert told(trace) == [("nccl:all_to_all", exchange, 7), ("nccl:all_reduce", reduction, 8)]
    assert [call.in_bytes for call in trace.calls] == [100, 400]


def test_new_layout_tells_the_groups_ranks(written: Write) -> None:
    inputs = [[FLOATS], [9, False], ["12", "mesh_tp"], 0, "_allgather_base", [], [], 4, 2, 3]
    nodes = [
        new(2, "nccl:_all_gather_base", 1, [FLOATS], ["Tensor(float)"]),
        new(1, RECORDS, 0, inputs, ["GenericList[Tensor(float)]"], [[[FLOATS, FLOATS, FLOATS]]]),
    ]
    (call,) = READER.read(written(*nodes)).calls
    assert call.seq == 9
    group = {"group_name": "12", "group_description": "mesh_tp", "group_size": 3, "ranks": (4, 6, 8)}
    gathered = {"collective": "_allgather_base", "in_bytes": 400, "out_bytes": 1200, "dtype": "float"}
    assert call.payload == Payload(source="execution_trace", **gathered, **group)


def test_groups_are_listed_as_text(written: Write) -> None:
    listed = [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "nccl", "ranks": [], "group_size": 4},
        *({"pg_name": "1", "pg_desc": "mesh_dp", "ranks": [1, 3], "group_size": 2}, {"pg_name": 2}),
    ]
    trace = READER.read(written(new(2, "## process_group:init ##", 1, [json.dumps(listed)], ["String"])))
    known = ProcessGroup("0", "default_pg", (0, 1, 2, 3)), ProcessGroup("1", "mesh_dp", (1, 3))
    assert trace.groups == (*known, ProcessGroup("2"))


def test_what_is_not_told_is_none(written: Write) -> None:
    """A symbolic tensor has no size, a cut list of splits no length, a barrier no tensors."""
    symbolic, splits = [1, 0, 0, 0, 0, ""], [1] * 4097
    nodes = [
        old(1, RECORDS, 0, [symbolic, 5, 9, 0, "all_to_allv", splits, splits], []),
        old(2, "nccl:all_to_all", 1, [symbolic], []),
        old(3, RECORDS, 0, [6, 9, 0, "barrier", [], []], ["Int"]),
        *(old(4, "nccl:all_reduce", 3, [FLOATS], []), old(5, RECORDS, 0, ["?"], [])),
        *(old(6, "nccl:all_reduce", 5, [], []), old(7, "gloo:broadcast", 0, [FLOATS], [])),
    ]
    trace = READER.read(written(*nodes))
    common = {"source": "execution_trace", "group_name": "9"}
    assert told(trace) == [
        ("nccl:all_to_all", Payload(collective="all_to_allv", **common), 5),
        ("nccl:all_reduce", Payload(collective="barrier", **common), 6),
        *(("nccl:all_reduce", None, None), ("gloo:broadcast", None, None)),
    ]
    assert [call.in_bytes for call in trace.calls] == [None, 400, None, 400]


RECORD = old(1, RECORDS, 0, [FLOATS, 5, 9, 0, "broadcast", [], []], [])
NODE = old(2, "nccl:all_reduce", 1, [FLOATS], [])
INIT = '"## process_group:init ##"'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(('"id": 2', '"id": "two"'), ('"pid": 42', '"pid": -42'), ('"nodes"', '"knots"')),
        *(("100, 4,", "-100, 4,"), ("100, 4,", f"{1 << 62}, 4,"), ('"inputs": [[5', '"inputs": [[\\5')),
        *(("100", "[" * 1_000_000 + "]" * 1_000_000), ('"nccl:all_reduce", "id": 2', INIT + ', "id": 2')),
        ('"finish_ts": 2}', ""),
    ],
    ids=["id", "pid", "no nodes", "negative", "huge", "malformed", "deep", "groups", "cut"],
)
def test_damage_is_an_error_that_names_the_file(written: Write, old: str, new: str) -> None:
    path = written(RECORD, NODE)
    text = path.read_text()
    damaged = text.replace(old, new, 1)
    if INIT in new:
        damaged = damaged.replace("[[5", '["[5}", [5')
    assert damaged != text
    path.write_text(damaged)
    refused(READER.read, path)


def test_a_damaged_gzip_stream_and_a_bomb(written: Write, tmp_path: Path) -> None:
    text = written(RECORD).read_bytes()
    path = tmp_path / "et.json.gz"
    packed = gzip.compress(text)
    for damaged in (packed[:-20], packed[:30] + b"\xff" * 20 + packed[50:]):
        path.write_bytes(damaged)
        refused(READER.read, path, "gzip stream is damaged")
    path.write_bytes(gzip.compress(text[:-1] + b" " * (65 << 20) + b"}", 9))
    refused(READER.read, path, "is larger than 64 MiB")
    refused(READER.read, tmp_path / "none.json", "cannot be read")


def recorded(written: Write, *inputs: Any, types: list[str] | None = None) -> Any:
    """The only call of a trace: an exchange of those inputs, after its tensors."""
    record = old(1, RECORDS, 0, [[FLOATS], *inputs], types or ["GenericList[Tensor(float)]"])
    (call,) = READER.read(written(record, old(2, "nccl:all_to_all", 1, [], []))).calls
    return call


def test_only_split_sizes_tell_the_size_of_a_group(written: Write) -> None:
    """Lists that are cut, at 4096, tell none; neither do two of different lengths."""
    for sent, received, size in (
        *((4095, 4095, 4095), (4096, 4096, None), (1, 0, 1), (0, 2, 2), (2, 3, None), (0, 0, None)),
    ):
        call = recorded(written, 7, "0", 0, "all_to_allv", [8] * sent, [8] * received)
        assert call.payload.group_size == size
    assert recorded(written, 7, ["0", "dp"], [1, 2], "allreduce", [], []).payload.group_size is None


MOST = 1 << 20


@pytest.mark.parametrize(
    ("place", "size", "last"),
    [
        *(([0, 1, MOST], MOST, MOST - 1), ([0, 1, MOST + 1], None, None), ([1, 1, MOST], MOST, None)),
        *(([0, 1, 1], 1, 0), ([0, 1, 0], None, None), ([MOST - 4, 2, 2], 2, MOST - 2)),
        *(([MOST - 3, 2, 2], 2, None), ([0, 0, 2], 2, None), ([-1, 1, 2], 2, None)),
        *(([0, 1, True], None, None), ([0, 1], None, None), ([], None, None), ([None, 1, 4], 4, None)),
        ([0, None, 4], 4, None),
    ],
)
def test_ranks_below_a_million(written: Write, place: list[int], size: int | None, last: int | None) -> None:
    payload = recorded(written, 7, "0", 0, "allreduce", [], [], *place).payload
    assert payload.group_size == size
    assert (payload.ranks or (None,))[-1] == last


@pytest.mark.parametrize(
    ("told", "number"),
    [
        *((7, 7), ([7, True], 7), ([], None), (True, None), ("7", None), ((1 << 63) - 1, (1 << 63) - 1)),
        *((1 << 63, None), (-(1 << 63), -(1 << 63)), (-(1 << 63) - 1, None)),
    ],
)
def test_sequence_numbers_are_integers_of_64_bits(written: Write, told: Any, number: int | None) -> None:
    assert recorded(written, told, "0", 0, "allreduce", [], []).seq == number


def test_what_a_group_is_called_and_of_what_type_its_tensors_are(written: Write) -> None:
    for group, name, description in (
        *(("5", "5", None), (6, "6", None), (["7", "dp"], "7", "dp"), (["8"], "8", None)),
        (["9", 3], "9", None),
    ):
        payload = recorded(written, 7, group, 0, "allreduce", [], []).payload
        assert (payload.group_name, payload.group_description) == (name, description)
    for types, dtype in ((["Tensor(int)"], "int"), (["[Tensor(int),Tensor(long)]"], None), (["Int"], None)):
        assert recorded(written, 7, "0", 0, "allreduce", [], [], types=types).payload.dtype == dtype


@pytest.mark.parametrize(
    ("elements", "size", "total"),
    [
        *((0, 4, 0), (1 << 60, 1, 1 << 60), (1 << 58, 4, 1 << 60), (3, 0, 0)),
        *(((1 << 60) + 1, 1, None), (-1, 4, None), (4, -1, None), (-1, -1, None)),
    ],
)
def test_tensors_of_an_exabyte_at_most(written: Write, elements: int, size: int, total: int | None) -> None:
    path = written(old(2, "nccl:all_reduce", 1, [[5, 6, 0, elements, size, "cuda:0"]], []))
    if total is not None:
        (call,) = READER.read(path).calls
        assert call.in_bytes == total
        return
    assert refused(READER.read, path) == (
        f"{path}: impossible tensor of {elements} × {size} bytes;"
        " capture the execution trace again, or remove it to do without"
    )


@pytest.mark.parametrize(
    ("told", "known"),
    [
        *(({"group_size": 1}, True), ({"group_size": 0}, False), ({"group_size": MOST}, True)),
        *(({"group_size": MOST + 1}, False), ({"ranks": [(1 << 31) - 1]}, True)),
        *(({"ranks": [1 << 31]}, False), ({"ranks": [-1]}, False), ({"ranks": [0]}, True)),
    ],
)
def test_bounds_of_groups(written: Write, told: dict[str, Any], known: bool) -> None:
    path = written(new(2, "process_group:init", 1, [json.dumps([{"pg_name": "0"} | told])], ["String"]))
    if known:
        (group,) = READER.read(path).groups
        assert group.ranks == tuple(told.get("ranks", range(told.get("group_size", 0))))
        return
    assert re.search(": Expected .*; capture the execution trace again", refused(READER.read, path))


def test_groups_that_list_nothing(written: Write) -> None:
    for inputs in ([], [7]):
        assert READER.read(written(new(2, "process_group:init", 1, inputs, []))).groups == ()


@pytest.mark.parametrize(("pid", "known"), [(0, True), ((1 << 62) - 1, True), (1 << 62, False), (-1, False)])
def test_numbers_of_processes(written: Write, pid: int, known: bool) -> None:
    path = written(pid=pid)
    if known:
        assert READER.read(path).process_id == pid
    else:
        refused(READER.read, path)


def test_a_process_is_told_before_the_operators(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text('{"schema": "1.0.1", "nodes": [{"pid": 7}]}')
    assert READER.process_of(path) is None
    path.write_text('{"pid" : 123456789012345678}')
    assert READER.process_of(path) == 123_456_789_012_345_678
    path = tmp_path / "et.json.gz"
    path.write_bytes(gzip.compress(b'{"pid": 7}')[:12])
    assert "; capture the execution trace" in refused(READER.process_of, path, "gzip stream is damaged")


@pytest.mark.parametrize(
    ("inputs", "collective"),
    [
        *(([6, 9, 0, "barrier"], "barrier"), ([[FLOATS], 6, 9, 0, "allreduce"], "allreduce")),
        *(([6, 9, 0], None), ([6, 9, 0, 7], None), ([6, 9, 0, 7, 8], None)),
    ],
)
def test_collectives_named_in_two_places(written: Write, inputs: list[Any], collective: str | None) -> None:
    """Whatever stands behind it."""
    record = old(1, RECORDS, 0, inputs, [])
    (call,) = READER.read(written(record, old(2, "nccl:all_reduce", 1, [], []))).calls
    assert (call.payload and call.payload.collective) == collective
    assert call.seq == (6 if collective else None)

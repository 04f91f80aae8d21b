# SPDX-License-Identifier: Apache-2.0
"""Execution traces: both layouts, what each call tells, and what damaged ones say of themselves."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.formats import ExecutionTrace, Payload, execution_trace_reader
from cclbench.ground.errors import InputError
from cclbench.record.facts import ProcessGroup

READER = execution_trace_reader("execution_trace")
Node = dict[str, Any]
Write = Callable[..., Path]
FLOATS = [5, 6, 0, 100, 4, "cuda:0"]
HALVES = [7, 8, 0, 50, 2, "cuda:0"]


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
def written(tmp_path: Path) -> Write:
    """Writes an execution trace of process 42."""

    def write(*nodes: Node, pid: Any = 42) -> Path:
        path = tmp_path / "et_3.json"
        trace = {"schema": "1.0.1", "pid": pid, "time": "2023-09-07", "start_ts": 1, "nodes": list(nodes)}
        path.write_text(json.dumps({**trace, "finish_ts": 2}))
        return path

    return write


def told(trace: ExecutionTrace) -> list[tuple[str, Payload | None, int | None]]:
    return [(call.name, call.payload, call.seq) for call in trace.calls]


def test_old_layout(written: Write) -> None:
    """Nodes are written when they end: a call before the record around it."""
    trace = READER.read(
        written(
            old(21, "nccl:all_reduce", 20, [FLOATS], ["Tensor(float)"]),
            old(
                20,
                "record_param_comms",
                19,
                [[FLOATS, HALVES], 8, 94_594_108, 3, "allreduce", [], []],
                ["GenericList[Tensor(float),Tensor(c10::Half)]", "Int"],
                [[FLOATS, HALVES]],
            ),
            old(11, "nccl:all_to_all", 10, [HALVES], ["Tensor(c10::Half)"]),
            old(
                10,
                "record_param_comms",
                9,
                [HALVES, 7, 94_594_108, 3, "all_to_allv", [10, 40], [60, 40]],
                ["Tensor(c10::Half)", "Int"],
                [FLOATS],
            ),
            old(12, "record_param_comms", 9, [7, 0, 3, "wait", [], []], ["Int"]),
            old(30, "aten::add", 9, [FLOATS, 1], ["Tensor(float)", "Int"]),
        )
    )
    assert trace.process_id == 42
    common: dict[str, Any] = {"source": "execution_trace", "group_name": "94594108"}
    exchange = Payload(
        collective="all_to_allv", in_bytes=100, out_bytes=400, dtype="c10::Half", group_size=2, **common
    )
    reduction = Payload(collective="allreduce", in_bytes=500, out_bytes=500, **common)
    assert told(trace) == [("nccl:all_to_all", exchange, 7), ("nccl:all_reduce", reduction, 8)]
    assert [call.in_bytes for call in trace.calls] == [100, 400]


def test_new_layout_tells_the_groups_ranks(written: Write) -> None:
    group = ["12", "mesh_tp"]
    inputs = [[FLOATS], [9, False], group, 0, "_allgather_base", [], [], 4, 2, 3]
    (call,) = READER.read(
        written(
            new(2, "nccl:_all_gather_base", 1, [FLOATS], ["Tensor(float)"]),
            new(
                1,
                "record_param_comms",
                0,
                inputs,
                ["GenericList[Tensor(float)]"],
                [[[FLOATS, FLOATS, FLOATS]]],
            ),
        )
    ).calls
    assert call.seq == 9
    assert call.payload == Payload(
        source="execution_trace",
        collective="_allgather_base",
        in_bytes=400,
        out_bytes=1200,
        dtype="float",
        group_name="12",
        group_description="mesh_tp",
        group_size=3,
        ranks=(4, 6, 8),
    )


def test_groups_are_listed_as_text(written: Write) -> None:
    listed = [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "nccl", "ranks": [], "group_size": 4},
        {"pg_name": "1", "pg_desc": "mesh_dp", "ranks": [1, 3], "group_size": 2},
        {"pg_name": 2},
    ]
    trace = READER.read(written(new(2, "## process_group:init ##", 1, [json.dumps(listed)], ["String"])))
    assert trace.groups == (
        ProcessGroup("0", "default_pg", (0, 1, 2, 3)),
        ProcessGroup("1", "mesh_dp", (1, 3)),
        ProcessGroup("2"),
    )


def test_what_is_not_told_is_none(written: Write) -> None:
    """A symbolic tensor has no size, a cut list of splits no length, a barrier no tensors."""
    symbolic = [1, 0, 0, 0, 0, ""]
    splits = [1] * 4097
    trace = READER.read(
        written(
            old(1, "record_param_comms", 0, [symbolic, 5, 9, 0, "all_to_allv", splits, splits], []),
            old(2, "nccl:all_to_all", 1, [symbolic], []),
            old(3, "record_param_comms", 0, [6, 9, 0, "barrier", [], []], ["Int"]),
            old(4, "nccl:all_reduce", 3, [FLOATS], []),
            old(5, "record_param_comms", 0, ["?"], []),
            old(6, "nccl:all_reduce", 5, [], []),
            old(7, "gloo:broadcast", 0, [FLOATS], []),
        )
    )
    assert told(trace) == [
        (
            "nccl:all_to_all",
            Payload(source="execution_trace", collective="all_to_allv", group_name="9"),
            5,
        ),
        ("nccl:all_reduce", Payload(source="execution_trace", collective="barrier", group_name="9"), 6),
        ("nccl:all_reduce", None, None),
        ("gloo:broadcast", None, None),
    ]
    assert [call.in_bytes for call in trace.calls] == [None, 400, None, 400]


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (b'{\n  "schema": "1.0.1", "pid": 7, "time": "x", "start_ts": 6,\n  "nodes": [', True),
        (b'{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": []}', True),
        (b'{"schema": "1.1.0", "nodes": []}', False),
        (b'{"schemaVersion": 1, "traceEvents": [{"schema": 1, "pid": 1, "nodes": 2}]}', False),
        (b'["schema", "pid", "nodes"]', False),
        (b"", False),
    ],
)
def test_what_an_execution_trace_begins_with(head: bytes, known: bool) -> None:
    assert (READER.sniff(head) == 1.0) is known


def test_process_of(written: Write) -> None:
    assert READER.process_of(written(pid=59_811)) == 59_811
    assert READER.process_of(written(pid="x")) is None


RECORD = old(1, "record_param_comms", 0, [FLOATS, 5, 9, 0, "broadcast", [], []], [])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-30],
        lambda text: text.replace('"id": 2', '"id": "two"'),
        lambda text: text.replace('"pid": 42', '"pid": -42'),
        lambda text: text.replace('"nodes"', '"knots"'),
        lambda text: text.replace("100, 4,", "-100, 4,"),
        lambda text: text.replace("100, 4,", f"{1 << 62}, 4,"),
        lambda text: text.replace("100", "[" * 1_000_000 + "]" * 1_000_000, 1),
        lambda text: text.replace('"inputs": [[5', '"inputs": [[\\5'),
        lambda text: text.replace('"nccl:all_reduce"', '"## process_group:init ##"').replace(
            "[[5", '["[5}", [5'
        ),
    ],
    ids=["cut", "id", "pid", "no nodes", "negative", "huge", "deep", "malformed", "groups"],
)
def test_damage_is_an_error_that_names_the_file(written: Write, change: Callable[[str], str]) -> None:
    path = written(RECORD, old(2, "nccl:all_reduce", 1, [FLOATS], []))
    text = path.read_text()
    damaged = change(text)
    assert damaged != text
    path.write_text(damaged)
    with pytest.raises(InputError) as raised:
        READER.read(path)
    assert raised.value.where == str(path)
    assert len(str(raised.value).splitlines()) <= 3


def test_a_damaged_gzip_stream_and_a_bomb(written: Write, tmp_path: Path) -> None:
    text = written(RECORD).read_bytes()
    path = tmp_path / "et.json.gz"
    packed = gzip.compress(text)
    for damaged in (packed[:-20], packed[:30] + b"\xff" * 20 + packed[50:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="gzip stream is damaged") as raised:
            READER.read(path)
        assert raised.value.where == str(path)
    path.write_bytes(gzip.compress(text[:-1] + b" " * (65 << 20) + b"}", 9))
    with pytest.raises(InputError, match="is larger than 64 MiB"):
        READER.read(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        READER.read(tmp_path / "none.json")


def recorded(written: Write, *inputs: Any, types: list[str] | None = None) -> Any:
    """The only call of a trace: an exchange of those inputs, after its tensors."""
    record = old(1, "record_param_comms", 0, [[FLOATS], *inputs], types or ["GenericList[Tensor(float)]"])
    (call,) = READER.read(written(record, old(2, "nccl:all_to_all", 1, [], []))).calls
    return call


@pytest.mark.parametrize(
    ("sent", "received", "size"),
    [
        *((4095, 4095, 4095), (4096, 4096, None), (1, 0, 1), (0, 2, 2), (2, 3, None), (0, 0, None)),
    ],
)
def test_split_sizes_tell_the_size_of_a_group(
    written: Write, sent: int, received: int, size: int | None
) -> None:
    """Lists that are cut, at 4096, tell none; neither do two of different lengths."""
    call = recorded(written, 7, "0", 0, "all_to_allv", [8] * sent, [8] * received)
    assert call.payload.group_size == size


MOST = 1 << 20


@pytest.mark.parametrize(
    ("place", "size", "last"),
    [
        *(([0, 1, MOST], MOST, MOST - 1), ([0, 1, MOST + 1], None, None), ([1, 1, MOST], MOST, None)),
        *(([0, 1, 1], 1, 0), ([0, 1, 0], None, None), ([MOST - 4, 2, 2], 2, MOST - 2)),
        *(
            ([MOST - 3, 2, 2], 2, None),
            ([0, 0, 2], 2, None),
            ([-1, 1, 2], 2, None),
            ([0, 1, True], None, None),
        ),
        *(([0, 1], None, None), ([], None, None), ([None, 1, 4], 4, None), ([0, None, 4], 4, None)),
    ],
)
def test_ranks_of_a_group_are_less_than_a_million(
    written: Write, place: list[int], size: int | None, last: int | None
) -> None:
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


@pytest.mark.parametrize(
    ("group", "name", "description"),
    [("5", "5", None), (6, "6", None), (["7", "dp"], "7", "dp"), (["8"], "8", None), (["9", 3], "9", None)],
)
def test_groups_have_a_name_and_perhaps_a_description(
    written: Write, group: Any, name: str, description: str | None
) -> None:
    payload = recorded(written, 7, group, 0, "allreduce", [], []).payload
    assert (payload.group_name, payload.group_description) == (name, description)


def test_the_element_type_is_told_where_all_tensors_share_it(written: Write) -> None:
    for types, dtype in ((["Tensor(int)"], "int"), (["[Tensor(int),Tensor(long)]"], None), (["Int"], None)):
        assert recorded(written, 7, "0", 0, "allreduce", [], [], types=types).payload.dtype == dtype


@pytest.mark.parametrize(
    ("elements", "size", "total"),
    [(0, 4, 0), (1 << 60, 1, 1 << 60), (1 << 58, 4, 1 << 60), (3, 0, 0)],
)
def test_tensors_of_an_exabyte_and_of_nothing(written: Write, elements: int, size: int, total: int) -> None:
    tensor = [5, 6, 0, elements, size, "cuda:0"]
    (call,) = READER.read(written(old(2, "nccl:all_reduce", 1, [tensor], []))).calls
    assert call.in_bytes == total


@pytest.mark.parametrize(("elements", "size"), [((1 << 60) + 1, 1), (-1, 4), (4, -1), (-1, -1)])
def test_tensors_that_cannot_be(written: Write, elements: int, size: int) -> None:
    path = written(old(2, "nccl:all_reduce", 1, [[5, 6, 0, elements, size, "cuda:0"]], []))
    with pytest.raises(InputError) as raised:
        READER.read(path)
    assert str(raised.value) == (
        f"{path}: impossible tensor of {elements} × {size} bytes;"
        " capture the execution trace again, or remove it to do without"
    )


@pytest.mark.parametrize(
    ("told", "known"),
    [
        *(({"group_size": 1}, True), ({"group_size": 0}, False), ({"group_size": MOST}, True)),
        *(
            ({"group_size": MOST + 1}, False),
            ({"ranks": [(1 << 31) - 1]}, True),
            ({"ranks": [1 << 31]}, False),
        ),
        *(({"ranks": [-1]}, False), ({"ranks": [0]}, True)),
    ],
)
def test_bounds_of_groups(written: Write, told: dict[str, Any], known: bool) -> None:
    path = written(new(2, "process_group:init", 1, [json.dumps([{"pg_name": "0"} | told])], ["String"]))
    if known:
        (group,) = READER.read(path).groups
        assert group.ranks == tuple(told.get("ranks", range(told.get("group_size", 0))))
        return
    with pytest.raises(InputError, match=r"et_3.json: Expected .*; capture the execution trace again"):
        READER.read(path)


def test_groups_that_list_nothing(written: Write) -> None:
    for inputs in ([], [7]):
        assert READER.read(written(new(2, "process_group:init", 1, inputs, []))).groups == ()


@pytest.mark.parametrize(("pid", "known"), [(0, True), ((1 << 62) - 1, True), (1 << 62, False), (-1, False)])
def test_numbers_of_processes(written: Write, pid: int, known: bool) -> None:
    path = written(pid=pid)
    if known:
        assert READER.read(path).process_id == pid
    else:
        with pytest.raises(InputError):
            READER.read(path)


def test_a_process_is_told_before_the_operators(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text('{"schema": "1.0.1", "nodes": [{"pid": 7}]}')
    assert READER.process_of(path) is None
    path.write_text('{"pid" : 123456789012345678}')
    assert READER.process_of(path) == 123_456_789_012_345_678
    path = tmp_path / "et.json.gz"
    path.write_bytes(gzip.compress(b'{"pid": 7}')[:12])
    with pytest.raises(
        InputError, match=r"et.json.gz: gzip stream is damaged .*; capture the execution trace"
    ):
        READER.process_of(path)


@pytest.mark.parametrize(
    ("inputs", "collective"),
    [
        ([6, 9, 0, "barrier"], "barrier"),
        ([[FLOATS], 6, 9, 0, "allreduce"], "allreduce"),
        ([6, 9, 0], None),
        ([6, 9, 0, 7], None),
        ([6, 9, 0, 7, 8], None),
    ],
)
def test_the_name_of_a_collective_stands_fourth_or_behind_tensors(
    written: Write, inputs: list[Any], collective: str | None
) -> None:
    """Whatever stands behind it."""
    record = old(1, "record_param_comms", 0, inputs, [])
    (call,) = READER.read(written(record, old(2, "nccl:all_reduce", 1, [], []))).calls
    assert (call.payload and call.payload.collective) == collective
    assert call.seq == (6 if collective else None)


def test_only_split_sizes_tell_the_size_of_a_group(written: Write) -> None:
    assert recorded(written, 7, ["0", "dp"], [1, 2], "allreduce", [], []).payload.group_size is None

# SPDX-License-Identifier: Apache-2.0
"""What Kineto rows tell of collectives, and fields of events to their bounds."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.refused import refused
from hypothesis import given
from hypothesis import strategies as st

from cclbench.formats import Payload
from cclbench.formats.kineto.events import (
    DECODER,
    PYTHON,
    Args,
    CallDecoder,
    CallEvent,
    PythonEvent,
    argument_columns,
    autograd_columns,
    operator_ids,
)
from cclbench.formats.kineto.kinds import device_index, track_number
from cclbench.formats.kineto.payloads import StatedCollectives, ranks_of_text
from cclbench.ground.errors import InputError

NEW = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16"}
NEW |= {"Group size": 2, "Process Group Name": "5", "Process Group Description": "mesh_dp"}
NEW["Process Group Ranks"] = "[0, 4]"


def test_kernel_metadata(read, write, event):
    events = [event("kernel", "gemm"), event("kernel", "ncclDevKernel_AllReduce", **NEW, Seq=17)]
    sizes = {"collective": "allreduce", "in_elements": 1000, "out_elements": 1000, "dtype": "BFloat16"}
    group = {"group_name": "5", "group_description": "mesh_dp", "group_size": 2, "ranks": (0, 4)}
    assert read(write(events)).stated_payloads == [(Payload(source="kernel", **sizes, **group), 1, 17)]


def test_names_of_2023_and_peers(read, write, event):
    args = {"Collective name": "_allgather_base", "In msg size": 10, "Out msg size": 20, "dtype": "Float"}
    args |= {"Process Group ID": 3, "Group size": 2}
    ((payload, row, seq),) = read(write([event("kernel", "nccl", **args)])).stated_payloads
    assert (payload.in_elements, payload.out_elements, payload.group_name) == (10, 20, "3")
    assert (payload.group_description, payload.ranks, row, seq) == (None, None, 0, -1)
    args = {"Collective name": "send", "Src Rank": 0, "Dst Rank": 3, "In msg nelems": 8, "dtype": "Float"}
    ((payload, _, _),) = read(write([event("kernel", "ncclDevKernel_SendRecv", **args)])).stated_payloads
    assert (payload.src_rank, payload.dst_rank) == (0, 3)


def test_groups_of_more_ranks_than_any_job_has_are_refused(read, write, event):
    """Each takes three numbers of the file; two of a million ranks are believed, and rows share them."""

    def stated(*first):
        told = {"Collective name": "x", "Group size": 1 << 20, "Global rank stride": 1}
        rows = [event("kernel", "n", **told, **{"Global rank start": one}) for one in first]
        return read(write(rows)).stated_payloads

    (one, _, _), (other, _, _), (again, _, _) = stated(0, 1, 0)
    assert one is again
    assert (len(one.ranks), other.ranks[-1]) == (1 << 20, 1 << 20)
    with pytest.raises(InputError, match="process groups of more than 2,097,152 ranks together"):
        stated(0, 1, 2)


def test_host_ops_and_annotations_of_the_backend(read, write, event):
    found = read(write([event("cpu_op", "record_param_comms", 5, 3, tid=12, **NEW, Seq=4)]))
    ((payload, row, seq),) = found.stated_payloads
    told = found.trace.stated_payloads
    assert (payload.source, row, seq) == ("host_op", -1, 4)
    assert (told.track[0], told.start_ns[0], told.end_ns[0]) == (12, 5_000, 8_000)
    own = {"Input Dims": [[128, 4]], "Input type": ["c10::BFloat16"]}
    told = read(write([event("user_annotation", "nccl:all_reduce", **own)])).stated_payloads
    known = {"collective": "all_reduce", "in_elements": 512, "dtype": "c10::BFloat16"}
    assert told == [(Payload(source="annotation", **known), -1, -1)]
    copy = event("gpu_user_annotation", "nccl:all_reduce", **{"Input Dims": [[8]], "Input type": ["float"]})
    for row in (event("cpu_op", "record_param_comms"), copy):
        assert read(write([row])).stated_payloads == []


MOST = 1 << 56


@pytest.mark.parametrize(
    ("dims", "types", "elements"),
    [
        *(([[321271]], ["float"], 321_271), ([[2, 3], [4]], ["float", "float"], 10), ([[]], ["float"], 1)),
        *(([[2], [4]], ["float", "long int"], None), ([[[2], [4]]], ["TensorList"], None)),
        *(([[]], [""], None), ([], [], None), ([[MOST]], ["float"], MOST)),
        ([[1 << 28, 1 << 28], [0]], ["float"] * 2, MOST),
        # sizes and types that do not match
        *(([[2]], None, None), (None, ["float"], None), ([[2]], ["float", "float"], None)),
        *(([[2], [2]], ["float"], None), ([[2]], [3], None)),
    ],
)
def test_gloo_row_tells_its_own_size(read, write, event, dims, types, elements):
    told = {key: x for key, x in (("Input Dims", dims), ("Input type", types)) if x is not None}
    ((payload, _, seq),) = read(write([event("user_annotation", "gloo:all_reduce", **told)])).stated_payloads
    assert (payload.source, payload.collective) == ("annotation", "all_reduce")
    assert (payload.rows, seq) == (1, -1)
    assert (payload.in_elements, payload.dtype) == (elements, "float" if elements else None)


def test_annotation_of_the_workload(read, write, event):
    name = (
        "cclbench::collective kind=reduce_scatter seq=12 in_bytes=1508352 out_bytes=754176 dtype=float32 "
        "rows=2 threads=4450,4452 pg=2 ranks=1,3 desc=mesh of tp=2"
    )
    ((payload, row, seq),) = read(write([event("user_annotation", name, 3, 2, tid=11)])).stated_payloads
    assert (row, seq) == (-1, 12)
    sizes = {"in_bytes": 1_508_352, "out_bytes": 754_176, "dtype": "float32"}
    group = {"group_name": "2", "group_description": "mesh of tp=2", "group_size": 2, "ranks": (1, 3)}
    called = {"source": "annotation", "collective": "reduce_scatter", "rows": 2, "threads": (4450, 4452)}
    assert payload == Payload(**called, **sizes, **group)


@pytest.mark.parametrize(
    "fields",
    ["", "kind=x", "kind=x rows=1 ranks=", "kind=x rows=x ranks=0,1", "kind=x rows=1 ranks=0,1 stray"],
)
def test_malformed_annotation_is_an_error_that_quotes_it(read, write, event, fields):
    refused(read, write([event("user_annotation", f"cclbench::collective {fields} desc=x")]), "malformed")


def test_equal_payloads_and_the_largest_groups(read, write, event):
    events = [event("kernel", "nccl", i, **NEW, Seq=i) for i in range(3)]
    told = read(write(events)).trace.stated_payloads
    assert (len(told), len(told.payloads), list(told.seq)) == (3, 1, [0, 1, 2])
    assert ranks_of_text("", 1 << 20, 7, 3)[-1] == 7 + 3 * ((1 << 20) - 1)


@pytest.mark.parametrize(
    ("text", "size", "first", "stride", "ranks"),
    [
        *(("[3, 4]", 2, 9, 9, (3, 4)), ("[0, 999999999]", None, None, None, (0, 999_999_999))),
        *(("[0, 1000000000]", None, None, None, None), ("[0, 1, ..., 3]", None, None, None, None)),
        *(("[0, 2, ..., 6]", 4, 0, 2, (0, 2, 4, 6)), ("[1]", 2, 5, 1, (5, 6)), ("", 3, 5, -1, None)),
        *(("", 3, 0, 2, (0, 2, 4)), ("", 3, -1, 2, None), ("", 0, 0, 1, None), ("", -1, 0, 1, None)),
        *(("", 1, 4, None, (4,)), ("", 2, 4, None, None), ("", 2, 4, 0, None), ("", 2, 4, 1, (4, 5))),
        *(("", None, 4, 1, None), ("", (1 << 20) + 1, 0, 1, None)),
    ],
)
def test_ranks_from_a_list_else_from_start_and_stride(text, size, first, stride, ranks):
    assert ranks_of_text(text, size, first, stride) == ranks


def test_what_cannot_be_is_quoted(read, write, event):
    told = {"Input Dims": [[1 << 56], [1]], "Input type": ["float"] * 2}
    path = write([event("user_annotation", "gloo:all_reduce", **told)])
    said = f"gloo:all_reduce of {(1 << 56) + 1} elements; is the file damaged?"
    assert refused(read, path) == f"{path}: {said}"
    name = "cclbench::collective " + "x" * 200
    with pytest.raises(InputError) as caught:
        stated(name)
    assert caught.value.what.startswith(f"annotation {name[:100]!r} is malformed (")


def mark(**fields):
    """The annotation of an all-reduce with these fields."""
    told = {"kind": "all_reduce", "rows": 1, "ranks": "0,1", **fields}
    return "cclbench::collective " + " ".join(f"{key}={value}" for key, value in told.items()) + " desc="


def stated(name, args=None):
    """The payload that a row of this name states, and its number."""
    return StatedCollectives(Path("t.json")).stated_payload(name, args or Args())


def test_numbers_of_an_annotation_to_their_bounds():
    most, last = (1 << 63) - 1, (1 << 31) - 1
    sized = mark(seq=most, in_bytes=most, out_bytes=0, rows=most, threads=f"0,{most}", ranks=f"0,{last}")
    found, seq = stated(sized)
    assert (seq, found.in_bytes, found.out_bytes, found.rows) == (most, most, 0, most)
    assert (found.threads, found.ranks, found.group_size) == ((0, most), (0, last), 2)
    for kind, field in (("send", "dst_rank"), ("recv", "src_rank")):
        for peer in (0, last):
            assert getattr(stated(mark(kind=kind, peer=peer))[0], field) == peer
    assert stated(mark())[1] is None
    wide, narrow = ("seq", "in_bytes", "out_bytes", "rows", "threads"), ("ranks", "peer")
    beyond = [(name, value) for name in wide for value in (1 << 63, -1)]
    for field, value in (*beyond, *((name, value) for name in narrow for value in (1 << 31, -1))):
        with pytest.raises(InputError, match=rf"malformed \(ValueError\('{value} is out of range'\)\)"):
            stated(mark(**{field: value}))


def test_a_row_tells_of_a_collective_by_its_metadata_before_its_name():
    told = Args(collective="allreduce", seq=3, group_id=5, in_size=8, in_elements=2, out_size=9)
    for name, source in (("record_param_comms", "host_op"), ("nccl:x", "kernel")):
        found, seq = stated(name, told)
        assert (found.source, found.collective, found.group_name, seq) == (source, "allreduce", "5", 3)
        assert (found.in_elements, found.out_elements) == (2, 9)
    assert stated("record_param_comms") is None
    assert stated("gloo:send") == (Payload(source="annotation", collective="send"), None)


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        *((name, -(1 << 63), (1 << 63) - 1) for name in ("correlation", "Total Allocated", "Seq")),
        *((name, -(1 << 31), (1 << 31) - 1) for name in ("Rank", "Device Type")),
        *((name, 0, 1 << 56) for name in ("In msg nelems", "Out msg size")),
        ("flops", 0, 1 << 64),
    ],
)
def test_numbers_of_args_to_their_bounds(field: str, least: int, most: int) -> None:
    def decoded(value: int) -> Any:
        return DECODER.decode(json.dumps([{"args": {field: value}}]).encode())

    for value in (least, most):
        assert decoded(value)[0].args != Args()
    # A float tells the next number above 2⁶⁴ from it only so far away.
    for value in (least - 1, most + (1 << 12 if field == "flops" else 1)):
        with pytest.raises(msgspec.DecodeError):
            decoded(value)


def args_of(*given: dict[str, Any]) -> list[Args]:
    text = json.dumps([{"args": args} for args in given]).encode()
    return [event.args or Args() for event in DECODER.decode(text)]


def test_ids_and_numbers_of_operators() -> None:
    def ids(*stated: Any) -> list[int | None]:
        return operator_ids(args_of(*({"External id": i} for i in stated))).to_pylist()

    last = (1 << 63) - 1
    assert ids(1, 0, -1, None, last) == [1, None, None, None, last]
    strange = ("5", 2.5, 1 << 63, -(1 << 63))
    assert ids(1, *strange, last, True, [3], 0) == [1, *[None] * 4, last, None, None, None]
    # under the name of 2021 they count where there is no other
    assert operator_ids(args_of({"external id": 4}, {})).to_pylist() == [4, None]
    assert operator_ids(args_of({"external id": 4}, {"External id": 7})).to_pylist() == [None, 7]
    stated = [{"Sequence number": n, "Fwd thread id": n} for n in (0, 1, 9, -1, "3", True, (1 << 63) - 2)]
    columns = autograd_columns(args_of(*stated, {}))
    assert columns["sequence"].to_pylist() == [0, 1, 9, None, None, None, (1 << 63) - 2, None]
    assert columns["forward_thread"].to_pylist() == [None, 1, 9, None, None, None, (1 << 63) - 2, None]
    columns = autograd_columns(args_of({"Sequence number": (1 << 63) - 1}, {"Sequence number": 2}))
    assert columns["sequence"].to_pylist() == [None, 2]


def test_arguments_are_texts_without_spaces_and_null_where_an_op_has_none() -> None:
    given = [
        *({"Input Dims": [[2, 3], []], "Input type": ["float", "a b"]}, {}),
        {"Input Dims": [], "Concrete Inputs": ["", "1 2"], "Input Strides": [[3, 1]]},
        {"Input Dims": [[2, 3], []]},
    ]
    columns = argument_columns(args_of(*given))
    columns = {name: None if c is None else c.to_pylist() for name, c in columns.items()}
    known: dict[str, Any] = {"shapes": ["[[2,3],[]]", None, "[]", "[[2,3],[]]"]}
    known |= {"dtypes": ['["float","a b"]', None, None, None], "strides": [None, None, "[[3,1]]", None]}
    known |= {"values": [None, None, '["","1 2"]', None]}
    assert columns == known
    assert argument_columns(args_of({}, {})) == dict.fromkeys(("shapes", "dtypes", "strides", "values"))


def test_shapes_under_the_name_of_2021_count_where_there_is_no_other() -> None:
    for stated, shapes in (
        ([{"Input dims": [[1]]}, {}], ["[[1]]", None]),
        ([{"Input dims": [[1]]}, {"Input Dims": [[2]]}], [None, "[[2]]"]),
        ([{"Input Dims": [[n]]} for n in (1, 2, 1)], ["[[1]]", "[[2]]", "[[1]]"]),
    ):
        assert argument_columns(args_of(*stated))["shapes"].to_pylist() == shapes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("stream 7", 7), ("-12", -12), ("9" * 18, int("9" * 18)), ("9" * 19, zlib.crc32(b"9" * 19))),
        *(("main", zlib.crc32(b"main")), ("stream 7b", zlib.crc32(b"stream 7b"))),
        (None, zlib.crc32(b"None")),
    ],
)
def test_a_track_is_its_number_or_that_of_its_name(text: str | None, number: int) -> None:
    assert track_number(text) == number


@pytest.mark.parametrize(
    ("device", "index"),
    [(0, 0), ("3", 3), (9999, 9999), (10_000, None), (-1, None), ("gpu", None), (None, None)],
)
def test_a_device_s_index_may_stand_as_text(device: Any, index: int | None) -> None:
    assert device_index(device) == index


TEXT = st.sampled_from([PYTHON, "cpu_op", 'a "cat": "python_function"', "é{}[],"])
NUMBER = st.sampled_from([0, 7, 12.5, 6520430063661.945])
PYTHON_ROW = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.just(PYTHON),
        "name": TEXT,
        "tid": NUMBER.map(int),
        "ts": NUMBER,
        "dur": NUMBER,
    },
    optional={"args": st.just({"Python id": 3}), "pid": st.just(1)},
)
OTHER_ROW = st.fixed_dictionaries(
    {"ph": st.sampled_from("Xif"), "name": TEXT},
    optional={"cat": TEXT, "tid": TEXT, "ts": NUMBER, "dur": NUMBER, "args": st.just({"kernel": "gemm"})},
)
USED = ("ph", "cat", "name", "tid", "ts", "dur")


def values(events: Any) -> list[tuple[Any, ...]]:
    """What is read of each entry; of others than Python functions also their `args`."""
    return [(*(getattr(e, name) for name in USED), None if e.cat == PYTHON else e.args) for e in events]


@given(st.lists(st.one_of(st.lists(PYTHON_ROW), st.lists(st.one_of(PYTHON_ROW, OTHER_ROW))), max_size=6))
def test_arrays_of_python_functions_have_the_values_of_any_other(arrays: list[list[dict[str, Any]]]) -> None:
    decoder = CallDecoder()
    for rows in arrays:
        text = msgspec.json.encode(rows)
        assert values(decoder.decode(text)) == values(msgspec.json.decode(text, type=list[CallEvent]))


def test_only_what_follows_a_python_function_is_decoded_as_such() -> None:
    decoder, row = CallDecoder(), b'{"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 2}'
    kinds = [type(decoder.decode(b"[" + row + b"]")[0]) for _ in range(2)]
    assert kinds == [CallEvent, PythonEvent]
    assert [type(e) for e in decoder.decode(b"[" + row + b', {"cat": "cpu_op"}]')] == [CallEvent, CallEvent]
    assert type(decoder.decode(b"[" + row + b"]")[0]) is CallEvent

# SPDX-License-Identifier: Apache-2.0
"""NVTX ranges, calls of MPI, and what NCCL's ranges tell of its kernels."""

from __future__ import annotations

import struct

import pytest
from helpers.nsys_files import (
    CALL,
    EPOCH,
    KERNEL,
    SESSION,
    blob,
    call,
    kernel,
    nvtx,
    read,
    strings,
    thread,
    write,
)

from cclbench.formats import Payload
from cclbench.record.facts import Communicator

CALLS = ("ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend")
NAMES = strings("ncclDevKernel", "cuLaunchKernelEx", *CALLS, "ncclRecv", "ncclCommInitRank", "MPI_Allreduce")
START, END, REDUCE, GATHER, SCATTER, SEND, RECV, INIT, MPI = range(3, 12)
COMM = 0xABC
SCHEMAS = [
    {"domainId": 1, "schemaId": schema, "idx": idx, "type": kind, "name": name, "offset": offset}
    for schema, entries in {
        50: [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (5, "Peer rank", 16)],
        51: [(18, "NCCL communicator ID", None), (5, "No. of ranks", 8), (5, "Rank", 12)],
    }.items()
    for idx, (kind, name, offset) in enumerate(entries)
] * 2  # each process of a capture registers its own
KNOWN = {
    "StringIds": NAMES,
    "TARGET_INFO_SESSION_START_TIME": SESSION,
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": SCHEMAS,
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.sqlite"


@pytest.fixture
def ranges(path):
    """Reads a capture of one kernel and these ranges."""

    def ranges(*rows, calls=(), **tables):
        more = {CALL: list(calls)} if calls else {}
        return read(
            write(path, NVTX_EVENTS=list(rows), **KNOWN, **{KERNEL: [kernel(900, 950)]}, **more, **tables)
        )

    return ranges


def nccl(start, end, name, size=None, comm=COMM, **more):
    """A range of NCCL's domain with its payload."""
    payload = None if size is None else blob(50, struct.pack("<QQi4x", comm, size, 1))
    return nvtx(start, end, textId=name, domainId=1, binaryData=payload, **more)


def sized(collective, in_bytes, out_bytes, ranks=None):
    return Payload(
        source="host_op",
        collective=collective,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        group_name=f"{COMM:#x}",
        group_size=ranks,
    )


def begun(comm, size, rank, **more):
    """The range of the call that makes a communicator."""
    return nvtx(
        1,
        5,
        textId=INIT,
        domainId=1,
        binaryData=blob(51, struct.pack("<Qiii4x", comm, size, rank, rank)),
        **more,
    )


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("aten::add, op_id = 314359", "op", "aten::add"),
        ("aten::add", "op", "aten::add"),
        ("AllToAll4D, seq = 45440, op_id = 990760", "op", "AllToAll4D"),
        ("aten::mm, seq = 3, op_id = 4, sizes = [[2, 3], [3, 2]]", "op", "aten::mm"),
        ("aten::mm, sizes = [[2, 3], [3, 2]]", "op", "aten::mm"),
        ("conv2d, seq=12", "op", "conv2d"),
        ("ThnnConv2DBackward, stashed seq=12", "op", "ThnnConv2DBackward"),
        ("my_range, sizes = [[2, 3], [3, 2]]", "annotation", "my_range"),
        ("batch, sizes = all", "annotation", "batch, sizes = all"),
        ("autograd::engine::evaluate_function: AddmmBackward0, op_id = 7", "op", None),
        ("record_param_comms, op_id = 12", "op", "record_param_comms"),
        ("flash_attn::_flash_attn_forward, op_id = 12", "op", "flash_attn::_flash_attn_forward"),
        ("ProfilerStep#3, op_id = 0", "annotation", "ProfilerStep#3"),
        ("FSDP::pre_forward (blocks.4), op_id = 9", "annotation", "FSDP::pre_forward (blocks.4)"),
        ("step 7", "annotation", "step 7"),
        ("layers.0.feed_forward", "annotation", "layers.0.feed_forward"),
        ("nn.Module: Linear_0", "annotation", "nn.Module: Linear_0"),
        ("forward-compute", "annotation", "forward-compute"),
        ("load, seq = of things", "annotation", "load, seq = of things"),
        ("MPI_Allreduce", "annotation", "MPI_Allreduce"),
    ],
)
def test_operators_and_annotations(ranges, text, kind, name):
    found = ranges(nvtx(10, 25, text, tid=6))
    (made,) = [row for row in found.rows if row["kind"] != "kernel"]
    assert (made["kind"], made["side"]) == (kind, "host")
    assert made["name"] == (name or text.partition(", op_id")[0])
    assert (made["start_ns"], made["dur_ns"], made["track"]) == (EPOCH + 10, 15, 6)


@pytest.mark.parametrize(
    ("appended", "sequence", "number", "shapes"),
    [
        ("", None, None, None),
        (", op_id = 4", None, 4, None),
        (", seq = 0, op_id = 4", 0, 4, None),
        (", seq = -1, op_id = 4", None, 4, None),
        (", seq = 3, op_id = 4, sizes = [[2, 3], [], [3, 2]]", 3, 4, "[[2, 3], [], [3, 2]]"),
        (", op_id = 4, sizes = [[2]], input_op_ids = [(2,0), (3,1)]", None, 4, "[[2]]"),
        (", op_id = 4, input_op_ids = [(2,0)]", None, 4, None),
        (", seq = 3, sizes = [[2]]", 3, None, "[[2]]"),
        (", sizes = [[2]]", None, None, "[[2]]"),
        (", seq=3", 3, None, None),
        (", stashed seq=3", 3, None, None),
        (", op_id = 4, sizes = [[2], 3", None, 4, None),
        (", op_id = 4, sizes = [[2]", None, 4, None),
        (", op_id = 4, sizes = [2, 3]", None, 4, None),
        (f", seq = {10**30}, op_id = 4", None, 4, None),
    ],
)
def test_what_pytorch_appends_to_an_operators_name(ranges, appended, sequence, number, shapes):
    found = ranges(nvtx(10, 25, f"aten::mm{appended}"), nvtx(30, 35, "aten::add, op_id = 9"))
    first, second = found.of("op")
    assert [row["name"] for row in (first, second)] == ["aten::mm", "aten::add"]
    assert (first["sequence"], first["operator"], first["shapes"]) == (sequence, number, shapes)
    assert (second["sequence"], second["operator"], second["shapes"]) == (None, 9, None)


def test_a_registered_text_tells_the_same(path):
    texts = strings("a kernel", "a call", "aten::mm, seq = 1, op_id = 2, sizes = [[4]]", "step 1")
    rows = [nvtx(1, 2, textId=3), nvtx(3, 4, textId=4), nvtx(5, 6, "aten::add")]
    found = read(write(path, NVTX_EVENTS=rows, StringIds=texts, **{KERNEL: [kernel(1, 2)]}))
    assert [(row["name"], row["sequence"], row["operator"], row["shapes"]) for row in found.of("op")] == [
        ("aten::mm", 1, 2, "[[4]]"),
        ("aten::add", None, None, None),
    ]
    assert [row["name"] for row in found.of("annotation", "host")] == ["step 1"]


def test_registered_texts_and_own_texts_in_one_batch(ranges):
    found = ranges(
        nvtx(1, 2, "aten::add, op_id = 1"),
        nvtx(2, 3, textId=REDUCE, domainId=1),
        nvtx(3, 4, "aten::add, op_id = 2"),
        nvtx(4, 5),
        nvtx(5, 6, textId=MPI, domainId=2),
    )
    assert [row["name"] for row in found.of("op")] == ["aten::add", "aten::add", "MPI_Allreduce"]
    assert [row["name"] for row in found.of("annotation")] == ["ncclAllReduce", "(no name)"]


def test_a_table_without_domains_or_registered_texts(path):
    row = {"start": 1, "end": 2, "eventType": 59, "text": "step 1", "globalTid": thread(10, 3)}
    found = read(write(path, NVTX_EVENTS=[row], StringIds=NAMES, **{KERNEL: [kernel(1, 2)]}))
    assert [row["name"] for row in found.of("annotation")] == ["step 1"]


def test_a_call_on_its_own_tells_of_the_kernels_it_launches(ranges):
    found = ranges(nccl(10, 40, REDUCE, 4096), calls=[call(20, 30, 5)])
    assert found.told == [(sized("all_reduce", 4096, 4096), 3, 10, 40)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (GATHER, sized("all_gather", 100, 800, 8)),
        (SCATTER, sized("reduce_scatter", 800, 100, 8)),
        (REDUCE, sized("all_reduce", 100, 100, 8)),
        (SEND, sized("send", 100, None, 8)),
        (RECV, sized("recv", None, 100, 8)),
    ],
)
def test_message_size_is_one_ranks_share(ranges, name, told):
    found = ranges(begun(COMM, 8, 3), nccl(10, 40, name, 100), calls=[call(20, 30, 5)])
    assert found.told == [(told, 3, 10, 40)]
    assert found.trace.facts.communicators == (Communicator("0xabc", 3, 8),)


def test_a_message_of_no_bytes_has_a_known_size(ranges):
    found = ranges(begun(COMM, 8, 3), nccl(10, 40, GATHER, 0), calls=[call(20, 30, 5)])
    assert found.told == [(sized("all_gather", 0, 0, 8), 3, 10, 40)]
    assert found.trace.notes == []


def test_the_large_side_is_unknown_without_the_size_of_the_communicator(ranges):
    found = ranges(nccl(10, 40, GATHER, 100), calls=[call(20, 30, 5)])
    assert found.told == [(sized("all_gather", 100, None), 3, 10, 40)]
    (note,) = found.trace.notes
    assert note.startswith("the ranks of 1 of 1 NCCL communicators are unknown")


def test_two_sizes_of_a_communicator_are_none(ranges):
    made = [begun(COMM, 8, 3), begun(COMM, 4, 3)]
    found = ranges(*made, nccl(10, 40, GATHER, 100), calls=[call(20, 30, 5)])
    assert found.told == [(sized("all_gather", 100, None), 3, 10, 40)]
    assert [one.size for one in found.trace.facts.communicators] == [8, 4]


@pytest.mark.parametrize(("comm", "size", "rank"), [(0, 8, 3), (COMM, 8, 8), (COMM, 8, -1), (COMM, 0, 0)])
def test_places_in_no_communicator(ranges, comm, size, rank):
    found = ranges(begun(comm, size, rank), nccl(10, 40, REDUCE, 64, comm=0), calls=[call(20, 30, 5)])
    assert [told.group_name for told, *_ in found.told] == [None]
    assert found.trace.facts.communicators == ()


BEGIN, OUTER, DONE = nccl(10, 11, START), nccl(8, 9, START), nccl(20, 30, END)
SENT, RECEIVED = nccl(12, 13, SEND, 64), nccl(14, 15, RECV, 32)
REDUCED = nccl(12, 13, REDUCE, 64)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        pytest.param([BEGIN, REDUCED, DONE], [(sized("all_reduce", 64, 64), 3, 20, 30)], id="one call"),
        pytest.param(
            [BEGIN, SENT, RECEIVED, nccl(16, 17, SEND, 8), nccl(18, 19, RECV, 4), DONE],
            [(sized("send_recv", 72, 36), 3, 20, 30)],
            id="sends and receives are one transfer of all their bytes",
        ),
        pytest.param([BEGIN, SENT, nccl(14, 15, SEND), DONE], [], id="one size is unknown"),
        pytest.param(
            [BEGIN, REDUCED, nccl(14, 15, REDUCE, 32), DONE],
            [(sized("all_reduce", 96, 96), 3, 20, 30)],
            id="calls of one kind are one of all their bytes",
        ),
        pytest.param([BEGIN, REDUCED, nccl(14, 15, GATHER, 64), DONE], [], id="different calls"),
        pytest.param([BEGIN, REDUCED, nccl(14, 15, REDUCE, 64, comm=7), DONE], [], id="communicators"),
        pytest.param(
            [OUTER, BEGIN, REDUCED, nccl(14, 15, END), DONE],
            [(sized("all_reduce", 64, 64), 3, 20, 30)],
            id="groups within groups are launched by the outermost",
        ),
        pytest.param(
            [BEGIN, nccl(12, 26, REDUCE, 64, tid=4), DONE],
            [(sized("all_reduce", 64, 64), 4, 12, 26)],
            id="threads have their own groups",
        ),
        pytest.param(
            [nccl(1, 2, END), nccl(3, 4, END), nccl(12, 26, REDUCE, 64), DONE],
            [(sized("all_reduce", 64, 64), 3, 12, 26)],
            id="ends of groups that were never begun are passed over",
        ),
    ],
)
def test_what_a_group_of_calls_launches(ranges, rows, told):
    tid = told[0][1] if told else 3
    assert ranges(*rows, calls=[call(22, 25, 5, tid=tid)]).told == told


def test_pytorch_names_the_collective_that_sends_and_receives_make(ranges):
    found = ranges(
        nvtx(5, 50, "nccl:all_to_all, op_id = 4"),
        *(BEGIN, SENT, RECEIVED, DONE),
        calls=[call(22, 25, 5)],
    )
    annotated = Payload(source="annotation", collective="all_to_all")
    assert found.told == [(annotated, 3, 5, 50), (sized("all_to_all", 64, 32), 3, 20, 30)]


@pytest.mark.parametrize("launches", [[], [22, 26]])
def test_which_of_several_kernels_serves_which_call_is_not_told(ranges, launches):
    found = ranges(
        *(BEGIN, SENT, RECEIVED, DONE),
        calls=[call(1, 2, 4), *(call(at, at + 1, at) for at in launches)],
    )
    assert found.told == []


def test_without_blobs_kinds_are_told_and_a_note_says_what_to_do(ranges):
    found = ranges(nccl(10, 40, REDUCE), nccl(50, 60, GATHER), calls=[call(20, 30, 5)])
    assert [(told.collective, told.in_bytes, told.out_bytes) for told, *_ in found.told] == [
        ("all_reduce", None, None),
        ("all_gather", None, None),
    ]
    (note,) = found.trace.notes
    assert "unavailable for 2 of 2 NCCL calls" in note
    assert "nsys export --type sqlite --include-blobs=true" in note


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"short",
        blob(50, b""),
        blob(50, struct.pack("<QQi4x", COMM, 64, 1))[:40],
        blob(99, struct.pack("<QQi4x", COMM, 64, 1)),
        struct.pack("<QQQQ", 1, 50, 1 << 60, 32) + bytes(24),
        struct.pack("<QQQQ", 1, 50, 24, 1 << 60) + bytes(24),
        struct.pack("<QQQQ", 1, 50, 24, 0) + bytes(24),
        blob(50, struct.pack("<QQi4x", COMM, 1 << 62, 1)),
    ],
)
def test_payloads_that_are_none(ranges, payload):
    found = ranges(nvtx(10, 40, textId=REDUCE, domainId=1, binaryData=payload), calls=[call(20, 30, 5)])
    assert [(told.collective, told.in_bytes) for told, *_ in found.told] == [("all_reduce", None)]


@pytest.mark.parametrize(
    "twisted",
    [
        [*SCHEMAS, {**SCHEMAS[1], "offset": 16}],
        [{**entry, "offset": "eight" if entry is SCHEMAS[1] else entry["offset"]} for entry in SCHEMAS],
    ],
    ids=["twice", "no number"],
)
def test_schemas_that_contradict_themselves_are_not_used(path, twisted):
    known = KNOWN | {"NVTX_PAYLOAD_SCHEMA_ENTRIES": twisted}
    rows = [nccl(10, 40, REDUCE, 64)]
    found = read(write(path, NVTX_EVENTS=rows, **known, **{KERNEL: [kernel(1, 2)], CALL: [call(20, 30, 5)]}))
    assert [told.in_bytes for told, *_ in found.told] == [None]


def test_the_peer_of_a_call_is_never_told(ranges):
    found = ranges(nccl(10, 40, SEND, 64), calls=[call(20, 30, 5)])
    assert [(told.src_rank, told.dst_rank) for told, *_ in found.told] == [(None, None)]


def test_tables_of_mpi_calls(path):
    names = strings("MPI_Allreduce", "MPI_Send", "MPI_Recv", "MPI_Wait", "MPI_Init")
    common = {"globalTid": thread(10, 3), "commHandle": 1, "requestHandle": None}
    found = read(
        write(
            path,
            StringIds=names,
            TARGET_INFO_SESSION_START_TIME=SESSION,
            MPI_COLLECTIVES_EVENTS=[
                common | {"start": 10, "end": 20, "textId": 1, "rootRank": None, "size": 64, "recvSize": 128}
            ],
            MPI_P2P_EVENTS=[
                common | {"start": 30, "end": 40, "textId": 2, "tag": 1, "remoteRank": 1, "size": 32},
                common | {"start": 50, "end": 60, "textId": 3, "tag": 1, "remoteRank": 1, "size": 16},
            ],
            MPI_START_WAIT_EVENTS=[
                {"start": 70, "end": 80, "globalTid": thread(10, 3), "textId": 4, "requestHandle": 1}
            ],
            MPI_OTHER_EVENTS=[{"start": 1, "end": 5, "globalTid": thread(10, 3), "textId": 5}],
        )
    )
    assert [(row["kind"], row["name"]) for row in found.rows] == [
        ("op", name) for name in ("MPI_Allreduce", "MPI_Send", "MPI_Recv", "MPI_Wait", "MPI_Init")
    ]
    assert [(told.in_bytes, told.out_bytes, track, begin) for told, track, begin, _ in found.told] == [
        (64, 128, 3, 10),
        (32, None, 3, 30),
        (None, 16, 3, 50),
    ]
    assert found.trace.notes == []


def test_mpi_beside_a_device_is_counted_in_a_note(ranges):
    found = ranges(*(nvtx(i, i + 1, textId=MPI, domainId=2) for i in (1, 3)))
    assert [row["name"] for row in found.of("op")] == ["MPI_Allreduce"] * 2
    assert found.trace.notes == ["2 MPI calls are host rows: their time is not device time"]


@pytest.mark.parametrize(
    ("size", "told"), [(0, 0), ((1 << 56) - 1, (1 << 56) - 1), (1 << 56, None), ((1 << 64) - 1, None)]
)
def test_messages_are_smaller_than_56_bits(ranges, size, told):
    found = ranges(nccl(10, 40, REDUCE, size), calls=[call(20, 30, 5)])
    assert [payload.in_bytes for payload, *_ in found.told] == [told]


@pytest.mark.parametrize(
    ("rank", "size", "known"),
    [(0, 1, True), (7, 8, True), (8, 8, False), ((1 << 24) - 2, (1 << 24) - 1, True), (0, 1 << 24, False)],
)
def test_communicators_have_fewer_than_2_to_the_24_ranks(ranges, rank, size, known):
    found = ranges(begun(COMM, size, rank), nccl(10, 40, REDUCE, 64), calls=[call(20, 30, 5)])
    assert found.trace.facts.communicators == ((Communicator("0xabc", rank, size),) if known else ())
    assert bool(found.trace.notes) is not known


def entries(kind: int, offset: int = 0) -> list[dict[str, object]]:
    entry = {"domainId": 1, "schemaId": 60, "idx": 0, "type": kind, "name": "Message size [bytes]"}
    return [entry | {"offset": offset}]


@pytest.mark.parametrize(
    ("kind", "offset", "payload", "size"),
    [
        *((kind, 0, struct.pack(form, -1), None) for kind, form in ((5, "<i"), (15, "<i"), (17, "<q"))),
        *((kind, offset, b"\1\0\0\0\0\0\0\0", None) for kind, offset in ((5, -1), (9, 0), (7, 0))),
        *(
            (18, 0, struct.pack("<Q", 64).ljust(n - 32, b"\0"), 64 if n == 4096 else None)
            for n in (4096, 4097)
        ),
    ],
)
def test_sizes_are_integers_from_0_within_payloads_of_4096_bytes(path, kind, offset, payload, size):
    """Below zero, before the payload, no integer, and longer with their header of 32 bytes: none is known."""
    known = KNOWN | {"NVTX_PAYLOAD_SCHEMA_ENTRIES": entries(kind, offset)}
    rows = [nvtx(10, 40, textId=REDUCE, domainId=1, binaryData=blob(60, payload))]
    found = read(write(path, NVTX_EVENTS=rows, **known, **{KERNEL: [kernel(1, 2)], CALL: [call(20, 30, 5)]}))
    assert [told.in_bytes for told, *_ in found.told] == [size]


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        *((5, "<i"), (6, "<I"), (10, "<Q"), (15, "<i"), (16, "<I"), (17, "<q"), (18, "<Q"), (22, "<Q")),
    ],
)
@pytest.mark.parametrize("offset", [0, 3])
def test_integers_of_every_width(path, kind, packed, offset):
    """The largest that is signed and fits, at the end of the payload and cut by a byte."""
    most = (1 << 31) - 1 if struct.calcsize(packed) == 4 else (1 << 55) + 5
    payload = b"x" * offset + struct.pack(packed, most)
    known = KNOWN | {"NVTX_PAYLOAD_SCHEMA_ENTRIES": entries(kind, offset)}
    rows = [
        nvtx(10, 40, textId=REDUCE, domainId=1, binaryData=blob(60, payload)),
        nvtx(50, 60, textId=REDUCE, domainId=1, binaryData=blob(60, payload[:-1])),
    ]
    tables = {KERNEL: [kernel(1, 2)], CALL: [call(20, 30, 5), call(55, 56, 6)]}
    found = read(write(path, NVTX_EVENTS=rows, **known, **tables))
    assert [told.in_bytes for told, *_ in found.told] == [most, None]


@pytest.mark.parametrize("launches", [[19], [20], [29], [30]])
def test_a_group_ends_before_what_its_end_launches(ranges, launches):
    """[20, 30): a launch at 20 is its own, one at 30 is not."""
    found = ranges(
        *(BEGIN, SENT, RECEIVED, DONE),
        calls=[call(at, at + 1, at) for at in launches],
    )
    assert len(found.told) == (20 <= launches[0] < 30)


@pytest.mark.parametrize(("end", "named"), [(21, "all_to_all"), (20, "send_recv"), (15, "send_recv")])
def test_pytorchs_range_must_hold_the_launch(ranges, end, named):
    found = ranges(
        nvtx(5, end, "nccl:all_to_all"),
        *(BEGIN, SENT, RECEIVED, DONE),
        calls=[call(22, 25, 5)],
    )
    assert [told.collective for told, *_ in found.told] == ["all_to_all", named]


def test_calls_whose_size_is_told_are_counted_apart_from_those_without(ranges):
    found = ranges(
        nccl(10, 40, REDUCE, 64), nccl(50, 60, REDUCE), nccl(70, 80, REDUCE), calls=[call(20, 30, 5)]
    )
    assert [note.partition(":")[0] for note in found.trace.notes] == [
        "payload bytes unavailable for 2 of 3 NCCL calls",
        "the ranks of 1 of 1 NCCL communicators are unknown",
    ]


@pytest.mark.parametrize(
    ("size", "told"), [(0, 0), ((1 << 56) - 1, (1 << 56) - 1), (1 << 56, None), (-1, None)]
)
def test_sizes_of_mpi_have_56_bits(path, size, told):
    row = {"globalTid": thread(10, 3), "start": 10, "end": 20, "textId": 1, "size": size, "recvSize": size}
    found = read(write(path, StringIds=strings("MPI_Sendrecv"), MPI_P2P_EVENTS=[row]))
    assert [(payload.in_bytes, payload.out_bytes) for payload, *_ in found.told] == [(told, told)]


def test_calls_of_mpi_without_sizes_tell_nothing(path):
    common = {"globalTid": thread(10, 3), "start": 10, "end": 20}
    rows = [
        common | {"textId": 1, "size": None, "recvSize": None},
        common | {"textId": 2, "size": None, "recvSize": 8},
        common | {"textId": 2, "size": 8, "recvSize": None},
    ]
    found = read(write(path, StringIds=strings("MPI_Barrier", "MPI_Irecv"), MPI_OTHER_EVENTS=rows))
    assert [(payload.in_bytes, payload.out_bytes) for payload, *_ in found.told] == [(None, None), (None, 8)]


def test_what_is_no_range_is_counted(ranges):
    found = ranges(nvtx(2, None, "never ended"), nvtx(6, None, "odd", eventType=1234))
    assert found.trace.dropped == {"row without a time or duration": 1, "NVTX event type 1234": 1}


@pytest.mark.parametrize("kind", [34, 65])
def test_marks_are_instants(ranges, kind):
    assert ranges(nvtx(3, None, "mark", eventType=kind)).trace.dropped == {"instant": 1}


@pytest.mark.parametrize("kind", [33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99])
def test_names_of_threads_domains_and_the_like_are_labels(ranges, kind):
    assert ranges(nvtx(3, None, "name", eventType=kind)).trace.dropped == {"label": 1}


@pytest.mark.parametrize("kind", [59, 60, 70, 71])
def test_every_kind_of_range(ranges, kind):
    found = ranges(nvtx(3, 9, "step 1", eventType=kind))
    assert [row["name"] for row in found.of("annotation")] == ["step 1"]
    assert found.trace.dropped == {}


def test_ranges_are_put_in_order_of_time(ranges):
    """An export's rows are in no order."""
    rows = [
        nvtx(5, 50, "nccl:all_to_all"),
        *(BEGIN, SENT, RECEIVED, DONE),
        nvtx(60, 65, "nccl:all_reduce"),
    ]
    found = ranges(*rows[::-1], calls=[call(22, 25, 5)])
    assert [told.collective for told, *_ in found.told] == ["all_to_all", "all_reduce", "all_to_all"]
    assert found.told[-1] == (sized("all_to_all", 64, 32), 3, 20, 30)


def test_ranges_of_no_domain_are_of_the_default_one(ranges):
    found = ranges(
        nvtx(1, 2, "aten::add", domainId=None),
        nvtx(3, 4, "MPI_Send", domainId=None),
        nvtx(5, 6, "aten::mm", domainId=1),
        nvtx(7, 8, "MPI_Recv", domainId=1),
    )
    assert [row["name"] for row in found.of("op")] == ["aten::add", "MPI_Recv"]
    assert [row["name"] for row in found.of("annotation")] == ["MPI_Send", "aten::mm"]


def test_a_transfer_of_unknown_size_is_one_all_the_same(ranges):
    found = ranges(nccl(10, 40, SEND), nccl(50, 60, RECV), calls=[call(20, 30, 5), call(52, 53, 6)])
    assert [(told.collective, told.in_bytes, told.out_bytes) for told, *_ in found.told] == [
        ("send", None, None),
        ("recv", None, None),
    ]

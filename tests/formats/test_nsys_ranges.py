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
KNOWN = {"StringIds": NAMES, "TARGET_INFO_SESSION_START_TIME": SESSION}
KNOWN |= {"NVTX_PAYLOAD_SCHEMA_ENTRIES": SCHEMAS}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.sqlite"


@pytest.fixture
def ranges(path):
    """Reads a capture of one kernel and these ranges."""

    def ranges(*rows, calls=(), **tables):
        path.unlink(missing_ok=True)
        more = {CALL: list(calls)} if calls else {}
        tables = KNOWN | {KERNEL: [kernel(900, 950)]} | more | tables
        return read(write(path, NVTX_EVENTS=list(rows), **tables))

    return ranges


def nccl(start, end, name, size=None, comm=COMM, **more):
    """A range of NCCL's domain with its payload."""
    payload = None if size is None else blob(50, struct.pack("<QQi4x", comm, size, 1))
    return nvtx(start, end, textId=name, domainId=1, binaryData=payload, **more)


def sized(collective, in_bytes, out_bytes, ranks=None):
    of = {"group_name": f"{COMM:#x}", "group_size": ranks}
    return Payload(source="host_op", collective=collective, in_bytes=in_bytes, out_bytes=out_bytes, **of)


def begun(comm, size, rank, **more):
    """The range of the call that makes a communicator."""
    payload = blob(51, struct.pack("<Qiii4x", comm, size, rank, rank))
    return nvtx(1, 5, textId=INIT, domainId=1, binaryData=payload, **more)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        *(("aten::add, op_id = 314359", "op", "aten::add"), ("aten::add", "op", "aten::add")),
        ("AllToAll4D, seq = 45440, op_id = 990760", "op", "AllToAll4D"),
        ("aten::mm, seq = 3, op_id = 4, sizes = [[2, 3], [3, 2]]", "op", "aten::mm"),
        *(("aten::mm, sizes = [[2, 3], [3, 2]]", "op", "aten::mm"), ("conv2d, seq=12", "op", "conv2d")),
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
    (made,) = [row for row in ranges(nvtx(10, 25, text, tid=6)).rows if row["kind"] != "kernel"]
    assert (made["kind"], made["side"]) == (kind, "host")
    assert made["name"] == (name or text.partition(", op_id")[0])
    assert (made["start_ns"], made["dur_ns"], made["track"]) == (EPOCH + 10, 15, 6)


@pytest.mark.parametrize(
    ("appended", "sequence", "number", "shapes"),
    [
        *(("", None, None, None), (", op_id = 4", None, 4, None), (", seq = 0, op_id = 4", 0, 4, None)),
        (", seq = -1, op_id = 4", None, 4, None),
        (", seq = 3, op_id = 4, sizes = [[2, 3], [], [3, 2]]", 3, 4, "[[2, 3], [], [3, 2]]"),
        (", op_id = 4, sizes = [[2]], input_op_ids = [(2,0), (3,1)]", None, 4, "[[2]]"),
        (", op_id = 4, input_op_ids = [(2,0)]", None, 4, None),
        *((", seq = 3, sizes = [[2]]", 3, None, "[[2]]"), (", sizes = [[2]]", None, None, "[[2]]")),
        *((", seq=3", 3, None, None), (", stashed seq=3", 3, None, None)),
        *((", op_id = 4, sizes = [[2], 3", None, 4, None), (", op_id = 4, sizes = [[2]", None, 4, None)),
        *((", op_id = 4, sizes = [2, 3]", None, 4, None), (f", seq = {10**30}, op_id = 4", None, 4, None)),
    ],
)
def test_what_pytorch_appends_to_an_operators_name(ranges, appended, sequence, number, shapes):
    first, second = ranges(nvtx(10, 25, f"aten::mm{appended}"), nvtx(30, 35, "aten::add, op_id = 9")).of("op")
    assert [row["name"] for row in (first, second)] == ["aten::mm", "aten::add"]
    assert (first["sequence"], first["operator"], first["shapes"]) == (sequence, number, shapes)
    assert (second["sequence"], second["operator"], second["shapes"]) == (None, 9, None)


def test_a_registered_text_tells_the_same(ranges):
    texts = strings("a kernel", "a call", "aten::mm, seq = 1, op_id = 2, sizes = [[4]]", "step 1")
    found = ranges(nvtx(1, 2, textId=3), nvtx(3, 4, textId=4), nvtx(5, 6, "aten::add"), StringIds=texts)
    assert [(row["name"], row["sequence"], row["operator"], row["shapes"]) for row in found.of("op")] == [
        *(("aten::mm", 1, 2, "[[4]]"), ("aten::add", None, None, None))
    ]
    assert [row["name"] for row in found.of("annotation", "host")] == ["step 1"]
    found = ranges(
        *(nvtx(1, 2, "aten::add, op_id = 1"), nvtx(2, 3, textId=REDUCE, domainId=1)),
        *(nvtx(3, 4, "aten::add, op_id = 2"), nvtx(4, 5), nvtx(5, 6, textId=MPI, domainId=2)),
    )
    assert [row["name"] for row in found.of("op")] == ["aten::add", "aten::add", "MPI_Allreduce"]
    assert [row["name"] for row in found.of("annotation")] == ["ncclAllReduce", "(no name)"]
    # a table without domains or registered texts
    found = ranges({"start": 1, "end": 2, "eventType": 59, "text": "step 1", "globalTid": thread(10, 3)})
    assert [row["name"] for row in found.of("annotation")] == ["step 1"]


LARGE = [begun(COMM, 8, 3)]


@pytest.mark.parametrize(
    ("made", "name", "size", "told"),
    [
        (LARGE, GATHER, 100, sized("all_gather", 100, 800, 8)),
        (LARGE, SCATTER, 100, sized("reduce_scatter", 800, 100, 8)),
        (LARGE, REDUCE, 100, sized("all_reduce", 100, 100, 8)),
        *((LARGE, SEND, 100, sized("send", 100, None, 8)), (LARGE, RECV, 100, sized("recv", None, 100, 8))),
        # a message of no bytes has a known size
        (LARGE, GATHER, 0, sized("all_gather", 0, 0, 8)),
        # without the size of the communicator, or with two of them, the large side is unknown
        ([], GATHER, 100, sized("all_gather", 100, None)),
        ([], REDUCE, 4096, sized("all_reduce", 4096, 4096)),
        ([*LARGE, begun(COMM, 4, 3)], GATHER, 100, sized("all_gather", 100, None)),
    ],
)
def test_message_size_is_one_ranks_share(ranges, made, name, size, told):
    """A call on its own tells of the kernels it launches; never of the peer."""
    found = ranges(*made, nccl(10, 40, name, size), calls=[call(20, 30, 5)])
    assert found.stated_payloads == [(told, 3, 10, 40)]
    sizes = [8, 4][: len(made)]
    assert found.trace.facts.communicators == tuple(Communicator("0xabc", 3, n) for n in sizes)
    unknown = "the ranks of 1 of 1 NCCL communicators are unknown"
    assert [note.partition(":")[0] for note in found.trace.notes] == ([] if made else [unknown])


BEGIN, OUTER, DONE = nccl(10, 11, START), nccl(8, 9, START), nccl(20, 30, END)
SENT, RECEIVED = nccl(12, 13, SEND, 64), nccl(14, 15, RECV, 32)
REDUCED = nccl(12, 13, REDUCE, 64)
GROUP = BEGIN, SENT, RECEIVED, DONE


ALONE = [(sized("all_reduce", 64, 64), 3, 20, 30)]
GROUPED = {
    "one call": ([BEGIN, REDUCED, DONE], ALONE),
    "sends and receives are one transfer of all their bytes": (
        [BEGIN, SENT, RECEIVED, nccl(16, 17, SEND, 8), nccl(18, 19, RECV, 4), DONE],
        [(sized("send_recv", 72, 36), 3, 20, 30)],
    ),
    "one size is unknown": ([BEGIN, SENT, nccl(14, 15, SEND), DONE], []),
    "calls of one kind are one of all their bytes": (
        [BEGIN, REDUCED, nccl(14, 15, REDUCE, 32), DONE],
        [(sized("all_reduce", 96, 96), 3, 20, 30)],
    ),
    "different calls": ([BEGIN, REDUCED, nccl(14, 15, GATHER, 64), DONE], []),
    "communicators": ([BEGIN, REDUCED, nccl(14, 15, REDUCE, 64, comm=7), DONE], []),
    "the outermost group launches": ([OUTER, BEGIN, REDUCED, nccl(14, 15, END), DONE], ALONE),
    "threads have their own groups": (
        [BEGIN, nccl(12, 26, REDUCE, 64, tid=4), DONE],
        [(sized("all_reduce", 64, 64), 4, 12, 26)],
    ),
    "ends of groups that were never begun are passed over": (
        [nccl(1, 2, END), nccl(3, 4, END), nccl(12, 26, REDUCE, 64), DONE],
        [(sized("all_reduce", 64, 64), 3, 12, 26)],
    ),
}


@pytest.mark.parametrize(("rows", "told"), GROUPED.values(), ids=GROUPED)
def test_what_a_group_of_calls_launches(ranges, rows, told):
    tid = told[0][1] if told else 3
    assert ranges(*rows, calls=[call(22, 25, 5, tid=tid)]).stated_payloads == told


def test_pytorch_names_the_collective_that_sends_and_receives_make(ranges):
    """An export's rows are in no order of time."""
    annotated = [Payload(source="annotation", collective=f"all_{kind}") for kind in ("to_all", "reduce")]
    rows = [nvtx(5, 50, "nccl:all_to_all, op_id = 4"), *GROUP, nvtx(60, 65, "nccl:all_reduce")]
    for ordered in (rows, rows[::-1]):
        found = ranges(*ordered, calls=[call(22, 25, 5)])
        assert found.stated_payloads == [
            *((annotated[0], 3, 5, 50), (annotated[1], 3, 60, 65), (sized("all_to_all", 64, 32), 3, 20, 30))
        ]


@pytest.mark.parametrize(
    ("launches", "told"),
    [([], False), ([22, 26], False), ([19], False), ([20], True), ([29], True), ([30], False)],
)
def test_which_of_several_kernels_serves_which_call_is_not_told(ranges, launches, told):
    """The group's end, [20, 30), must launch exactly one."""
    found = ranges(*GROUP, calls=[call(1, 2, 4), *(call(at, at + 1, at) for at in launches)])
    assert len(found.stated_payloads) == told


def test_without_blobs_kinds_are_told_and_a_note_says_what_to_do(ranges):
    found = ranges(nccl(10, 40, REDUCE), nccl(50, 60, GATHER), calls=[call(20, 30, 5)])
    assert [(told.collective, told.in_bytes, told.out_bytes) for told, *_ in found.stated_payloads] == [
        *(("all_reduce", None, None), ("all_gather", None, None))
    ]
    (note,) = found.trace.notes
    assert "unavailable for 2 of 2 NCCL calls" in note
    assert "nsys export --type sqlite --include-blobs=true" in note
    mixed = ranges(*(nccl(at, at + 5, REDUCE, size) for at, size in ((10, 64), (50, None), (70, None))))
    assert [note.partition(":")[0] for note in mixed.trace.notes] == [
        "payload bytes unavailable for 2 of 3 NCCL calls",
        "the ranks of 1 of 1 NCCL communicators are unknown",
    ]


SIZED = blob(50, struct.pack("<QQi4x", COMM, 64, 1))


@pytest.mark.parametrize(
    ("payload", "schemas"),
    [
        *((payload, SCHEMAS) for payload in (b"", b"short", blob(50, b""), SIZED[:40])),
        *(
            (struct.pack("<QQQQ", 1, 50, *at) + bytes(24), SCHEMAS)
            for at in ((1 << 60, 32), (24, 1 << 60), (24, 0))
        ),
        (blob(99, struct.pack("<QQi4x", COMM, 64, 1)), SCHEMAS),
        (blob(50, struct.pack("<QQi4x", COMM, 1 << 62, 1)), SCHEMAS),
        # schemas that contradict themselves, or state no number
        (SIZED, [*SCHEMAS, SCHEMAS[1] | {"offset": 16}]),
        (SIZED, [entry | {"offset": "eight"} if entry is SCHEMAS[1] else entry for entry in SCHEMAS]),
    ],
)
def test_payloads_that_are_none(ranges, payload, schemas):
    rows = [nvtx(10, 40, textId=REDUCE, domainId=1, binaryData=payload)]
    found = ranges(*rows, calls=[call(20, 30, 5)], NVTX_PAYLOAD_SCHEMA_ENTRIES=schemas)
    assert [(told.collective, told.in_bytes) for told, *_ in found.stated_payloads] == [("all_reduce", None)]


def test_tables_of_mpi_calls(path):
    names = strings("MPI_Allreduce", "MPI_Send", "MPI_Recv", "MPI_Wait", "MPI_Init")
    common = {"globalTid": thread(10, 3), "commHandle": 1, "requestHandle": None}
    p2p = common | {"tag": 1, "remoteRank": 1}
    other = {"globalTid": thread(10, 3)}
    tables = {
        "MPI_COLLECTIVES_EVENTS": [
            common | {"start": 10, "end": 20, "textId": 1, "rootRank": None, "size": 64, "recvSize": 128}
        ],
        "MPI_P2P_EVENTS": [
            p2p | {"start": 30, "end": 40, "textId": 2, "size": 32},
            p2p | {"start": 50, "end": 60, "textId": 3, "size": 16},
        ],
        "MPI_START_WAIT_EVENTS": [other | {"start": 70, "end": 80, "textId": 4, "requestHandle": 1}],
        "MPI_OTHER_EVENTS": [other | {"start": 1, "end": 5, "textId": 5}],
    }
    found = read(write(path, StringIds=names, TARGET_INFO_SESSION_START_TIME=SESSION, **tables))
    assert [(row["kind"], row["name"]) for row in found.rows] == [("op", name["value"]) for name in names]
    assert [(p.in_bytes, p.out_bytes, track, begin) for p, track, begin, _ in found.stated_payloads] == [
        *((64, 128, 3, 10), (32, None, 3, 30), (None, 16, 3, 50))
    ]
    assert found.trace.notes == []


def test_mpi_beside_a_device_is_counted_in_a_note(ranges):
    found = ranges(*(nvtx(i, i + 1, textId=MPI, domainId=2) for i in (1, 3)))
    assert [row["name"] for row in found.of("op")] == ["MPI_Allreduce"] * 2
    assert found.trace.notes == ["2 MPI calls are host rows: their time is not device time"]


@pytest.mark.parametrize(
    ("size", "told"), [(0, 0), ((1 << 56) - 1, (1 << 56) - 1), (1 << 56, None), ((1 << 64) - 1, None)]
)
def test_messages_are_smaller_than_56_bits(ranges, path, size, told):
    found = ranges(nccl(10, 40, REDUCE, size), calls=[call(20, 30, 5)])
    assert [payload.in_bytes for payload, *_ in found.stated_payloads] == [told]
    size = -1 if size == (1 << 64) - 1 else size
    row = {"globalTid": thread(10, 3), "start": 10, "end": 20, "textId": 1, "size": size, "recvSize": size}
    other = path.with_name("mpi.sqlite")
    found = read(write(other, StringIds=strings("MPI_Sendrecv"), MPI_P2P_EVENTS=[row]))
    assert [(payload.in_bytes, payload.out_bytes) for payload, *_ in found.stated_payloads] == [(told, told)]


@pytest.mark.parametrize(
    ("comm", "rank", "size", "known"),
    [
        *((COMM, 0, 1, True), (COMM, 7, 8, True), (COMM, 8, 8, False), (COMM, -1, 8, False)),
        *((COMM, (1 << 24) - 2, (1 << 24) - 1, True), (COMM, 0, 1 << 24, False), (COMM, 0, 0, False)),
        (0, 3, 8, False),
    ],
)
def test_communicators_have_fewer_than_2_to_the_24_ranks(ranges, comm, rank, size, known):
    found = ranges(begun(comm, size, rank), nccl(10, 40, REDUCE, 64, comm=comm), calls=[call(20, 30, 5)])
    assert found.trace.facts.communicators == ((Communicator("0xabc", rank, size),) if known else ())
    assert [told.group_name for told, *_ in found.stated_payloads] == [f"{comm:#x}" if comm else None]
    assert bool(found.trace.notes) is (not known and comm != 0)


def entries(kind: int, offset: int = 0) -> list[dict[str, object]]:
    entry = {"domainId": 1, "schemaId": 60, "idx": 0, "type": kind, "name": "Message size [bytes]"}
    return [entry | {"offset": offset}]


@pytest.mark.parametrize(
    ("kind", "offset", "payload", "size"),
    [
        *((kind, 0, struct.pack(form, -1), None) for kind, form in ((5, "<i"), (15, "<i"), (17, "<q"))),
        *((kind, offset, b"\1\0\0\0\0\0\0\0", None) for kind, offset in ((5, -1), (9, 0), (7, 0))),
        *(
            (18, 0, struct.pack("<Q", 64).ljust(n - 32, b"\0"), size)
            for n, size in ((4096, 64), (4097, None))
        ),
    ],
)
def test_sizes_are_integers_from_0_within_payloads_of_4096_bytes(ranges, kind, offset, payload, size):
    """Below zero, before the payload, no integer, and longer with their header of 32 bytes: none is known."""
    rows = [nvtx(10, 40, textId=REDUCE, domainId=1, binaryData=blob(60, payload))]
    found = ranges(*rows, calls=[call(20, 30, 5)], NVTX_PAYLOAD_SCHEMA_ENTRIES=entries(kind, offset))
    assert [told.in_bytes for told, *_ in found.stated_payloads] == [size]


INTEGERS = (5, "<i"), (6, "<I"), (10, "<Q"), (15, "<i"), (16, "<I"), (17, "<q"), (18, "<Q"), (22, "<Q")


@pytest.mark.parametrize(("kind", "packed"), INTEGERS)
@pytest.mark.parametrize("offset", [0, 3])
def test_integers_of_every_width(ranges, kind, packed, offset):
    """The largest that is signed and fits, at the end of the payload and cut by a byte."""
    most = (1 << 31) - 1 if struct.calcsize(packed) == 4 else (1 << 55) + 5
    payload = b"x" * offset + struct.pack(packed, most)
    rows = [
        nvtx(at, at + 30, textId=REDUCE, domainId=1, binaryData=blob(60, part))
        for at, part in ((10, payload), (50, payload[:-1]))
    ]
    calls = [call(20, 30, 5), call(55, 56, 6)]
    found = ranges(*rows, calls=calls, NVTX_PAYLOAD_SCHEMA_ENTRIES=entries(kind, offset))
    assert [told.in_bytes for told, *_ in found.stated_payloads] == [most, None]


@pytest.mark.parametrize(("end", "named"), [(21, "all_to_all"), (20, "send_recv"), (15, "send_recv")])
def test_pytorchs_range_must_hold_the_launch(ranges, end, named):
    found = ranges(nvtx(5, end, "nccl:all_to_all"), *GROUP, calls=[call(22, 25, 5)])
    assert [told.collective for told, *_ in found.stated_payloads] == ["all_to_all", named]


def test_calls_of_mpi_without_sizes_tell_nothing(path):
    common = {"globalTid": thread(10, 3), "start": 10, "end": 20}
    sizes = (1, None, None), (2, None, 8), (2, 8, None)
    rows = [common | {"textId": text, "size": size, "recvSize": own} for text, size, own in sizes]
    found = read(write(path, StringIds=strings("MPI_Barrier", "MPI_Irecv"), MPI_OTHER_EVENTS=rows))
    assert [(p.in_bytes, p.out_bytes) for p, *_ in found.stated_payloads] == [(None, None), (None, 8)]


@pytest.mark.parametrize(
    ("kind", "end", "dropped"),
    [
        *((kind, None, {"instant": 1}) for kind in (34, 65)),
        # names of threads, domains and the like
        *((kind, None, {"label": 1}) for kind in (33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)),
        *((kind, 9, {}) for kind in (59, 60, 70, 71)),
        *((59, None, {"row without a time or duration": 1}), (1234, None, {"NVTX event type 1234": 1})),
    ],
)
def test_every_kind_of_range_and_what_is_none(ranges, kind, end, dropped):
    found = ranges(nvtx(3, end, "step 1", eventType=kind))
    assert [row["name"] for row in found.of("annotation")] == ["step 1"] * (not dropped)
    assert found.trace.dropped == dropped


def test_ranges_of_no_domain_are_of_the_default_one(ranges):
    rows = (("aten::add", None), ("MPI_Send", None), ("aten::mm", 1), ("MPI_Recv", 1))
    found = ranges(*(nvtx(n, n + 1, text, domainId=domain) for n, (text, domain) in enumerate(rows, 1)))
    assert [row["name"] for row in found.of("op")] == ["aten::add", "MPI_Recv"]
    assert [row["name"] for row in found.of("annotation")] == ["MPI_Send", "aten::mm"]

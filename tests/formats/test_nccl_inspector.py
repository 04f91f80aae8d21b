# SPDX-License-Identifier: Apache-2.0
"""NCCL Inspector's JSON lines: units, the payload of each kind, and damaged lines."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import Evidence, nccl_inspector, recognise_format
from cclbench.formats.nccl_inspector import NcclInspector
from cclbench.ground.errors import InputError

Line = dict[str, Any]
Read = Callable[..., Evidence]
HEADER = {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1}
METADATA = {"inspector_output_format_version": "v4.0", "hostname": "alpha", "pid": 1639453, "git_rev": ""}


def call(coll: str = "AllReduce", header: Line | None = HEADER, **perf: Any) -> Line:
    """1 MiB in 100 µs: 10.48576 GB/s; of eight ranks, 2 · 7/8 of it on the bus."""
    told = {"coll": coll, "coll_sn": 7, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 100}
    told |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 10.48576, "coll_busbw_gbs": 18.35008}
    return ({"header": header, "metadata": METADATA} if header else {}) | {"coll_perf": told | perf}


def transfer(**perf: Any) -> Line:
    told = {"sn": 8, "peer": 1, "msg_size_bytes": 500_000, "exec_time_us": 50, "timing_source": "kernel_gpu"}
    told |= {"algobw_gbs": 10.0, "busbw_gbs": 10.0}
    own = {"p2p": "Send"} | {f"p2p_{name}": value for name, value in told.items()}
    return {"header": HEADER, "metadata": METADATA, "p2p_perf": own | perf}


@pytest.fixture
def read(written: Callable[..., Path]) -> Read:
    """Reads a file of those lines."""

    def read(*lines: Line | str) -> Evidence:
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        return NcclInspector().read(written("".join(f"{text}\n" for text in texts), "alpha-pid7.log"))

    return read


def rows(found: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found.timings.to_pylist()]


def test_a_collective(read: Read) -> None:
    found = read(call(), "")
    told = {"kind": "all_reduce", "library": "nccl", "group_size": 8, "nodes": 1, "seq": 7}
    told |= {"communicator": zlib.crc32(b"0x7f8c496ae9f661") & 0x7FFFFFFF, "bytes": 1 << 20}
    told |= {"dur_ns": 100_000, "algbw": 10.48576e9, "busbw": 18.35008e9, "state": "completed"}
    assert found.timings.to_pylist() == [dict.fromkeys(found.timings.column_names) | told]
    assert (found.facts, found.notes, found.left_out) == ({"inspector_format": "v4.0"}, [], {})
    # nothing of the host is kept
    told = str((rows(found, *found.timings.column_names), found.facts, found.notes))
    assert not any(secret in told for secret in ("alpha", "1639453", "7f8c"))


@pytest.mark.parametrize(
    ("coll", "ranks", "message", "time", "algbw", "busbw", "payload"),
    [
        # figures of the plugin's own documentation: the message is what one rank sends or gets
        ("ReduceScatter", 8, 2_147_483_648, 41_057, 418.439467, 366.134533, 17_179_869_184),
        ("ReduceScatter", 32, 65_536, 110, 19.065018, 18.469236, 2_097_152),
        ("AllReduce", 8, 17_179_869_184, 61_974, 277.210914, 485.119099, 17_179_869_184),
        # by the plugin's source: 8 · 1 MiB in 100 µs, 7/8 of it on the bus
        ("AllGather", 8, 1 << 20, 100, 83.88608, 73.40032, 1 << 23),
        *(
            (kind, 8, 1 << 20, 100, 10.48576, 10.48576, 1 << 20)
            for kind in ("Broadcast", "Reduce", "SendRecv")
        ),
    ],
)
def test_payload_is_the_large_side(read, coll, ranks, message, time, algbw, busbw, payload):
    perf = {"coll_msg_size_bytes": message, "coll_exec_time_us": time}
    perf |= {"coll_algobw_gbs": algbw, "coll_busbw_gbs": busbw}
    found = read(call(coll, {**HEADER, "n_ranks": ranks}, **perf))
    assert rows(found, "bytes", "dur_ns", "algbw", "busbw") == [
        (payload, time * 1000, round(algbw * 1e9), round(busbw * 1e9))
    ]
    assert found.notes == []
    wrong = read(call(coll, {**HEADER, "n_ranks": ranks}, **(perf | {"coll_busbw_gbs": busbw * 1.01})))
    assert wrong.notes == ["bandwidths do not follow from size and time in 1 of 1 rows"]


def test_what_the_plugin_does_not_define_is_null(read: Read) -> None:
    """A kind it has no traffic for, and a time it could not take."""
    zero = {"coll_algobw_gbs": 0.0, "coll_busbw_gbs": 0.0}
    perfs = ("AlltoAll", {}), ("AllReduce", {"coll_sn": 8, "coll_exec_time_us": 0}), ("Invalid", {})
    found = read(*(call(coll, **zero, **more) for coll, more in perfs))
    assert rows(found, "kind", "bytes", "dur_ns", "algbw", "busbw") == [
        *(("all_to_all", None, 100_000, None, None), ("all_reduce", 1 << 20, None, None, None)),
        (None, None, 100_000, None, None),
    ]
    assert found.notes == []


def test_transfers_times_and_records_of_no_sort(read: Read) -> None:
    found = read(transfer(), transfer(p2p="Recv", p2p_sn=9000))
    assert rows(found, "kind", "seq", "bytes", "dur_ns", "busbw", "rank") == [
        *(("send", 8, 500_000, 50_000, 10e9, None), ("recv", 9000, 500_000, 50_000, 10e9, None)),
    ]
    assert found.notes == []
    found = read(call(), call(coll_sn=8, coll_timing_source="collective_cpu"))
    assert found.notes == ["1 of 2 times are from the host's clock, not the GPU's"]
    assert read(call(), {"header": HEADER, "other": 1}).left_out == {"of an unknown kind": 1}


def test_headers_that_hold_for_the_lines_after_them(read: Read) -> None:
    marker = {"header": HEADER, "metadata": METADATA | {"inspector_output_format_version": "v4.3"}}
    stats = {"coll_records": 1, "coll_dropped_since_last_dump": 3, "p2p_dropped_since_last_dump": 1}
    other = marker | {"header": {**HEADER, "id": "0x1", "n_ranks": 2}}
    lines = [marker | {"dump_stats": stats}, call(header=None), other | {"dump_stats": {}}]
    found = read(*lines, call(header=None, coll_busbw_gbs=10.48576))
    assert rows(found, "group_size") == [(8,), (2,)]
    assert found.notes == ["the plugin dropped 4 records: its buffers were full"]
    assert found.facts == {"inspector_format": "v4.3"}


@pytest.mark.parametrize(
    ("numbers", "other", "most", "missing"),
    [
        # 4, 5, 6 and 8 of the first; numbers that repeat make up for none that are missing
        *(((3, 9, 7), (1, 2), 9, 4), ((3, 3, 3, 3), (5, 8), 9, 2)),
        # communicators beyond a bound are not counted
        ((1, 3), (1, 9), 1, 1),
    ],
)
def test_collectives_that_are_missing_are_counted_by_communicator_and_kind(
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
    numbers: tuple[int, ...],
    other: tuple[int, ...],
    most: int,
    missing: int,
) -> None:
    monkeypatch.setattr(nccl_inspector, "_MOST_COUNTERS", most)
    header = {**HEADER, "id": "0x1"}
    calls = [call(coll_sn=n) for n in numbers] + [call(header=header, coll_sn=n) for n in other]
    (note,) = read(*calls, call("Broadcast", coll_sn=400, coll_busbw_gbs=10.48576)).notes
    assert note.startswith(f"{missing} collectives are not in the file")


def test_more_lines_than_a_block(read: Read) -> None:
    count = (1 << 15) + 3
    found = read(*(json.dumps(call(coll_sn=i)) for i in range(count)))
    assert rows(found, "seq") == [(i,) for i in range(count)]
    found.timings.validate(full=True)


BAD: dict[str, Line | str] = {"cut": json.dumps(call())[:-20], "text": call(coll_exec_time_us="fast")}
BAD |= {"huge": call(coll_msg_size_bytes=1 << 62)}
BAD |= {"huge rate": json.dumps(call()).replace("10.48576", "1e400"), "no header": call(header=None)}
BAD |= {"no size": {"header": HEADER, "coll_perf": {"coll": "AllReduce"}}, "deep": "[" * 60_000}
BAD |= {"deeper": '{"header":' * 6000, "list": "[1]", "garbage": "\x00\x01"}
BAD |= {"unicode": '{"header": "\ud800"}'.encode("utf-8", "surrogatepass").decode("latin-1")}


@pytest.mark.parametrize("name", BAD)
def test_damage_names_the_line(read: Read, tmp_path: Path, name: str) -> None:
    refused(lambda _: read(call(), BAD[name]), tmp_path / "alpha-pid7.log", "alpha-pid7.log: line 2")


def test_records_that_other_programs_wrote_again(read: Read, tmp_path: Path) -> None:
    again = json.dumps(call(coll_exec_time_us=100.0)), json.dumps(call(coll_sn=8), indent=4)
    found = read(again[0], again[1], json.dumps(call(coll_sn=9, coll_exec_time_us=100.0625)))
    assert rows(found, "seq", "dur_ns") == [(7, 100_000), (8, 100_000), (9, 100_062)]
    path = tmp_path / "alpha-pid7.log"
    refused(lambda _: read(again[0], again[1][:-2]), path, "line 2: Input data was truncated")
    refused(lambda _: read("{", *["1,"] * 5000), path, "line 1: ")


def test_recognised_and_empty(read: Read) -> None:
    assert rows(read(), "seq") == []
    assert recognise_format(Path("x.log"), json.dumps(call()).encode()).name == "nccl_inspector"


NO_RATE = {"coll_algobw_gbs": None, "coll_busbw_gbs": None}


def beyond(coll: str = "AllReduce", *, of_header: bool = False, **bounds: tuple[Any, Any]) -> Any:
    """A call of the value that is believed, and one of the next."""
    made = []
    for at in (0, 1):
        told = {name: both[at] for name, both in bounds.items()}
        made.append(call(coll, {**HEADER, **told}) if of_header else call(coll, **(NO_RATE | told)))
    return tuple(made)


AT_MOST: dict[str, tuple[Line, Line]] = {
    "number": beyond(coll_sn=(1 << 60, (1 << 60) + 1)),
    "size": beyond(coll_msg_size_bytes=(1 << 60, (1 << 60) + 1)),
    "size of all": beyond("AllGather", coll_msg_size_bytes=(1 << 57, (1 << 57) + 1)),
    "time": beyond(coll_exec_time_us=(10**14 - 1, 10**14)),
    "fraction of a time": beyond(coll_exec_time_us=(99_999_999_999_999.0, 1e14)),
    "ranks": beyond(of_header=True, n_ranks=(1 << 20, (1 << 20) + 1)),
    "nodes": beyond(of_header=True, nnodes=(1 << 20, (1 << 20) + 1)),
    "rate": beyond(coll_algobw_gbs=(999_999_999_999.0, 1e12)),
    "no number": beyond(coll_sn=(0, -1)),
    "no size": beyond(coll_msg_size_bytes=(0, -1)),
    "no time": beyond(coll_exec_time_us=(0.0, -0.5)),
    "no whole time": beyond(coll_exec_time_us=(0, -1)),
    "one rank": beyond(of_header=True, n_ranks=(1, 0)),
    "no rate": beyond(coll_algobw_gbs=(0.0, -0.5)),
}


@pytest.mark.parametrize("name", AT_MOST)
def test_bounds_of_what_is_believed(read: Read, tmp_path: Path, name: str) -> None:
    believed, more = AT_MOST[name]
    assert len(rows(read(believed), "seq")) == 1
    refused(lambda _: read(more), tmp_path / "alpha-pid7.log", "alpha-pid7.log: line 1: ")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"header":', "line 1: Input.*; if the job was killed while it was written, remove"),
        (AT_MOST["size of all"][1], "line 1: has an impossible size; write it again, or remove it"),
        (call(header=None), "line 1: belongs to no communicator: no header precedes it;"),
    ],
)
def test_what_may_be_done_is_said(read: Read, line: Line | str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(line)


@pytest.mark.parametrize(
    ("stated", "follows"), [(10.000010, True), (10.000012, False), (9.999990, True), (9.999988, False)]
)
def test_a_stated_bandwidth_is_right_to_its_last_digit(read: Read, stated: float, follows: bool) -> None:
    """Of 1 MB in 100 µs, 10 GB/s, to a millionth of it and of 1 GB/s."""
    found = read(call("Broadcast", coll_msg_size_bytes=10**6, coll_algobw_gbs=stated, coll_busbw_gbs=None))
    assert found.notes == [] if follows else ["bandwidths do not follow from size and time in 1 of 1 rows"]
    assert rows(found, "algbw", "busbw") == [(round(stated * 1e9), None)]


def test_versions_of_the_format_are_all_told_but_no_more_than_eight(read: Read) -> None:
    def of(version: str) -> Line:
        return call() | {"metadata": {"inspector_output_format_version": version}}

    assert read(of("v1"), of("v2"), of("v1")).facts == {"inspector_format": ["v1", "v2"]}
    assert read(of("v" * 30)).facts == {"inspector_format": "v" * 20}
    many = read(*(of(f"v{n}") for n in range(12))).facts["inspector_format"]
    assert many == [f"v{n}" for n in range(8)]


def test_a_record_of_4096_lines_is_read_and_no_longer_one(read: Read, tmp_path: Path) -> None:
    body = json.dumps(call())[1:-1]
    assert len(rows(read("{", *[""] * 4093, body, "}", call(coll_sn=8)), "seq")) == 2
    refused(lambda _: read("", "{", *[""] * 4095, body, "}"), tmp_path / "alpha-pid7.log", "line 2: ")


def proxy(record_type: str, sn: int, ts: Line, direction: str = "send", **more: Any) -> Line:
    """A record of a connection to the third rank."""
    about = {"record_type": record_type, "record_sn": 1, "parent_type": "coll", "parent_sn": 1407}
    about |= {"proxy_op_sn": sn, "rank": 2, "channel_id": 0, "peer": 3, "direction": direction}
    times = {f"{name}_ts": 1_752_867_229_235_000 + at for name, at in ts.items()}
    return {"proxy_trace": about | {"event_trace_ts": times} | more}


SEND = {"proxy_step_start": 100, "send_gpu_wait": 110, "send_peer_wait": 130, "send_wait": 135}
RECV = {"recv_wait": 10, "recv_flush_wait": 25, "recv_gpu_wait": 26, "proxy_step_stop": 30}
STATS = {"proxy_ops_dropped_since_last_dump": 1, "proxy_pxn_skipped_process_total": 5}


def test_operations_of_the_proxy_are_counters_of_their_connection(read: Read) -> None:
    """Steps of their own (README of 4.3), and steps within the records of an operation (its later reader).

    The send waits 20 and 0 us for the GPU, 5 and 2 for the peer, 5 and 18 for the network.
    """
    second = {"send_gpu_wait": 140, "send_peer_wait": 140, "send_wait": 142, "proxy_step_stop": 160}
    size = {"n_steps": 2, "n_steps_completed": 2, "trans_size_bytes": 1 << 20}
    op = {"proxy_op_start": 80, "proxy_op_stop": 170}
    one = {"n_steps": 1, "n_steps_completed": 1, "trans_size_bytes": 100}
    within = [{"event_trace_ts": proxy("", 0, RECV)["proxy_trace"]["event_trace_ts"]}]
    found = read(
        {"header": HEADER, "metadata": METADATA, "dump_stats": STATS},
        proxy("proxy_step", 12, SEND | {"proxy_step_stop": 140}),
        proxy("proxy_step", 12, second),
        proxy("proxy_op", 12, op, **size),
        proxy("proxy_op_start", 13, {"proxy_op_start": 1}, "recv"),
        proxy("proxy_op", 13, {"proxy_op_start": 1, "proxy_op_stop": 31}, "recv", steps=within, **one),
        # A step without all of its callbacks, and an operation whose steps were dropped.
        proxy("proxy_step", 14, {"send_wait": 20, "proxy_step_stop": 10, "send_gpu_wait": 5}),
        proxy("proxy_op", 14, op, n_steps_dropped=1),
        proxy("proxy_op", 15, {"proxy_op_start": 80}),
        proxy("proxy_op_start", 16, op),
    )
    rows = [(r["port"], r["counter"], r["unit"], r["value"]) for r in found.counters.to_pylist()]
    to, origin = "channel 0 to rank 3 of 8", "channel 0 from rank 3 of 8"
    assert rows == [
        (to, "nccl_proxy_tx_bytes", "B", 1 << 20),
        (to, "nccl_proxy_tx_gpu_wait", "s", pytest.approx(20e-6)),
        (to, "nccl_proxy_tx_peer_wait", "s", pytest.approx(7e-6)),
        (to, "nccl_proxy_tx_network", "s", pytest.approx(23e-6)),
        (origin, "nccl_proxy_rx_bytes", "B", 100),
        (origin, "nccl_proxy_rx_gpu_wait", "s", pytest.approx(4e-6)),
        (origin, "nccl_proxy_rx_flush", "s", pytest.approx(1e-6)),
        (origin, "nccl_proxy_rx_network", "s", pytest.approx(15e-6)),
    ]
    first = found.counters.to_pylist()[0]
    assert (first["start_ns"], first["end_ns"]) == (1_752_867_229_235_080_000, 1_752_867_229_235_170_000)
    assert found.left_out == {
        "sizes of proxy operations whose steps were not all recorded": 1,
        "proxy operations without a time": 1,
        "proxy operations without an end": 1,
    }
    assert found.notes == [
        "the plugin dropped 1 proxy records: its buffers were full",
        "5 proxy operations for other processes (PXN) are not recorded",
    ]
    with pytest.raises(InputError, match="belongs to no communicator"):
        read(proxy("proxy_op", 1, op))

# SPDX-License-Identifier: Apache-2.0
"""XLA profiles as Chrome JSON: the same rows and the same partition as of the XSpace they derive from."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refused import refused

import cclbench
from cclbench.formats import Part, Rows, Trace, trace_reader
from cclbench.formats.xla_json import XlaJson
from cclbench.formats.xplane.chrome import chrome
from cclbench.ground.errors import InputError

Event = dict[str, Any]
Batches = dict[tuple[str, str], Rows]
XSPACE = "tpu_v6e_4plane_host_offload_psum.xplane.pb"
JSON = "tpu_v6e_4plane.DERIVED_by_xprof2.24.2.trace.json.gz"
TPUS = [f"/device:TPU:{i}" for i in range(4)]
PARTITION = [f"time.{part}" for part in ("step", "compute_only", "overlapped", "idle", "idle_unknown")]
PARTITION += ["time.exposed_comm", "time.exposed_copy"]


def named(pid: int, process: str, **threads: str) -> list[Event]:
    """The metadata events of a process; threads as `t7="name"`."""
    found = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}}]
    for thread, name in threads.items():
        args = {"name": name}
        found.append({"ph": "M", "pid": pid, "tid": int(thread[1:]), "name": "thread_name", "args": args})
    return found


def event(pid: int, tid: int, name: str, ts: float | str, dur: float | None = None, **args: str) -> Event:
    made = {"ph": "i" if dur is None else "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "args": args}
    return made if dur is None else {**made, "dur": dur}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes events to a file that ends as xprof ends them."""

    def write(*events: Event | list[Event], name: str = "host.trace.json.gz") -> Path:
        listed = [e for some in events for e in (some if isinstance(some, list) else [some])]
        path = tmp_path / name
        text = json.dumps({"displayTimeUnit": "ns", "traceEvents": [*listed, {}]}).encode()
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        return path

    return write


def read(path: Path, member: str, reader: str = "xla_json", **options: bool) -> tuple[Trace, Batches]:
    options.setdefault("allow_truncated", False)
    trace = trace_reader(reader).read(path, part=Part(member), **options)
    return trace, {(rows.kind, rows.side): rows for rows in trace.batches if isinstance(rows, Rows)}


def plain(rows: Rows) -> list[tuple[str, int, int, int]]:
    """(name, start, duration, track) of each row."""
    names = np.array(list(rows.names))[rows.codes].tolist()
    columns = (rows.start_ns, rows.dur_ns, rows.track)
    return list(zip(names, *(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("member", TPUS)
def test_the_devices_rows_are_those_of_the_xspace(test_data: Path, member: str) -> None:
    folder = test_data / "xprof"
    (one, a), (other, b) = read(folder / XSPACE, member, "xplane"), read(folder / JSON, member)
    began = int(a["kernel", "device"].start_ns[0] - b["kernel", "device"].start_ns[0])
    device = {key for key in a if key[1] == "device"}
    assert device == {(kind, "device") for kind in ("kernel", "copy", "sync")}
    assert device == {key for key in b if key[1] == "device"}
    for key in device:
        assert [(n, start - began, d, t) for n, start, d, t in plain(a[key])] == plain(b[key]), key
    assert [(s.name, s.start_ns - began, s.end_ns - began) for s in one.device_steps] == [
        (s.name, s.start_ns, s.end_ns) for s in other.device_steps
    ]
    assert a["kernel", "device"].name_categories == b["kernel", "device"].name_categories
    assert list(one.stated_payloads.row) == list(other.stated_payloads.row)


def test_the_partition_is_that_of_the_xspace(test_data: Path, tmp_path: Path) -> None:
    found = []
    for name in (XSPACE, JSON):
        run = cclbench.run(test_data / "xprof" / name, store=tmp_path / "store")
        # the JSON does not state the ranks
        ranks = [None, *sorted(rank["rank"] for rank in run.manifest["ranks"])]
        rows = [row for row in run.rows if row["metric"] in PARTITION and row["stat"] is None]
        found.append({(row["metric"], ranks.index(row["rank"]), row["step"]): row["value"] for row in rows})
    assert len(found[0]) > 6 * len(TPUS)
    assert found[0] == found[1]
    assert all(value is not None for value in found[0].values())


def test_host_rows_lack_only_what_xprof_leaves_out(test_data: Path) -> None:
    folder = test_data / "xprof"
    (_, a), (_, b) = read(folder / XSPACE, TPUS[0], "xplane"), read(folder / JSON, TPUS[0])
    for kind in ("annotation", "other"):
        kept = [name for name, *_ in plain(a[kind, "host"]) if not name.startswith(("Memory", "[memory]"))]
        assert len(kept) == len(b[kind, "host"]) > 2000


def test_times_keep_every_digit(write: Callable[..., Path]) -> None:
    ops = event(3, 3, "add", "TS", 0.000999), event(3, 3, "mul", 1.5)
    path = write(named(3, "/device:TPU:0", t3="XLA Ops"), *ops, name="t.trace.json")
    path.write_text(path.read_text().replace('"TS"', "1700000000.123456789"))
    _, batches = read(path, "/device:TPU:0")
    assert plain(batches["kernel", "device"]) == [("mul", 1500, 0, 3), ("add", 1700000000123, 1, 3)]


OPS = named(3, "/device:TPU:0", t3="XLA Ops")


def test_bytes_of_unknown_memories_are_no_traffic_of_the_devices_own(write: Callable[..., Path]) -> None:
    """Arrays of the first lie in the default memory, one of the second in memory 1; the last does not say."""
    text = "%add = f32[8]{0} add(f32[8]{0} %a, f32[8]{0} %b)"
    told = {"bytes_accessed": "96", "flops": "8", "memory_access_breakdown": "<opaque bytes>"}
    texts = text, text.replace("{0} %b", "{0:S(1)} %b"), text.replace("{0}", "")
    events = [event(3, 3, f"add.{n}", 4 * n, 1, **told, long_name=named) for n, named in enumerate(texts)]
    rows = read(write(OPS, *events), "/device:TPU:0")[1]["kernel", "device"]
    assert [value.as_py() for value in rows.hbm_bytes or ()] == [96, None, None]
    assert [value.as_py() for value in rows.flops or ()] == [8.0] * 3


def test_gpus_rows_are_those_of_their_streams(write: Callable[..., Path]) -> None:
    gpu = named(1, "/device:GPU:0", t8="Stream #17(Kernel)", t9="XLA Ops - from #17")
    path = write(
        gpu,
        named(701, "/host:CPU", t5="python"),
        event(1, 8, "gemm", 10, 4, correlation_id="31", kernel_details="regs:1 grid:16,2,1 block:512,1,1"),
        event(1, 9, "dot.1", 10, 4),
        event(701, 5, "cuLaunchKernel", 1, 2, correlation_id="31"),
        event(701, 5, "train", 0, 9, step_num="4"),
        {"ph": "C", "pid": 1, "name": "counter", "ts": 0, "args": {}},
        {"ph": "X", "pid": 1, "tid": 8, "name": "endless", "ts": 0},
        named(9, "/device:CUSTOM:x"),
        event(9, 1, "noise", 0, 1),
    )
    trace, batches = read(path, "/device:GPU:0")
    kernel = batches["kernel", "device"]
    assert plain(kernel) == [("gemm", 10_000, 4_000, 17)]
    assert [column.to_pylist() for column in (kernel.blocks, kernel.correlation)] == [[32], [31]]  # type: ignore[union-attr]
    assert plain(batches["launch", "host"]) == [("cuLaunchKernel", 1_000, 2_000, 5)]
    assert plain(batches["annotation", "host"]) == [("train step 4", 0, 9_000, 5)]
    assert trace.dropped == {
        **dict.fromkeys(("row derived from others", "row of another plane"), 1),
        **dict.fromkeys(("row without a time or duration", "phase 'C'"), 1),
    }


def cpu_op(ts: float, dur: float, **flow: str) -> Event:
    told = {"hlo_op": "dot.1", "hlo_module": "jit_f", "run_id": "-7", "device_ordinal": "0"}
    return event(701, 5, "dot.1", ts, dur, **told, **flow)


def test_ops_of_cpu_devices_end_where_their_flow_ends(write: Callable[..., Path]) -> None:
    """A flow is an id and, in its last two bits, whether it begins or ends here."""
    ends = event(701, 6, "end: dot.1", 9, 0.1, flow=str(40 << 2 | 1))
    path = write(named(701, "/host:CPU", t5="pool", t6="pool"), cpu_op(1, 2, flow=str(40 << 2 | 2)), ends)
    assert XlaJson().parts(path) == [Part("cpu:0")]
    _, batches = read(path, "cpu:0")
    assert plain(batches["kernel", "device"]) == [("dot.1", 1_000, 8_000, 5)]
    path = write(named(701, "/host:CPU", t5="pool"), cpu_op(1, 2), event(701, 5, "end: dot.1", 9, 0.1))
    with pytest.raises(InputError, match=r"when ops of CPU devices end; read the \.xplane\.pb beside it"):
        XlaJson().parts(path)


def test_events_may_be_missing(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(named(3, "/device:TPU:0", t3="XLA Ops"), event(3, 3, "add", 1, 1), event(3, 3, "mul", 3, 1))
    note = read(path, "/device:TPU:0")[0].notes[-1]
    assert "has at most 1,000,000 events" in note
    assert note.endswith("; the .xplane.pb has all")
    monkeypatch.setattr("cclbench.formats.xla_json.MOST_EVENTS", 2)
    assert "has 2 events, the most in this format" in read(path, "/device:TPU:0")[0].notes[-1]


def read_all(path: Path) -> None:
    for part in XlaJson().parts(path):
        list(XlaJson().read(path, part=part).batches)


DAMAGED: dict[str, tuple[list[Event], str]] = {
    "nothing to read": (named(3, "/device:CUSTOM:0"), "no op of a CPU device"),
    "absurd time": ([*OPS, event(3, 3, "add", 1e30, 1)], "impossible time: 1E\\+30 µs of 'add'"),
    "absurd exponent": ([*OPS, event(3, 3, "add", 5, "TS")], "impossible time: 1E\\+9999"),  # type: ignore[arg-type]
    "no number for a time": ([*OPS, event(3, 3, "add", 5, "NaN")], "impossible time: NaN"),  # type: ignore[arg-type]
    "negative duration": ([*OPS, event(3, 3, "add", 5, -1)], "impossible time in line 'XLA Ops'"),
    "two of a name": (
        [*OPS, event(3, 3, "add", 5, 1), *named(4, "/device:TPU:0"), event(4, 3, "add", 5, 1)],
        "two proc",
    ),
    "a number for a name": (
        [*OPS, {"ph": "X", "name": 5}],
        "Expected 'str', got 'int'.*, before any event of a device",
    ),
}


@pytest.mark.parametrize(("events", "says"), DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_line_with_the_file(write: Callable[..., Path], events: list[Event], says: str) -> None:
    path = write(events, name="t.trace.json")
    path.write_text(path.read_text().replace('"TS"', "1e9999"))
    assert re.search(says, refused(read_all, path))


def test_a_cut_file_is_refused_or_used_up_to_the_cut(write: Callable[..., Path]) -> None:
    path = write(OPS, event(3, 3, "add", 1, 1), event(3, 3, "mul", 3, 1), name="t.trace.json")
    path.write_bytes(path.read_bytes()[:-60])
    assert refused(lambda path: read(path, "/device:TPU:0"), path) == (
        f"{path}: byte {path.stat().st_size:,}: truncated in an event (after 1 whole events);"
        " re-run with --allow-truncated to use the part before it"
    )
    trace, batches = read(path, "/device:TPU:0", allow_truncated=True)
    assert [row[0] for row in plain(batches["kernel", "device"])] == ["add"]
    assert trace.cut is not None
    assert not trace.device_rows_in_order


def test_times_to_their_bound(write: Callable[..., Path]) -> None:
    """2⁴² µs, some 51 days, from the profile's begin."""
    last = (1 << 42) - 1
    made = chrome(write(OPS, event(3, 3, "add", last, last), event(3, 3, "mul", -last, 0)))
    (line,) = made.planes["/device:TPU:0"].lines
    times = [(e.offset_ps, e.duration_ps) for e in line.events]
    assert times == [(last * 1_000_000, last * 1_000_000), (-last * 1_000_000, 0)]
    for ts, dur in ((1 << 42, 1), (-(1 << 42), 1), (0, 1 << 42)):
        path = write(OPS, event(3, 3, "a" * 70, ts, dur))
        said = f"impossible time: {ts or dur} µs of {'a' * 60!r}; is the file damaged?"
        assert refused(chrome, path) == f"{path}: {said}"


def test_what_is_no_row_is_counted_by_reason(write: Callable[..., Path]) -> None:
    nowhere = {"ph": "X", "pid": 3, "tid": 3, "name": "x"}
    events = [
        *(OPS, named(4, "/device:CUSTOM:0"), event(3, 3, "add", 1, 1)),
        *(nowhere | {"dur": 1}, nowhere | {"ph": "i"}, nowhere | {"ts": 1}),
        *(*(event(4, t, "x", 1, 1) for t in (1, 2, 2)), event(5, 1, "x", 1, 1), {"ph": "C" * 50, "pid": 3}),
    ]
    made = chrome(write(*events))
    known = {"row without a time or duration": 3, "row of another plane": 4}
    assert made.dropped == known | {f"phase {'C' * 50!r:.20}": 1}
    assert (made.events, list(made.planes)) == (8, ["/device:TPU:0"])


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        *(("XLA Ops", True), ("XLA TraceMe", True), ("XLA Ops - from #17", False), ("Source code", False)),
        *(("TensorFlow Ops", False), ("Host Offload Ops 3", False), ("Steps", True), ("", True)),
    ],
)
def test_lines_that_xprof_derives_are_left_out(write: Callable[..., Path], title: str, kept: bool) -> None:
    made = chrome(write(named(3, "/device:TPU:0", t3=title), event(3, 3, "add", 1, 1)))
    assert len(made.planes["/device:TPU:0"].lines) == kept
    assert made.dropped == ({} if kept else {"row derived from others": 1})


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        *(("0", "int64_value", 0), ("-7", "int64_value", -7), (str(1 << 63), "uint64_value", 1 << 63)),
        *((str((1 << 63) - 1), "int64_value", (1 << 63) - 1), (str(-(1 << 63)), "int64_value", -(1 << 63))),
        (str((1 << 64) - 1), "uint64_value", (1 << 64) - 1),
        *((text, "str_value", text) for text in (str(1 << 64), str(-(1 << 63) - 1), "1.5", "x")),
    ],
)
def test_stats_are_numbers_as_texts(write: Callable[..., Path], text: str, field: str, value: Any) -> None:
    gpu = named(1, "/device:GPU:0", t8="Stream #1")
    plane = chrome(write(gpu, event(1, 8, "k", 1, 1, run_id=text, unknown="3"))).planes["/device:GPU:0"]
    (stat,) = plane.lines[0].events[0].stats
    assert (stat.WhichOneof("value"), getattr(stat, field)) == (field, value)
    assert {entry.key: entry.value.name for entry in plane.stat_metadata} == {stat.metadata_id: "run_id"}


def test_an_op_s_own_stats_stand_with_it_and_the_program_that_runs(write: Callable[..., Path]) -> None:
    """Runs hold their ends; of an op outside all of them no program is known."""
    lines = named(3, "/device:TPU:0", t2="XLA Modules", t3="XLA Ops")
    runs = event(3, 2, "jit_g(22)", 20, 10), event(3, 2, "jit_f(11)", 0, 10), event(3, 2, "nameless", 40, 9)
    told = {"tf_op": "jit(f)/add:", "flops": "8", "run_id": "5"}
    ops = [event(3, 3, "add", at, 1, **told) for at in (0, 5, 10, 11, 20, 30, 31, 45)]
    plane = chrome(write(lines, *runs, ops)).planes["/device:TPU:0"]
    names = {entry.key: entry.value.name for entry in plane.stat_metadata}
    stats = {
        entry.key: {names[s.metadata_id]: s.str_value or s.int64_value for s in entry.value.stats}
        for entry in plane.event_metadata
    }
    own = {"tf_op": "jit(f)/add:", "flops": 8}
    (line,) = (line for line in plane.lines if line.name == "XLA Ops")
    assert [stats[made.metadata_id] for made in line.events] == [
        *({**own, "program_id": 11},) * 3, own, *({**own, "program_id": 22},) * 2, own, own
    ]  # fmt: skip
    assert [[names[s.metadata_id] for s in made.stats] for made in line.events] == [["run_id"]] * 8
    assert len({made.metadata_id for made in line.events}) == 3


def test_names_of_ops_and_numbers_of_lines(write: Callable[..., Path]) -> None:
    events = event(3, 3, "add.1", 1, 1, long_name="%add.1 = f32[] add()"), event(3, 3, "mul", 2, 1)
    plane = chrome(write(OPS, *events)).planes["/device:TPU:0"]
    entries = [(entry.value.name, entry.value.display_name) for entry in plane.event_metadata]
    assert entries == [("%add.1 = f32[] add()", "add.1"), ("mul", "mul")]
    threads = named(3, "/device:GPU:0", t8="Stream #17(Kernel)", t9="XLA Modules")
    events = [event(3, thread, name, 1, 1) for thread, name in ((8, "k"), (9, "f"), ((1 << 63) - 1, "g"))]
    lines = [(line.id, line.name) for line in chrome(write(threads, events)).planes["/device:GPU:0"].lines]
    assert lines == [(17, "Stream #17(Kernel)"), (9, "XLA Modules"), ((1 << 63) - 1, "")]


def test_devices_and_what_is_left_out(write: Callable[..., Path]) -> None:
    planes = [named(pid, name, t3="XLA Ops") for pid, name in ((9, "/device:TPU:0"), (4, "/device:TPU:1"))]
    idle = named(2, "/device:TPU:2")
    made = chrome(write(planes[0], planes[1], idle, event(9, 3, "a", 1, 1), event(4, 3, "b", 1, 1)))
    assert made.devices == ["/device:TPU:1", "/device:TPU:0"]
    assert made.named == ["/device:TPU:2", "/device:TPU:1", "/device:TPU:0"]
    facts = [made.device_trace(name).facts for name in made.devices]
    assert [(f.local_rank, f.device_count, f.vendor) for f in facts] == [(1, 3, "google"), (2, 3, "google")]
    planes = [named(i, f"/device:TPU:{i}", t3="XLA Ops") for i in (0, 1)]
    path = write(*planes, event(0, 3, "a", 1, 1), event(1, 3, "b", 1, 1), event(7, 1, "x", 1, 1))
    dropped = [read(path, f"/device:TPU:{i}")[0].dropped for i in (0, 1)]
    assert dropped == [{"row of another plane": 1}, {}]


def test_rows_without_a_process_or_thread_are_of_the_first(write: Callable[..., Path]) -> None:
    thread = {"ph": "M", "name": "thread_name"}
    names = [
        {"ph": "M", "name": "process_name", "args": {"name": "/device:GPU:0"}},
        thread | {"args": {"name": "Stream #1"}},
        {"ph": "M", "name": "thread_sort_index", "args": {"name": "Stream #2"}},
        *(thread | {"args": {"name": 5}}, thread),
    ]
    (line,) = chrome(write(names, {"ph": "X", "name": "k", "ts": 1, "dur": 1})).planes["/device:GPU:0"].lines
    assert (line.id, line.name, len(line.events)) == (1, "Stream #1", 1)

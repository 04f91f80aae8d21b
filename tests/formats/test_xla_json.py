# SPDX-License-Identifier: Apache-2.0
"""XLA profiles as Chrome JSON: the same rows and the same partition as of the XSpace they derive from."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cclbench
from cclbench.errors import InputError
from cclbench.formats import READERS, Part, Rows, Trace, recognise, trace_reader
from cclbench.formats.xla_json import XlaJson

Event = dict[str, Any]
Batches = dict[tuple[str, str], Rows]
XSPACE = "tpu_v6e_4plane_host_offload_psum.xplane.pb"
JSON = "tpu_v6e_4plane.DERIVED_by_xprof2.24.2.trace.json.gz"
TPUS = [f"/device:TPU:{i}" for i in range(4)]
PARTITION = [
    f"time.{part}"
    for part in ("step", "compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle", "idle_unknown")
]


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
    assert (
        device
        == {key for key in b if key[1] == "device"}
        == {(k, "device") for k in ("kernel", "copy", "sync")}
    )
    for key in device:
        assert [(n, start - began, d, t) for n, start, d, t in plain(a[key])] == plain(b[key]), key
    assert [(s.name, s.start_ns - began, s.end_ns - began) for s in one.device_steps] == [
        (s.name, s.start_ns, s.end_ns) for s in other.device_steps
    ]
    assert (a["kernel", "device"].name_categories, list(one.told.row)) == (
        b["kernel", "device"].name_categories,
        list(other.told.row),
    )


def test_the_partition_is_that_of_the_xspace(test_data: Path, tmp_path: Path) -> None:
    found = []
    for name in (XSPACE, JSON):
        run = cclbench.run(test_data / "xprof" / name, store=tmp_path / "store")
        ranks = [None, *sorted(rank["rank"] for rank in run.manifest["ranks"])]  # the JSON does not tell them
        found.append(
            {
                (row["metric"], ranks.index(row["rank"]), row["step"]): row["value"]
                for row in run.rows
                if row["metric"] in PARTITION and row["stat"] is None
            }
        )
    assert len(found[0]) > 6 * len(TPUS)
    assert found[0] == found[1]
    assert all(value is not None for value in found[0].values())


def test_host_rows_lack_only_what_xprof_leaves_out(test_data: Path) -> None:
    folder = test_data / "xprof"
    (_, a), (_, b) = read(folder / XSPACE, TPUS[0], "xplane"), read(folder / JSON, TPUS[0])
    for kind in ("annotation", "other"):
        kept = [name for name, *_ in plain(a[kind, "host"]) if not name.startswith("Memory")]
        assert len(kept) == len(b[kind, "host"]) > 2000


def test_it_is_known_from_other_chrome_json(test_data: Path) -> None:
    with gzip.open(test_data / "xprof" / JSON) as file:
        head = file.read(1 << 16)
    found = recognise(Path(JSON), head)
    assert found is not None
    assert found.name == "xla_json"
    kineto = b'{"traceEvents": [{"ph": "X", "name": "process_name", "args": {"name": "python"}}]}'
    assert XlaJson().sniff(kineto) == XlaJson().sniff(b'["name": "/device:TPU:0"]') == 0.0
    assert [name for name in READERS if name == "xla_json"]


def test_times_keep_every_digit(write: Callable[..., Path]) -> None:
    ops = event(3, 3, "add", "TS", 0.000999), event(3, 3, "mul", 1.5)
    path = write(named(3, "/device:TPU:0", t3="XLA Ops"), *ops, name="t.trace.json")
    path.write_text(path.read_text().replace('"TS"', "1700000000.123456789"))
    _, batches = read(path, "/device:TPU:0")
    assert plain(batches["kernel", "device"]) == [("mul", 1500, 0, 3), ("add", 1700000000123, 1, 3)]


def test_an_op_is_of_the_program_that_runs(write: Callable[..., Path]) -> None:
    """Two programs use one name; only the second one's `-done` awaits what it issued."""
    lines = named(3, "/device:TPU:0", t2="XLA Modules", t3="XLA Ops")
    issue = "%copy-start.1 = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(f32[8]{0:S(5)} %p)"
    await_ = "%copy-done.1 = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]) %copy-start.1)"
    runs = event(3, 2, "jit_f(11)", 0, 10), event(3, 2, "jit_g(22)", 20, 30)
    ops = [
        event(3, 3, "copy-start.1", 1, 1, long_name=issue, hlo_category="async-start"),
        event(3, 3, "copy-start.1", 21, 1, long_name=issue, hlo_category="async-start"),
        event(3, 3, "copy-done.1", 40, 2, long_name=await_, hlo_category="async-done"),
    ]
    _, batches = read(write(lines, *runs, ops), "/device:TPU:0")
    copies = batches["copy", "device"]
    assert [row[:3] for row in plain(copies)] == [("copy-start.1", 21_000, 21_000)]
    assert copies.bytes is not None
    assert copies.bytes == pa.array([32], pa.int64())


def test_bytes_of_unknown_memories_are_no_traffic_of_the_devices_own(write: Callable[..., Path]) -> None:
    told = {
        "long_name": "%add = f32[8]{0} add(f32[8]{0} %a, f32[8]{0} %b)",
        "bytes_accessed": "96",
        "flops": "8",
    }
    opaque = event(3, 3, "add", 1, 1, **told, memory_access_breakdown="<opaque bytes>")
    lines = named(3, "/device:TPU:0", t3="XLA Ops")
    rows = read(write(lines, opaque, event(3, 3, "add", 5, 1, **told)), "/device:TPU:0")[1][
        "kernel", "device"
    ]
    assert [value.as_py() for value in rows.hbm_bytes or ()] == [None, 96]
    assert [value.as_py() for value in rows.flops or ()] == [8.0, 8.0]


def test_gpus_rows_are_those_of_their_streams(write: Callable[..., Path]) -> None:
    gpu = named(1, "/device:GPU:0", t8="Stream #17(Kernel)", t9="XLA Ops - from #17")
    host = named(701, "/host:CPU", t5="python")
    path = write(
        gpu,
        host,
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
        "row derived from others": 1,
        "row of another plane": 1,
        "row without a time or duration": 1,
        "phase 'C'": 1,
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


def test_ops_of_cpu_devices_whose_end_nobody_tells_are_refused(write: Callable[..., Path]) -> None:
    path = write(named(701, "/host:CPU", t5="pool"), cpu_op(1, 2), event(701, 5, "end: dot.1", 9, 0.1))
    with pytest.raises(InputError, match=r"when ops of CPU devices end; read the \.xplane\.pb beside it"):
        XlaJson().parts(path)


def test_it_says_that_events_may_be_missing(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(named(3, "/device:TPU:0", t3="XLA Ops"), event(3, 3, "add", 1, 1), event(3, 3, "mul", 3, 1))
    note = read(path, "/device:TPU:0")[0].notes[-1]
    assert "holds at most 1,000,000 events" in note
    assert note.endswith("; the .xplane.pb has all")
    monkeypatch.setattr("cclbench.formats.xla_json.MOST_EVENTS", 2)
    assert "has 2 events, the most that its format holds" in read(path, "/device:TPU:0")[0].notes[-1]


def read_all(path: Path) -> None:
    for part in XlaJson().parts(path):
        list(XlaJson().read(path, part=part).batches)


OPS = named(3, "/device:TPU:0", t3="XLA Ops")
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
def test_damage_gives_one_line_with_the_file(
    write: Callable[..., Path], events: list[Event], says: str
) -> None:
    path = write(events, name="t.trace.json")
    path.write_text(path.read_text().replace('"TS"', "1e9999"))
    with pytest.raises(InputError, match=says) as raised:
        read_all(path)
    assert str(path) in str(raised.value)


def test_a_cut_file_is_refused_or_used_up_to_the_cut(write: Callable[..., Path]) -> None:
    path = write(OPS, event(3, 3, "add", 1, 1), event(3, 3, "mul", 3, 1), name="t.trace.json")
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(InputError, match="truncated"):
        read(path, "/device:TPU:0")
    trace, batches = read(path, "/device:TPU:0", allow_truncated=True)
    assert [row[0] for row in plain(batches["kernel", "device"])] == ["add"]
    assert trace.cut is not None
    assert not trace.device_rows_in_order


def test_a_gpu_that_did_nothing_counts_among_the_devices(write: Callable[..., Path]) -> None:
    """The others' ordinals are those they have in the xplane file."""
    gpus = [named(i, f"/device:GPU:{i}", t8="Stream #1(Kernel)") for i in range(3)]
    path = write(*gpus, event(2, 8, "k", 0, 1))
    assert XlaJson().parts(path) == [Part("/device:GPU:2")]
    trace, _ = read(path, "/device:GPU:2")
    assert (trace.facts.local_rank, trace.facts.device_count) == (2, 3)

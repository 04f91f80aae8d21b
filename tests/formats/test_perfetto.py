# SPDX-License-Identifier: Apache-2.0
"""Perfetto traces: a real job of rocprofv3 converted, sequences, clocks, damage, traces without kernels."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers import perfetto_files
from helpers.perfetto_files import PROCESS, STREAMS, THREADS, Sequence, clocks, field, message

import cclbench
from cclbench.formats import Part, Rows, Trace, trace_reader
from cclbench.formats.source_files import required_reader
from cclbench.formats.unread import UnreadFormatError
from cclbench.ground.errors import InputError
from cclbench.ingestion.source import find_source

PID, NOW = 900, 10_000_000
Row = tuple[str, str, int, int]
"""Kind, name, begin and end from `NOW`."""
READER = trace_reader("perfetto")


def opened(path: Path) -> list[tuple[Trace, list[Rows]]]:
    """Each process's trace and batches."""
    READER.refuse(path)
    found = []
    for part in READER.parts(path):
        trace = READER.read(path, part=part, allow_truncated=False)
        found.append((trace, [rows for rows in trace.batches if isinstance(rows, Rows)]))
    return found


def rows_of(batches: list[Rows]) -> list[Row]:
    """Kind, name, begin and end of each row by begin; times from `NOW` if they are later."""
    found = []
    for rows in batches:
        names, begins, ends = list(rows.names), rows.start_ns - NOW, rows.start_ns + rows.dur_ns - NOW
        times = zip(rows.codes.tolist(), begins.tolist(), ends.tolist(), strict=True)
        found += [(rows.kind, names[code], begin, end) for code, begin, end in times]
    return sorted(found, key=lambda row: row[2:])


def read(data: bytes, folder: Path) -> tuple[Trace, list[Row]]:
    """The trace and rows of a file with one process."""
    (path := folder / "job.pftrace").write_bytes(data)
    ((trace, batches),) = opened(path)
    return trace, rows_of(batches)


def begun() -> Sequence:
    return perfetto_files.rocprof_sequence(PID, NOW, [PID], [3])


def add_kernel(written: Sequence, begin: int, end: int | None, name: str = "gemm", **more: Any) -> Sequence:
    """A kernel of stream 3 added, without its end if that is None."""
    track, details = STREAMS + 3, {"agent": "GPU-1", "corr_id": 5, "stream_ID": 3, **more}
    written.event(NOW + begin, 1, track, "kernel_dispatch", name, details=details)
    if end is not None:
        written.event(NOW + end, 2, track)
    return written


def job(**more: Any) -> Sequence:
    return add_kernel(begun(), 10, 40, **more)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def extra(**fields: Any) -> bytes:
    """The job, and another packet of its sequence."""
    return bytes(job().data + field(1, message(f10=1, **fields)))


@pytest.mark.parametrize("cut", [False, True])
def test_a_real_job_has_the_partition_of_its_json(test_data: Path, tmp_path: Path, cut: bool) -> None:
    with gzip.open(test_data / "rocprof" / "908_results.json.gz") as file:
        job = json.load(file)
    (tool,) = job["rocprofiler-sdk-tool"]
    records = tool["buffer_records"]
    records["kernel_dispatch"] = records["kernel_dispatch"][-2500:]
    (plain := tmp_path / "job_results.json").write_text(json.dumps(job))
    (path := tmp_path / "job_results.pftrace.gz").write_bytes(
        gzip.compress(perfetto_files.convert_dispatches(tool, cut=cut), 1)
    )
    figures = []
    for file in (plain, path):
        run = cclbench.run(file, store=tmp_path / file.name.replace(".", "-"))
        keys = ("metric", "stat", "category", "collective", "rank", "step")
        figures.append({tuple(row.get(key) for key in keys): row["value"] for row in run.rows})
    expected, found = figures
    different = {key[0] for key in expected if expected[key] != found.get(key)}
    # Only JSON states the number of compute units.
    assert {"compute.sm_coverage"} <= {key[0] for key in expected}
    unknown = {"compute.contention", "compute.sm_coverage"}
    if not cut:
        assert different <= unknown
        return
    # The union of a queue's kernels is unchanged, the time of each is not.
    assert different - unknown
    partition = {key for key in expected if key[0].startswith("time.") and key[0] != "time.step_parts"}
    assert len(partition) > 20
    assert {key for key in partition if expected[key] != found[key]} == set()


def nested() -> Sequence:
    """Calls of a thread, one in the other, and an instant."""
    written, thread = begun(), THREADS + PID
    written.event(NOW + 100, 1, thread, "hip_api", "hipMemcpy")
    written.event(NOW + 110, 1, thread, "hsa_api", "hsa_signal_wait_relaxed")
    written.event(NOW + 120, 3, thread, "marker_api", "roctxMarkA")
    for time in (130, 140, 150):
        written.event(NOW + time, 2, thread)
    return written


def incremental() -> Sequence:
    """Differences of times, and the time since boot of what is earlier than the last."""
    written = begun()
    written.absolute = False
    return add_kernel(add_kernel(add_kernel(written, 10, 30), 30, 50), 1, 5)


def microseconds() -> Sequence:
    """A clock of its own in µs, related to the monotonic clock, which the service relates to boot time."""
    written = begun()
    written.packet(message(f59=message(f58=65), f6=clocks(c3=2000, c65=(7, False, 1000))))
    written.packet(message(f58=6, f6=clocks(c6=NOW + 5000, c3=2000, c1=NOW + 6000)))
    written.packet(message(f8=8, f11=message(f9=1, f11=STREAMS + 3, f22="rocm_kernel_dispatch", f23="gemm")))
    written.packet(message(f8=10, f11=message(f9=2, f11=STREAMS + 3)))
    return written


def lost() -> Sequence:
    """A loss: open slices and texts are void until the writer states them again."""
    written = add_kernel(job(), 50, None)
    written.packet(message(f8=NOW + 60, f58=6, f11=message(f9=2, f11=STREAMS + 3)), f42=1)
    add_kernel(written, 70, None).clear(NOW + 80)
    written.event(NOW + 85, 2, STREAMS + 3)
    add_kernel(written, 90, 95, "scale").packet(
        message(f35=message(f1=[message(f18=3, f2=9), message(f3=1)]))
    )
    return written


def two_sequences() -> bytes:
    """Two threads whose texts have the same ids, and a track that both write."""
    first, second = job(), Sequence(2, pid=PID)
    second.clear(NOW)
    head = add_kernel(first, 60, None).data + add_kernel(second, 50, None, "scale").data
    first.data, second.data = bytearray(), bytearray()
    second.event(NOW + 55, 2, STREAMS + 3)
    first.event(NOW + 65, 2, STREAMS + 3)
    return bytes(head + second.data + first.data)


GEMM = ("kernel", "gemm", 10, 40)
CALLS = [
    *(("launch", "hipMemcpy", 100, 140), ("sync", "hsa_signal_wait_relaxed", 110, 130)),
    ("annotation", "roctxMarkA", 120, 120),
]
LATE, NO_END = "end of a slice without a begin", "slice without an end"
LOST = {NO_END: 1, "packet after a loss, without the names it needs": 2, LATE: 1}
OTHER = ("value of a counter", "slice of another category", "slice of a process without kernels")
GOOD: dict[str, tuple[Callable[[], Any], list[Row], dict[str, int]]] = {
    "nested": (lambda: job().data + nested().data, [GEMM, *CALLS], {LATE: 1}),
    "incremental": (
        lambda: incremental().data,
        [("kernel", "gemm", *t) for t in ((1, 5), (10, 30), (30, 50))],
        {},
    ),
    # 8 µs are 1 µs after the snapshot, which is 5 µs after NOW.
    "microseconds": (lambda: microseconds().data, [("kernel", "gemm", 6000, 8000)], {}),
    # Phase X states its duration in µs; its track is the sequence's default.
    "legacy": (
        lambda: extra(f8=NOW + 50, f58=6, f11=message(f6=message(f2=88, f3=2), f22="hip_api", f23="hipInit")),
        [GEMM, ("other", "hipInit", 50, 2050)],
        {},
    ),
    "lost": (lambda: lost().data, [GEMM, ("kernel", "scale", 90, 95)], LOST),
    "two sequences": (two_sequences, [GEMM, ("kernel", "scale", 50, 55), ("kernel", "gemm", 60, 65)], {}),
    "zlib": (lambda: field(1, message(f50=zlib.compress(job().data))), [GEMM], {}),
    "zstd": (lambda: field(1, message(f10=1, f133=zstd(bytes(job().data)))), [GEMM], {}),
    "gzip": (lambda: gzip.compress(bytes(job().data)), [GEMM], {}),
    "other slices": (
        lambda: (
            extra(f8=9, f58=6, f11=message(f9=4, f30=7))
            + field(1, message(f8=NOW, f11=message(f9=3, f11=PROCESS, f22="openmp")))
            + field(1, message(f8=NOW, f79=8, f11=message(f9=3, f22="hip_api")))
        ),
        [GEMM],
        dict.fromkeys(OTHER, 1),
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_slices_by_hand(case: str, tmp_path: Path) -> None:
    data, expected, left_out = GOOD[case]
    trace, rows = read(data(), tmp_path)
    assert (rows, dict(trace.dropped)) == (expected, left_out)
    assert trace.facts.process_id == PID
    dated = case == "microseconds"
    assert (trace.base_ns, len(trace.notes)) == (1000 if dated else 0, 0 if dated else 1 + (case == "lost"))
    if case == "lost":  # one gap, four chunks that the buffers lost
        assert trace.notes[-1].startswith("5 pieces of the trace were lost")


def test_kernels_and_copies_by_annotations(tmp_path: Path) -> None:
    """Of rocprof-sys, without annotations and with them; of rocprofv3, with products of sizes."""
    written, flow, name = begun(), (1 << 63) + 5, "MEMORY_COPY_DEVICE_TO_DEVICE"
    by_axis = {"grid_size": "(100,2,1)", "workgroup_size": "(64,1,1)", "queue": 4}
    whole, part = ({"grid_size": size, "workgroup_size": 64, "agent": "GPU-1"} for size in (512, 100))
    nodes = {"src_agent": 4, "dst_agent": 5, "stream_id": 2}
    same = {"src_agent": "GPU-0", "dst_agent": "GPU-0", "copy_bytes": 64}
    written.slice(NOW, NOW + 5, THREADS + PID, "rocm_hip_api", "hipLaunchKernel", flow=flow)
    written.slice(NOW + 10, NOW + 40, 77, "rocm_hip_stream", "gemm", flow=flow)
    written.slice(NOW + 50, NOW + 60, STREAMS, "rocm_kernel_dispatch", "gemm", details=by_axis)
    written.slice(NOW + 60, NOW + 65, STREAMS + 3, "kernel_dispatch", "f(int) [clone .kd]", details=whole)
    written.slice(NOW + 65, NOW + 70, STREAMS + 3, "kernel_dispatch", "f.kd", details=part | {"agent": 4})
    written.slice(NOW + 70, NOW + 80, 77, "rocm_hip_stream", name, details=nodes)
    written.slice(NOW + 90, NOW + 95, 77, "memory_copy", name, details=same)
    texts = message(f3=message(f1=900, f2="agent"), f29=message(f1=5, f2="GPU-7"))
    interned = message(f9=3, f11=STREAMS, f22="kernel_dispatch", f23="f", f4=message(f1=900, f17=5))
    written.packet(message(f8=NOW + 96, f58=6, f12=texts, f11=interned))
    (path := tmp_path / "job.perfetto-trace").write_bytes(written.data)
    ((trace, batches),) = opened(path)
    kinds = {rows.kind: rows for rows in batches}
    launches, kernels, copies = kinds["launch"], kinds["kernel"], kinds["copy"]
    assert (launches.correlation, launches.track.tolist()) == ([5], [PID])
    assert (list(kernels.names), kernels.track.tolist()) == (["gemm", "f(int)", "f"], [-1, 4, 3, 3, -1])
    assert (kernels.correlation, kernels.device) == ([5, *[None] * 4], [None, None, 1, None, 7])
    assert (kernels.grid_x, kernels.blocks) == ([None, 2, *[None] * 3], [None, 4, 8, None, None])
    assert (copies.copy_direction, copies.device, copies.bytes) == (["p2p", "d2d"], [None, 0], [None, 64])
    assert copies.track.tolist() == [2, -1]
    assert trace.notes[-1].startswith("states nodes of the machine (4)")


def test_processes_of_a_file(tmp_path: Path) -> None:
    """The processes of a merged trace are apart; two of one number, on two machines, are refused."""
    other = Sequence(2, pid=1)
    other.clear(NOW)
    other.track(5000, f3=message(f1=901))
    other.track(5001, "STREAM [1]", 5000)
    other.slice(NOW + 20, NOW + 30, 5001, "kernel_dispatch", "scale")
    other.packet(message(f6=clocks(c6=NOW, c1=NOW + 7)))
    (path := tmp_path / "merged.pftrace").write_bytes(job().data + other.data)
    found = [(trace.facts.process_id, trace.base_ns, rows_of(batches)) for trace, batches in opened(path)]
    # Process 1 converted the rows of process 901, whose machine's clocks are unknown.
    assert found == [(PID, 7, [GEMM]), (901, 0, [("kernel", "scale", 20, 30)])]
    again = Sequence(3)
    again.clear(NOW)
    again.track(6000, f3=message(f1=PID))
    path.write_bytes(job().data + again.data)
    with pytest.raises(InputError, match="processes of several machines with the same id, 900"):
        opened(path)


def instant(time: int, **more: Any) -> bytes:
    """A call without a length on the process's track."""
    return extra(f8=time, f11=message(f9=3, f11=PROCESS, f22="hip_api"), **{"f58": 6, **more})


NO_PACKET = "is no packet of a Perfetto trace"
BAD: dict[str, tuple[Callable[[], bytes | bytearray], str]] = {
    "cut": (lambda: job().data[:-3], r"byte \d+: the file ends within a packet"),
    "no packet": (lambda: job().data + b"\x12\x00", NO_PACKET),
    "no length": (lambda: job().data + b"\n\xff\xff\xff\xff\xff\xff", NO_PACKET),
    "damaged packet": (lambda: job().data + b"\n\x02\x5a\x05", NO_PACKET),
    "long packet": (lambda: job().data + b"\n\xff\xff\xff\x7f", "a packet of 268,435,455 bytes"),
    "backwards": (lambda: add_kernel(begun(), 10, 1).data, "impossible time: 'gemm'"),
    "no time": (lambda: instant(0), "impossible time"),
    "beyond": (lambda: instant(1 << 62), "impossible time"),
    "unrelated clock": (lambda: instant(9, f58=70, f6=clocks(c70=1)), "no snapshot relates clock 70"),
    "stream": (lambda: job(stream_ID=1.5).data, "impossible stream_ID of 'gemm': 1.5"),
    "size": (lambda: job(grid_size=1 << 63, workgroup_size=1).data, "impossible grid of 9223372036854775808"),
    "date": (lambda: extra(f6=clocks(c6=NOW, c1=1)), "impossible date"),
    "open slices": (
        lambda: extra() + (1 + (1 << 14)) * field(1, message(f8=NOW, f58=6, f11=message(f9=1))),
        "more than 16,384 slices are open at once",
    ),
    "damaged zlib": (lambda: extra(f50=b"zlib"), "compressed packets are damaged"),
    "cut zlib": (lambda: extra(f50=zlib.compress(b"\n\x00")[:-1]), "compressed packets are damaged"),
    "inside": (lambda: extra(f50=zlib.compress(b"\n\x05\x08")), NO_PACKET),
    "twice": (lambda: extra(f50=zlib.compress(field(1, field(50, b"x")))), NO_PACKET),
    "bomb": (lambda: extra(f50=zlib.compress(b"\n\x00" * (4 << 20))), "expand like a decompression bomb"),
    "damaged gzip": (lambda: gzip.compress(bytes(job().data))[:-12], "gzip stream is damaged"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_traces(case: str, tmp_path: Path) -> None:
    data, says = BAD[case]
    with pytest.raises(InputError, match=says):
        read(data(), tmp_path)


def test_small_pieces_and_batches_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = lost().data + nested().data
    _, expected = read(data, tmp_path)
    package = "cclbench.formats.perfetto"
    monkeypatch.setattr(f"{package}.reading._BATCH_ROWS", 2)
    monkeypatch.setattr(
        f"{package}.packets.read_blocks", lambda path: (bytes([byte]) for byte in path.read_bytes())
    )
    assert read(data, tmp_path)[1] == expected
    with pytest.raises(InputError, match="has no process '7' with kernels"):
        READER.read(tmp_path / "job.pftrace", part=Part("7"), allow_truncated=False)


def trace_with_categories(*categories: str) -> bytes:
    written = begun()
    for category in categories:
        written.slice(NOW, NOW + 1, THREADS + PID, category, "x")
    return bytes(written.data)


OTHERS = {
    "its slices are of toplevel, cc, viz, ...": (
        trace_with_categories("toplevel", "cc", "viz", "gpu"),
        "timeline.yaml",
    ),
    "its slices are of hip_api": (trace_with_categories("hip_api"), "rocprofv3 --runtime-trace"),
    "none of its slices has a category": (trace_with_categories(""), "timeline.yaml"),
    "scheduling of Linux or Android": (
        trace_with_categories() + field(1, message(f1=b"\x08\x01", f10=1)),
        "timeline.yaml",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_trace_without_kernels_is_refused_as_what_it_is(what: str, tmp_path: Path) -> None:
    data, hint = OTHERS[what]
    (path := tmp_path / "other.perfetto-trace").write_bytes(data)
    with pytest.raises(UnreadFormatError, match=f"is a Perfetto trace without kernels: {what}.*{hint}"):
        find_source(tmp_path)
    (tmp_path / "job.pftrace").write_bytes(job().data)
    source = find_source(tmp_path)
    assert ([file.path.name for file in source.files], list(source.unread)) == (["job.pftrace"], [path.name])


def test_nothing_of_its_other_texts_is_kept_or_published(tmp_path: Path) -> None:
    (path := tmp_path / "job.pftrace").write_bytes(job().data)
    assert required_reader(path) == "perfetto"
    cclbench.run(path, store=tmp_path / "store")
    stored = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert b"gemm" in stored
    assert not [secret for secret in (b"alice", b"hf_abcdefgh") if secret in stored]
    with pytest.raises(InputError, match=r"texts of Perfetto traces cannot be redacted.*as JSON"):
        READER.rewrite(path, None, None)  # type: ignore[arg-type]

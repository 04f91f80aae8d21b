# SPDX-License-Identifier: Apache-2.0
"""TPU planes: work, waiting, transfers and steps, on the device's own clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.xplane_files import BEGIN_NS, OPS, Plane, environment, hlo_field, listed, read, space, tpu, write

from cclbench.formats import Payload, Trace
from cclbench.formats.xplane import collectives
from cclbench.formats.xplane.clock import DeviceClock
from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.ops import TpuOp, parse_op
from cclbench.formats.xplane.rows import LineEvents
from cclbench.formats.xplane.tpu import device_rows, global_id, move_line, tpu_facts


def on_tpu(folder, *planes, begun=True):
    """The first TPU's trace and rows in a profile of these planes."""
    environments = [environment()] if begun else []
    return read(write(folder, space(*planes, *environments)), "/device:TPU:0")


def test_work_waiting_and_containers_of_a_tpu(tmp_path):
    plane = tpu(
        0,
        [("while", 0, 100, {}), ("loop", 10, 30, {}), ("dot", 40, 50, {}), ("custom", 200, 5, {})],
        XLA_TraceMe=[("barrier-cores", 0, 9, {}), ("dependency-wait", 9, 1, {}), ("my region", 0, 300, {})],
        XLA_Modules=[("jit_f(7)", 0, 110, {"run_id": 1}), ("jit_f(7)", 190, 20, {"run_id": 2})],
        Framework_Ops=[("again", 0, 5, {}), ("and again", 5, 5, {})],
    )
    trace, rows = on_tpu(tmp_path, plane)
    kernels = rows["device kernel"]
    assert listed(kernels) == [("fusion.1", 10, 30), ("convolution.2", 40, 50), ("attention.4", 200, 5)]
    # What the compiler was not told of a custom call stays unknown; fast memory's traffic is not HBM's.
    assert list(kernels.flops.to_pylist()) == [10.0, 10.0, None]
    assert kernels.hbm_bytes.to_pylist() == [32, None, 48]
    assert kernels.name_categories == {0: "elementwise", 1: "gemm"}
    assert listed(rows["device annotation"]) == [("while.1", 0, 100), ("my region", 0, 300)]
    assert listed(rows["device sync"]) == [("barrier-cores", 0, 9), ("dependency-wait", 9, 1)]
    steps = [(step.name, step.start_ns - BEGIN_NS, step.number) for step in trace.device_steps]
    assert steps == [("jit_f(7)", 0, None), ("jit_f(7)", 190, None)]
    assert trace.dropped == {"mark of a step or of a module's run": 2, "row derived from others": 2}


def test_an_op_of_a_tpu_states_where_it_comes_from_and_its_operands(tmp_path):
    _, rows = on_tpu(tmp_path, tpu(0, [("loop", 10, 30, {}), ("dot", 40, 50, {})]), begun=False)
    kernels = rows["device kernel"]
    assert kernels.framework_op.to_pylist() == ["fusion", "jit(f)/dot_general"]
    assert kernels.call_site.to_pylist() == [None, "train.py(31)"]
    assert kernels.shapes.to_pylist() == ["[[4]]", "[[8,8],[8,8]]"]
    assert kernels.dtypes.to_pylist() == ['["f32"]', '["bf16","bf16"]']


def test_numbered_steps_and_lines_that_come_twice(tmp_path):
    names = ("12", "13", "?", "1" * 9, "1" * 10)
    plane = tpu(0, [("loop", 0, 9, {})], Steps=[(name, 10 * n, 10, {}) for n, name in enumerate(names)])
    trace, _ = on_tpu(tmp_path, plane, begun=False)
    assert [step.number for step in trace.device_steps] == [12, 13, int("1" * 9)]
    plane = tpu(0, [("loop", 10, 5, {})]).line("XLA Ops", [(OPS["dot"], 20, 5, {})], track=9)
    plane.line("Source code", [("x", 0, 1, {})], track=10).line("news", [("x", 0, 1, {})] * 3, track=11)
    trace, rows = on_tpu(tmp_path, plane)
    assert listed(rows["device kernel"]) == [("fusion.1", 10, 5)]
    assert trace.dropped == {"row derived from others": 2, "row of a line of unknown meaning": 3}
    plane = Plane("/device:TPU:0").line("XLA Ops", [])
    plane.message.lines[0].events.add(metadata_id=77, duration_ps=1000)
    _, rows = on_tpu(tmp_path, plane)
    assert listed(rows["device kernel"]) == [("unnamed 77", 0, 1)]


@pytest.mark.parametrize("shown", [False, True])
def test_a_transfer_lasts_from_its_issue_to_the_end_of_its_wait_and_counts_once(tmp_path, shown):
    events = [("start", 0, 1, {}), ("loop", 1, 20, {}), ("done", 21, 9, {}), ("start", 50, 1, {})]
    lines = {"Async_XLA_Ops": [("start", 0, 30, {})]} if shown else {}
    _, rows = on_tpu(tmp_path, tpu(0, events, **lines))
    copies = rows["device copy"]
    assert listed(copies) == [("copy-start", 0, 30)]
    columns = (copies.copy_direction, copies.bytes, copies.hbm_bytes)
    assert [column.to_pylist() for column in columns] == [["h2d"], [16], [16]]
    assert listed(rows["device sync"]) == [("copy-start", 0, 1), ("copy-done", 21, 9), ("copy-start", 50, 1)]


@pytest.mark.parametrize(
    ("to", "source", "direction"),
    [("", "S(5)", "h2d"), ("S(5)", "", "d2h"), ("", "", "d2d"), ("S(1)", "", "d2d"), ("S(5)", "S(5)", None)],
)
def test_direction_of_a_transfer_is_that_of_its_memory_spaces(to, source, direction):
    source = f"f32[4]{{0:T(128){source}}}"
    text = f"%c = (f32[4]{{0:T(128){to}}}, {source}, u32[]{{:S(2)}}) copy-start({source} %a)"
    found = parse_op(text, "", {"hlo_category": "copy-start"}, collectives.DeviceMember(0), "here")
    assert (found.bytes, found.copy_direction) == (16, direction)


def test_a_device_s_own_clock_goes_before_the_times_a_profile_shows(tmp_path):
    """Of 200 ops of 1 ms, one each 2 ms, those from 50 to 59 are shown 0.7 ms late; clocks are 5 µs apart."""
    events = []
    for i in range(200):
        own = 2_000_000 * i
        late = 700_000 if 50 <= i < 60 else 0
        told = {"device_offset_ps": own * 1000, "device_duration_ps": 1_000_000_000}
        events.append(("loop", own + 5_000 + late, 1_000_000 + (700_000 if i == 49 else 0), told))
    marks = [("dependency-wait", 2_000_000 * 55 + 705_000 - 10, 10, {})]
    runs = [("jit_f(7)", 2_000_000 * 50 + 705_000, 2_000_000 * 9 + 1_000_000, {})]
    trace, rows = on_tpu(tmp_path, tpu(0, events, XLA_TraceMe=marks, XLA_Modules=runs))
    kernels = [("fusion.1", 2_000_000 * i + 5_000, 1_000_000) for i in range(200)]
    assert listed(rows["device kernel"]) == kernels
    assert listed(rows["device sync"]) == [("dependency-wait", 2_000_000 * 55 + 5_000 - 10, 10)]
    (run,) = trace.device_steps
    assert (run.start_ns - BEGIN_NS, run.end_ns - BEGIN_NS) == (100_005_000, 119_005_000)
    assert trace.notes == []


def test_what_a_plane_says_of_its_device():
    peaks = {"peak_teraflops_per_second": 918.5, "peak_hbm_bw_gigabytes_per_second": 1638}
    known = {"vendor": "google", "device_name": "TPU v6 Lite"}
    known |= {"peak_flops_per_s": 918.5e12, "hbm_bytes_per_s": 1638e9}
    assert tpu_facts({"device_type_string": "TPU v6 Lite"} | peaks) == known
    for none in (0, -1, 1e15, "918"):
        told = tpu_facts({"device_type_string": 6} | dict.fromkeys(peaks, none))
        assert list(told.values()) == ["google", None, None, None]
    assert tpu_facts({"peak_teraflops_per_second": 0.5})["peak_flops_per_s"] == 0.5e12
    assert tpu_facts({"peak_teraflops_per_second": 9.9e14})["peak_flops_per_s"] == 9.9e26


@pytest.mark.parametrize(
    ("stats", "device"),
    [
        # Chip 3, core 7: on a megacore chip the two cores are one device.
        ({"core_details": b"\x28\x03\x30\x07", "has_megacore": 1}, 3),
        *(({"core_details": b"\x28\x03\x30\x07"}, 7), ({"core_details": hlo_field(5, 3)}, 0)),
        ({"core_details": hlo_field(6, (1 << 31) - 1)}, (1 << 31) - 1),
        *(({"core_details": hlo_field(6, n)}, device) for n, device in ((1 << 31, None), (0, 0))),
        *(({"core_details": b""}, 0), ({"core_details": "text"}, None), ({}, None)),
    ],
)
def test_global_ids_to_their_bound(stats, device):
    assert global_id(stats, "a profile") == device


def line(name: str, *events: tuple[int, int, int], track: int = 5) -> LineEvents:
    """A line of (code, begin, duration)."""
    code, start, dur = np.array(events, np.int64).reshape(-1, 3).T
    return LineEvents(name, track, code, start, dur)


def spans(found: LineEvents) -> list[tuple[int, int, int]]:
    return list(zip(found.code.tolist(), found.start_ns.tolist(), found.dur_ns.tolist(), strict=True))


def test_waits_keep_their_length_and_what_holds_ops_begins_and_ends_with_them():
    """The op shown from 100 to 200 ran from 110 to 150, that from 300 to 400 from 290 to 450."""
    clock = DeviceClock(*(np.array(times) for times in ((100, 300), (200, 400), (110, 290), (150, 450))))
    found = move_line(line("XLA TraceMe", (0, 100, 30), (1, 290, 5)), clock)
    assert (spans(found), found.track) == ([(0, 110, 30), (1, 280, 5)], 5)
    assert found.shown_ns.tolist() == [100, 290]
    # The second would end before it begins.
    found = move_line(line("XLA Modules", (0, 100, 300), (1, 100, 90)), clock)
    assert spans(found) == [(0, 110, 340), (1, 110, 30)]
    assert spans(move_line(line("Steps", (0, 100, 20)), clock)) == [(0, 110, 0)]


def batches(lines: list[LineEvents], ops: list[TpuOp]) -> tuple[Trace, dict[str, list[tuple[str, int, int]]]]:
    """Name, begin and duration of the rows of a device, by kind."""
    trace = Trace(batches=iter(()))
    found = {}
    for rows in device_rows(trace, {one.name: one for one in lines}, ops, 3):
        names = list(rows.names)
        columns = zip(rows.codes, rows.start_ns, rows.dur_ns, strict=True)
        found[rows.kind] = [(names[c], s, d) for c, s, d in columns]
    return trace, found


def pair(number: int | None = 1, **more: Any) -> list[TpuOp]:
    issue = TpuOp("copy-start", "issue", number, "copy", bytes=8, copy_direction="h2d", **more)
    return [issue, TpuOp("copy-done", "wait", number, waits_for="copy-start")]


def test_each_issue_is_met_by_the_first_wait_before_the_next_issue():
    core = line("XLA Ops", (1, 0, 5), (0, 10, 1), (1, 20, 4), (1, 26, 2), (0, 30, 1), (0, 40, 1), (1, 50, 9))
    _, rows = batches([core], pair())
    assert rows["copy"] == [("copy-start", 10, 14), ("copy-start", 40, 19)]
    assert len(rows["sync"]) == 7
    assert "kernel" not in rows


def test_what_no_pair_shows_counts_as_its_rows_beside_the_core():
    """Of three rows the first begins as an issue that was met, the second as one that was not."""
    _, rows = batches([line("XLA Ops", (0, 10, 1), (3, 20, 4))], [*pair(1), *pair(2)])  # of another program
    assert "copy" not in rows
    assert len(rows["sync"]) == 2
    core = line("XLA Ops", (0, 10, 1), (1, 20, 4), (0, 30, 1))
    beside = line("Async XLA Ops", (0, 10, 99), (0, 30, 7), (0, 60, 8))
    _, rows = batches([core, beside], pair())
    assert rows["copy"] == [("copy-start", 10, 14), ("copy-start", 30, 7), ("copy-start", 60, 8)]


def test_a_transfer_takes_the_core_the_time_of_its_issue_and_its_wait():
    """The third is issued for 1 ns and not awaited in the capture; the fourth is issued before it."""
    core = line("XLA Ops", (0, 10, 1), (1, 20, 4), (0, 28, 2), (1, 50, 9), (0, 60, 1))
    beside = line("Async XLA Ops", (0, 60, 7), (0, 80, 8))
    lines = {one.name: one for one in (core, beside)}
    (copies,) = [rows for rows in device_rows(Trace(iter(())), lines, pair(), 3) if rows.kind == "copy"]
    assert copies.dur_ns.tolist() == [14, 31, 7, 8]
    assert copies.awaited_ns.to_pylist() == [5, 11, 1, 0]


def test_ops_state_their_program_by_the_runs_of_modules():
    """An op may state its program's id as a signed integer, here −1; the capture has no run of 9."""
    stated = (("a", 7), ("b", -1), ("c", 9), ("d", None))
    ops = [TpuOp(name, "work", number) for name, number in stated]
    ops += [TpuOp(name, "work") for name in ("jit_f(7)", f"jit_g({(1 << 64) - 1})")]
    core = line("XLA Ops", (0, 0, 5), (1, 5, 5), (2, 10, 5), (3, 15, 5))
    lines = {"XLA Ops": core, "XLA Modules": line("XLA Modules", (4, 0, 5), (5, 5, 5))}
    (rows,) = device_rows(Trace(iter(())), lines, ops, 3)
    assert rows.program.to_pylist() == ["jit_f", "jit_g", None, None]


def test_the_core_waits_for_what_the_host_feeds_it_and_takes():
    """A wait's name is its opcode, whatever the compiler names the instruction."""
    texts = (
        "%infeed.3 = ((f32[8]{0}, s32[]), token[]) infeed(token[] %after-all.1)",
        "%get.1 = ((f32[8]{0}), token[]) infeed(token[] %after-all.2)",
        "%outfeed = token[] outfeed(f32[8]{0} %fusion, token[] %after-all.3)",
    )
    ops = [parse_op(text, "", {"hlo_category": "infeed"}, DeviceMember(None), "a profile") for text in texts]
    _, rows = batches([line("XLA Ops", (0, 0, 5), (1, 5, 6), (2, 11, 1))], ops)
    assert rows == {"sync": [("infeed", 0, 5), ("infeed", 5, 6), ("outfeed", 11, 1)]}


def test_work_beside_the_core_and_payloads_of_each_run():
    ops = [TpuOp("gather", "work", 1, "communication"), TpuOp("copy", "work", 1, "copy")]
    _, rows = batches([line("Async XLA Ops", (0, 10, 5), (1, 20, 6))], ops)
    assert rows == {"kernel": [("gather", 10, 5)], "copy": [("copy", 20, 6)]}
    ops = [TpuOp("add", "work"), TpuOp("psum", "work", payload=Payload(source="kernel"))]
    trace, rows = batches([line("XLA Ops", (1, 0, 5), (0, 5, 5), (1, 20, 5))], ops)
    assert [name for name, _, _ in rows["kernel"]] == ["psum", "add", "psum"]
    assert list(trace.stated_payloads.row) == [0, 2]


def test_a_container_holds_what_begins_before_it_ends():
    ops = [TpuOp("while", "container"), TpuOp("add", "work")]
    _, rows = batches([line("XLA Ops", (0, 0, 10), (1, 9, 5), (0, 20, 10), (1, 30, 5))], ops)
    known = {"annotation": [("while", 0, 10)], "kernel": [("add", 9, 5), ("while", 20, 10), ("add", 30, 5)]}
    assert rows == known


@pytest.mark.parametrize(("late_ps", "noted"), [(2_000_000_000, False), (2_000_002_000, True)])
def test_the_profile_s_errors_are_told_from_a_millisecond_on(tmp_path, late_ps, noted):
    """Of two ops the clocks' distance is taken to be the mean, from which both are as far."""
    told = {"device_offset_ps": 1, "device_duration_ps": 5000}
    plane = tpu(0, [(key, 0, 5, told) for key in ("loop", "dot")])
    first, second = plane.message.lines[0].events
    first.offset_ps, second.offset_ps = 1, 50_000_000_001 + late_ps
    second.stats[0].int64_value = 50_000_000_001
    trace, _ = on_tpu(tmp_path, plane)
    said = "times of ops are from the device's own clock: times in the profile are off by up to 1.00 ms"
    assert trace.notes == ([said] if noted else [])


@pytest.mark.parametrize(
    ("told", "own"),
    [
        *(({}, False), ({"device_offset_ps": 9000}, False), ({"device_duration_ps": 9000}, False)),
        ({"device_offset_ps": (1 << 61) - 1, "device_duration_ps": 2000}, True),
        ({"device_offset_ps": 1 << 61, "device_duration_ps": 2000}, False),
    ],
)
def test_times_are_as_shown_where_an_op_does_not_tell_its_own(tmp_path, told, own):
    """To the bound of what is believed."""
    other = [("dot", 20, 5, {"device_offset_ps": 700_000, "device_duration_ps": 2000})] * (not own)
    _, rows = on_tpu(tmp_path, tpu(0, [("loop", 10, 5, told), *other]))
    shown = [("convolution.2", 20, 5)] * len(other)
    assert listed(rows["device kernel"]) == [("fusion.1", 10, 2 if own else 5), *shown]

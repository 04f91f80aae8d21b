# SPDX-License-Identifier: Apache-2.0
"""TPU planes: work, waiting, transfers and steps, on the device's own clock."""

from __future__ import annotations

import pytest
from formats.xplane_files import BEGIN_NS, OPS, environment, listed, read, space, tpu, write

from cclbench.formats.xplane import collectives
from cclbench.formats.xplane.ops import op
from cclbench.formats.xplane.tpu import global_id


def test_work_waiting_and_containers_of_a_tpu(tmp_path):
    plane = tpu(
        0,
        [("while", 0, 100, {}), ("loop", 10, 30, {}), ("dot", 40, 50, {}), ("custom", 200, 5, {})],
        XLA_TraceMe=[("barrier-cores", 0, 9, {}), ("dependency-wait", 9, 1, {}), ("my region", 0, 300, {})],
        XLA_Modules=[("jit_f(7)", 0, 110, {"run_id": 1}), ("jit_f(7)", 190, 20, {"run_id": 2})],
        Framework_Ops=[("again", 0, 5, {}), ("and again", 5, 5, {})],
    )
    trace, rows = read(write(tmp_path, space(plane, environment())), "/device:TPU:0")
    kernels = rows["device kernel"]
    assert listed(kernels) == [("fusion.1", 10, 30), ("convolution.2", 40, 50), ("attention.4", 200, 5)]
    assert kernels.flops is not None
    assert kernels.hbm_bytes is not None
    # What the compiler was not told of a custom call stays unknown; fast memory's traffic is not HBM's.
    assert list(kernels.flops.to_pylist()) == [10.0, 10.0, None]
    assert kernels.hbm_bytes.to_pylist() == [32, None, 48]
    assert kernels.name_categories == {0: "elementwise", 1: "gemm"}
    assert listed(rows["device annotation"]) == [("while.1", 0, 100), ("my region", 0, 300)]
    assert listed(rows["device sync"]) == [("barrier-cores", 0, 9), ("dependency-wait", 9, 1)]
    assert [(step.name, step.start_ns - BEGIN_NS, step.number) for step in trace.device_steps] == [
        ("jit_f(7)", 0, None),
        ("jit_f(7)", 190, None),
    ]
    assert trace.dropped == {"mark of a step or of a module's run": 2, "row derived from others": 2}


@pytest.mark.parametrize(("megacore", "device"), [({"has_megacore": 1}, 3), ({}, 7)])
def test_a_device_is_a_chip_or_one_of_its_cores(megacore, device):
    """Chip 3, core 7: on a megacore chip the two cores are one device."""
    assert global_id({"core_details": b"\x28\x03\x30\x07", **megacore}, "a profile") == device


def test_an_op_of_a_tpu_states_where_it_comes_from_and_its_operands(tmp_path):
    _, rows = read(
        write(tmp_path, space(tpu(0, [("loop", 10, 30, {}), ("dot", 40, 50, {})]))), "/device:TPU:0"
    )
    kernels = rows["device kernel"]
    assert kernels.framework_op.to_pylist() == ["fusion", "jit(f)/dot_general"]
    assert kernels.call_site.to_pylist() == [None, "train.py(31)"]
    assert kernels.shapes.to_pylist() == ["[[4]]", "[[8,8],[8,8]]"]
    assert kernels.dtypes.to_pylist() == ['["f32"]', '["bf16","bf16"]']


def test_a_container_without_rows_of_its_own_is_work(tmp_path):
    _, rows = read(
        write(tmp_path, space(tpu(0, [("while", 0, 100, {}), ("loop", 100, 30, {})]))), "/device:TPU:0"
    )
    assert [len(rows[kind]) for kind in ("device kernel",)] == [2]
    assert "device annotation" not in rows


def test_numbered_steps(tmp_path):
    plane = tpu(0, [("loop", 0, 9, {})], Steps=[("12", 0, 10, {}), ("13", 10, 10, {}), ("?", 20, 1, {})])
    trace, _ = read(write(tmp_path, space(plane)), "/device:TPU:0")
    assert [step.number for step in trace.device_steps] == [12, 13]


@pytest.mark.parametrize("shown", [False, True])
def test_a_transfer_lasts_from_its_issue_to_the_end_of_its_wait_and_counts_once(tmp_path, shown):
    events = [("start", 0, 1, {}), ("loop", 1, 20, {}), ("done", 21, 9, {}), ("start", 50, 1, {})]
    lines = {"Async_XLA_Ops": [("start", 0, 30, {})]} if shown else {}
    _, rows = read(write(tmp_path, space(tpu(0, events, **lines), environment())), "/device:TPU:0")
    copies = rows["device copy"]
    assert listed(copies) == [("copy-start", 0, 30)]
    assert copies.copy_direction.to_pylist() == ["h2d"]
    assert copies.bytes.to_pylist() == [16]
    assert copies.hbm_bytes.to_pylist() == [16]
    assert listed(rows["device sync"]) == [("copy-start", 0, 1), ("copy-done", 21, 9), ("copy-start", 50, 1)]


@pytest.mark.parametrize(
    ("to", "source", "direction"),
    [("", "S(5)", "h2d"), ("S(5)", "", "d2h"), ("", "", "d2d"), ("S(1)", "", "d2d"), ("S(5)", "S(5)", None)],
)
def test_direction_of_a_transfer_is_that_of_its_memory_spaces(to, source, direction):
    source = f"f32[4]{{0:T(128){source}}}"
    text = f"%c = (f32[4]{{0:T(128){to}}}, {source}, u32[]{{:S(2)}}) copy-start({source} %a)"
    found = op(text, "", {"hlo_category": "copy-start"}, collectives.Member(0), "here")
    assert (found.bytes, found.copy_direction) == (16, direction)


def test_a_fusion_named_after_a_collective_it_does_not_do(tmp_path):
    _, rows = read(write(tmp_path, space(tpu(0, [("fused", 0, 9, {})]))), "/device:TPU:0")
    assert list(rows["device kernel"].names) == ["fusion.all-reduce_add.5"]


def test_ends_are_rounded_alike_so_that_neighbours_stay_neighbours(tmp_path):
    plane = tpu(0, [])
    line = plane.message.lines[0]
    for offset, duration in ((1_999, 1_002), (3_001, 2_500)):
        event = line.events.add(metadata_id=plane.events[OPS["loop"]], duration_ps=duration)
        event.offset_ps = offset
    _, rows = read(write(tmp_path, space(plane, environment())), "/device:TPU:0")
    # [1.999, 3.001) and [3.001, 5.501) ns.
    assert listed(rows["device kernel"]) == [("fusion.1", 1, 2), ("fusion.1", 3, 2)]


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
    path = write(tmp_path, space(tpu(0, events, XLA_TraceMe=marks, XLA_Modules=runs), environment()))
    trace, rows = read(path, "/device:TPU:0")
    assert listed(rows["device kernel"]) == [
        ("fusion.1", 2_000_000 * i + 5_000, 1_000_000) for i in range(200)
    ]
    assert listed(rows["device sync"]) == [("dependency-wait", 2_000_000 * 55 + 5_000 - 10, 10)]
    (run,) = trace.device_steps
    assert (run.start_ns - BEGIN_NS, run.end_ns - BEGIN_NS) == (100_005_000, 119_005_000)
    assert trace.notes == []


def test_a_profile_that_shows_ops_much_too_late_is_said_so(tmp_path):
    told = {"device_offset_ps": 1, "device_duration_ps": 5000}
    late = {"device_offset_ps": 100_000_000, "device_duration_ps": 5000}
    events = [("loop", 0, 5, told), ("loop", 3_000_000, 5, late)]
    trace, _ = read(write(tmp_path, space(tpu(0, events), environment())), "/device:TPU:0")
    assert len(trace.notes) == 1
    assert "the device's own clock" in trace.notes[0]

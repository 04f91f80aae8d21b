# SPDX-License-Identifier: Apache-2.0
"""Device time by program, category and operation beside that of `op_profile` of XProf 2.24.2.

XProf counts the time of a TPU's core, and on GPUs the kernels of instructions.  Where the two differ:

- MI300X: XProf leaves out 37 kernels without a program, copies by the runtime and some of a program whose
  name they lack.  It counts an instruction's FLOPs once for each of its kernels, here two of a convolution.
- TPUs: XProf also counts a loop's time outside of its body, and instructions that issue what the capture does
  not see awaited.
- H100: XProf leaves out kernels in CUDA graphs, as they state the graph as their instruction: all of
  `tiny-jax-h100`, and `jit_layer_norm` of `jax_operators`.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from helpers.xplane_files import environment, space, tpu

import cclbench
from cclbench.operator_table import OperatorTable, operator_costs

TPU = "tpu_v6e_4plane_host_offload_psum.xplane.pb"
GPU = "mi300x_8gpu_jax_conv.xplane.pb"
NO_PROGRAM = "none"

XPROF_S = {
    TPU: {
        ("jit_f",): 313.65311468125, ("jit_f", "copy-done"): 304.0332120625,
        ("jit_f", "copy-start"): 8.98125e-6, ("jit_f", "loop fusion"): 9.6198936375,
        ("jit__psum",): 1.46034525875, ("jit__psum", "all-reduce"): 1.46034525875,
        ("jit_broadcast_in_dim",): 0.00444376625, ("jit_broadcast_in_dim", "broadcast"): 0.00444376625,
    },
    GPU: {
        ("jit_forward_3d_conv",): 0.027550676,
        ("jit_forward_3d_conv", "input fusion"): 0.01482554,
        ("jit_forward_3d_conv", "loop fusion"): 0.00019352,
        ("jit_forward_3d_conv", "custom-call"): 0.012531616,
    },
}  # fmt: skip
"""Time by program and by XProf's category."""

CATEGORIES = {
    TPU: {
        **dict.fromkeys(("copy-done", "copy-start", "broadcast"), "copy"),
        "loop fusion": "elementwise",
        "all-reduce": "communication",
    },
    # Both fusions transpose.
    GPU: {"input fusion": "copy", "loop fusion": "copy", "custom-call": "gemm"},
}
"""Ours, by XProf's."""

Times = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def tables(test_data: Path, evidence_store: Path) -> dict[str, OperatorTable]:
    """The trees of both files, over their whole traces."""
    runs = {name: cclbench.ingest(test_data / "xprof" / name, store=evidence_store) for name in (TPU, GPU)}
    return {
        name: operator_costs(run, "program,category,kernel", tree=True, window="trace")
        for name, run in runs.items()
    }


def times_of(table: OperatorTable, depth: int) -> Times:
    return {row.words: row.time_s for row in table.rows if row.depth == depth}


def in_our_categories(name: str, times: Times) -> Times:
    """XProf's times by program and our category."""
    found: Times = defaultdict(float)
    for (program, *category), time_s in times.items():
        if category:
            found[program, CATEGORIES[name][category[0]]] += time_s
    return found


@pytest.mark.parametrize("name", [TPU, GPU])
def test_programs_and_categories_take_what_they_take_in_xprof(tables, name):
    for depth, theirs in ((1, XPROF_S[name]), (2, in_our_categories(name, XPROF_S[name]))):
        ours = {words: s for words, s in times_of(tables[name], depth).items() if words[0] != NO_PROGRAM}
        assert ours == pytest.approx(
            {words: s for words, s in theirs.items() if len(words) == depth}, rel=1e-2
        )


def test_time_beside_the_core_is_no_device_time(tables):
    """The transfers run for 785.5 s in sum; the four devices' cores work and wait for 315.1 s."""
    table = tables[TPU]
    assert table.time_s == pytest.approx(315.11790370625, rel=1e-3)
    copies = next(row for row in table.rows if row.words == ("jit_f", "copy"))
    assert copies.time_s == pytest.approx(304.03322104375, rel=1e-3)
    assert copies.calls == 6 * 100 * 4
    assert any("481 s in which they run while" in note for note in table.notes)


def test_the_view_operator_work_has_the_time_of_the_table(evidence_store, test_data):
    run = cclbench.ingest(test_data / "xprof" / TPU, store=evidence_store)
    table = operator_costs(run, "op", window="steps")
    assert run.sql("SELECT sum(dur_ns)::BIGINT AS ns FROM operator_work").table.to_pylist() == [
        {"ns": table.time_ns}
    ]


def test_time_wasted_by_xprof_is_the_gap_and_wasted_flops_are_against_the_peak(tables):
    """Three fusions with an addition for each element, of 5·2^28 in 1,200 executions, by 918 TFLOP/s.

    XProf states 81.77 % of the memory's rate, so that 18.23 % of 9.62 s are wasted.
    """
    fusions = next(row for row in tables[TPU].rows if row.words == ("jit_f", "elementwise"))
    assert fusions.gap_s == pytest.approx(9.6198936375 * (1 - 0.8177089736558968), rel=1e-2)
    assert fusions.flops == 1200 * 5 * 2**28
    assert fusions.wasted_flops == pytest.approx(918e12 * fusions.time_s - 1200 * 5 * 2**28)
    assert fusions.peak_share == pytest.approx(1200 * 5 * 2**28 / (918e12 * fusions.time_s))
    copies = next(row for row in tables[TPU].rows if row.words == ("jit_f", "copy"))
    assert (copies.flops, copies.peak_share) == (None, 0)
    assert copies.wasted_flops == pytest.approx(918e12 * copies.time_s)


def op_profile(path: Path, folder: Path) -> dict[str, Any]:
    """XProf's tree without idle time; the test is skipped where XProf is not installed."""
    convert: Any = pytest.importorskip("xprof.convert.raw_to_tool_data")
    shown, _ = convert.xspace_to_tool_data([str(shutil.copy(path, folder))], "op_profile", {})
    tree: dict[str, Any] = json.loads(shown)["byProgramExcludeIdle"]
    return tree


def node_times(tree: dict[str, Any]) -> Times:
    """Seconds by program, and by program and category."""
    times: Times = {}
    for program in tree.get("children", []):
        name = program["name"].partition("(")[0]
        times[name,] = program["metrics"]["rawTime"] * 1e-12
        for category in program["children"]:
            times[name, category["name"]] = category["metrics"]["rawTime"] * 1e-12
    return times


@pytest.mark.parametrize("name", [TPU, GPU])
def test_xprof_installed_agrees(tables, name, test_data, tmp_path):
    tree = op_profile(test_data / "xprof" / name, tmp_path)
    theirs = node_times(tree)
    assert theirs == pytest.approx(XPROF_S[name], rel=1e-6)
    named = sum(s for (program,), s in times_of(tables[name], 1).items() if program != NO_PROGRAM)
    assert named == pytest.approx(tree["metrics"]["rawTime"] * 1e-12, rel=1e-2)


def test_xprof_installed_counts_flops_once_a_kernel(test_data, evidence_store, tmp_path):
    """The convolution's 79 kernels are of 40 executions, of which one is not known to be whole."""
    flops = 2 * 5120 * 16 * 32 * (2 * 31 - 2) * (2 * 53 - 2)
    tree = op_profile(test_data / "xprof" / GPU, tmp_path)
    (program,) = tree["children"]
    theirs = next(category for category in program["children"] if category["name"] == "custom-call")
    assert theirs["metrics"]["rawFlops"] == 79 * flops
    run = cclbench.ingest(test_data / "xprof" / GPU, store=evidence_store)
    (work,) = operator_costs(run, "op", where=["category=gemm"], window="trace").rows
    assert (work.calls, work.flops) == (40, 39 * flops)


def test_xprof_installed_agrees_on_each_program_of_an_h100(repository, evidence_store, tmp_path):
    path = tmp_path / "jax_operators.xplane.pb"
    packed = repository / "tests/golden/h100/jax_operators.xplane.pb.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    (tmp_path / "xprof").mkdir()
    times = node_times(op_profile(path, tmp_path / "xprof"))
    theirs = {words: s for words, s in times.items() if len(words) == 1}
    run = cclbench.ingest(path, store=evidence_store)
    ours = times_of(operator_costs(run, "program,category", tree=True, window="trace"), 1)
    assert ours.pop(("jit_layer_norm",)) == pytest.approx(102.881e-6)
    assert len(theirs) == 34
    assert ours == pytest.approx(theirs, rel=1e-2)


def test_xprof_installed_leaves_out_kernels_in_cuda_graphs(repository, evidence_store, tmp_path):
    source = repository / "traces" / "tiny-jax-h100"
    tree = op_profile(source / "tiny_jax.xplane.pb", tmp_path)
    assert tree["metrics"]["rawTime"] == 0
    run = cclbench.ingest(source, store=evidence_store)
    table = operator_costs(run, "program,category", tree=True, window="trace")
    assert times_of(table, 1) == {("jit_train_step",): pytest.approx(52.806668e-3)}
    events = "SELECT count(*) AS n FROM events WHERE side = 'device' AND operator IS NULL AND kind = 'kernel'"
    assert run.sql(events).table.to_pylist() == [{"n": 0}]


def test_xprof_installed_counts_also_a_loops_own_time_and_issues_without_a_wait(tmp_path):
    """A made profile in ns: of a loop of 100,000 its body takes 70,000; the last gather is not awaited.

    Of a transfer XProf has two operations where the table has one.
    """
    spans = [
        *(("while", 0, 100_000), ("loop", 10_000, 20_000), ("dot", 40_000, 50_000)),
        *(("start", 110_000, 1000), ("gather-start", 112_000, 2000), ("loop", 115_000, 30_000)),
        *(("done", 150_000, 40_000), ("gather-done", 195_000, 25_000), ("psum", 230_000, 60_000)),
        *(("custom", 300_000, 70_000), ("fused", 380_000, 10_000), ("gather-start", 400_000, 3000)),
    ]
    ops = [
        (name, at, ns, {"device_offset_ps": at * 1000, "device_duration_ps": ns * 1000})
        for name, at, ns in spans
    ]
    plane = tpu(0, ops, XLA_Modules=[("jit_f(7)", 0, 420_000, {"run_id": 1})])
    for number, entry in enumerate(plane.message.event_metadata):
        plane.describe_more(entry.value, symbol_id=number + 1)
        entry.value.id = entry.key
        entry.value.display_name = entry.value.name.partition(" ")[0].removeprefix("%")
    for entry in plane.message.stat_metadata:
        entry.value.id = entry.key
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(plane, environment()))
    run = cclbench.ingest(path, store=tmp_path / "store")
    table = operator_costs(run, "program,category", tree=True, window="trace")
    ours = {"communication": 60_000 + 27_000, "attention": 70_000, "elementwise": 20_000 + 30_000 + 10_000}
    ours |= {"gemm": 50_000, "copy": 41_000}
    times = {row.words: row.time_ns for row in table.rows}
    assert times == {("jit_f",): 308_000, **{("jit_f", category): ns for category, ns in ours.items()}}
    (tmp_path / "xprof").mkdir()
    tree = op_profile(path, tmp_path / "xprof")
    theirs = {words[1]: s * 1e9 for words, s in node_times(tree).items() if len(words) == 2}
    wanted = {"all-reduce": 60_000, "all-gather-start": 2000 + 3000, "all-gather-done": 25_000}
    wanted |= {"custom-call": 70_000, "loop fusion": 60_000, "convolution": 50_000}
    assert theirs == pytest.approx(wanted | {"copy-start": 1000, "copy-done": 40_000})
    assert tree["metrics"]["rawTime"] == (308_000 + 3000 + 30_000) * 1000

# SPDX-License-Identifier: Apache-2.0
"""XPlane profiles and their operations beside XProf's figures."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.xplane_files import environment, space, tpu

import cclbench
from cclbench.formats import Rows, Trace
from cclbench.formats.xplane import Xplane
from cclbench.ground.errors import InputError
from cclbench.operator_table import OperatorTable, operator_costs

TPU = "tpu_v6e_4plane_host_offload_psum.xplane.pb"
GPU = "mi300x_8gpu_jax_conv.xplane.pb"
JSON = "tpu_v6e_4plane.DERIVED_by_xprof2.24.2.trace.json.gz"
BEGIN_NS = 1741722099081044120
"""profile_start_time of the TPU file."""
XPROF_TPU_US = {"all-reduce": 1460345.25875, "broadcast.2": 4443.76625, "broadcast_add_fusion": 3190582.365}
XPROF_TPU_US |= {"broadcast_add_fusion.1": 3262107.41375, "broadcast_add_fusion.2": 3167203.85875}
XPROF_TPU_US |= {"copy-done": 75671038.51375, "copy-done.2": 77642772.81875}
XPROF_TPU_US |= {"copy-done.4": 77773215.73125, "copy-done.5": 72946182.6625}
XPROF_GPU_US = {"input_transpose_fusion.kd": 14344.14, "loop_transpose_fusion.kd": 193.52}
Member = tuple[Trace, dict[str, Rows]]


@cache
def members(path: Path) -> dict[str, Member]:
    """Each device's trace and rows by side and kind."""
    found = {}
    for part in Xplane().parts(path):
        trace = Xplane().read(path, part=part)
        rows = {f"{batch.side} {batch.kind}": batch for batch in trace.batches if isinstance(batch, Rows)}
        found[part.member] = trace, rows
    return found


@pytest.fixture(scope="module")
def tpus(test_data: Path) -> dict[str, Member]:
    """The four planes of the TPU file."""
    return members(test_data / "xprof" / TPU)


@pytest.fixture(scope="module")
def gpus(test_data: Path) -> dict[str, Member]:
    """The eight planes of the MI300X file."""
    return members(test_data / "xprof" / GPU)


def taken_us(found: dict[str, Member], *kinds: str) -> Counter[str]:
    """Σ duration by name over all devices."""
    taken: Counter[str] = Counter()
    for _, rows in found.values():
        for kind in kinds:
            names = list(rows[kind].names)
            for code, dur in zip(rows[kind].codes.tolist(), rows[kind].dur_ns.tolist(), strict=True):
                taken[names[code]] += dur
    return Counter({name: ns / 1000 for name, ns in taken.items()})


def test_time_by_op_is_xprof_s_and_each_row_of_the_planes_is_counted(tpus):
    taken = taken_us(tpus, "device kernel", "device sync")
    assert {name: taken[name] for name in XPROF_TPU_US} == pytest.approx(XPROF_TPU_US, rel=1e-3)
    assert taken_us(tpus, "device kernel").keys() == {n for n in XPROF_TPU_US if "copy" not in n}
    # 304 + 600 + 600 ops on the core and 108 marks of XLA TraceMe; 105 module runs.
    trace, rows = tpus["/device:TPU:0"]
    counts = {kind: len(batch) for kind, batch in rows.items() if kind.startswith("device")}
    assert counts == {"device kernel": 304, "device copy": 600, "device sync": 1200 + 108}
    assert trace.dropped == {"mark of a step or of a module's run": 105}
    assert len(trace.device_steps) == 105


def test_transfers_are_those_that_xprof_shows_for_every_device(tpus, test_data):
    """The file has `Async XLA Ops` for the first device only; xprof's export has transfers for all four."""
    events = json.loads(gzip.decompress((test_data / "xprof" / JSON).read_bytes()))["traceEvents"]
    process = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    shown: dict[str, list[tuple[int, int]]] = {member: [] for member in tpus}
    for e in events:
        if e.get("ph") == "X" and thread.get((e["pid"], e["tid"]), "").startswith("Host Offload Ops"):
            shown[process[e["pid"]]].append((round(e["ts"] * 1000), round(e["dur"] * 1000)))
    for member, (_, rows) in tpus.items():
        copies = rows["device copy"]
        assert len(copies) == len(shown[member]) == 600
        # xprof shows them at the times of the profile, ours are on the device's clock.
        shifted = np.sort(copies.start_ns - BEGIN_NS) - np.sort([start for start, _ in shown[member]])
        assert np.abs(np.median(shifted)) < 20_000
        assert copies.dur_ns.sum() == pytest.approx(sum(dur for _, dur in shown[member]), rel=1e-2)


def test_on_the_device_s_clock_ops_do_not_overlap_and_steps_take_alike(tpus):
    """As the profile shows them, steps of 784 ms take 679 to 982 ms and 45 ops of a device take no time."""
    for trace, rows in tpus.values():
        sync = rows["device sync"]
        waits = np.isin(sync.codes, [code for name, code in sync.names.items() if name.startswith("copy-")])
        start = np.concatenate([rows["device kernel"].start_ns, sync.start_ns[waits]])
        end = start + np.concatenate([rows["device kernel"].dur_ns, sync.dur_ns[waits]])
        order = np.argsort(start, kind="stable")
        assert (end[order][:-1] <= start[order][1:]).all()
        steps = [s.end_ns - s.start_ns for s in trace.device_steps if s.name.startswith("jit_f(")]
        assert len(steps) == 100
        assert np.median(steps) == pytest.approx(784_150_000, rel=1e-3)
        assert max(steps) - min(steps) < 2_000_000
        assert len(trace.notes) == 1
        assert "device's own clock" in trace.notes[0]


def test_transfers_have_bytes_direction_and_the_memory_traffic_of_both_ends(tpus):
    """Operations: one addition an element, one read and one write of 5·2^30 bytes."""
    array = 5 * 1024 * 1024 * 256 * 4
    for _, rows in tpus.values():
        copies = rows["device copy"]
        assert set(copies.bytes.to_pylist()) == set(copies.hbm_bytes.to_pylist()) == {array}
        assert Counter(copies.copy_direction.to_pylist()) == {"h2d": 300, "d2h": 300}
    kernels = tpus["/device:TPU:1"][1]["device kernel"]
    assert set(kernels.flops.to_pylist()) == {array / 4}
    assert set(kernels.hbm_bytes.to_pylist()) == {2 * array}
    fusions = dict.fromkeys((f"broadcast_add_fusion{end}" for end in ("", ".1", ".2")), "elementwise")
    found = {list(kernels.names)[code]: category for code, category in kernels.name_categories.items()}
    assert found == {"all-reduce": "communication", **fusions}


def test_ranks_are_global_device_ids_and_groups_those_of_the_program(tpus):
    """Planes 0 to 3 are devices 4 to 7; [4,2]<=[2,4]T(1,0) pairs each with one of the other host's."""
    assert [trace.facts.rank for trace, _ in tpus.values()] == [4, 5, 6, 7]
    for trace, rows in tpus.values():
        (payload,) = trace.stated_payloads.payloads
        facts = trace.facts
        assert payload.ranks == (facts.rank - 4, facts.rank)
        assert payload.in_bytes == payload.out_bytes == 5368709120
        names = list(rows["device kernel"].names)
        codes = rows["device kernel"].codes
        assert [names[codes[row]] for row in trace.stated_payloads.row] == ["all-reduce"] * 3
        assert facts.world_size == 8
        assert (facts.vendor, facts.device_name) == ("google", "TPU v6 Lite")
        assert (facts.peak_flops_per_s, facts.hbm_bytes_per_s) == (918e12, 1637993152512.0)


def test_waiting_at_the_barrier_is_apart_from_the_all_reduce(tpus):
    """The first all-reduce of TPU 2 has waited 341 ms at the barrier before it begins, then takes 122 ms."""
    _, rows = tpus["/device:TPU:2"]
    sync, kernels = rows["device sync"], rows["device kernel"]
    barrier = np.flatnonzero(sync.codes == sync.names["barrier-cores"])[0]
    assert sync.dur_ns[barrier] == 340977878
    assert sync.start_ns[barrier] - BEGIN_NS == pytest.approx(7154522820, abs=20_000)
    first = np.flatnonzero(kernels.codes == kernels.names["all-reduce"])[0]
    assert kernels.dur_ns[first] == pytest.approx(121692114, rel=1e-4)
    assert sync.start_ns[barrier] + sync.dur_ns[barrier] <= kernels.start_ns[first]


def test_operations_and_memory_traffic_of_a_step(test_data, tmp_path):
    """Three additions of 5·2^28 floats, each a read and a write, and six transfers, each one of the two."""
    wanted = ("time.step", "memory.hbm_utilization", "compute.achieved_flops")
    run = cclbench.run(test_data / "xprof" / TPU, store=tmp_path, metrics=wanted)
    array = 5 * 1024 * 1024 * 256 * 4
    rows = [row for row in run.rows if row["step"] is row["stat"] is None]
    for rank in (4, 5, 6, 7):
        own = {row["metric"]: row["value"] for row in reversed(rows) if row["rank"] == rank}
        step, utilization, flops = (own[metric] for metric in wanted)
        assert step == pytest.approx(0.7842, rel=1e-3)
        assert utilization == pytest.approx((3 * 2 + 6) * array / (step * 1637993152512), rel=1e-3)
        assert flops == pytest.approx(3 * array / 4 / step, rel=1e-3)


def test_kernels_of_eight_gpus(gpus):
    """A transposing fusion: 1280 blocks of 256 threads, one thread an element of the 327,680."""
    assert list(gpus) == [f"/device:GPU:{i}" for i in range(8)]
    assert [len(rows["device kernel"]) for _, rows in gpus.values()] == [60] + [25] * 7
    taken = taken_us(gpus, "device kernel")
    assert {name: taken[name] for name in XPROF_GPU_US} == pytest.approx(XPROF_GPU_US, rel=1e-6)
    facts = gpus["/device:GPU:7"][0].facts
    assert (facts.vendor, facts.sm_count, facts.device_memory_bytes) == ("amd", 304, 206141652992)
    assert (facts.rank, facts.local_rank, facts.device_count) == (None, 7, 8)
    kernels = gpus["/device:GPU:4"][1]["device kernel"]
    fusions = np.flatnonzero(kernels.codes == kernels.names["loop_transpose_fusion.kd"])
    assert {kernels.blocks.to_pylist()[i] for i in fusions} == {1280}


def test_launches_find_their_device(gpus):
    for _, rows in list(gpus.values())[1:]:
        kernels, launches = rows["device kernel"], rows["host launch"]
        assert sorted(kernels.correlation.to_pylist()) == sorted(launches.correlation.to_pylist())
        began = dict(zip(launches.correlation.to_pylist(), launches.start_ns.tolist(), strict=True))
        ran = zip(kernels.correlation.to_pylist(), kernels.start_ns.tolist(), strict=True)
        assert all(began[link] <= start for link, start in ran)


def test_a_convolution_of_two_kernels_counts_once_what_is_no_padding(test_data, tmp_path):
    """Im3d2Col and a product of Tensile: 5,120 filters of 16 channels, 2 · 2 positions, stride 2, padding 1.

    Of 34, 31 and 53 outputs 32, 2 · 31 − 2 and 2 · 53 − 2 pairs with a position of the filter are no padding:
    xprof's 32,715,571,200, which it counts for either kernel.  One of 40 executions has a kernel without its
    program, so that nothing states what belongs to it.
    """
    run = cclbench.ingest(test_data / "xprof" / GPU, store=tmp_path)
    rows = run.sql(
        "SELECT kernels, flops::BIGINT AS flops, bytes::BIGINT AS bytes, why_not FROM operator_work"
        " WHERE name = 'conv_general_dilated' AND shapes LIKE '%5120,16,1,2,2%'"
    ).table.to_pylist()
    flops = 2 * 5120 * 16 * 32 * (2 * 31 - 2) * (2 * 53 - 2)
    moved = 2 * (16 * 32 * 60 * 104 + 5120 * 16 * 4 + 5120 * 34 * 31 * 53)
    why = "the profile does not state which kernels are one execution of it"
    expected = {(2, flops, moved, None): 39, (1, None, None, why): 1}
    assert Counter(tuple(row.values()) for row in rows) == expected


def texts(store: Path) -> Iterator[str]:
    """All texts in all tables of a store, and in its manifests less the paths of the sources."""
    for path in store.rglob("*.parquet"):
        for column in pq.read_table(path).columns:
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_string(column.type):
                yield from (text for text in column.unique().to_pylist() if text)
    for path in store.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        yield json.dumps([manifest["ranks"], manifest["matching"], manifest["notes"]])


@pytest.mark.parametrize("name", [TPU, GPU, JSON])
def test_nothing_of_the_machine_is_handed_on(name, test_data, tmp_path):
    """Neither the user, the host and the folders that the file names, nor a path that nobody thought of."""
    known = ("tw003", "/workspace") if name == GPU else ("davelacey", "experimental")
    source = test_data / "xprof" / name
    content = gzip.decompress(source.read_bytes()) if name == JSON else source.read_bytes()
    assert all(word.encode() in content for word in known)
    cclbench.ingest(source, store=tmp_path / "store")
    kept = set(texts(tmp_path / "store"))
    assert len(kept) > 15
    assert not [text for text in kept for word in known if word in text]
    # Paths of JAX's ops are none of a machine's: jit(f)/jit(main)/add.
    kept = {text for text in kept if not text.startswith("jit(")}
    assert not [text for text in kept if re.search(r"(?:^|[^\w])/\w|\w/\w+/|\w/[\w.]+\.py", text)]


def test_a_file_that_went_through_a_text_conversion_is_one_clear_line(test_data):
    path = test_data / "xprof" / "corrupt" / "utf8_mangled_tpu_inference_2.xplane.pb"
    assert Xplane().sniff(path.read_bytes()[:4096]) > 0
    with pytest.raises(InputError, match=r"byte 0: .*text conversion.*copy it again as binary") as caught:
        Xplane().parts(path)
    assert "\n" not in str(caught.value)


DATA = Path(__file__).resolve().parents[2] / "traces/tiny-jax-h100"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    return cclbench.ingest(DATA, store=tmp_path_factory.mktemp("store"))


def test_kernels_have_their_instructions_and_products_in_order_their_layout(run: cclbench.Run) -> None:
    """All but XLA's own copies. cuBLAS names its kernels by the layout of both operands.

    nn contracts the last dimension of the left one and the first of the right one, tn the last of both; nt is
    for a transposed left operand.  165 kernels agree, though nothing but their order joins them.
    """
    rows = run.sql(
        "SELECT sum(dur_ns) FILTER (framework_op IS NOT NULL) / sum(dur_ns) AS linked FROM events"
        " WHERE kind = 'kernel' AND side = 'device'"
    ).to_pylist()
    assert rows[0]["linked"] > 0.978
    rows = run.sql(
        """SELECT regexp_extract(name, '_f32_(nn|nt|tn)_', 1) AS layout, "values" ->> 2 AS left,
        "values" ->> 3 AS right, "values" ->> 4 AS batch, phase, shapes, count(*) AS kernels FROM events
        WHERE kind = 'kernel' AND name LIKE 'sm90_xmma_gemm%' GROUP BY ALL"""
    ).to_pylist()
    assert sum(row["kernels"] for row in rows) == 165
    for row in rows:
        contracted = (row["left"], row["right"])
        if row["phase"] == "forward":
            assert (row["layout"], contracted) == ("nn", ("[1]", "[0]"))
        elif row["layout"] == "tn":
            assert contracted == ("[1]", "[1]")
        elif row["batch"] == "[]":
            assert (row["layout"], contracted) == ("nt", ("[1]", "[0]"))


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
    return json.loads(shown)["byProgramExcludeIdle"]


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

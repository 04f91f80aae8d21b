# SPDX-License-Identifier: Apache-2.0
"""GPU planes: kernels and copies of two GPUs, and the rows of the process that drives them."""

from __future__ import annotations

import json

import pytest
from helpers.refused import refused
from helpers.xplane_files import (
    BEGIN_NS,
    Plane,
    array,
    environment,
    gpu_file,
    hlo_field,
    instruction,
    listed,
    programs,
    read,
    space,
    write,
)

import cclbench
from cclbench.formats import Part
from cclbench.formats.xplane import Xplane
from cclbench.formats.xplane.executions import StreamExecution
from cclbench.formats.xplane.gpu import gpu_facts, stream_correlations
from cclbench.ground.errors import InputError


def on_gpu(folder, *planes, member="/device:GPU:0"):
    """A member's trace and rows in a profile of these planes, and when it began."""
    return read(write(folder, space(*planes, environment())), member)


def streamed(*events, **facts):
    """A GPU with these events on one stream."""
    return Plane("/device:GPU:0", **facts).line("Stream #7(Kernel)", list(events), track=7)


def test_kernels_and_copies_of_a_gpu(tmp_path):
    path = write(tmp_path, gpu_file())
    assert Xplane().parts(path) == [Part("/device:GPU:0"), Part("/device:GPU:1")]
    trace, rows = read(path, "/device:GPU:0")
    assert listed(rows["device kernel"]) == [("gemm", 100, 20)]
    kernels = rows["device kernel"]
    grid = [column.to_pylist() for column in (kernels.grid_x, kernels.grid_y, kernels.grid_z, kernels.blocks)]
    assert grid == [[160], [2], [1], [320]]
    copies = rows["device copy"]
    assert listed(copies) == [("MemcpyH2D", 90, 10), ("MemcpyD2D", 130, 10)]
    # A size of 0 is the profiler's word for unknown.
    assert copies.bytes.to_pylist() == [4096, None]
    assert copies.copy_direction.to_pylist() == ["h2d", "d2d"]
    assert trace.dropped == {"row derived from others": 1, "mark of the thread pool": 1}
    assert (trace.facts.vendor, trace.facts.sm_count, trace.facts.hbm_bytes_per_s) == ("nvidia", 132, 3.35e12)
    assert (trace.facts.rank, trace.facts.local_rank) == (None, 0)


def test_a_launch_belongs_to_the_device_it_launched_on_and_a_step_to_all(tmp_path):
    path = write(tmp_path, gpu_file())
    _, first = read(path, "/device:GPU:0")
    _, second = read(path, "/device:GPU:1")
    links = [rows["host launch"].correlation.to_pylist() for rows in (first, second)]
    assert links == [[1, 2, 99], [3]]
    for rows in (first, second):
        assert listed(rows["host annotation"]) == [("train step 5", 0, 200)]
    assert listed(first["host python"]) == [("$model.py:1 forward", 0, 150)]
    assert "host python" not in second


def test_streams_in_epoch_time_and_order(tmp_path):
    plane = Plane("/device:GPU:0").line("Stream #1", [("k", 5, 1, {})], timestamp_ns=BEGIN_NS + 100)
    _, rows = on_gpu(tmp_path, plane)
    assert listed(rows["device kernel"]) == [("k", 105, 1)]
    plane = Plane("/device:GPU:0").line("Stream #7", [("a", 0, 1, {}), ("c", 20, 1, {})], track=7)
    plane.line("Stream #8", [("b", 10, 1, {}), ("d", 20, 2, {})], track=8)
    _, rows = on_gpu(tmp_path, plane)
    assert listed(rows["device kernel"]) == [("a", 0, 1), ("b", 10, 1), ("c", 20, 1), ("d", 20, 2)]
    assert rows["device kernel"].track.tolist() == [7, 8, 7, 8]


def test_a_kernel_whose_name_tells_nothing_is_what_its_program_says(tmp_path):
    one, other = instruction("r.1", "sort", array(4), 2), instruction("c.2", "all-reduce", array(4), 3)
    program = programs([[0]], one, other, instruction("i1", "dot", array(4), 1))
    told = {"program_id": 7}
    kernels = [
        *(("kernel_1", 0, 5, told | {"hlo_op": "r.1"}), ("kernel_2", 10, 5, told | {"hlo_op": "c.2"})),
        *(("kernel_3", 20, 5, told | {"hlo_op": "i1"}), ("cutlass_gemm", 30, 5, told | {"hlo_op": "r.1"})),
        ("kernel_4", 40, 5, {"hlo_op": "r.1"}),
    ]
    trace, rows = on_gpu(tmp_path, streamed(*kernels, device_vendor="Nvidia"), program)
    made = rows["device kernel"]
    assert {name: (made.name_categories or {}).get(code) for name, code in made.names.items()} == {
        "kernel_1": "reduction",
        "kernel_2": "communication",
        "kernel_3": "gemm",
        "cutlass_gemm": None,  # its name tells
        "kernel_4": None,
    }
    (payload,), (row,) = trace.stated_payloads.payloads, trace.stated_payloads.row
    assert (payload.collective, payload.library, row) == ("all_reduce", "xla", 1)


OPERAND = instruction("p", "parameter", array(4), 1)
UNCERTAIN = '["","","hlo","the profile does not state which kernels are one execution of it"]'


def twice(name, opcode, number):
    """An instruction with the instruction 1 as both operands."""
    return instruction(name, opcode, array(4), number, hlo_field(36, b"\x01\x01"))


def of(op, **more):
    return {"program_id": 7, "hlo_op": op} | more


def test_a_product_of_several_kernels_has_operands_but_not_what_its_cost_follows_from(tmp_path):
    """Without their order nothing tells which kernels are one execution: each would count it."""
    program = programs([[0]], OPERAND, twice("a", "dot", 2), twice("b", "dot", 3))
    kernels = [("gemm", 0, 5, of("a")), ("gemm", 10, 5, of("b")), ("reduce", 15, 5, of("b"))]
    _, rows = on_gpu(tmp_path, streamed(*kernels, ("unlinked", 20, 5, {}), device_vendor="Nvidia"), program)
    made = rows["device kernel"]
    assert made.framework_op.to_pylist() == ["dot_general"] * 3 + [None]
    assert made.shapes.to_pylist() == ["[[4],[4]]"] * 3 + [None]
    assert made.values.to_pylist() == ['["","","[]","[]","[]","[]","f32"]', UNCERTAIN, UNCERTAIN, None]
    assert made.operator.to_pylist() == [None] * 4


def test_an_instruction_of_one_kernel_has_its_flops_and_bytes(tmp_path):
    """x + x of 4 floats: 4 FLOPs, x and the result; two kernels in one annotation are one execution."""
    program = programs([[0]], OPERAND, twice("a", "add", 2), twice("b", "add", 3))
    scopes = [of("b", correlation_id=n, scope_range_id=9) for n in (1, 2)]
    kernels = [("k1", 0, 5, of("a")), ("k2", 10, 5, scopes[0]), ("k3", 15, 5, scopes[1])]
    made = on_gpu(tmp_path, streamed(*kernels, device_vendor="Nvidia"), program)[1]["device kernel"]
    assert made.values.to_pylist() == ['["","","hlo","4","16","16"]'] * 3
    assert made.operator.to_pylist() == [None, 2, 2]
    assert made.flops is None


def product_by_library(name, number, contracted):
    """A custom call of cuBLAS with the instruction 1 as both operands, contracted along these dimensions."""
    dimensions = {f"{side}_contracting_dimensions": contracted for side in ("lhs", "rhs")}
    config = json.dumps({"gemm_backend_config": {"beta": 0, "dot_dimension_numbers": dimensions}})
    target = hlo_field(28, b"__cublas$lt$matmul") + hlo_field(43, config.encode())
    return instruction(name, "custom-call", array(1), number, target, hlo_field(36, b"\x01\x01"))


def in_graph(name, at, node):
    return name, at, 5, {"program_id": 7, "hlo_op": "command_buffer", "cuda_graph_node_id": node}


class TestKernelsOfGraphs:
    """Their op is the graph; what they run follows from their names, of products from their order."""

    products = product_by_library("second", 3, ["0"]), product_by_library("first", 4, [])
    program = programs([[0]], OPERAND, twice("loop_add.1", "add", 2), *products, schedule=(1, 2, 4, 3))

    def origins(self, folder, *kernels):
        rows = on_gpu(folder, streamed(*kernels, device_vendor="Nvidia"), self.program)[1]["device kernel"]
        return [*zip(rows.framework_op.to_pylist(), rows.values.to_pylist(), strict=True)]

    def test_by_name_and_by_the_order_of_products(self, tmp_path):
        """Products that are not as many are unknown."""
        kernels = ("loop_add_1.kd", 0, 8), ("cutlass_gemm", 10, 12), ("gemm_x", 20, 11)
        assert self.origins(tmp_path, *(in_graph(*one) for one in kernels)) == [
            *(("add", '["","","hlo","4","16","16"]'), ("dot_general", '["","","[0]","[0]","[]","[]","f32"]')),
            ("dot_general", '["","","[]","[]","[]","[]","f32"]'),
        ]
        kernels = in_graph("loop_add_2", 0, 8), in_graph("cutlass_gemm", 10, 12)
        assert self.origins(tmp_path, *kernels) == [(None, None)] * 2


@pytest.mark.parametrize(
    ("name", "copy", "fill", "kind"),
    [
        *(("gemm", "", "", "kernel"), ("my_memcpy", "", "", "kernel"), ("my_memset", "", "", "kernel")),
        *(("MemcpyD2D", "", "", "copy"), ("memcpy32_post", "", "", "copy"), ("x", "kind:HtoD", "", "copy")),
        *(("x", "kind:HtoD", "value:0", "copy"), ("x", "", "value:0", "memset")),
        *(("Memset", "", "", "memset"), ("MEMSET", "", "", "memset")),
    ],
)
def test_what_ran_is_told_by_its_details_or_the_begin_of_its_name(name, copy, fill, kind):
    assert StreamExecution(name, None, "", copy, fill, "", None).row_kind == kind


def test_what_a_plane_says_of_its_gpu():
    told = {"core_count": 132, "memory_size": 85_000_000_000, "memory_bandwidth": 3_350_000_000_000}
    known = {"sm_count": 132, "device_memory_bytes": 85_000_000_000, "device_name": None}
    of = {"vendor": "nvidia", **known, "hbm_bytes_per_s": 3.35e12}
    assert gpu_facts({"device_vendor": "NVIDIA", **told}) == of
    name = "NVIDIA H100 80GB HBM3"
    assert gpu_facts({"device_vendor": "NVIDIA", "gpu_device_name": name, **told}) == of | {
        "device_name": name
    }
    assert gpu_facts({"device_vendor": "Intel", **told}) == {"vendor": None, **known, "hbm_bytes_per_s": None}
    none = dict.fromkeys(("device_name", "sm_count", "device_memory_bytes", "hbm_bytes_per_s"))
    assert gpu_facts({"device_vendor": "Nvidia", "memory_bandwidth": 0}) == none | {"vendor": "nvidia"}


def test_correlation_ids_are_those_of_streams():
    plane = Plane("/device:GPU:0")
    ids = (1, 0, -1, (1 << 63) - 1, 7)
    plane.line("Stream #1", [("k", i, 1, {"correlation_id": n, "other": 99}) for i, n in enumerate(ids)])
    plane.line("XLA Ops", [("k", 0, 1, {"correlation_id": 55})])
    plane.message.lines[0].events[4].stats[0].uint64_value = 1 << 63
    assert stream_correlations(plane.message) == {1, (1 << 63) - 1}


def test_sizes_and_directions_of_copies_and_fills(tmp_path):
    most = (1 << 62) - 1
    copies = [
        *(("MemcpyH2D", "kind:Unknown size:4 dest:0"), ("copy", f"kind:DtoH num_bytes:{most}")),
        *(("MemcpyP2P", "kind:Unknown size:0 dest:9"), ("copy", "kind:DeviceToDevice resize:5")),
        ("MemcpyX", ""),
    ]
    events = [(name, 10 * i, 5, {"memcpy_details": told}) for i, (name, told) in enumerate(copies)]
    events.append(("Memset", 90, 5, {"memset_details": "kind:Device size:12 value:1"}))
    _, rows = on_gpu(tmp_path, streamed(*events))
    assert rows["device copy"].bytes.to_pylist() == [4, most, None, None, None]
    assert rows["device copy"].copy_direction.to_pylist() == ["h2d", "d2h", "p2p", "d2d", None]
    assert (rows["device memset"].bytes.to_pylist(), rows["device memset"].copy_direction) == ([12], None)
    assert rows["device copy"].device.to_pylist() == [0] * 5


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"memcpy_details": f"size:{1 << 62}"}, f"impossible copy of {1 << 62} bytes"),
        ({"kernel_details": f"grid:{1 << 62},2,1"}, "impossible grid of 4.61169e+18 × 2 × 1 blocks"),
    ],
)
def test_more_bytes_or_blocks_than_there_are_is_damage(tmp_path, told, says):
    path = write(tmp_path, space(streamed(("c", 0, 1, told)), environment()))
    message = refused(lambda path: read(path, "/device:GPU:0"), path)
    assert message == f"{path}: {says}; copy the file again, or profile again"


def test_grids_links_and_what_has_neither(tmp_path):
    events = [
        ("a", 0, 5, {"kernel_details": "regs:1 grid:4,3,2 block:1,1,1", "correlation_id": 1}),
        ("b", 10, 5, {"kernel_details": "regs:1", "correlation_id": 0}),
        *(("c", 20, 5, {"correlation_id": -4}), ("d", 30, 5, {"kernel_details": "grid:1,2,3"})),
    ]
    kernels = on_gpu(tmp_path, streamed(*events))[1]["device kernel"]
    columns = (kernels.grid_x, kernels.grid_y, kernels.grid_z, kernels.blocks, kernels.correlation)
    assert [column.to_pylist() for column in columns] == [
        *([4, None, None, 1], [3, None, None, 2], [2, None, None, 3], [24, None, None, 6]),
        [1, None, None, None],
    ]


def test_a_program_s_id_is_told_with_or_without_a_sign(tmp_path):
    program = programs([[0]], instruction("r.1", "sort", array(4), 1), number=(1 << 62) + 5)
    program.message.event_metadata[0].key = -9
    kernel = ("kernel_1", 0, 5, {"program_id": -9, "hlo_op": "r.1"})
    _, rows = on_gpu(tmp_path, streamed(kernel), program)
    assert rows["device kernel"].name_categories == {0: "reduction"}


def test_marks_of_a_gpu_s_steps_and_modules(tmp_path):
    plane = Plane("/device:GPU:0").line("Stream #7", [("k", 0, 1, {})])
    plane.line("Steps", [("4", 0, 10, {}), ("warmup", 10, 5, {})], track=2)
    plane.line("XLA Modules", [("jit_f", 1, 8, {})], track=3)
    plane.line("Source code", [("x", 0, 1, {})], track=4).line("news", [("x", 0, 1, {})] * 2, track=5)
    plane.line("empty", [], track=6)
    trace, _ = on_gpu(tmp_path, plane)
    steps = [(s.name, s.start_ns - BEGIN_NS, s.end_ns - BEGIN_NS, s.number) for s in trace.device_steps]
    assert steps == [("4", 0, 10, 4), ("jit_f", 1, 9, None)]
    known = {"mark of a step or of a module's run": 3, "row derived from others": 1}
    known |= {"row of a line of unknown meaning": 2}
    assert trace.dropped == known


def driven(*lines, own=(1,), other=()):
    """Two GPUs that ran kernels of these correlation ids, and lines of the process: (name, events)."""
    planes = []
    for number, ids in enumerate((own, other)):
        kernels = [("k", i, 1, {"correlation_id": n}) for i, n in enumerate(ids)]
        planes.append(Plane(f"/device:GPU:{number}").line("Stream #1", kernels))
    host = Plane("/host:CPU")
    for track, (name, events) in enumerate(lines):
        host.line(name, [(title, 10 * i, 5, told) for i, (title, told) in enumerate(events)], track=track)
    return space(*planes, host, environment())


def host_names(rows):
    """Names of the host's rows by kind."""
    return {kind.split()[1]: [n for n, _, _ in listed(made)] for kind, made in rows.items() if "host" in kind}


def test_kinds_of_host_rows_by_name_thread_and_link(tmp_path):
    told = {"correlation_id": 1}
    names = "cuLaunchKernel", "hipMemcpyAsync", "cuMemset", "a memset"
    launches = [(name, told) for name in names]
    others = [("cuEventRecord", told), ("hipDeviceSynchronize", told), ("train", {"step_num": 3})]
    others += [(n, {}) for n in ("cuLaunchKernel", "cuStreamSynchronize", "x cuStreamSynchronize", "$f.py:1")]
    marks = "theirs", "$h", "end: x", "ThreadpoolListener::Record"
    lines = ("python3", [*launches, *others, ("warm", {"step_num": 4})]), ("main/7", [("mine", {})])
    path = write(tmp_path, driven(*lines, ("pool/1", [(name, {}) for name in marks])))
    trace, rows = read(path, "/device:GPU:0")
    marked = ["cuEventRecord", "cuLaunchKernel", "mine", "step 4", "train step 3", "x cuStreamSynchronize"]
    known = {"launch": sorted(names), "sync": ["cuStreamSynchronize", "hipDeviceSynchronize"]}
    known |= {"python": ["$f.py:1", "$h"], "annotation": marked, "other": ["theirs"]}
    assert {kind: sorted(found) for kind, found in host_names(rows).items()} == known
    assert trace.dropped == {"mark of the thread pool": 2}
    assert rows["host launch"].correlation.to_pylist() == [1] * 4
    assert rows["host other"].correlation.to_pylist() == [None]
    assert rows["host annotation"].correlation is None
    assert rows["host launch"].device is None


def test_host_rows_are_the_first_device_s_but_for_what_others_ran(tmp_path):
    most = (1 << 63) - 1
    events = [(f"cuLaunchKernel {n}", {"correlation_id": n}) for n in (0, 1, 2, 3, most, -4)]
    path = write(tmp_path, driven(("pool", [*events, ("idle", {})]), own=(1, most), other=(2,)))
    _, first = read(path, "/device:GPU:0")
    _, second = read(path, "/device:GPU:1")
    assert host_names(first) == {
        "launch": [f"cuLaunchKernel {n}" for n in (1, 3, most)],
        "other": ["cuLaunchKernel 0", "cuLaunchKernel -4", "idle"],
    }
    assert host_names(second) == {"launch": ["cuLaunchKernel 2"]}


def test_allocator_events_are_those_of_their_device(tmp_path):
    """Of GPU 0 heap and stack together; GPU 1's by its index; of the host's allocator no device's."""

    def held(heap, stack, **stats):
        return {"bytes_allocated": heap, "bytes_reserved": stack, "peak_bytes_in_use": 10**9} | stats

    events = [
        ("MemoryAllocation", held(100, 0, allocator_name="GPU_0_bfc")),
        ("MemoryAllocation", held(7, 0, index_on_host=1)),
        ("MemoryDeallocation", held(60, 30, allocator_name="GPU_0_bfc")),
        ("MemoryAllocation", held(5, 0, allocator_name="xla_gpu_host_bfc")),
        ("MemoryAllocation", {"allocator_name": "GPU_0_bfc"}),
    ]
    path = write(tmp_path, driven(("pool", events), own=(1,), other=(2,)))
    for device, expected in ((0, [(0, 100), (0, 90), (None, None)]), (1, [(1, 7)])):
        _, rows = read(path, f"/device:GPU:{device}")
        other = rows["host other"]
        assert {name for name, _, _ in listed(other)} <= {"[memory]", "MemoryAllocation"}
        rows_of = zip(listed(other), other.device.to_pylist(), other.bytes.to_pylist(), strict=True)
        assert [tuple(row) for (name, _, _), *row in rows_of if name == "[memory]"] == expected


class TestIdleDevices:
    """GPUs of a profile that did nothing: no ranks, told, and the others keep the ranks they have anyway."""

    @staticmethod
    def file(folder, name, *busy):
        """A profile of four GPUs, of which those `busy` run a kernel each; steps are marked on the host."""
        planes = [Plane(f"/device:GPU:{i}", device_vendor="Nvidia") for i in range(4)]
        for i in busy:
            planes[i].line("Stream #7(Kernel)", [(f"k{i}", 100 + i, 20, {"correlation_id": i + 1})], track=7)
        planes[0].line("Stream #8(Memcpy)", [])
        events = [("train", 0, 200, {"step_num": 5}), ("$model.py:1 forward", 0, 150, {})]
        events += [("cuLaunchKernel", 10 * i, 2, {"correlation_id": i + 1}) for i in busy]
        path = folder / name
        path.write_bytes(space(*planes, Plane("/host:CPU").line("python", events), environment()))
        return path

    def test_they_are_left_out_and_told(self, tmp_path):
        run = cclbench.run(self.file(tmp_path, "job.xplane.pb", 1, 3), store=tmp_path / "store")
        assert [entry["rank"] for entry in run.manifest["ranks"]] == [1, 3]
        said = "2 of the 4 devices in job.xplane.pb did nothing and are no ranks: "
        assert run.manifest["notes"][0] == f"{said}/device:GPU:0, /device:GPU:2"
        # What is the process's own goes with the first device that did anything.
        rows = {"annotation": 1, "kernel": 1, "launch": 1}
        assert [entry["rows"] for entry in run.manifest["ranks"]] == [rows | {"python": 1}, rows]

    def test_ranks_count_them_across_files(self, tmp_path):
        folder = tmp_path / "job"
        folder.mkdir()
        self.file(folder, "a.xplane.pb", 0, 1)
        self.file(folder, "b.xplane.pb", 2)
        run = cclbench.run(folder, store=tmp_path / "store")
        assert [entry["rank"] for entry in run.manifest["ranks"]] == [0, 1, 6]

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_profile_in_which_none_did_anything_is_refused(self, tmp_path, count):
        path = tmp_path / "a.xplane.pb"
        path.write_bytes(space(*(Plane(f"/device:GPU:{i}") for i in range(count)), environment()))
        with pytest.raises(InputError, match="holds no rows"):
            cclbench.run(path, store=tmp_path / "store")

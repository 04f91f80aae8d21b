# SPDX-License-Identifier: Apache-2.0
"""Collectives of XLA's devices matched across devices, files and processes, through `cclbench.run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.xplane_files import (
    BEGIN_NS,
    Plane,
    array,
    environment,
    groups,
    hlo_field,
    instruction,
    programs,
    space,
    tpu,
)

import cclbench
from cclbench.record.run import Run

US = 1000
ARRIVALS = (100, 200, 400, 250)
"""When each of four devices enters the first all-reduce, µs; all leave it at 1000 µs."""


def measured(folder: Path, **files: bytes) -> Run:
    """The whole trace of these files."""
    traces = folder / "traces"
    traces.mkdir()
    for name, content in files.items():
        (traces / f"{name}.xplane.pb").write_bytes(content)
    return cclbench.run(traces, store=folder / "runs", window="trace")


def calls(run: Run) -> list[dict[str, Any]]:
    """Collectives in order of rank and begin, times in µs since the profile's."""
    rows = sorted(run.collectives().to_pylist(), key=lambda row: (row["rank"], row["start_ns"]))
    for row in rows:
        row["begin"] = (row["start_ns"] - BEGIN_NS) / US
        row["wait"] = None if row["wait_ns"] is None else row["wait_ns"] / US
    return rows


def a_tpu(device: int, first: int = 0) -> Plane:
    """A TPU that waits at a barrier, reduces with one other and gathers with another, asynchronously."""
    at = ARRIVALS[first + device]
    events = [
        ("psum", at * US, (1000 - at) * US, {}),
        ("gather-start", (1000 + at) * US, 1 * US, {}),
        ("loop", (1001 + at) * US, 50 * US, {}),
        ("gather-done", (1051 + at) * US, ((1500, 1500, 1600, 1600)[first + device] - 1051 - at) * US, {}),
    ]
    return tpu(device, events, first=first, XLA_TraceMe=[("barrier-cores", 50 * US, 40 * US, {})])


ONE_FILE = {"host": space(*map(a_tpu, range(4)), programs([[0], [1], [2], [3]]), environment())}
TWO_HOSTS = {
    "host0": space(a_tpu(0), a_tpu(1), programs([[0], [1], [2], [3]]), environment()),
    "host1": space(a_tpu(0, 2), a_tpu(1, 2), programs([[0], [1], [2], [3]]), environment()),
}


@pytest.mark.parametrize("files", [ONE_FILE, TWO_HOSTS], ids=["one host", "two hosts"])
def test_tpus_wait_for_the_last_of_their_group(files: dict[str, bytes], tmp_path: Path) -> None:
    run = measured(tmp_path, **files)
    found = calls(run)
    assert [row["instance"] is not None for row in found] == [True] * 8
    assert len({row["instance"] for row in found}) == 4
    # [2,2]<=[2,2]T(1,0) is {{0,2},{1,3}}, then {{0,1},{2,3}}; both wait for who arrives last.
    assert [(row["rank"], row["kind"], row["group"], row["wait"]) for row in found] == [
        *((0, "all_reduce", "0,2", 300), (0, "all_gather", "0-1", 100), (1, "all_reduce", "1,3", 50)),
        *((1, "all_gather", "0-1", 0), (2, "all_reduce", "0,2", 0), (2, "all_gather", "2-3", 0)),
        *((3, "all_reduce", "1,3", 0), (3, "all_gather", "2-3", 150)),
    ]
    assert {(row["library"], row["kind"], row["in_bytes"], row["out_bytes"]) for row in found} == {
        ("xla", "all_reduce", 16, 16),
        ("xla", "all_gather", 8, 16),
    }
    assert {row["transfer_ns"] / US for row in found if row["kind"] == "all_reduce"} == {600, 750}
    for entry in run.manifest["ranks"]:
        assert entry["rows"]["sync"] == 3  # the barrier, the issue and the wait
        assert entry["facts"]["rank_source"] == "metadata"


def reduces(ids: list[int], *of: tuple[int, ...]) -> Plane:
    """Program 7 on these devices: an all-reduce of f32[4] in those groups of their ordinals."""
    operand = instruction("a", "parameter", array(4), 1)
    fields = hlo_field(36, b"\x01") + groups(*of)
    reduce = instruction("psum.1", "all-reduce", array(4), 2, fields)
    return programs([[i] for i in ids], operand, reduce)


def gpu(number: int, at: int) -> Plane:
    """A GPU that reduces from `at` to 1000 µs."""
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at * US, (1000 - at) * US
    told = {"hlo_op": "psum.1", "program_id": 7, "correlation_id": number + 1}
    plane = Plane(f"/device:GPU:{number}", device_vendor="Nvidia")
    return plane.line("Stream #7(Kernel)", [(*kernel, told)], track=7)


def test_gpus_of_one_process_are_the_programs_devices(tmp_path: Path) -> None:
    program = reduces([0, 1, 2, 3], (0, 2), (1, 3))
    run = measured(tmp_path, host=space(*map(gpu, range(4), ARRIVALS), program, environment()))
    assert [(row["group"], row["wait"], row["library"], row["in_bytes"]) for row in calls(run)] == [
        ("0,2", 300, "nccl", 16),
        ("1,3", 50, "nccl", 16),
        ("0,2", 0, "nccl", 16),
        ("1,3", 0, "nccl", 16),
    ]
    assert run.manifest["matching"]["matched"] == 4


def test_gpus_of_several_processes_are_in_no_group(tmp_path: Path) -> None:
    """Each process counts its GPUs from 0: {0,2} would be another pair in each of these files."""
    program = reduces([0, 1, 2, 3], (0, 2), (1, 3))
    files = {f"host{i}": space(gpu(0, 100 + i), gpu(1, 200), program, environment()) for i in (0, 1)}
    run = measured(tmp_path, **files)
    assert [(row["rank"], row["group"], row["group_size"], row["instance"]) for row in calls(run)] == [
        (rank, None, 2, None) for rank in range(4)
    ]
    for entry in run.manifest["ranks"]:
        assert any("which of the program's devices this GPU is" in note for note in entry["notes"])


def cpus(ids: list[int], arrivals: tuple[int, ...], program: Plane) -> bytes:
    """A process's CPU devices, which tell their global ids."""
    host = Plane("/host:CPU")
    for track, (device, at) in enumerate(zip(ids, arrivals, strict=True)):
        told = {"hlo_op": "psum.1", "hlo_module": "jit_f", "program_id": 7, "run_id": 5}
        host.line(
            "pool", [("psum.1", at * US, (1000 - at) * US, {**told, "device_ordinal": device})], track=track
        )
    return space(host, program, environment())


def test_cpu_devices_of_two_processes_meet_by_their_global_ids(tmp_path: Path) -> None:
    """As of JAX 0.10: a second process's devices count from 2048, and no rendezvous tells who meets."""
    program = reduces([0, 1, 2048, 2049], (0, 2), (1, 3))
    first, second = cpus([0, 1], ARRIVALS[:2], program), cpus([2048, 2049], ARRIVALS[2:], program)
    (tmp_path / "both").mkdir()
    run = measured(tmp_path / "both", a=first, b=second)
    assert [(row["rank"], row["group"], row["wait"], row["library"]) for row in calls(run)] == [
        (0, "0,2", 300, "xla"),
        (1, "1,3", 50, "xla"),
        (2, "0,2", 0, "xla"),
        (3, "1,3", 0, "xla"),
    ]
    (tmp_path / "alone").mkdir()
    alone = calls(measured(tmp_path / "alone", b=second))
    assert [(row["group"], row["group_size"], row["instance"]) for row in alone] == [(None, 2, None)] * 2


def test_no_group_that_is_whole_is_taken_for_one_that_is_not(tmp_path: Path) -> None:
    """{0,1} is here, {0,2048} is not: of one size, and the only group whose ranks are known."""
    extra = instruction("psum.2", "all-reduce", array(4), 3, hlo_field(36, b"\x01"), groups((0, 1), (2, 3)))
    operand = instruction("a", "parameter", array(4), 1)
    reduce = instruction("psum.1", "all-reduce", array(4), 2, hlo_field(36, b"\x01"), groups((0, 2), (1, 3)))
    program = programs([[0], [1], [2048], [2049]], operand, reduce, extra)
    host = Plane("/host:CPU")
    told = {"hlo_module": "jit_f", "program_id": 7, "run_id": 5}
    for device in (0, 1):
        ops = [
            (name, begin, 50, {**told, "hlo_op": name, "device_ordinal": device})
            for name, begin in (("psum.1", 0), ("psum.2", 100))
        ]
        host.line("pool", ops, track=device)
    run = measured(tmp_path, a=space(host, program, environment()))
    assert [row["group"] for row in calls(run)] == [None, "0-1", None, "0-1"]


def test_programs_of_one_device_each_are_no_world_of_one(tmp_path: Path) -> None:
    """Several programs, each on its own device; then two devices and a program of the first alone."""
    apart = [programs([[i]], number=number) for i, number in ((0, 7), (1, 8))]
    devices = [tpu(i, [("loop", 0, 5, {})], first=0) for i in (0, 1)]
    (tmp_path / "all").mkdir()
    run = measured(tmp_path / "all", host=space(*devices, *apart, environment()))
    assert [entry["facts"].get("world_size") for entry in run.manifest["ranks"]] == [2, 2]
    (tmp_path / "one").mkdir()
    run = measured(tmp_path / "one", host=space(*devices, apart[0], environment()))
    assert [entry["facts"].get("world_size") for entry in run.manifest["ranks"]] == [None, None]
    (tmp_path / "cpu").mkdir()
    alone = programs([[0]], instruction("psum.1", "sort", array(4), 1))
    run = measured(tmp_path / "cpu", host=cpus([0, 1], (10, 20), alone))
    assert [entry["facts"].get("world_size") for entry in run.manifest["ranks"]] == [None, None]

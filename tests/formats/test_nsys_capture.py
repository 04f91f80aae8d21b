# SPDX-License-Identifier: Apache-2.0
"""What a capture says of itself: its ranks, devices, versions, warnings, and what is left out."""

from __future__ import annotations

import pytest
from helpers.nsys_files import (
    CALL,
    COPY,
    EPOCH,
    KERNEL,
    call,
    kernel,
    nvtx,
    process,
    read,
    strings,
    thread,
    write,
)

from cclbench.formats import trace_reader
from cclbench.formats.nsys.capture import CapturedProcesses
from cclbench.formats.nsys.database import Database

NAMES = strings("gemm", "cudaLaunchKernel", "MPI_Barrier")
GPU = {"totalMemory": 80 << 30, "memoryBandwidth": 3_350_000_000_000, "smCount": 132}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.sqlite"


def members(path):
    return [part.member for part in trace_reader("nsys").parts(path)]


def environment(*variables):
    return [{"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": text} for text in variables]


def facts_of(path, **tables):
    """What is known of a capture of a kernel and these tables."""
    return read(write(path, **{"StringIds": NAMES, KERNEL: [kernel(1, 2)]} | tables)).trace.facts


def copied(pid):
    row = {"start": 1, "end": 2, "deviceId": 0, "streamId": 7, "bytes": 1, "copyKind": 1}
    return [row | {"globalPid": process(pid)}]


def test_processes_with_device_work_are_ranks_by_device_then_process(path):
    kernels = [kernel(1, 2, pid=30, deviceId=1), kernel(1, 2, pid=20), kernel(1, 2, pid=10, deviceId=1)]
    calls = [call(1, 2, 1, pid=10), call(1, 2, 1, pid=99), call(1, 2, 1, pid=98), call(3, 4, 2, pid=99)]
    write(path, StringIds=NAMES, **{KERNEL: kernels, CALL: calls})
    assert members(path) == ["20", "10", "30"]
    told = [read(path, member).trace for member in members(path)]
    assert [(t.facts.local_rank, t.facts.process_id) for t in told] == [(0, 20), (1, 10), (2, 30)]
    assert [t.facts.rank for t in told] == [None, None, None]
    assert [t.dropped for t in told] == [{"host row of a process without device work": 3}, {}, {}]


def test_rows_without_a_process_are_nobodys_among_several_ranks(path):
    kernels = [kernel(1, 2), kernel(1, 2, pid=11), kernel(5, 6, globalPid=None)]
    calls = [{"start": 1, "end": 2, "correlationId": 1, "nameId": 2}]
    write(path, StringIds=NAMES, **{KERNEL: kernels, CALL: calls})
    told = [read(path, member) for member in members(path)]
    assert [len(found.rows) for found in told] == [1, 1]
    assert [found.trace.dropped for found in told] == [{"row of no known process": 2}, {}]


def test_copies_alone_make_a_rank(path):
    assert members(write(path, StringIds=NAMES, **{COPY: copied(12)})) == ["12"]


def test_without_device_work_ranges_and_mpi_make_ranks(path):
    calls = [{"start": 1, "end": 2, "globalTid": thread(7, 7), "textId": 3}]
    ranges = [nvtx(1, 2, "step 1", pid=5), nvtx(1, None, "a thread", pid=6, eventType=39)]
    write(path, StringIds=NAMES, NVTX_EVENTS=ranges, MPI_OTHER_EVENTS=calls)
    assert members(path) == ["5", "7"]


def test_equal_process_numbers_on_two_machines_stay_apart(path):
    other = process(10) + (1 << 56)
    write(path, StringIds=NAMES, **{KERNEL: [kernel(1, 2), kernel(3, 4, globalPid=other)]})
    assert members(path) == [str(process(10)), str(other)]
    assert [row["start_ns"] for row in read(path, str(other)).rows] == [3]


@pytest.mark.parametrize(
    ("tables", "rank", "world", "source"),
    [
        ({"NVTX_EVENTS": [nvtx(1, None, "MPI Rank 3", eventType=39)]}, 3, None, "MPI"),
        ({"NVTX_EVENTS": [nvtx(1, None, "MPI Rank 3", eventType=39, pid=11)]}, None, None, None),
        ({"MPI_RANKS": [{"globalTid": thread(10, 10), "rank": 5}]}, 5, None, "MPI"),
        ({"MPI_RANKS": [{"globalTid": thread(10, 10), "rank": -5}]}, None, None, None),
        ({"MPI_RANKS": [{"globalTid": thread(10, i), "rank": i} for i in (1, 2)]}, None, None, None),
        ({"META_DATA_CAPTURE": environment("RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0")}, 2, 4, "environment"),
        *(
            ({"META_DATA_CAPTURE": environment(*variables)}, rank, world, "environment")
            for variables, rank, world in (
                *((('RANK="2"', 'WORLD_SIZE="4"'), 2, 4), (("SLURM_PROCID=7", "SLURM_NTASKS=8"), 7, 8)),
                *((("SLURM_PROCID=7", "RANK=1"), 1, None), (("RANK=0", "WORLD_SIZE=0"), 0, None)),
                (("RANK=999999999", "WORLD_SIZE=1"), 999_999_999, 1),
                (("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "PMI_RANK=9"), 3, 4),
                (("PMI_RANK=3", "PMI_SIZE=5", "WORLD_SIZE=7"), 3, 5),
            )
        ),
        *(
            ({"META_DATA_CAPTURE": environment(*variables)}, None, None, None)
            for variables in (("RANK=two", "MY_RANK=1", "RANK="), ("RANK=" + "9" * 40,), ("WORLD_SIZE=7",))
        ),
        ({"NVTX_EVENTS": [nvtx(1, None, "MPI Rank x", eventType=39)]}, None, None, None),
    ],
)
def test_who_says_the_rank(path, tables, rank, world, source):
    facts = facts_of(path, **tables)
    assert (facts.rank, facts.world_size, facts.rank_source) == (rank, world, source)


def test_the_launchers_variables_are_nobodys_among_several_ranks(path):
    kernels = [kernel(1, 2), kernel(1, 2, pid=11)]
    write(path, StringIds=NAMES, META_DATA_CAPTURE=environment("RANK=0"), **{KERNEL: kernels})
    assert [read(path, member).trace.facts.rank for member in members(path)] == [None, None]


def started(command, *variables):
    """A capture's account of the program that nsys started, its arguments out of order."""
    program, *arguments = command.split()
    rows = [{"name": f"PROCESS_0:ARGUMENT_{i}", "value": text} for i, text in enumerate(arguments)]
    return [*rows[::-1], {"name": "PROCESS_0:COMMAND", "value": program}, *environment(*variables)]


@pytest.mark.parametrize(
    ("command", "variables", "world"),
    [
        ("torchrun --nnodes=1 --nproc_per_node=2 --master_port=29506 train.py", (), 2),
        ("/opt/venv/bin/torchrun --nproc-per-node 2 --standalone train.py --nnodes 8", (), 2),
        ("python3.11 -m torch.distributed.run --nnodes 4 --nproc-per-node 2 -m train", (), 8),
        ("python -m torch.distributed.launch --use_env --nnodes=3:3 --nproc_per_node=2 train.py", (), 6),
        ("torchrun --nn=4 --nproc=2 train.py", (), 8),
        ("torchrun --nproc-per-node=2 train.py", ("PET_NNODES=16",), 32),
        ("torchrun -r3 --nproc-per-node=2 train.py", ('PET_NNODES="2"', "PET_NPROC_PER_NODE=8"), 4),
        ("torchrun --nnodes=2 train.py", ("PET_NPROC_PER_NODE=2",), 4),
        # elastic, as many as there are GPUs, and as many processes as the capture does not have
        ("torchrun --nnodes=1:4 --nproc-per-node=2 train.py", (), None),
        ("torchrun --nproc-per-node=2 train.py", ("PET_NNODES=1:4",), None),
        ("torchrun --nproc-per-node=gpu train.py", (), None),
        ("torchrun --nproc-per-node=8 train.py", (), None),
        ("torchrun --nproc-per-node=2 --nnodes=0 train.py", (), None),
        *(("torchrun --nproc-per-node", (), None), ("torchrun train.py --nproc-per-node=2", (), None)),
        *(("python train.py --nproc-per-node=2", (), None), ("python -m train --nproc-per-node=2", (), None)),
        *(("python -m", (), None), ("mytorchrun --nproc-per-node=2 train.py", (), None)),
        ("torchrun --n=4 --nproc-per-node=2 train.py", (), 2),
        ("torchrun -n 4 --nproc-per-node=2 train.py", (), 2),
        ("torchrun -m --nnodes=3 --nproc-per-node=2 train", (), 6),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", (), 2),
        ("python -c torch.distributed.run --nproc-per-node=2 train.py", (), None),
        ("torchrun --nnodes=999999 --nproc-per-node=2 train.py", (), 1_999_998),
        ("torchrun --nnodes=1000000x --nproc-per-node=2 train.py", (), None),
    ],
)
def test_torchrun_tells_the_world(path, command, variables, world):
    """Not among several programs."""
    kernels = [kernel(1, 2, pid=10), kernel(1, 2, pid=11, deviceId=1)]
    write(path, StringIds=NAMES, META_DATA_CAPTURE=started(command, *variables), **{KERNEL: kernels})
    told = [read(path, member).trace.facts for member in members(path)]
    assert [facts.world_size for facts in told] == [world, world]
    assert [facts.rank for facts in told] == [None, None]
    both = [*started(command, *variables), {"name": "PROCESS_1:COMMAND", "value": "sleep"}]
    other = path.with_name("other.sqlite")
    assert facts_of(other, META_DATA_CAPTURE=both, **{KERNEL: kernels}).world_size is None


def test_the_device_a_process_is_mapped_to(path):
    gpus = [GPU | {"id": i, "name": f"NVIDIA {n}", "cuDevice": i} for i, n in ((0, "A100"), (4, "H100"))]
    mapped = [{"gpuId": 4, "cudaId": 0, "pid": 10}, {"gpuId": 0, "cudaId": 0, "pid": 11}]
    facts = facts_of(path, TARGET_INFO_GPU=gpus, TARGET_INFO_CUDA_DEVICE=mapped)
    assert (facts.device_name, facts.device_memory_bytes, facts.sm_count) == ("NVIDIA H100", 80 << 30, 132)
    assert (facts.hbm_bytes_per_s, facts.device_count, facts.vendor) == (3.35e12, 1, "nvidia")
    # Unmapped devices are told as far as they agree.
    facts = facts_of(path.with_name("other.sqlite"), TARGET_INFO_GPU=gpus)
    assert (facts.device_name, facts.sm_count, facts.device_count) == (None, 132, None)


@pytest.mark.parametrize(
    ("name", "count", "told"),
    [
        *(("x" * 500, absurd, (None, None)) for absurd in (-1, 0, 1 << 60, "many", None, 1.5)),
        *((name, 132, (None, 132)) for name in ("n" * 201, "", 7)),
        ("n" * 200, 132, ("n" * 200, 132)),
    ],
)
def test_absurd_properties_say_nothing(path, name, count, told):
    facts = facts_of(path, TARGET_INFO_GPU=[{"id": 0, "name": name, "smCount": count}])
    assert (facts.device_name, facts.sm_count) == told


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_versions(path, table):
    told = {"PRODUCT_VERSION": "2026.2.1.210", "SCHEMA_VERSION": "3.25.0", "HOST": "secret-host"}
    rows = [{"name": f"EXPORT_{name}", "value": value} for name, value in told.items()]
    facts = facts_of(path, **{table: rows})
    assert facts.producer == "Nsight Systems"
    assert facts.producer_version == "2026.2.1.210 (schema 3.25.0)"


def test_warnings_about_lost_events_are_passed_on_and_others_counted(path):
    lost = "Not all {} events might have been collected."
    texts = [(2, lost.format(of)) for of in ("CUDA", "CUDA", "OS runtime")]
    texts += [(2, "could not open /home/someone/secret"), (3, "error on host secret")]
    texts += [(1, "Number of CUDA events collected: 5")]
    events = [{"timestamp": 1, "severity": severity, "text": text} for severity, text in texts]
    start = [{"utcEpochNs": EPOCH}]
    kernels = [kernel(1, 2), kernel(1, 2, pid=11)]
    tables = {"DIAGNOSTIC_EVENT": events, "TARGET_INFO_SESSION_START_TIME": start, KERNEL: kernels}
    assert read(write(path, StringIds=NAMES, **tables), "10").trace.notes == [
        "the profiler warns (2x): Not all CUDA events might have been collected",
        "the profiler warns (1x): Not all OS runtime events might have been collected",
        "the profiler left 1 other warnings and 1 errors in its report",
    ]
    assert read(path, "11").trace.notes == []


def test_tables_that_are_not_read_are_counted_by_name(path):
    tables = {"SCHED_EVENTS": [{"start": i, "cpu": 0} for i in range(3)]}
    tables |= {"SAMPLING_CALLCHAINS": [{"id": 1, "symbol": 2}], "OSRT_API": "start end"}
    tables |= {"PROCESSES": [{"globalPid": 1, "pid": 1}], "strange'table; --": [{"start": 1}]}
    found = read(write(path, StringIds=NAMES, **{KERNEL: [kernel(1, 2)]}, **tables))
    assert found.trace.dropped == {"table SCHED_EVENTS": 3, "table SAMPLING_CALLCHAINS": 1}


@pytest.mark.parametrize(
    ("rank", "told"), [(0, 0), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31, None), (-1, None), ("3", None)]
)
def test_ranks_of_mpi_have_31_bits(path, rank, told):
    assert facts_of(path, MPI_RANKS=[{"globalTid": thread(10, 10), "rank": rank}]).rank == told


def test_a_job_of_one_process_needs_no_options(path):
    assert facts_of(path, META_DATA_CAPTURE=started("torchrun train.py")).world_size == 1


def test_arguments_stand_in_the_order_of_their_numbers(path):
    """Ten and more of them, each without what another would say."""
    more = " ".join(f"--max-restarts {n}" for n in range(6))
    rows = started(f"torchrun {more} --nproc-per-node 2 train.py --nnodes 4")
    kernels = [kernel(1, 2), kernel(1, 2, pid=11)]
    assert facts_of(path, META_DATA_CAPTURE=rows, **{KERNEL: kernels}).world_size == 2


@pytest.mark.parametrize(
    ("epochs", "base"),
    [
        *(([1], 1), ([(1 << 61) - 1], (1 << 61) - 1), ([1 << 61], 0), ([0], 0), ([5, 6], 0), ([5.0], 0)),
        *(([None], 0), ([-1], 0), (["now"], 0)),
    ],
)
def test_the_one_begin_of_the_session_is_time_0(path, epochs, base):
    tables = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": epoch} for epoch in epochs]}
    with Database(write(path, StringIds=NAMES, **tables, **{KERNEL: [kernel(7, 8)]})) as database:
        capture = CapturedProcesses.open_capture(database)
    assert capture.base_ns == base
    assert capture.notes == (
        () if base else ("the export does not state when the session began: times are relative to its start",)
    )


def test_the_largest_process_number(path):
    last = (1 << 24) - 1
    write(path, StringIds=NAMES, **{KERNEL: [kernel(1, 2, pid=last), kernel(1, 2, pid=1)]})
    assert members(path) == ["1", str(last)]
    assert read(path, str(last)).trace.facts.process_id == last


def test_a_process_stands_by_the_first_device_that_any_work_of_it_is_on(path):
    kernels = [kernel(1, 2, pid=pid, deviceId=device) for pid, device in ((10, 1), (9, 1), (8, 2))]
    tables = {KERNEL: kernels, COPY: copied(8)}
    assert members(write(path, StringIds=NAMES, **tables)) == ["8", "9", "10"]


def test_a_file_without_processes_leaves_nothing_out(path):
    row = {"start": 0, "end": 10, "deviceId": 0, "streamId": 7, "correlationId": 1, "shortName": 1}
    calls = [call(1, 2, 1, pid=99), call(1, 2, 1, globalTid=None)]
    found = read(write(path, StringIds=NAMES, **{KERNEL: [row], CALL: calls}), "")
    assert (len(found.rows), found.trace.dropped) == (3, {})

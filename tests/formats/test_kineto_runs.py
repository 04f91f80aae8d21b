# SPDX-License-Identifier: Apache-2.0
"""From a Kineto file to the collectives of a run."""

from __future__ import annotations

import pytest

import cclbench


@pytest.fixture
def collectives(tmp_path):
    """Ingests a file and gives its collectives as dictionaries."""

    def collectives(path):
        return cclbench.ingest(path, store=tmp_path / "runs", jobs=1).collectives().to_pylist()

    return collectives


CALL = {"Collective name": "_reduce_scatter_base", "In msg nelems": 64, "Out msg nelems": 16}
CALL |= {"dtype": "Float8_e4m3fn", "Group size": 4, "Process Group Name": "3"}
CALL |= {"Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 2, ..., 6]"}
CALL |= {"Global rank start": 0, "Global rank stride": 2}
KERNEL = "ncclDevKernel_ReduceScatter_Sum_u8_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SAID = {"kind": "reduce_scatter", "library": "nccl", "group": "0-6:2", "dimension": "tp"}
BYTES = {"in_bytes": 64, "out_bytes": 16, "dtype": "Float8_e4m3fn"}


def test_metadata_on_the_kernel(collectives, write, event):
    (row,) = collectives(write([event("kernel", KERNEL, 9, 3, **CALL, Seq=5)], schemaVersion=1))
    expected = {**SAID, **BYTES, "seq": 5, "payload_source": "kernel", "start_ns": 9_000, "end_ns": 12_000}
    assert {key: row[key] for key in expected} == expected


def test_metadata_on_the_host_op_reaches_what_it_launched(collectives, write, event):
    events = [
        event("cpu_op", "record_param_comms", 1, 5, tid=4, **CALL, Seq=8),
        event("cuda_runtime", "cudaLaunchKernelExC", 2, 1, tid=4, correlation=40),
        event("cuda_runtime", "cudaLaunchKernelExC", 7, 1, tid=4, correlation=41),
        event("kernel", KERNEL, 10, 3, stream=20, correlation=40),
        event("kernel", KERNEL, 20, 3, stream=20, correlation=41),
    ]
    known, unknown = collectives(write(events, schemaVersion=1))
    expected = {**SAID, **BYTES, "seq": 8, "payload_source": "host_op"}
    assert {key: known[key] for key in expected} == expected
    assert (unknown["kind"], unknown["group"], unknown["in_bytes"]) == ("reduce_scatter", None, None)


def test_gloo_with_annotations(collectives, write, event):
    mark = (
        "cclbench::collective kind=reduce_scatter seq=3 in_bytes=4096 out_bytes=2048 dtype=float32 rows=1 "
        "threads=90 pg=3 ranks=0,1 desc=mesh_tp"
    )
    shape = {"Input Dims": [[1024]], "Input type": ["float"]}
    events = [
        event("cpu_op", "c10d::reduce_scatter_tensor_coalesced_", 1, 4, tid=7),
        event("user_annotation", mark, 2, 2, tid=7),
        event("user_annotation", "gloo:all_reduce", 6, 5, tid=90, **shape),
        event("user_annotation", "gloo:all_reduce", 20, 5, tid=91, **shape),
    ]
    known, own = collectives(write(events, schemaVersion=1, deviceProperties=[]))
    expected = {"kind": "reduce_scatter", "library": "gloo", "group": "0-1", "seq": 3}
    expected |= {"in_bytes": 4096, "out_bytes": 2048}
    assert {key: known[key] for key in expected} == expected
    assert (own["kind"], own["group"], own["in_bytes"], own["out_bytes"]) == ("all_reduce", None, 4096, 4096)
    assert (known["start_ns"], known["end_ns"]) == (6_000, 11_000)


def test_real_gloo_rows_without_annotations(collectives, test_data):
    """`cpu_only`: five all-reduces of 321,271 floats, five of 2,082,411; all its groups are all 300 ranks."""
    (path,) = (test_data / "kineto" / "cpu_only").iterdir()
    rows = collectives(path)
    assert sorted(r["in_bytes"] for r in rows) == [1_285_084] * 5 + [8_329_644] * 5
    assert all(r["out_bytes"] == r["in_bytes"] for r in rows)
    assert {(r["group"], r["group_size"]) for r in rows} == {("0-299", 300)}


def test_ranks_of_2026_are_matched_by_sequence_number(tmp_path, write, event):
    """Rank 1 lacks the first call: by order its second would be the first; hashes of 64 bits stand beside."""
    folder = tmp_path / "job"
    folder.mkdir()
    told = {**CALL, "Collective name": "allreduce", "Group size": 2, "Process Group Ranks": "[0, 1]"}
    for rank, calls in enumerate(((4, 5, 6), (5, 6))):
        name = "ncclDevKernel_AllReduce"
        numbers = [{"Seq": n, "Comms Id": 2**63 + n} for n in calls]
        kernels = [event("kernel", name, 100 * one["Seq"], 50, stream=20, **told, **one) for one in numbers]
        write(kernels, schemaVersion=1, distributedInfo={"rank": rank}).rename(folder / f"rank{rank}.json")
    run = cclbench.ingest(folder, store=tmp_path / "runs", jobs=1)
    rows = [(row["rank"], row["seq"], row["instance"]) for row in run.collectives().to_pylist()]
    (_, first, alone), *others = sorted(rows)
    assert (first, alone) == (4, None)
    assert [(rank, seq) for rank, seq, _ in others] == [(0, 5), (0, 6), (1, 5), (1, 6)]
    assert others[0][2] == others[2][2] != others[1][2] == others[3][2]


def test_what_is_set_aside_or_contradictory_stands_in_the_manifest(tmp_path, write, event):
    config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]}]
    kernels = [event("kernel", f"k{i}", i, -1 if i == 7 else 1) for i in range(1000)]
    info = {"rank": 3, "world_size": 2, "pg_config": config}
    run = cclbench.ingest(write(kernels, distributedInfo=info), store=tmp_path / "runs", jobs=1)
    (rank,) = run.manifest["ranks"]
    assert (rank["rows"], rank["dropped"]) == ({"kernel": 999}, {"negative duration": 1})
    assert rank["facts"]["world_size"] == 4
    assert rank["notes"] == [
        "the header states a world of 2 ranks, its process groups contradict that: 4 is used, the size of the"
        " default group, which all ranks are in"
    ]


def test_mtia_waits_are_no_compute(tmp_path, write, event):
    """A wait of 60 µs, half of it beside a kernel of 40 µs; a transfer of 10 µs after that."""
    of = {"pid": 17}
    transfer = {"stream": 105, "direction": "HOST_TO_DEVICE", "size": 1000}
    rows = [
        event("mtia_ccp_events", "event_wait", 0, 60, tid=3774, stream=108, wait_on_stream=104, **of),
        event("mtia_ccp_events", "pe_exe", 30, 40, tid=3910, stream=112, **of),
        event("mtia_ccp_events", "dma_request", 70, 10, **transfer, **of),
    ]
    run = cclbench.run(write(rows, deviceProperties=[]), store=tmp_path / "runs", jobs=1, window="trace")
    own = [row for row in run.rows if row["rank"] == 0 and row["stat"] is row["category"] is None]
    found = {row["metric"]: row["value"] for row in own}
    assert found["time.compute_only"] == pytest.approx(40e-6)
    assert found["time.exposed_copy"] == pytest.approx(10e-6)
    assert found["time.step"] == pytest.approx(50e-6)

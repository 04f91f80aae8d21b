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


CALL = {
    "Collective name": "_reduce_scatter_base",
    "In msg nelems": 64,
    "Out msg nelems": 16,
    "dtype": "Float8_e4m3fn",
    "Group size": 4,
    "Process Group Name": "3",
    "Process Group Description": "mesh_tp",
    "Process Group Ranks": "[0, 2, ..., 6]",
    "Global rank start": 0,
    "Global rank stride": 2,
}
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
    assert {key: known[key] for key in ("kind", "library", "group", "seq", "in_bytes", "out_bytes")} == {
        "kind": "reduce_scatter",
        "library": "gloo",
        "group": "0-1",
        "seq": 3,
        "in_bytes": 4096,
        "out_bytes": 2048,
    }
    assert (own["kind"], own["group"], own["in_bytes"], own["out_bytes"]) == ("all_reduce", None, 4096, 4096)
    assert (known["start_ns"], known["end_ns"]) == (6_000, 11_000)


def test_real_gloo_rows_without_annotations(collectives, test_data):
    """`cpu_only`: five all-reduces of 321,271 floats, five of 2,082,411; all its groups are all 300 ranks."""
    (path,) = (test_data / "kineto" / "cpu_only").iterdir()
    rows = collectives(path)
    assert sorted(r["in_bytes"] for r in rows) == [1_285_084] * 5 + [8_329_644] * 5
    assert all(r["out_bytes"] == r["in_bytes"] for r in rows)
    assert {(r["group"], r["group_size"]) for r in rows} == {("0-299", 300)}

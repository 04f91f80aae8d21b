# SPDX-License-Identifier: Apache-2.0
"""Chakra's execution traces: communication of both encodings, and the dependencies between nodes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.changed_bytes import read_or_refused

from cclbench.export.chakra import COLLECTIVE, COMPUTE, RECV, SEND, write_metadata, write_node
from cclbench.formats import READERS, Evidence
from cclbench.formats.source_files import required_reader
from cclbench.ground.errors import InputError

NODES: list[tuple[str, int, list[int], int, dict[str, Any]]] = [
    *(("gemm", COMPUTE, [], 30, {}), ("c10d::allreduce_", COLLECTIVE, [0], 9, {"is_cpu_op": True})),
    ("ncclKernel_AllReduce", COLLECTIVE, [0, 1], 20, {"comm_type": 0, "comm_size": 4096}),
    ("all_gather_1MB", COLLECTIVE, [2], 0, {"comm_type": 2, "comm_size": 1 << 20}),
    ("send", SEND, [3], 5, {"comm_size": 64, "comm_src": 3, "comm_dst": 7}),
    ("recv", RECV, [99], 5, {"comm_size": 64, "comm_src": 7, "comm_dst": 3}),
]
EXPECTED = [
    *((3, "all_reduce", "nccl", 4096, 20_000, None, None), (3, "all_gather", None, None, None, None, None)),
    *((3, "send", None, 64, 5_000, 3, 7), (3, "recv", None, 64, 5_000, 7, 3)),
]


def write_protobuf(folder: Path) -> Path:
    path = folder / "job.3.et"
    with path.open("wb") as file:
        write_metadata(file, {})
        for number, (name, kind, after, length, more) in enumerate(NODES):
            write_node(file, number, name, kind, after, [], (0, 0, 1000 * length), more)
    return path


def write_json(folder: Path) -> Path:
    path = folder / "job.3.json"
    nodes = []
    for number, (name, kind, after, us, more) in enumerate(NODES):
        node = {"Id": number, "Name": name, "NodeType": kind, "ctrlDeps": [], "data_deps": after}
        nodes.append(node | {"runtime": us} | more)
    path.write_text(json.dumps({"workload_graph": nodes, "ngpus": 8}))
    return path


def read(path: Path) -> Evidence:
    return READERS.get("chakra").read(path)  # type: ignore[call-arg,return-value]


def rows(found: Evidence) -> list[tuple[Any, ...]]:
    columns = ("rank", "kind", "library", "bytes", "dur_ns", "src_rank", "dst_rank")
    return [tuple(row.values()) for row in found.timings.select(columns).to_pylist()]


@pytest.mark.parametrize("write", [write_protobuf, write_json])
def test_rows_by_hand(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    assert required_reader(path) == "chakra"
    found = read(path)
    assert rows(found) == EXPECTED
    assert found.facts == {"nodes": 6, "dependencies": 6, "compute_nodes": 1}
    assert found.left_out == {"calls of the host, whose kernels follow": 1}
    assert found.notes == [
        "1 of 6 dependencies are on nodes that the file lacks",
        "1 sizes are of kinds of which Chakra does not state the side",
    ]


def test_a_ring_and_a_collective_of_simulators(test_data: Path) -> None:
    examples = test_data / "chakra" / "examples"
    ring = read(examples / "system/custom_collectives/custom_ring_allreduce_8npus_1MB/custom_allreduce.7.et")
    # A ring of 8 ranks sends 2 x 7 eighths of a MiB, and receives as many.
    assert [row[1] for row in rows(ring)].count("send") == 14
    assert {row[3:] for row in rows(ring) if row[1] == "send"} == {(1 << 17, None, None, 0)}
    assert {row[0] for row in rows(ring)} == {7}
    (gather,) = rows(read(examples / "workload/microbenchmarks/all_gather/16npus_1MB/all_gather.10.et"))
    assert gather == (10, "all_gather", None, None, None, None, None)


@pytest.mark.parametrize(
    ("archive", "member", "sizes"),
    [
        ("feeder_tests_trace.tar.gz", "tests/data/chakra.0.et", 102_441_032),
        ("json_trace.tar.gz", "jsonData/chakra.0.json", 0),
    ],
)
def test_a_trace_of_dlrm(archive: str, member: str, sizes: int, tmp_path: Path, test_data: Path) -> None:
    with tarfile.open(test_data / "chakra" / "tests" / "data" / archive) as packed:
        packed.extract(member, tmp_path, filter="data")
    found = read(tmp_path / member)
    # Both state 36,715 µs in seven kernels; JSON lacks the sizes.
    assert [len(rows(found)), sum(row[4] for row in rows(found))] == [7, 36_715_000]
    assert sum(row[3] or 0 for row in rows(found)) == sizes
    assert found.facts["nodes"] == 3664


@pytest.mark.parametrize(
    ("write", "change", "said"),
    [
        (write_protobuf, lambda content: content[:-3], "ends within a message"),
        (write_protobuf, lambda content: content + b"\x80", "ends within a length"),
        (write_protobuf, lambda content: content + b"\x02\xff\xff", "no Node of Chakra"),
        (write_protobuf, lambda content: content + b"\xff" * 4 + b"\x0f", "a message of 4,294,967,295 bytes"),
        (write_json, lambda content: content[:-3], "truncated"),
        (write_json, lambda content: content.replace(b'"Id": 1', b'"Id": "x"'), "Expected 'int', got 'str'"),
    ],
)
def test_damage(write, change, said, tmp_path):
    path = write(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=said):
        read(path)


@pytest.mark.parametrize("write", [write_protobuf, write_json])
def test_mutations_are_read_or_refused(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    read_or_refused(read, path, path.read_bytes())

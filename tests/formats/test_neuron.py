# SPDX-License-Identifier: Apache-2.0
"""Device profiles of AWS Neuron Explorer: engines, waits, DMA transfers, collectives; damaged tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.changed_bytes import read_or_refused
from helpers.plain_rows import plain_rows

import cclbench
from cclbench.formats import Part, trace_reader
from cclbench.ground.errors import InputError
from cclbench.ingestion.source import find_source

INSTRUCTIONS: dict[str, list[Any]] = {
    "start_ts": [1000, 1000, 1400, 1900, None],
    "end_ts": [1400, 1500, 1900, 2000, 9],
    "engine": ["Tensor", "Vector", "Tensor", "Tensor", "Tensor"],
    "opcode": ["MATMUL", "EVENT_SEMAPHORE", "MATMUL", "DRAIN", "MATMUL"],
    "raw_flops": [4096, 0, 8192, 0, 0],
    "hbm_read_bytes": [64, 0, 128, 0, 0],
    "hbm_write_bytes": [0, 0, None, 0, 0],
}
TABLES: dict[str, dict[str, list[Any]]] = {
    "Metadata": {"neuroncore_idx": [3], "instance_type": ["trn2.48xlarge"], "explorer_version": ["2.33.0"]},
    "Instruction": INSTRUCTIONS,
    "DmaPacketAggregated": {"start_ts": [1200], "end_ts": [1700], "queue_name": ["qSpill-Q1"]},
    "CcOp": {"start_ts": [1500], "end_ts": [2500], "operation": ["AllGather"], "algorithm": ["Ring"]},
}
TABLES["DmaPacketAggregated"] |= {"transfer_bytes": [2048]}
TABLES["CcOp"] |= {"stream_id": [0], "dtype": ["bf16"], "input_size": [512], "output_size": [2048]}
TABLES["CcOp"] |= {"replica_group": ["[[0, 1, 2, 3]]"]}


def write(folder: Path, **changes: Any) -> Path:
    """The profile's tables, of which None leaves one out; the table that stands for all."""
    for name, columns in {**TABLES, **changes}.items():
        if columns is not None:
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    (found,) = find_source(folder).files
    assert (found.reader, find_source(folder).ignored) == ("neuron", ())
    return found.path


def read(path: Path) -> list[tuple[Any, ...]]:
    """Kind, name, begin, length, stream, bytes and FLOPs of each row."""
    columns = ("kind", "name", "start_ns", "dur_ns", "track", "bytes", "flops")
    batches = trace_reader("neuron").read(path, part=Part(), allow_truncated=False).batches
    return [tuple(row[name] for name in columns) for batch in batches for row in plain_rows(batch)]


def test_rows_by_hand(tmp_path: Path) -> None:
    assert read(write(tmp_path)) == [
        ("kernel", "AllGather", 1500, 1000, 0, None, None),
        ("kernel", "MATMUL", 1000, 400, 1, None, 4096),
        ("kernel", "MATMUL", 1400, 500, 1, None, 8192),
        ("sync", "EVENT_SEMAPHORE", 1000, 500, 2, None, None),
        ("sync", "DRAIN", 1900, 100, 1, None, None),
        ("copy", "qSpill-Q1", 1200, 500, 3, 2048, None),
    ]


def test_a_run_of_a_profile(tmp_path: Path) -> None:
    (folder := tmp_path / "profile").mkdir()
    run = cclbench.run(write(folder).parent, store=tmp_path / "store")
    values = {
        r["metric"]: r["value"] for r in run.rows if not (r["stat"] or r["category"] or r["collective"])
    }
    # Products from 1,000 to 1,900 ns, the collective to 2,500, of which 400 are beside products.
    assert values["time.step"] == pytest.approx(1500e-9)
    assert values["compute.time"] == pytest.approx(900e-9)
    assert values["comm.time"] == pytest.approx(1000e-9)
    assert values["time.exposed_comm"] == pytest.approx(600e-9)
    call = run.collectives().to_pylist()[0]
    names = ("kind", "group", "in_bytes", "out_bytes", "dtype")
    assert tuple(call[name] for name in names) == ("all_gather", "0-3", 512, 2048, "bf16")


def test_split_tables_are_one(tmp_path: Path) -> None:
    whole = read(write(tmp_path))
    rows = pq.read_table(tmp_path / "Instruction.parquet")
    (tmp_path / "Instruction.parquet").unlink()
    for number, part in enumerate((rows.slice(0, 1), rows.slice(1))):
        pq.write_table(part, tmp_path / f"Instruction_{number}.parquet")
    (found,) = find_source(tmp_path).files
    assert found.path.name == "Instruction_0.parquet"
    assert sorted(read(found.path), key=str) == sorted(whole, key=str)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({k: v for k, v in INSTRUCTIONS.items() if k != "opcode"}, "no column opcode"),
        (INSTRUCTIONS | {"end_ts": [9] * 5}, "impossible time: from 1000 to 9"),
        (INSTRUCTIONS | {"end_ts": ["x"] * 5}, "end_ts is not of numbers"),
    ],
)
def test_damaged_tables(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(write(tmp_path, Instruction=changed))


@pytest.mark.parametrize("table", ["Instruction", "CcOp", "Metadata"])
def test_changed_bytes_are_read_or_refused(tmp_path: Path, table: str) -> None:
    anchor = write(tmp_path)
    path = tmp_path / f"{table}.parquet"
    read_or_refused(lambda _: read(anchor), path, path.read_bytes(), 200)

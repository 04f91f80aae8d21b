# SPDX-License-Identifier: Apache-2.0
"""A run is the same whatever is held of it at a time."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench import disk_columns, disk_order

SOURCES = (
    "kineto/sampled_2of128",
    "kineto/dlrm_8xv100",
    "kineto/nccl_meta_a100",
    "kineto/gpu_only_mi210",
    "kineto/cpu_only",
    "nsys/pipit_saxpy_mpi_cuda_perlmutter0.sqlite",
    "xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb",
)


def tables(run: cclbench.Run) -> dict[str, object]:
    """All that lies in the run's folder."""
    found: dict[str, object] = {}
    for path in sorted(run.path.rglob("*")):
        if path.suffix == ".parquet":
            found[str(path.relative_to(run.path))] = pq.read_table(path).to_pydict()
        elif path.is_file():
            found[str(path.relative_to(run.path))] = path.read_bytes()
    ranks = [msgspec.structs.replace(entry, stored=[]) for entry in run.record.ranks]
    # Row groups are of other sizes, and so are files and their hashes.
    found["manifest.json"] = msgspec.structs.replace(run.record, ranks=ranks, stored=[], sha256="")
    return found


def both_ways(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tables(cclbench.ingest(source, store=tmp_path / "whole", allow_truncated=True))
    monkeypatch.setattr(disk_columns, "PIECE", 61)
    monkeypatch.setattr(disk_order, "_ROWS", 61)
    monkeypatch.setattr(disk_columns, "SMALL_BYTES", 100)
    in_pieces = tables(cclbench.ingest(source, store=tmp_path / "pieces", allow_truncated=True))
    assert len(whole) > 5
    assert in_pieces == whole


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_is_the_same_in_small_pieces(
    test_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    both_ways(test_data / source, tmp_path, monkeypatch)


def test_a_cut_file_is_the_same_in_small_pieces(
    test_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until when it is known depends on all launches and all rows."""
    (packed,) = (test_data / "kineto" / "h100_qwen").iterdir()
    cut = tmp_path / "cut.json"
    cut.write_bytes(gzip.decompress(packed.read_bytes())[:3_000_000])
    both_ways(cut, tmp_path, monkeypatch)

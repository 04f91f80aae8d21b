# SPDX-License-Identifier: Apache-2.0
"""A job of FSDP on eight GPUs by its NCCL logs, against the table that another tool made of the same lines.

That table counts elements × size of a call: of all_gather and reduce_scatter one rank's part of eight.
"""

from __future__ import annotations

import csv
import tarfile
from collections import Counter
from pathlib import Path

import pytest

import cclbench
from cclbench.record.run import Run

KINDS = {
    "AllGather": ("all_gather", 8),
    "ReduceScatter": ("reduce_scatter", 8),
    "AllReduce": ("all_reduce", 1),
}
KINDS |= {name: (name.lower(), 1) for name in ("Broadcast", "Send", "Recv")}


@pytest.fixture(scope="module")
def job(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the logs, the table among them."""
    folder = tmp_path_factory.mktemp("job")
    with tarfile.open(test_data / "nccl_job_logs" / "b0_fsdp8.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (table,) = folder.glob("**/collective_summary.csv")
    return table.parent


@pytest.fixture(scope="module")
def run(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All metrics of it."""
    return cclbench.run(job, store=tmp_path_factory.mktemp("store"))


def totals(run: Run, metric: str) -> dict[str | None, float]:
    """The sums over all ranks by kind; under None of them all."""
    return {
        row["collective"]: row["value"]
        for row in run.rows
        if row["metric"] == metric
        and row["stat"] == "total"
        and row["rank"] is row["group"] is row["category"] is None
    }


def test_every_call_is_counted_with_its_bytes(run: Run, job: Path) -> None:
    calls, volume = Counter[str](), Counter[str]()
    with (job / "collective_summary.csv").open() as file:
        for row in csv.DictReader(file):
            kind, parts = KINDS[row["opname"]]
            calls[kind] += 1
            volume[kind] += parts * int(row["bytes"])
    assert calls.total() == 263_378
    assert totals(run, "comm.count") == {None: 263_378, **calls}
    assert totals(run, "comm.volume") == {None: volume.total(), **volume}
    assert calls["all_gather"] == 168_040
    assert volume["all_gather"] == 21_265_321_576_704


def test_ranks_group_and_transfers(run: Run) -> None:
    """Rank 0 gathers objects from all others and scatters others to them, besides what all call."""
    of_ranks = {
        row["rank"]: row["value"]
        for row in run.rows
        if row["metric"] == "comm.count" and row["rank"] is not None and row["collective"] is None
    }
    assert of_ranks == {0: 32_959, **dict.fromkeys(range(1, 8), 32_917)}
    assert [row["ranks"] for row in run.groups().to_pylist()] == [list(range(8))]
    edges = {
        (row["collective"], row["category"]): row["value"]
        for row in run.rows
        if row["metric"] == "comm.edges" and row["category"] and row["stat"] is None
    }
    pairs = {pair for _, pair in edges if " " not in pair}
    assert pairs == {pair for rank in range(1, 8) for pair in (f"0->{rank}", f"{rank}->0")}
    assert edges["send", "5->0 68796B"] == edges["recv", "5->0 68796B"] == 1
    assert run.figures.value("comm.edges") == 49
    assert run.figures.value("comm.edges", stat="unmatched") == 0
    assert run.figures.value("comm.missing_calls") == 0
    assert all(row["value"] is None for row in run.rows if row["unit"] == "s")
    assert {row["window"] for row in run.rows if row["metric"] == "comm.count"} == {"trace"}

# SPDX-License-Identifier: Apache-2.0
"""DLRM's eight ranks again, with rank 3 shifted by 250 µs and rank 5 drifting by 20 µs/s."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

import cclbench

from .conftest import Measure

SHIFT_US, DRIFT = 250, 20e-6
SHIFTED, DRIFTING = 3, 5
MATCHED = ("comm.wait", "comm.transfer", "comm.skew", "time.exposed_wait", "time.exposed_transfer")
OF_ONE_RANK = ("time.step", "time.compute_only", "time.idle", "comm.time", "comm.volume")


@pytest.fixture(scope="module")
def raw(kineto: Path, measure: Measure) -> cclbench.Run:
    """The traces as they are."""
    return measure(kineto / "dlrm_8xv100")


@pytest.fixture(scope="module")
def distorted(kineto: Path, tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    """The traces with two clocks put wrong."""
    folder = tmp_path_factory.mktemp("distorted") / "dlrm"
    shutil.copytree(kineto / "dlrm_8xv100", folder, copy_function=shutil.copyfile)
    for rank in (SHIFTED, DRIFTING):
        (path,) = folder.glob(f"worker{rank}_*")
        trace = json.loads(gzip.decompress(path.read_bytes()))
        begin = min(row["ts"] for row in trace["traceEvents"] if "ts" in row)
        for row in trace["traceEvents"]:
            if "ts" in row:
                late = SHIFT_US if rank == SHIFTED else DRIFT * (row["ts"] - begin)
                row["ts"] = row["ts"] + round(late)
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return cclbench.run(folder, store=tmp_path_factory.mktemp("store"), metrics=[*MATCHED, *OF_ONE_RANK])


def clocks(run: cclbench.Run) -> dict[int, dict[str, float]]:
    """The manifest's account of each rank's clock."""
    return {entry["rank"]: entry for entry in run.manifest["clocks"]["ranks"]}


def figures(run: cclbench.Run, metric: str) -> dict[int | None, float]:
    """A metric's main values, by rank."""
    keys = ("step", "group", "collective", "category", "stat")
    return {
        row["rank"]: row["value"]
        for row in run.rows
        if row["metric"] == metric and all(row[key] is None for key in keys)
    }


def test_no_correction_of_the_raw_traces(raw: cclbench.Run) -> None:
    assert [entry["applied"] for entry in clocks(raw).values()] == [False] * 8
    assert all(entry["offset_ns"] == 0 == entry["drift_ppm"] for entry in clocks(raw).values())
    assert raw.manifest["matching"]["complete"] == 8


def test_the_shift_is_recovered_within_the_residual(raw: cclbench.Run, distorted: cclbench.Run) -> None:
    """And the same collectives are matched."""
    found = clocks(distorted)
    shifted = found[SHIFTED]
    assert abs(shifted["offset_ns"] - 1000 * SHIFT_US) <= shifted["residual_ns"] + shifted["uncertainty_ns"]
    assert shifted["residual_ns"] < 5_000
    # 20 µs/s over the 14 ms that its collectives span are 0.3 µs: less than the traces' microsecond.
    assert [rank for rank, entry in found.items() if entry["applied"]] == [SHIFTED]
    one, other = (run.manifest["matching"] | {"wait_beyond_duration_ns": 0} for run in (raw, distorted))
    assert one == other


@pytest.mark.parametrize("metric", [*MATCHED, *OF_ONE_RANK])
def test_metrics_are_the_same_within_the_residuals(
    raw: cclbench.Run, distorted: cclbench.Run, metric: str
) -> None:
    """Each of the eight collectives of a step may be off by its ranks' residuals.

    Metrics of a rank alone know no other clock: the drift, rounded to the trace's microseconds, moves a
    boundary here and there.
    """
    bound = 8 * 2 * max(entry["residual_ns"] for entry in clocks(distorted).values()) / 1e9
    before, after = figures(raw, metric), figures(distorted, metric)
    assert {None, *(range(8) if metric != "comm.skew" else ())} == before.keys() == after.keys()
    for rank, value in before.items():
        assert after[rank] == pytest.approx(value, abs=bound if metric in MATCHED else 5e-6), rank

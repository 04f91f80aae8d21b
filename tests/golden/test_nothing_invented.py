# SPDX-License-Identifier: Apache-2.0
"""Traces that lack something: no crash, no number that nobody measured, a reason for each that is missing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cclbench.analyzers.metric import METRICS
from cclbench.record.run import Run

from .conftest import Measure

CAPTURES = ("h100_qwen", "cpu_only", "gpu_only_mi210", "distributed_info_missing")


@pytest.mark.parametrize("window", ["steps", "annotations", "trace"])
@pytest.mark.parametrize("capture", [*CAPTURES, "cuda_sync_a100", "sglang_decode_mi300x", "dlrm_8xv100"])
def test_a_row_has_a_finite_value_or_a_reason(
    kineto: Path, measure: Measure, capture: str, window: str
) -> None:
    run = measure(kineto / capture, window)
    assert {row["metric"] for row in run.rows} == set(METRICS)
    for row in run.rows:
        if row["status"] in ("ok", "partial"):
            assert math.isfinite(row["value"]), row
            assert (row["status"] == "partial") == (row["coverage"] is not None), row
            assert row["provenance"] in ("measured", "derived", "modelled"), row
            # the lower end of an interval may lie below what the figure itself can be, and kernels may be
            # faster beside communication than without
            assert row["value"] >= 0 or row["stat"] in ("low", "excess"), row
        else:
            said = (row["status"], row["value"], row["provenance"])
            assert said == ("not_applicable", None, None), row
            assert len(row["reason"]) > 10, row


def status(run: Run, metric: str) -> tuple[str, str]:
    """Status and reason of the run's own row of a metric."""
    row = next(row for row in run.rows if row["metric"] == metric and row["rank"] is None)
    return row["status"], row["reason"] or ""


def test_one_accelerator_does_not_communicate(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "h100_qwen")
    assert status(run, "time.step")[0] == "ok"
    for metric in ("overlap.ratio", "comm.algbw", "comm.busbw", "balance.load_imbalance"):
        assert status(run, metric)[0] == "not_applicable"


def test_without_host_operators_there_are_no_steps_and_no_loader(kineto: Path, measure: Measure) -> None:
    """Device rows and their launches tell the times and why the device idles, and no more."""
    run = measure(kineto / "gpu_only_mi210")
    assert run.window == "trace"
    for metric in ("time.step", "time.idle", "time.idle_host", "time.idle_device"):
        assert status(run, metric)[0] == "ok"
    for metric in ("data.stall", "memory.copy_bandwidth", "memory.peak_allocated", "comm.busbw"):
        assert status(run, metric)[0] == "not_applicable"
    assert "the trace does not say its rank: taken as rank 0" in run.manifest["ranks"][0]["notes"]


def test_host_rows_of_a_job_with_accelerators_give_no_time(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "distributed_info_missing")
    assert {row["status"] for row in run.rows} == {"not_applicable"}
    assert "only host events" in status(run, "time.step")[1]
    (entry,) = run.manifest["ranks"]
    assert entry["rank"] == 0
    assert "the trace does not say its rank: taken as rank 0" in entry["notes"]


def test_a_rank_without_accelerators_has_no_kernels(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "cpu_only")
    assert status(run, "time.step")[0] == "ok"
    for metric in ("compute.kernel_count", "compute.sm_coverage", "time.idle_host", "memory.copy_bandwidth"):
        found, reason = status(run, metric)
        assert found == "not_applicable"
        assert "CPU" in reason
    calls = run.collectives()
    assert calls["kind"].unique().to_pylist() == ["all_reduce"]
    assert len(calls) == 10

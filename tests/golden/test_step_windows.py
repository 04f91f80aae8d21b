# SPDX-License-Identifier: Apache-2.0
"""Device windows of real traces against the host's own period: one step is as long on either."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Measure

KEEPING_UP = {
    # Mean of the closed device windows and of the same steps' host periods, ns, by hand from the tables.
    "ddp_a100": (76_792_400, 76_810_200),
    "nccl_meta_a100": (220_893_483, 221_144_857.5),
    "sampled_2of128": (607_246_000, 607_361_000),
}
BEHIND = {
    # The device runs steps that the host launched long before: what it takes is not what the host takes.
    "resnet_mi300x": (18_981_636.5, 16_393_820.5),
    "resnet50_2021/resnet50_num_workers_4_29dba6_worker0.pt.trace.json.gz": (117_246_400, 123_541_600),
}


@pytest.mark.parametrize("capture", [*KEEPING_UP, *BEHIND])
def test_a_device_that_keeps_up_has_the_hosts_period_and_one_that_runs_behind_is_said(
    kineto: Path, measure: Measure, capture: str
) -> None:
    run = measure(kineto / capture)
    found = run.manifest["ranks"][0]["steps"]
    periods = (found["device_period_ns"], found["host_period_ns"])
    notes = [note for note in run.manifest["ranks"][0]["notes"] if "the device takes" in note]
    if capture in BEHIND:
        assert periods == BEHIND[capture]
        assert found["least_purity"] == 1
        assert found["least_host_purity"] < 0.9
        (note,) = notes
        assert "the device runs behind" in note
        return
    assert periods == KEEPING_UP[capture]
    assert min(found["least_purity"], found["least_host_purity"]) >= 0.9
    assert abs(periods[0] / periods[1] - 1) <= 0.005
    assert found["closed"] == found["found"] - 1
    assert notes == []
    (first, *_) = run.figures.ranks("time.step").values()
    assert first == pytest.approx(periods[0] / 1e9, rel=1e-12)


def test_prefetched_input_opens_no_window(kineto: Path, measure: Measure) -> None:
    """Each step of this trace copies its input before its first kernel, while the step before computes."""
    run = measure(kineto / "ddp_a100")
    first = run.sql(
        "SELECT step, min(start_ns) FILTER (kind = 'kernel') AS kernel, min(start_ns) AS any_row FROM events"
        " WHERE kind IN ('kernel', 'copy', 'memset') GROUP BY step ORDER BY step"
    ).to_pylist()
    assert all(row["any_row"] < row["kernel"] for row in first)
    windows = [row for row in run.steps().to_pylist() if row["source"] == "device"]
    assert [row["start_ns"] for row in windows] == [row["kernel"] for row in first]
    assert [row["end_ns"] for row in windows[:-1]] == [row["kernel"] for row in first[1:]]
    assert [row["open"] for row in windows] == [False] * 5 + [True]

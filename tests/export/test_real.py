# SPDX-License-Identifier: Apache-2.0
"""Real runs written, read back and replayed by their dependencies alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench
from cclbench.api import export
from cclbench.export.check import read_folder, schedule_workload, step_ns
from cclbench.export.issue import issue_workload

RUNS = ("tiny-llama-fsdp2-tp2-gloo-cpu", "tiny-llama-ddp4-gloo-cpu", "tiny-jax-dp2-tp4-cpu", "dlrm_8xv100")


@pytest.mark.parametrize("name", RUNS)
def test_the_step_read_back_is_the_replayed_one(
    name: str, repository: Path, test_data: Path, tmp_path: Path, evidence_store: Path
) -> None:
    source = test_data / "kineto" / name if name.startswith("dlrm") else repository / "traces" / name
    run = cclbench.ingest(source, store=evidence_store)
    made = export(run, tmp_path / "chakra", check=True)
    steps = made.steps_ns
    assert steps["read back"] == steps["replayed"]
    assert steps["replayed"] == pytest.approx(steps["measured"], rel=0.01)
    # a reader of whole microseconds comes to each node at its time, rounded down
    exact, rounded = (read_folder(tmp_path / "chakra", micros=micros) for micros in (False, True))
    assert max(schedule_workload(exact).end) < 60e9  # as long as the traces
    ends, whole = schedule_workload(exact).end, schedule_workload(rounded).end
    off = sum(us // 1000 != ns // 1000 for ns, us in zip(ends, whole, strict=True))
    assert off <= sum("by the ranks' clocks" in note for note in made.notes) * 0.001 * len(ends)
    assert len(list((tmp_path / "chakra").glob("*.et"))) == len(run.ranks)


@pytest.mark.parametrize(
    ("name", "off"),
    [("tiny-jax-dp2-tp4-cpu", 1e-4), ("tiny-llama-ddp4-gloo-cpu", 0.01), ("dlrm_8xv100", 1e-4)],
)
def test_what_astra_sim_gets_is_near(
    name: str, off: float, repository: Path, test_data: Path, tmp_path: Path, evidence_store: Path
) -> None:
    source = test_data / "kineto" / name if name.startswith("dlrm") else repository / "traces" / name
    system = None if name.startswith("dlrm") else "dgx-h100"
    run = cclbench.ingest(source, store=evidence_store)
    made = export(run, tmp_path / "sim", "astra-sim", system=system, check=True)
    assert made.steps_ns["read back"] == pytest.approx(made.steps_ns["replayed"], rel=off)
    workload = read_folder(tmp_path / "sim", micros=True)
    assert step_ns(workload, issue_workload(workload)) == made.steps_ns["read back"]

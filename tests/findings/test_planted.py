# SPDX-License-Identifier: Apache-2.0
"""Causes planted in simulated jobs are named first, healthy jobs have none, and gains hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers.synthetic import write
from helpers.synthetic.diseases import DISEASES, Job, chance, go_together, healthy, sick

import cclbench
from cclbench.findings.finding import FINDINGS, Finding
from cclbench.selfcheck.agreements import gains
from cclbench.selfcheck.reading import CheckedReading

Look = Callable[[Job], list[Finding]]
PAIRS = [("data loader", "elementwise"), ("more work", "copies"), ("cudaMalloc", "no overlap")]


def breaches(run: cclbench.Run, found: Sequence[Finding]) -> list[str]:
    """Gains that are not what the replay of their settings says."""
    return [said for said in gains(CheckedReading(run, [*run.figures], [*found])) if said is not None]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """The findings of a simulated job, whose queries list something."""

    def looked(job: Job) -> list[Finding]:
        write(job.simulate(), tmp_path / "traces")
        run = cclbench.run(tmp_path / "traces", store=tmp_path / "store")
        found = run.findings
        for one in found:
            if one.query and one.gain_s:
                assert run.sql(one.query).num_rows, one.name
        assert breaches(run, found) == []
        return found

    return looked


@pytest.mark.parametrize("cause", DISEASES)
def test_the_planted_cause_comes_first(cause: str, look: Look) -> None:
    job = sick(chance(f"one/{cause}"), cause)
    first = look(job)[0]
    assert first.name == job.planted[0]
    assert first.evidence
    assert first.try_
    assert FINDINGS.get(first.name).rule
    if job.healed is not None and first.gain_s is not None:
        gained = (job.step_ns() - job.healed.step_ns()) / 1e9
        least, most = first.gain_s or (0.0, 0.0)
        slack = 0.02 * job.step_ns() / 1e9
        assert least - slack <= gained <= most + slack


@pytest.mark.parametrize("number", range(3))
def test_a_healthy_job_has_nothing_to_gain(number: int, look: Look) -> None:
    found = look(healthy(chance(f"healthy/{number}")))
    assert [one for one in found if (one.gain_share or 0.0) > 0.05] == []


@pytest.mark.parametrize("pair", PAIRS)
def test_of_two_causes_both_are_among_the_first_three(pair: tuple[str, str], look: Look) -> None:
    assert go_together(*pair)
    job = sick(chance(f"two/{pair}"), *pair)
    assert set(job.planted) <= {one.name for one in look(job)[:3]}


@pytest.mark.parametrize("name", ["tiny-llama-fsdp4-gloo-cpu", "tiny-llama-operators-ddp2-gloo-cpu"])
def test_gains_of_real_cpu_ranks_are_those_of_the_replay(name: str, repository: Path, tmp_path: Path) -> None:
    run = cclbench.run(repository / "workload_cards" / f"{name}.yaml", store=tmp_path)
    found = run.findings
    assert "host_bound" in [one.name for one in found]
    assert breaches(run, found) == []

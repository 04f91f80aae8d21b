# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs whose traces state no process group: the inferred one is true, and so are its waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import (
    Case,
    Collective,
    Compute,
    Distortion,
    Layout,
    Program,
    Transfer,
    Truth,
    in_layouts,
    simulate,
    write,
)
from true_rows import CASES

import cclbench
from cclbench.record.run import Run

SILENT = Distortion(metadata="none", listed_groups=False)
KINDS = Distortion(seq=False, peers=False, listed_groups=False, group_ranks=False)
"""Kernels that state what they do, and the group's size."""
KIB = 1024


def ingested(truth: Truth, folder: Path, told: Distortion = SILENT) -> Run:
    write(truth, folder / "traces", told)
    return cclbench.ingest(folder / "traces", store=folder / "store")


def layers(*dimensions: str) -> Program:
    """Three steps of six collectives, whose ranks' compute differs by up to a third."""
    ops = [op for d in dimensions for op in (Compute(200_000), Collective("all_reduce", d, 96 * KIB))]
    return Program((*ops * (6 // len(dimensions)), Compute(50_000)), steps=3, jitter=300)


def waits(run: Run) -> list[tuple[int, int, int]]:
    rows = run.collectives().to_pandas()
    found = sorted(zip(rows["rank"], rows["start_ns"], rows["wait_ns"], strict=True))
    return [(rank, int(wait), place) for place, (rank, _, wait) in enumerate(found)]


def true_waits(truth: Truth) -> list[tuple[int, int, int]]:
    found = sorted((r, ns, i.wait_ns[r]) for i in truth.instances for r, ns in i.arrival_ns.items())
    return [(rank, wait, place) for place, (rank, _, wait) in enumerate(found)]


def test_data_parallel_ranks_are_one_group(tmp_path: Path) -> None:
    truth = simulate(Layout(dp=4), layers("dp"), seed=1)
    run = ingested(truth, tmp_path)
    assert run.manifest["inference"]["rule"] == "R1"
    assert run.manifest["matching"]["complete"] == len(truth.instances) == 18
    assert set(run.collectives().to_pandas()["group"]) == {"0-3"}
    assert waits(run) == true_waits(truth)


def test_where_no_trace_states_the_world_the_card_does(tmp_path: Path) -> None:
    written = write(simulate(Layout(dp=4), layers("dp"), seed=1), tmp_path / "traces", SILENT)
    for path in written.files.values():
        trace = json.loads(path.read_text())
        del trace["distributedInfo"]["world_size"]
        path.write_text(json.dumps(trace))
    run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
    assert run.manifest["inference"]["reason"] == "nothing states the world size"
    for count, rule in ((4, "R1"), (8, None)):
        card = "version: 2\nid: job\ndescription: A job.\nworkload: {phase: training}\n"
        card += f"hardware: {{accelerator: nvidia-h100-sxm, count: {count}}}\n"
        (tmp_path / "traces" / "card.yaml").write_text(card)
        run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
        assert run.manifest["inference"]["rule"] == rule
    assert run.manifest["inference"]["reason"] == "4 of 8 ranks have a trace"


def test_traces_that_name_some_groups_name_all_they_know(tmp_path: Path) -> None:
    """Of a rank's trace alone the kernels tell their group: nothing is inferred of the others'."""
    truth = simulate(Layout(dp=4), layers("dp"), seed=1)
    written = write(truth, tmp_path / "traces", SILENT)
    told = write(truth, tmp_path / "told", Distortion())
    told.files[2].replace(written.files[2])
    run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
    reason = "the traces name process groups, and not those of 54 collectives"
    assert run.manifest["inference"] == {"rule": None, "group": None, "reason": reason}
    assert [group["source"] for group in run.groups().to_pylist()] == ["stated"] * run.groups().num_rows


def test_communicators_of_unknown_ranks_have_to_be_the_same(tmp_path: Path) -> None:
    written = write(simulate(Layout(dp=4), layers("dp"), seed=1), tmp_path / "traces", KINDS)
    run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
    assert run.manifest["inference"]["rule"] == "R1"
    trace = json.loads(written.files[3].read_text())
    for event in trace["traceEvents"]:
        if "Process Group Name" in event["args"]:
            event["args"]["Process Group Name"] = "another"
    written.files[3].write_text(json.dumps(trace))
    run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
    assert run.manifest["inference"]["reason"] == "the ranks' collectives name different process groups"


@pytest.mark.parametrize("dimensions", [("tp",), ("tp", "dp"), ("dp", "dp", "tp")])
def test_groups_of_two_dimensions_are_not_one(tmp_path: Path, dimensions: tuple[str, ...]) -> None:
    run = ingested(simulate(Layout(dp=2, tp=2), layers(*dimensions), seed=1), tmp_path)
    assert run.manifest["inference"]["rule"] is None
    assert run.manifest["matching"]["matched"] == 0
    assert run.groups().num_rows == 0


def test_lockstep_without_any_difference_shows_nothing(tmp_path: Path) -> None:
    program = Program((Compute(200_000), Collective("all_reduce", "tp", 96 * KIB)) * 8)
    run = ingested(simulate(Layout(dp=2, tp=2), program), tmp_path)
    assert run.manifest["inference"]["reason"].startswith("in 0 of 8 instances all ranks are seen to wait")


@pytest.mark.parametrize(("told", "kind"), [(SILENT, "send_recv"), (KINDS, "send")])
def test_two_stages_of_a_pipeline_send_to_one_another(tmp_path: Path, told: Distortion, kind: str) -> None:
    ops = (Transfer("recv", 64 * KIB), Compute(100_000), Transfer("send", 64 * KIB))
    truth = simulate(Layout(pp=2), Program(ops, steps=3, jitter=300))
    run = ingested(truth, tmp_path, told)
    assert run.manifest["inference"]["rule"] == "R0"
    assert run.manifest["matching"]["complete"] == len(truth.instances) == 3
    assert waits(run) == true_waits(truth)
    rows = run.collectives().to_pandas()
    assert set(rows[rows["rank"] == 0]["kind"]) == {kind}
    if kind == "send":
        assert set(zip(rows["src_rank"], rows["dst_rank"], strict=True)) == {(0, 1)}


def test_random_jobs_get_no_false_group(tmp_path: Path) -> None:
    numbers = iter(range(1000))

    def true_group(case: Case) -> None:
        truth = case.simulate()
        run = ingested(truth, tmp_path / str(next(numbers)))
        if run.manifest["inference"]["rule"] is not None:
            everyone = tuple(range(truth.layout.world))
            assert {instance.group for instance in truth.instances} == {everyone}

    in_layouts(CASES, 0, true_group)

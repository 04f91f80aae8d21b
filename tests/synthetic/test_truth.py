# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs whose traces state no process group: the inferred one is true, and so are its waits."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from helpers import synthetic as sim
from helpers import true_rows

import cclbench
from cclbench.ground.schema import group_id
from cclbench.record.run import Run

SILENT = sim.Distortion(metadata="none", listed_groups=False)
KINDS = sim.Distortion(seq=False, peers=False, listed_groups=False, group_ranks=False)
"""Kernels that state what they do, and the group's size."""
KIB = 1024


def ingested(truth: sim.Truth, folder: Path, told: sim.Distortion = SILENT) -> Run:
    sim.write(truth, folder / "traces", told)
    return cclbench.ingest(folder / "traces", store=folder / "store")


def layers(*dimensions: str) -> sim.Program:
    """Three steps of six collectives, whose ranks' compute differs by up to a third."""
    ops = [op for d in dimensions for op in (sim.Compute(200_000), sim.Collective("all_reduce", d, 96 * KIB))]
    return sim.Program((*ops * (6 // len(dimensions)), sim.Compute(50_000)), steps=3, jitter=300)


def waits(run: Run) -> list[tuple[int, int, int]]:
    rows = run.collectives().to_pandas()
    found = sorted(zip(rows["rank"], rows["start_ns"], rows["wait_ns"], strict=True))
    return [(rank, int(wait), place) for place, (rank, _, wait) in enumerate(found)]


def true_waits(truth: sim.Truth) -> list[tuple[int, int, int]]:
    found = sorted((r, ns, i.wait_ns[r]) for i in truth.instances for r, ns in i.arrival_ns.items())
    return [(rank, wait, place) for place, (rank, _, wait) in enumerate(found)]


def test_data_parallel_ranks_are_one_group(tmp_path: Path) -> None:
    truth = sim.simulate(sim.Layout(dp=4), layers("dp"), seed=1)
    run = ingested(truth, tmp_path)
    assert run.manifest["inference"]["rule"] == "R1"
    assert run.manifest["matching"]["complete"] == len(truth.instances) == 18
    assert set(run.collectives().to_pandas()["group"]) == {"0-3"}
    assert waits(run) == true_waits(truth)


def test_where_no_trace_states_the_world_the_card_does(tmp_path: Path) -> None:
    written = sim.write(sim.simulate(sim.Layout(dp=4), layers("dp"), seed=1), tmp_path / "traces", SILENT)
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
    truth = sim.simulate(sim.Layout(dp=4), layers("dp"), seed=1)
    written = sim.write(truth, tmp_path / "traces", SILENT)
    sim.write(truth, tmp_path / "told", sim.Distortion()).files[2].replace(written.files[2])
    run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
    reason = "the traces name process groups, and not those of 54 collectives"
    assert run.manifest["inference"] == {"rule": None, "group": None, "reason": reason}
    assert [group["source"] for group in run.groups().to_pylist()] == ["stated"] * run.groups().num_rows


def test_communicators_of_unknown_ranks_have_to_be_the_same(tmp_path: Path) -> None:
    written = sim.write(sim.simulate(sim.Layout(dp=4), layers("dp"), seed=1), tmp_path / "traces", KINDS)
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
    run = ingested(sim.simulate(sim.Layout(dp=2, tp=2), layers(*dimensions), seed=1), tmp_path)
    assert run.manifest["inference"]["rule"] is None
    assert run.manifest["matching"]["matched"] == 0
    assert run.groups().num_rows == 0


def test_lockstep_without_any_difference_shows_nothing(tmp_path: Path) -> None:
    program = sim.Program((sim.Compute(200_000), sim.Collective("all_reduce", "tp", 96 * KIB)) * 8)
    run = ingested(sim.simulate(sim.Layout(dp=2, tp=2), program), tmp_path)
    assert run.manifest["inference"]["reason"].startswith("in 0 of 8 instances all ranks are seen to wait")


@pytest.mark.parametrize(("told", "kind"), [(SILENT, "send_recv"), (KINDS, "send")])
def test_two_stages_send_to_one_another(tmp_path: Path, told: sim.Distortion, kind: str) -> None:
    ops = (sim.Transfer("recv", 64 * KIB), sim.Compute(100_000), sim.Transfer("send", 64 * KIB))
    truth = sim.simulate(sim.Layout(pp=2), sim.Program(ops, steps=3, jitter=300))
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

    def true_group(case: sim.Case) -> None:
        truth = case.simulate()
        run = ingested(truth, tmp_path / str(next(numbers)))
        if run.manifest["inference"]["rule"] is not None:
            everyone = tuple(range(truth.layout.world))
            assert {instance.group for instance in truth.instances} == {everyone}

    sim.in_layouts(true_rows.CASES, 0, true_group)


EXACT = (
    *("comm.wait", "comm.transfer", "comm.skew", "comm.time", "comm.fraction", "comm.count", "comm.volume"),
    *("comm.algbw", "comm.busbw", "comm.windows", "comm.alpha", "comm.beta"),
    *("time.exposed_*", "overlap.*", "balance.*"),
)
PARTLY = {"comm.count", "comm.volume"}
"""Of these the truth is only told of all collectives together."""


def exactly(case: sim.Case) -> None:
    truth = case.simulate()
    with TemporaryDirectory() as folder:
        sim.write(truth, Path(folder) / "traces")
        run = cclbench.run(Path(folder) / "traces", store=Path(folder) / "store", metrics=EXACT)
    found = true_rows.values_of(run)
    expected: true_rows.Values = {}
    for of in (
        true_rows.true_sums,
        true_rows.true_ratios,
        true_rows.true_bandwidths,
        true_rows.true_phases,
        true_rows.true_balance,
    ):
        expected |= of(truth)
    expected |= true_rows.true_skews(truth.instances)
    told = {key[0] for key in expected}
    compared = {k: v for k, v in found.items() if k[0] in told and not _partly_told(k) and not _finer(k)}
    alike(compared, expected)
    hockney(truth, found)
    sum_to_exposed(run)


def _finer(key: true_rows.Key) -> bool:
    """Whether it is what the truth does not tell: which copies."""
    metric, *_, category, _ = key
    return metric == "time.exposed_copy" and category is not None


def _partly_told(key: true_rows.Key) -> bool:
    return key[0] in PARTLY and key[2:] != (None,) * 4


def alike(found: true_rows.Values, expected: true_rows.Values) -> None:
    assert set(found) == set(expected)
    wrong = {
        key: (value, expected[key])
        for key, value in found.items()
        if not math.isclose(value, expected[key], rel_tol=1e-12, abs_tol=1e-18)
    }
    assert not wrong


def hockney(truth: sim.Truth, found: true_rows.Values) -> None:
    """α and β of exactly the kinds and groups with 5 points of 2 sizes."""
    fitted = {key: n for key, n in truth.points.items() if n[0] >= 5 and n[1] >= 2}
    assert {key[2:4] for key in found if key[0] == "comm.alpha"} == {
        (kind, group_id(group)) for kind, group in fitted
    }
    for kind, group in fitted:
        link = truth.hockney[kind, group]
        at = (None, kind, group_id(group), None)
        assert found["comm.alpha", *at, None] == pytest.approx(link.alpha_ns / true_rows.NS, rel=1e-9)
        assert found["comm.beta", *at, None] == pytest.approx(float(link.beta_ns) / true_rows.NS, rel=1e-9)
        assert found["comm.alpha", *at, "r2"] == pytest.approx(1)
        for metric in ("comm.alpha", "comm.beta"):
            low, high = found[metric, *at, "low"], found[metric, *at, "high"]
            assert low <= found[metric, *at, None] <= high
            assert high - low <= 1e-6 * high


def sum_to_exposed(run: cclbench.Run) -> None:
    """Of each rank and step waiting, transfer and what is not matched sum to the exposed communication."""
    parts: dict[tuple[int | None, int | None], Counter[str]] = defaultdict(Counter)
    for row in run.rows:
        place = row["collective"], row["group"], row["category"], row["stat"]
        if row["metric"].startswith("time.exposed_") and place == (None,) * 4 and row["rank"] is not None:
            parts[row["rank"], row["step"]][row["metric"].removeprefix("time.exposed_")] += row["value"] or 0
    for of in parts.values():
        assert of["wait"] + of["transfer"] + of["unmatched"] == pytest.approx(
            of["comm"], rel=1e-12, abs=1e-15
        )


@pytest.mark.parametrize("part", range(true_rows.PARTS))
def test_every_metric_is_exact_on_true_clocks(part: int) -> None:
    sim.in_layouts(true_rows.CASES, part, exactly)

# SPDX-License-Identifier: Apache-2.0
"""The generator: hand-checked runs, what must hold of any run, and what its distortions do."""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers import synthetic as sim
from helpers.synthetic.kineto import BASE_NS
from helpers.synthetic.simulation import T0_NS
from helpers.true_rows import CASES, NONE, NS, PARTS, own_instances, true_skews, values_of
from hypothesis import given, settings

import cclbench
from cclbench.ground.schema import group_id

KIB = 1024
NETWORK = sim.Network(sim.Link(5_000, 10), {("all_reduce", "tp"): sim.Link(8_000, 1)})


def two_ranks(**changes: Any) -> sim.Truth:
    """10 µs of compute, an all-reduce of 64 KiB, 4 µs of compute; rank 1 computes 1.5 times as long. From T0
    on in ns: first launch 1000, kernel from 4000 to 14000 (rank 1: 19000); the all-reduce is launched at
    3500, arrives when the kernel ends, and ends at 19000 + 5000 + 64·10 = 24640; then the last kernel to
    28640 (rank 1: 30640)."""
    ops = (sim.Compute(10_000), sim.Collective("all_reduce", "dp", 64 * KIB), sim.Compute(4_000))
    return sim.simulate(sim.Layout(dp=2), sim.Program(ops, **{"slow": {1: 1500}, **changes}), NETWORK)


def test_two_ranks_by_hand() -> None:
    truth = two_ranks()
    (i,) = truth.instances
    assert (i.kind, i.dimension, i.group, i.payload) == ("all_reduce", "dp", (0, 1), 64 * KIB)
    assert i.arrival_ns == {0: T0_NS + 14_000, 1: T0_NS + 19_000}
    assert (i.end_ns, i.transfer_ns, i.skew_ns) == (T0_NS + 24_640, 5_640, 5_000)
    assert i.wait_ns == {0: 5_000, 1: 0}
    key = sim.Key("all_reduce", (0, 1), "dp")
    (fast,), (slow,) = (truth.ranks[r].steps for r in (0, 1))
    assert (fast.start_ns - T0_NS, fast.window_ns, slow.window_ns) == (4_000, 24_640, 26_640)
    assert (fast.compute_ns, fast.communication_ns, fast.exposed_comm_ns) == (14_000, 10_640, 10_640)
    assert (slow.compute_ns, slow.communication_ns, slow.idle_ns) == (21_000, 5_640, 0)
    assert (fast.exposed, slow.exposed) == ({key: (5_000, 5_640)}, {key: (0, 5_640)})
    assert (fast.count, fast.volume) == ({key: 1}, {key: 65_536})
    assert truth.load_imbalance == pytest.approx(1.2)
    # rank 0 waits from the median arrival, 16,500, until 19,000
    assert truth.straggler_delay == pytest.approx(2_500 / 24_640 / 2)
    assert truth.bubble is None
    # 64 KiB lie in [4^8, 4^9); the factor of two ranks is 1
    assert truth.bandwidth["all_reduce", (0, 1), 8].busbw == pytest.approx(65_536 / 5_640e-9)
    assert truth.hockney == {("all_reduce", (0, 1)): sim.Link(5_000, 10)}
    assert truth.points == {("all_reduce", (0, 1)): (1, 1)}


def test_collectives_side_by_side_share_each_instant() -> None:
    """All arrive when the kernel ends at 14000; tp's ends at +8016, dp's at +5640: they share 5640 ns."""
    ops = (sim.Compute(10_000), sim.Collective("all_reduce", "tp", 16 * KIB, "a"))
    ops += (sim.Collective("all_reduce", "dp", 64 * KIB, "b"), sim.Await("a"), sim.Await("b"))
    truth = sim.simulate(sim.Layout(dp=2, tp=2), sim.Program((*ops, sim.Compute(4_000))), NETWORK)
    (step,) = truth.ranks[3].steps
    assert step.exposed == {
        sim.Key("all_reduce", (2, 3), "tp"): (0, 2_820 + 2_376),
        sim.Key("all_reduce", (1, 3), "dp"): (0, 2_820),
    }
    dp, tp = truth.ranks[3].phases
    assert (dp.dimension, dp.count, dp.gap_ns) == ("dp", 1, None)
    assert (tp.dimension, tp.end_ns - tp.start_ns, tp.gap_ns) == ("tp", 8_016, 0)


def test_pipeline_by_hand() -> None:
    """Stage 1 posts its receive at 4500; stage 0 sends at 14000; 19640 is the end; stage 1 to 29640."""
    ops = (sim.Transfer("recv", 64 * KIB), sim.Compute(10_000), sim.Transfer("send", 64 * KIB))
    truth = sim.simulate(sim.Layout(pp=2), sim.Program(ops), NETWORK)
    (i,) = truth.instances
    assert (i.kind, i.source, i.target, i.wait_ns) == ("send_recv", 0, 1, {0: 0, 1: 9_500})
    assert (i.kind_on(0), i.kind_on(1)) == ("send", "recv")
    first, second = (truth.ranks[r].steps[0] for r in (0, 1))
    assert (first.window_ns, first.bubble_ns) == (15_640, 0)
    assert (second.window_ns, second.bubble_ns) == (25_140, 9_500)
    assert truth.bubble == pytest.approx(9_500 / 40_780)


@pytest.mark.parametrize(("cause", "late"), [("compute", 30_000), ("copy", 30_000), ("launch", 22_500)])
def test_stragglers(cause: str, late: int) -> None:
    """The kernel hides the first 7500 ns of a late launch: without it, it would wait since 6500."""
    truth = two_ranks(slow={}, stragglers=(sim.Straggler(0, cause, 30_000, op=1),))
    assert truth.instances[0].wait_ns == {0: 0, 1: late}
    step = truth.ranks[0].steps[0]
    hidden = {"launch": (22_500, 0), "copy": (0, 30_000)}
    assert (step.idle_host_ns, step.exposed_copy_ns) == hidden.get(cause, (0, 0))


def test_groups_of_a_layout() -> None:
    layout = sim.Layout(dp=2, tp=2, pp=2, ep=2)
    assert layout.world == 16
    assert [layout.group(5, d) for d in ("tp", "ep", "dp", "pp")] == [(4, 5), (5, 7), (1, 5), (5, 13)]
    names = layout.process_groups()
    assert names["world", tuple(range(16))] == "0"
    assert len(names) == 1 + 4 * 8
    # programs that cannot end, or differ in what the simulation knows
    with pytest.raises(ValueError, match="forever"):
        sim.simulate(sim.Layout(pp=2), sim.Program((sim.Transfer("recv", KIB), sim.Compute(1))), NETWORK)
    with pytest.raises(ValueError, match="whole KiB"):
        sim.simulate(sim.Layout(dp=2), sim.Program((sim.Collective("all_reduce", "dp", 1000),)), NETWORK)


@given(sim.layouts())
def test_what_holds_of_any_run(case: sim.Case) -> None:
    truth = case.simulate()
    assert truth.instances
    for i in truth.instances:
        assert set(i.wait_ns) == set(i.members)
        assert min(i.wait_ns.values()) == 0
        assert i.skew_ns == max(i.wait_ns.values())
        assert i.transfer_ns == i.link.alpha_ns + i.link.beta_ns * i.payload
    for r, rank in truth.ranks.items():
        for row in rank.rows:
            assert row.launch_ns < row.start_ns < row.end_ns
            if row.instance is not None:
                i = truth.instances[row.instance]
                assert row.end_ns == i.end_ns
                assert i.wait_ns[r] + i.transfer_ns == row.end_ns - row.start_ns
        for s in rank.steps:
            parts = s.compute_only_ns, s.overlapped_ns, s.exposed_comm_ns, s.exposed_copy_ns, s.idle_ns
            assert sum(parts) == s.window_ns
            assert s.compute_only_ns + s.overlapped_ns == s.compute_ns
            assert s.exposed_comm_ns + s.overlapped_ns == s.communication_ns
            assert s.exposed_wait_ns + s.exposed_transfer_ns == s.exposed_comm_ns
            assert s.idle_host_ns + s.idle_device_ns == s.idle_ns
    assert case.simulate() == truth


def written(truth: sim.Truth, **distortion: Any) -> tuple[sim.Written, dict[int, dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        traces = sim.write(truth, Path(folder), sim.Distortion(**distortion))
        return traces, {r: json.loads(path.read_text()) for r, path in traces.files.items()}


def kernels(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["cat"] == "kernel" and e["name"].startswith("nccl")]


def test_clocks_are_shifted_and_drift() -> None:
    """Rank 1's all-reduce runs from T0 + 19000 for 5640 ns; 20 ‰ more are 380 and 492.8 ns after T0."""
    _, traces = written(two_ranks(), offset_ns={1: -250}, drift_ppm={1: 20_000})
    assert traces[0]["baseTimeNanoseconds"] == traces[1]["baseTimeNanoseconds"] == BASE_NS
    (mine,), (other,) = kernels(traces[0]), kernels(traces[1])
    assert round(mine["ts"] * 1000) == T0_NS + 14_000
    assert round(other["ts"] * 1000) == T0_NS + 19_000 + 380 - 250
    assert round(other["dur"] * 1000) == 24_640 + 493 - 19_380


def test_metadata_is_where_it_should_be() -> None:
    ops = (sim.Collective("all_gather", "dp", 64 * KIB), sim.Transfer("send", KIB), sim.Transfer("recv", KIB))
    truth = sim.simulate(sim.Layout(dp=2, pp=2), sim.Program(ops), NETWORK)
    _, traces = written(truth)
    gather, send = kernels(traces[0])
    told = {"Collective name": "_allgather_base", "In msg nelems": 16 * KIB, "Out msg nelems": 32 * KIB}
    told |= {"Group size": 2, "dtype": "BFloat16"}
    told |= {"Process Group Ranks": "[0, 1]", "Process Group Description": "mesh_dp"}
    assert gather["args"] | told == gather["args"]
    told = {"Collective name": "send", "Src Rank": 0, "Dst Rank": 2}
    assert send["args"] | told == send["args"]
    groups = {g["pg_name"]: g["ranks"] for g in traces[0]["distributedInfo"]["pg_config"]}
    assert groups[gather["args"]["Process Group Name"]] == [0, 1]
    _, traces = written(truth, metadata="host_op", seq=False, listed_groups=False)
    assert "Collective name" not in kernels(traces[0])[0]["args"]
    ops_told = [e for e in traces[0]["traceEvents"] if e["name"] == "record_param_comms"]
    assert [e["args"]["Collective name"] for e in ops_told] == ["_allgather_base", "send"]
    assert "Seq" not in ops_told[0]["args"]
    assert "pg_config" not in traces[0]["distributedInfo"]


def test_lost_kernels_late_captures_and_missing_ranks() -> None:
    ops = (sim.Compute(1_000), sim.Collective("all_reduce", "dp", KIB))
    truth = sim.simulate(sim.Layout(dp=4, gpus_per_host=2), sim.Program(ops, steps=10), NETWORK)
    traces, files = written(truth, late={2: 3}, missing=frozenset({1}))
    assert sorted(files) == [0, 2, 3]
    assert [len(kernels(files[r])) for r in sorted(files)] == [10, 7, 10]
    assert traces.members(truth.instances[2]) == (0, 3)
    assert traces.members(truth.instances[3]) == (0, 2, 3)
    assert len(files[3]["deviceProperties"]) == 2
    assert kernels(files[3])[0]["pid"] == 1
    traces, files = written(truth, lost=Fraction(1, 10))
    assert sum(len(kernels(f)) for f in files.values()) == 36
    assert len(traces.lost) == 4


def test_ends_jitter_within_their_bound() -> None:
    ops = (sim.Compute(1_000), sim.Collective("all_reduce", "dp", KIB))
    truth = sim.simulate(sim.Layout(dp=2), sim.Program(ops, steps=20), NETWORK)
    _, files = written(truth, jitter_ns=300)
    ends = [round((e["ts"] + e["dur"]) * 1000) for e in kernels(files[0])]
    early = [i.end_ns - end for i, end in zip(truth.instances, ends, strict=True)]
    assert min(early) >= 0
    assert 100 < max(early) <= 300


@settings(max_examples=12)
@given(sim.layouts())
def test_metrics_of_one_rank_at_a_time_equal_the_truth(case: sim.Case) -> None:
    """What a rank's own trace tells is read from the traces exactly."""
    from cclbench.api import run
    from cclbench.ground.schema import group_id

    truth = case.simulate()
    with TemporaryDirectory() as folder:
        sim.write(truth, Path(folder, "traces"))
        wanted = ("time.*", "comm.time", "comm.volume", "comm.count", "overlap.*")
        rows = run(
            Path(folder, "traces"), store=Path(folder, "runs"), metrics=(*wanted, "balance.load_imbalance")
        ).rows
    labels = ("group", "collective", "category", "stat")
    found = {
        (row["metric"], row["rank"], row["step"]): row["value"]
        for row in rows
        if all(row[key] is None for key in labels)
    }
    by_group = {
        (row["metric"], row["rank"], row["collective"], row["group"]): row["value"]
        for row in rows
        if row["group"] is not None and row["step"] is None and row["category"] is None
    }
    assert found["balance.load_imbalance", None, None] == pytest.approx(truth.load_imbalance, rel=1e-12)
    for r, rank in truth.ranks.items():
        for s in rank.steps:
            parts = ("compute_only", "overlapped", "exposed_comm", "exposed_copy")
            parts += ("idle", "idle_host", "idle_device")
            ns = {f"time.{part}": getattr(s, f"{part}_ns") for part in parts}
            ns |= {"time.step": s.window_ns, "time.idle_unknown": 0, "comm.time": s.communication_ns}
            assert {name: found[name, r, s.step] for name in ns} == {n: v / 10**9 for n, v in ns.items()}
            assert found["comm.count", r, s.step] == sum(s.count.values())
            assert found["comm.volume", r, s.step] == sum(s.volume.values())
            if s.communication_ns:
                assert found["overlap.ratio", r, s.step] == s.overlapped_ns / s.communication_ns
        for key in {key for s in rank.steps for key in s.count}:
            label = (r, key.kind, group_id(key.group))
            steps = len(rank.steps)
            exposed = sum(sum(s.exposed.get(key, (0, 0))) for s in rank.steps)
            assert by_group["overlap.exposed_by", *label] == float(exposed / (steps * 10**9))
            assert by_group["comm.count", *label] == sum(s.count.get(key, 0) for s in rank.steps) / steps
            assert by_group["comm.volume", *label] == sum(s.volume.get(key, 0) for s in rank.steps) / steps
        shorter = sum(min(s.compute_ns, s.communication_ns) for s in rank.steps)
        overlapped = sum(s.overlapped_ns for s in rank.steps)
        assert found["overlap.efficiency", r, None] == (overlapped / shorter if shorter else None)


DRIFT_PPM = 20
WITHIN = (
    *("comm.wait", "comm.transfer", "comm.skew", "comm.algbw", "comm.busbw", "comm.alpha", "comm.beta"),
    *("time.exposed_*", "overlap.pipeline_bubble", "balance.*"),
)


def distorted(case: sim.Case) -> sim.Distortion:
    """Each rank's clock up to 500 µs off and DRIFT_PPM fast or slow; 1 % of the events lost, or one."""
    random = Random(case.seed)  # noqa: S311
    ranks = range(case.layout.world)
    shown = sum(len(i.members) for i in case.simulate().instances)
    least = Fraction(random.randint(0, 1), shown)
    return sim.Distortion(
        offset_ns={r: random.randint(-500_000, 500_000) for r in ranks},
        drift_ppm={r: random.randint(-DRIFT_PPM, DRIFT_PPM) for r in ranks},
        lost=max(Fraction(1, 100), least),
        seed=case.seed,
    )


class Distorted:
    """A run of distorted traces beside its truth, each of its rows with the instance it is of."""

    def __init__(self, case: sim.Case, folder: Path) -> None:
        self.truth, self.distortion = case.simulate(), distorted(case)
        self.written: sim.Written = sim.write(self.truth, folder / "traces", self.distortion)
        self.run = cclbench.run(folder / "traces", store=folder / "store", metrics=WITHIN)
        self.found = values_of(self.run)
        residuals = [rank["residual_ns"] for rank in self.run.manifest["clocks"]["ranks"]]
        longest = max(i.end_ns - min(i.arrival_ns.values()) for i in self.truth.instances)
        # Two ranks' clocks (the residual is what 95 % of the ends keep), the grid of ns, and a collective's
        # own length on a clock that runs fast or slow.
        self.bound = 3 * max(residuals, default=0) + 3 + longest * 2 * DRIFT_PPM / 10**6
        self.windows_ns = sum(
            row["end_ns"] - row["start_ns"]
            for row in self.run.steps().to_pylist()
            if row["source"] == "device" and not row["open"]
        )
        self.rows = [(row, self._instance_of(row)) for row in self.run.collectives().to_pylist()]
        self.complete = [i for i in self.truth.instances if len(i.members) > 1 and self._whole(i)]

    def _whole(self, i: sim.Instance) -> bool:
        return self.written.members(i) == i.members

    def _instance_of(self, row: dict[str, Any]) -> sim.Instance:
        if not hasattr(self, "_by_start"):
            t0 = self.truth.t0_ns
            self._by_start = {
                (r, BASE_NS + self.distortion.local_ns(r, i.arrival_ns[r], t0), *self._names(i, r)): i
                for i in self.truth.instances
                for r in self.written.members(i)
            }
        return self._by_start[row["rank"], row["start_ns"], row["kind"], row["group"]]

    @staticmethod
    def _names(i: sim.Instance, rank: int) -> tuple[str, str]:
        return i.kind_on(rank), group_id(i.group)


def within(case: sim.Case) -> None:
    with TemporaryDirectory() as folder:
        run = Distorted(case, Path(folder))
    nothing_mismatched(run)
    rows_within(run)
    if run.complete:
        times_within(run)
        hockney_within(run)
    if not run.written.lost:
        shares_within(run)


def nothing_mismatched(run: Distorted) -> None:
    """An instance holds rows of one collective only, all that the traces show; others have no split."""
    members: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, i in run.rows:
        if row["instance"] is not None:
            members[row["instance"]].append((i.index, row["rank"]))
        assert (row["wait_ns"] is not None) <= (i in run.complete)
    for rows in members.values():
        (index,) = {index for index, _ in rows}
        assert sorted(r for _, r in rows) == sorted(run.written.members(run.truth.instances[index]))
    matched = {index for rows in members.values() for index, _ in rows}
    assert {i.index for i in run.complete if i.source is None} <= matched
    if not run.written.lost:
        assert matched == {i.index for i in run.complete}


def union(spans: list[tuple[int, int]]) -> int:
    total, until = 0, -(1 << 62)
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def rows_within(run: Distorted) -> None:
    for row, i in run.rows:
        assert row["wait_ns"] is None or row["least_wait_ns"] is None
        if row["wait_ns"] is not None:
            assert row["wait_ns"] == pytest.approx(i.wait_ns[row["rank"]], abs=run.bound)
            assert row["transfer_ns"] == pytest.approx(i.transfer_ns, abs=run.bound)
        if row["least_wait_ns"] is not None:
            least = max(i.arrival_ns[r] for r in run.written.members(i)) - i.arrival_ns[row["rank"]]
            assert row["least_wait_ns"] == pytest.approx(least, abs=run.bound)
            assert least <= i.wait_ns[row["rank"]]


def times_within(run: Distorted) -> None:
    """Sums and means over what is matched: wait, transfer, skew, delay, bandwidth."""
    split = [(row["rank"], i) for row, i in run.rows if row["wait_ns"] is not None]
    together = list({i.index: i for _, i in split}.values())
    for r, rank in run.truth.ranks.items():
        own = [i for other, i in split if other == r]
        partly = [i for row, i in run.rows if row["rank"] == r and row["least_wait_ns"] is not None]
        bound = 2 * (len(own) + len(partly)) * run.bound / (NS * len(rank.steps))
        seen = [(i, i.latest_ns) for i in own]
        seen += [(i, max(i.arrival_ns[m] for m in run.written.members(i))) for i in partly]
        for metric, spans in (
            ("comm.wait", [(i.arrival_ns[r], latest) for i, latest in seen]),
            ("comm.transfer", [(i.latest_ns, i.end_ns) for i in own]),
        ):
            if own:
                mean = union(spans) / (NS * len(rank.steps))
                assert run.found[metric, r, *NONE] == pytest.approx(mean, rel=1e-9, abs=bound)
    for key, skew in true_skews(together).items():
        assert run.found[key] == pytest.approx(skew, abs=run.bound / NS)
    payload, ns = sum(i.payload for _, i in split), sum(i.transfer_ns for _, i in split)
    low, high = (payload * NS / (ns + sign * len(split) * run.bound) for sign in (1, -1))
    assert high < 0 or low <= run.found["comm.algbw", None, *NONE] <= high


def hockney_within(run: Distorted) -> None:
    """The fitted line lies near the true times at the sizes it is fitted to."""
    points: dict[tuple[str, str], list[sim.Instance]] = defaultdict(list)
    for i in {i.index: i for row, i in run.rows if row["wait_ns"] is not None}.values():
        for kind in sorted({i.kind_on(r) for r in i.members}):
            points[kind, group_id(i.group)].append(i)
    for (kind, group), of in points.items():
        at = (None, kind, group, None, None)
        fitted = len(of) >= 5 and len({i.payload for i in of}) >= 2
        assert (("comm.alpha", *at) in run.found) <= fitted
        for i in of if ("comm.alpha", *at) in run.found else ():
            time = run.found["comm.alpha", *at] + run.found["comm.beta", *at] * i.payload
            assert time == pytest.approx(i.transfer_ns / NS, abs=len(of) * run.bound / NS)


def shares_within(run: Distorted) -> None:
    """What hangs on all events being there: exposed wait and transfer, the bubble, the balance."""
    for r, rank in run.truth.ranks.items():
        bound = sum(len(i.members) > 1 for i in own_instances(run.truth, r)) * run.bound
        bound += rank.window_ns * DRIFT_PPM / 10**6
        for metric in ("wait", "transfer"):
            whole = sum((getattr(s, f"exposed_{metric}_ns") for s in rank.steps), Fraction(0))
            mean = float(whole / (NS * len(rank.steps)))
            found = run.found[f"time.exposed_{metric}", r, *NONE]
            assert found == pytest.approx(mean, abs=bound / (NS * len(rank.steps)))
        if run.truth.layout.pp > 1:
            bubble = sum((s.bubble_ns for s in rank.steps if s.bubble_ns is not None), Fraction(0))
            found = run.found["overlap.pipeline_bubble", r, *NONE]
            assert found == pytest.approx(float(bubble / rank.window_ns), abs=2 * bound / rank.window_ns)
    if run.truth.load_imbalance is not None:
        imbalance = run.found["balance.load_imbalance", None, *NONE]
        assert imbalance == pytest.approx(run.truth.load_imbalance, rel=4 * DRIFT_PPM / 10**6)


@pytest.mark.parametrize("part", range(PARTS))
def test_untrue_clocks_and_lost_events_stay_within_the_stated_bound(part: int) -> None:
    sim.in_layouts(CASES, PARTS + part, within)

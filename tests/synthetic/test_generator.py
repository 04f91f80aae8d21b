# SPDX-License-Identifier: Apache-2.0
"""The generator: hand-checked runs, what must hold of any run, and what its distortions do."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers.synthetic import (
    Await,
    Case,
    Collective,
    Compute,
    Distortion,
    Key,
    Layout,
    Link,
    Network,
    Program,
    Straggler,
    Transfer,
    Truth,
    Written,
    layouts,
    simulate,
    write,
)
from helpers.synthetic.kineto import BASE_NS
from helpers.synthetic.simulation import T0_NS
from hypothesis import given, settings

KIB = 1024
NETWORK = Network(Link(5_000, 10), {("all_reduce", "tp"): Link(8_000, 1)})


def two_ranks(**changes: Any) -> Truth:
    """10 µs of compute, an all-reduce of 64 KiB, 4 µs of compute; rank 1 computes 1.5 times as long.

    From T0 on in ns: first launch 1000, kernel from 4000 to 14000 (rank 1: 19000); the all-reduce is
    launched at 3500, arrives when the kernel ends, and ends at 19000 + 5000 + 64·10 = 24640; then the last
    kernel to 28640 (rank 1: 30640).
    """
    ops = (Compute(10_000), Collective("all_reduce", "dp", 64 * KIB), Compute(4_000))
    return simulate(Layout(dp=2), Program(ops, **{"slow": {1: 1500}, **changes}), NETWORK)


def test_two_ranks_by_hand() -> None:
    truth = two_ranks()
    (i,) = truth.instances
    assert (i.kind, i.dimension, i.group, i.payload) == ("all_reduce", "dp", (0, 1), 64 * KIB)
    assert i.arrival_ns == {0: T0_NS + 14_000, 1: T0_NS + 19_000}
    assert (i.end_ns, i.transfer_ns, i.skew_ns) == (T0_NS + 24_640, 5_640, 5_000)
    assert i.wait_ns == {0: 5_000, 1: 0}
    key = Key("all_reduce", (0, 1), "dp")
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
    assert truth.hockney == {("all_reduce", (0, 1)): Link(5_000, 10)}
    assert truth.points == {("all_reduce", (0, 1)): (1, 1)}


def test_collectives_side_by_side_share_each_instant() -> None:
    """All arrive when the kernel ends at 14000; tp's ends at +8016, dp's at +5640: they share 5640 ns."""
    ops = (
        Compute(10_000),
        Collective("all_reduce", "tp", 16 * KIB, "a"),
        Collective("all_reduce", "dp", 64 * KIB, "b"),
        Await("a"),
        Await("b"),
        Compute(4_000),
    )
    truth = simulate(Layout(dp=2, tp=2), Program(ops), NETWORK)
    (step,) = truth.ranks[3].steps
    assert step.exposed == {
        Key("all_reduce", (2, 3), "tp"): (0, 2_820 + 2_376),
        Key("all_reduce", (1, 3), "dp"): (0, 2_820),
    }
    dp, tp = truth.ranks[3].phases
    assert (dp.dimension, dp.count, dp.gap_ns) == ("dp", 1, None)
    assert (tp.dimension, tp.end_ns - tp.start_ns, tp.gap_ns) == ("tp", 8_016, 0)


def test_pipeline_by_hand() -> None:
    """Stage 1 posts its receive at 4500; stage 0 sends at 14000; 19640 is the end; stage 1 to 29640."""
    ops = (Transfer("recv", 64 * KIB), Compute(10_000), Transfer("send", 64 * KIB))
    truth = simulate(Layout(pp=2), Program(ops), NETWORK)
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
    truth = two_ranks(slow={}, stragglers=(Straggler(0, cause, 30_000, op=1),))
    assert truth.instances[0].wait_ns == {0: 0, 1: late}
    step = truth.ranks[0].steps[0]
    hidden = {"launch": (22_500, 0), "copy": (0, 30_000)}
    assert (step.idle_host_ns, step.exposed_copy_ns) == hidden.get(cause, (0, 0))


def test_groups_of_a_layout() -> None:
    layout = Layout(dp=2, tp=2, pp=2, ep=2)
    assert layout.world == 16
    assert [layout.group(5, d) for d in ("tp", "ep", "dp", "pp")] == [(4, 5), (5, 7), (1, 5), (5, 13)]
    names = layout.process_groups()
    assert names["world", tuple(range(16))] == "0"
    assert len(names) == 1 + 4 * 8
    # programs that cannot end, or differ in what the simulation knows
    with pytest.raises(ValueError, match="forever"):
        simulate(Layout(pp=2), Program((Transfer("recv", KIB), Compute(1))), NETWORK)
    with pytest.raises(ValueError, match="whole KiB"):
        simulate(Layout(dp=2), Program((Collective("all_reduce", "dp", 1000),)), NETWORK)


@given(layouts())
def test_what_holds_of_any_run(case: Case) -> None:
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
    again = case.simulate()
    assert again == truth


def written(truth: Truth, **distortion: Any) -> tuple[Written, dict[int, dict[str, Any]]]:
    """The traces of that run, decoded."""
    with TemporaryDirectory() as folder:
        traces = write(truth, Path(folder), Distortion(**distortion))
        return traces, {r: json.loads(path.read_text()) for r, path in traces.files.items()}


def kernels(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The collective kernels of a trace."""
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
    ops = (Collective("all_gather", "dp", 64 * KIB), Transfer("send", KIB), Transfer("recv", KIB))
    truth = simulate(Layout(dp=2, pp=2), Program(ops), NETWORK)
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
    ops = (Compute(1_000), Collective("all_reduce", "dp", KIB))
    truth = simulate(Layout(dp=4, gpus_per_host=2), Program(ops, steps=10), NETWORK)
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
    ops = (Compute(1_000), Collective("all_reduce", "dp", KIB))
    truth = simulate(Layout(dp=2), Program(ops, steps=20), NETWORK)
    _, files = written(truth, jitter_ns=300)
    ends = [round((e["ts"] + e["dur"]) * 1000) for e in kernels(files[0])]
    early = [i.end_ns - end for i, end in zip(truth.instances, ends, strict=True)]
    assert min(early) >= 0
    assert 100 < max(early) <= 300


@settings(max_examples=12)
@given(layouts())
def test_metrics_of_one_rank_at_a_time_equal_the_truth(case: Case) -> None:
    """What a rank's own trace tells is read from the traces exactly."""
    from cclbench.api import run
    from cclbench.ground.schema import group_id

    truth = case.simulate()
    with TemporaryDirectory() as folder:
        write(truth, Path(folder, "traces"))
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

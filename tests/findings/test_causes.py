# SPDX-License-Identifier: Apache-2.0
"""When a cause is found and when it is not, in results written down by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from helpers.hand_results import Row, a_rank, by_rank, found, listed, row

from cclbench.analyzers.view.transfers import WAITING

STEP = by_rank("time.step", 1.0, 1.0)


def test_nothing_is_found_in_nothing() -> None:
    assert found() == {}
    assert set(found(*STEP)) == set()


@pytest.mark.parametrize(
    ("held", "name"),
    [
        *(("loader", "data_loading"), ("allocation", "device_allocation"), ("sync", "synchronization")),
        *(("cold_start", "cold_start"), ("capture", "before_capture")),
        *(("python", "host_bound"), ("unrecorded", "host_bound")),
    ],
)
def test_what_holds_the_host(held: str, name: str) -> None:
    rows = by_rank("time.idle_host_by", 0.2, 0.1, category=held)
    one = found(*STEP, *rows)[name]
    assert (one.lost_s, one.share) == (0.2, 0.2)
    assert "200 ms" in one.claim
    assert [row.value for row in one.evidence if row.category == held] == [pytest.approx(0.15)]
    less = by_rank("time.idle_host_by", 0.009, 0.009, category=held)
    assert name not in found(*STEP, *less)


def test_a_wait_behind_which_data_is_loaded_is_that_of_the_rank_that_loses_most() -> None:
    rows = [*STEP, *by_rank("time.idle_host_by", 0.1, 0.2, category="sync")]
    later = by_rank("time.idle_host_by", 0.09, 0.0, category="sync", stat="then_loader")
    assert found(*rows, *later)["synchronization"].surely is None
    half = by_rank("time.idle_host_by", 0.0, 0.1, category="sync", stat="then_loader")
    assert found(*rows, *half)["synchronization"].surely is None
    loads = by_rank("time.idle_host_by", 0.0, 0.11, category="sync", stat="then_loader")
    one = found(*rows, *loads)["synchronization"]
    assert (one.surely, one.worst_rank) == ([], 1)
    assert one.because.endswith("; it then loads data, which may not be ready sooner without the wait")


def test_operators_are_the_hosts_fault_unless_kernels_are_short() -> None:
    rows = [*STEP, *by_rank("time.idle_host_by", 0.3, 0.3, category="operators")]
    short = [*rows, row("compute.kernel_count", 100.0), row("compute.kernel_time", 1.4e-5)]
    rows += [row("compute.kernel_count", 100.0), row("compute.kernel_time", 1.6e-5)]
    assert set(found(*rows)) == {"host_bound"}
    assert set(found(*short)) == {"short_kernels"}
    assert set(found(*rows, row("launch.short_kernels", 0.5))) == {"short_kernels"}
    assert set(found(*rows, row("compute.mean_kernel", 9e-6))) == {"short_kernels"}
    # most of it is not for launching: operators compute on the host
    on_host = {"category": "operators", "stat": "on_host"}
    assert set(found(*short, *by_rank("time.idle_host_by", 0.1, 0.15, **on_host))) == {"short_kernels"}
    assert set(found(*short, *by_rank("time.idle_host_by", 0.1, 0.16, **on_host))) == {"host_bound"}


def paused(*steps: float, usual: float = 0.0, ranks: int = 3) -> list[Row]:
    """Idle time of a host in Python: rank 1 so long in each step, the others `usual`."""
    own = [[usual + more if rank == 1 else usual for more in steps] for rank in range(ranks)]
    means = [sum(one) / len(one) for one in own]
    rows = [*by_rank("time.step", *[1.0] * ranks), *by_rank("time.idle_host_by", *means)]
    rows += by_rank("time.idle_host_by", *means, category="python")
    for rank, times in enumerate(own):
        rows += [row("time.idle_host_by", each, rank=rank, step=number) for number, each in enumerate(times)]
    return rows


def test_a_host_that_stops_in_some_steps_pauses() -> None:
    every_second = listed(*paused(0.0, 0.4, 0.0, 0.4, 0.0, 0.4))
    assert [one.name for one in every_second] == ["host_pauses"]
    (one,) = every_second
    assert one.claim.startswith("The host of rank 1 pauses in 3 of 6 steps, every 2 steps")
    assert (one.lost_s, one.worst_rank, one.of_one_rank) == (pytest.approx(0.2), 1, True)
    assert one.whatif == ["host[python+unrecorded].time=usual"]
    assert "in 1 of 6 steps" in found(*paused(0.0, 0.4, 0.0, 0.0, 0.0, 0.0))["host_pauses"].claim
    # what is half as long as the longest is none of them
    assert "in 2 of 6 steps and" in found(*paused(0.0, 0.4, 0.0, 0.2, 0.0, 0.4))["host_pauses"].claim
    # of two nobody can tell a period
    assert "in 2 of 6 steps and" in found(*paused(0.0, 0.4, 0.0, 0.0, 0.4, 0.0))["host_pauses"].claim
    # a rank whose trace lacks steps pauses in its own
    six = paused(0.0, 0.4, 0.0, 0.4, 0.0, 0.4)
    rows = [one for one in six if (one.get("rank"), one.get("step")) != (1, 5)]
    assert "in 2 of 6 steps" in found(*rows)["host_pauses"].claim


def test_a_host_that_is_slow_in_each_step_does_not_pause() -> None:
    assert set(found(*paused(0.4, 0.4, 0.4, 0.4))) == {"host_bound"}
    # pauses that are less than half of what the host takes
    assert set(found(*paused(0.0, 0.3, 0.0, 0.0, usual=0.2))) == {"host_bound"}
    # half of it is
    assert set(found(*paused(0.0, 0.5, 0.0, 0.5, usual=0.25))) == {"host_pauses"}
    # of three steps none is usual
    assert set(found(*paused(0.0, 0.4, 0.0))) == {"host_bound"}
    # where the host pauses operators alone bind it
    rows = [*paused(0.0, 0.4, 0.0, 0.0), *by_rank("time.idle_host_by", 0.3, 0.3, 0.3, category="operators")]
    names = found(*rows)
    assert set(names) == {"host_pauses", "host_bound"}
    assert names["host_bound"].host_causes == ["operators", "launch"]


def on_cpu() -> list[dict[str, Any]]:
    return [a_rank(one, facts={"works_on": "host", "producer": "PyTorch Profiler"}) for one in range(2)]


def test_double_precision_is_found_where_types_state_it_and_it_takes_some_time() -> None:
    rows = [*STEP, *by_rank("compute.time", 0.8, 0.6)]
    rows += by_rank("compute.precision_time", 0.7, 0.5, category="fp32")
    assert "double_precision" not in found(*rows, ranks=on_cpu())
    few = by_rank("compute.precision_time", 0.03, 0.029, category="fp64")
    assert "double_precision" not in found(*rows, *few, ranks=on_cpu())
    many = by_rank("compute.precision_time", 0.4, 0.3, category="fp64")
    one = found(*rows, *many, ranks=on_cpu())["double_precision"]
    assert one.lost_s == pytest.approx(0.2)
    # half of 0.7 s of 1.4 s, and three quarters
    assert one.surely == ["kernels.time=x0.750"]
    assert one.whatif == ["kernels.time=x0.625"]
    # a CPU's chains gain what they move too much
    rows = [*STEP, *by_rank("compute.time", 0.8, 0.8)]
    rows += by_rank("compute.unfused", 0.3, 0.2, category="optimizer")
    unknown = found(*rows, ranks=on_cpu())["unfused_optimizer"]
    assert (unknown.whatif, unknown.gain_s) == ([], None)
    assert "record" in (unknown.no_gain or "")
    rows += by_rank("compute.unfused", 0.1, 0.1, category="optimizer", stat="fused")
    one = found(*rows, ranks=on_cpu())["unfused_optimizer"]
    assert one.lost_s == pytest.approx(0.2)
    assert one.whatif == [f"kernels.time=x{1 - 0.3 / 1.6:.3f}"]
    assert "kernels" not in one.because


def test_gaps_between_short_kernels_count_unless_they_are_long() -> None:
    rows = [*STEP, *by_rank("time.idle_host_by", 0.1, 0.1, category="launch")]
    rows += [row("launch.short_kernels", 0.9), row("compute.kernel_time", 5e-6)]
    rows += by_rank("time.idle_device", 0.03, 0.05)
    one = found(*rows, row("compute.kernel_count", 10_000.0))["short_kernels"]
    assert (one.lost_s, one.worst_rank) == (pytest.approx(0.15), 1)
    assert found(*rows) == {}  # it is not known how many there are
    few = found(*rows, row("compute.kernel_count", 100.0))
    assert few["short_kernels"].lost_s == pytest.approx(0.1)
    assert few["device_stalls"].lost_s == pytest.approx(0.05)
    rows = [one for one in rows if one["metric"] != "time.idle_host_by"]
    rows += [
        *by_rank("time.idle_host_by", 0.01, 0.06, category="launch"),
        row("compute.kernel_count", 10_000.0),
    ]
    assert found(*rows, row("launch.delay", 19e-6, stat="p50")).keys() == {"short_kernels"}
    queued = found(*rows, row("launch.delay", 4e-3, stat="p50"))
    assert queued.keys() == {"kernel_gaps"}, "a CUDA graph's gaps: launching them is not the matter"
    assert (queued["kernel_gaps"].lost_s, queued["kernel_gaps"].whatif) == (
        pytest.approx(0.05),
        ["kernels.gap=0"],
    )


def exposed(kind: str, group: str, seconds: float) -> list[Row]:
    keys = {"collective": kind, "group": group}
    rows = by_rank("time.exposed_transfer", seconds, seconds, **keys)
    return [*rows, row("comm.count", 2.0, **keys), row("comm.transfer", 2 * seconds, **keys)]


def test_transfers_are_told_apart_by_the_shape_of_their_groups() -> None:
    rows = [*exposed("all_gather", "0-1", 0.1), *exposed("all_gather", "2-3", 0.3)]
    rows += exposed("reduce_scatter", "0,2", 0.05)
    claims = [one.claim for one in listed(*STEP, *rows)]
    assert len(claims) == 2
    assert claims[0].startswith("Transfers in groups 0-1, 2-3 take 400 ms of a step on rank 0 while nothing")
    assert "50 % of them overlap compute" in claims[0]
    assert "group 0,2 take 50.0 ms" in claims[1]


def busbw(group: str, rate: float, size: str = "1 MiB") -> Row:
    return row("comm.busbw", rate, collective="all_reduce", group=group, category=size)


def test_a_link_is_slow_beside_its_peers() -> None:
    groups = ("0-1", "2-3", "4-5")
    rows = [one for group in groups for one in exposed("all_reduce", group, 0.1)]
    alike = [busbw(group, 100.0) for group in groups]
    assert "slow_link" not in found(*STEP, *rows, *alike)
    slow = found(*STEP, *rows, busbw("0-1", 100.0), busbw("2-3", 110.0), busbw("4-5", 40.0))["slow_link"]
    said = "all_reduce in group 4-5 reaches 40.0 B/s, while similar groups reach 105 B/s"
    assert slow.claim.startswith(said)
    assert slow.lost_s == pytest.approx(0.1 * (1 - 40 / 105))
    # Groups of another stride, or messages of another size, are no peers.
    assert "slow_link" not in found(*STEP, *rows, busbw("0-1", 100.0), busbw("0,4", 40.0))
    assert "slow_link" not in found(*STEP, *rows, busbw("0-1", 100.0), busbw("4-5", 40.0, "16 KiB"))
    # of two groups one has to be half as fast
    rows = [*exposed("all_reduce", "0-1", 0.1), *exposed("all_reduce", "2-3", 0.1)]
    assert "slow_link" not in found(*STEP, *rows, busbw("0-1", 100.0), busbw("2-3", 60.0))
    assert "slow_link" in found(*STEP, *rows, busbw("0-1", 100.0), busbw("2-3", 49.0))


@pytest.mark.parametrize(
    ("calls", "kib", "alpha", "beta_of_call", "share"),
    [
        *((10.0, 200, None, None, 0.9), (10.0, 300, None, None, None), (7.0, 1, None, None, None)),
        *((64.0, 1024, None, None, 63 / 64), (64.0, 1025, None, None, None), (63.0, 1024, None, None, None)),
        *((10.0, 1e6, (0.006,) * 3, 0.004, 0.6), (10.0, 1, (0.004,) * 3, 0.006, None)),
        # at most half of it is latency: sizes decide
        (10.0, 1, (0.003, 0.004, 0.005), 0.005, 0.9),
        # The mean transfer is 10 ms, of calls that take 1.5 ms unless something holds them up.
        (10.0, 1e6, (0.0008, 0.001, 0.0012), 0.0005, 2 / 3),
        # Latency is 4 to 16 of 20 ms: that it is most is open, and sizes decide.
        (10.0, 200, (0.004, 0.010, 0.016), 0.010, 0.9),
        (10.0, 300, (0.004, 0.010, 0.016), 0.010, None),
    ],
)
def test_messages_are_small(calls: float, kib: float, alpha: Any, beta_of_call: Any, share: Any) -> None:
    keys = {"collective": "all_gather", "group": "0-1"}
    rows = [*STEP, *by_rank("time.exposed_transfer", 0.1, 0.1, **keys), row("comm.transfer", 0.1, **keys)]
    rows += [row("comm.count", calls, **keys), row("comm.volume", calls * kib * 1024, **keys)]
    if alpha is not None and beta_of_call is not None:
        low, middle, high = alpha
        rows += [row("comm.alpha", middle, **keys), row("comm.beta", beta_of_call / (kib * 1024), **keys)]
        rows += [row("comm.alpha", low, stat="low", **keys), row("comm.alpha", high, stat="high", **keys)]
    names = found(*rows)
    assert set(names) == {"exposed_communication" if share is None else "small_messages"}
    if share is not None:
        small = names["small_messages"]
        assert small.lost_s == pytest.approx(0.1 * share)
        assert ("is latency" in small.claim) == bool(small.surely) == (share in (0.6, 2 / 3))  # by a fit


def test_small_messages_of_one_group_are_one_finding() -> None:
    """Of two kinds with 10 and 20 calls; where a device launches them, at most without launches, too."""
    rows = [*STEP]
    for kind, calls in (("all_gather", 10.0), ("reduce_scatter", 20.0)):
        keys = {"collective": kind, "group": "0-1"}
        rows += by_rank("time.exposed_transfer", 0.1, 0.1, **keys)
        rows += [row("comm.transfer", 0.1, **keys), row("comm.count", calls, **keys)]
        rows += [row("comm.volume", calls * 1024, **keys)]
    (one,) = listed(*rows)
    assert one.claim.startswith("In group 0-1 10 all_gather calls a step move 1.02 kB each, at 102 kB/s of")
    assert "no fit shows how much" in one.because
    assert "kind = 'all_gather'" in (one.query or "")
    assert "; 20 reduce_scatter calls a step" in one.claim
    assert one.lost_s == pytest.approx(0.1 * 0.9 + 0.1 * 0.95)
    joined = [f"transfers[{kind}&group=0-1].time=x{left}" for kind, left in
              (("all_gather", "0.100"), ("reduce_scatter", "0.050"))]  # fmt: skip
    assert (one.whatif, one.surely) == ([*joined, "host[launch+operators].time=0"], [])
    (on_host,) = listed(*rows, ranks=on_cpu())
    assert (on_host.whatif, on_host.surely) == ([*joined, "host[sync].time=0"], [])
    # messages of unknown size are not small
    keys = {"collective": "all_gather", "group": "0-1"}
    rows = [*STEP, *by_rank("time.exposed_transfer", 0.1, 0.1, **keys), row("comm.transfer", 0.1, **keys)]
    assert set(found(*rows, row("comm.count", 100.0, **keys))) == {"exposed_communication"}


def test_unmatched_communication_is_told_as_such() -> None:
    """All figures of a claim are those of rank 0, which loses most."""
    by_kind = {"all_reduce": (0.45, 0.39), "send": (0.02, 0.03), "recv": (0.01, 0), "broadcast": (0.005, 0)}
    rows = [*STEP, *by_rank("time.exposed_unmatched", 0.5, 0.4)]
    parts = {kind: by_rank("overlap.exposed_by", *s, collective=kind) for kind, s in by_kind.items()}
    one = found(*rows, *parts["all_reduce"])["exposed_communication"]
    assert "500 ms of a step on rank 0 while nothing computes (all_reduce 450 ms); how much" in one.claim
    four = found(*rows, *itertools.chain(*parts.values()))["exposed_communication"]
    assert "(all_reduce 450 ms, send 20.0 ms, recv 10.0 ms)" in four.claim
    beside = found(*rows, *parts["all_reduce"], row("overlap.same_stream", 0.95))["exposed_communication"]
    assert "(all_reduce 450 ms), on a compute stream; how much" in beside.claim
    # collectives on the stream that computes
    rows = [*STEP, *exposed("all_reduce", "0-1", 0.1), row("overlap.same_stream", 0.95)]
    assert "on a compute stream" in found(*rows)["exposed_communication"].claim
    few = [*STEP, *exposed("all_reduce", "0-1", 0.1), row("overlap.same_stream", 0.5)]
    assert "stream" not in found(*few)["exposed_communication"].claim
    # XLA's rows are no streams of a programmer's
    xla = found(*rows, ranks=[a_rank(facts={"producer": "XLA profiler"})])
    assert "stream" not in xla["exposed_communication"].claim


def waits(*seconds: float, kind: str = "all_reduce") -> list[Row]:
    waited = [*by_rank("time.exposed_wait", *seconds)]
    waited += [*by_rank("time.exposed_wait", *seconds, collective=kind)]
    return [*by_rank("time.exposed_comm", *seconds), *waited]


SAID = "rank {} is late by 250 ms a step, latest in 5 of 5 steps (p = {}), because it computes longer"


def named(rank: str, p: float, cause: str = "compute") -> list[Row]:
    """What `balance.straggler_rank` says where it names a rank, and `balance.caused_wait` of it."""
    stats = {"p_value": p, "late_by": 0.25, f"excess_{cause}": 0.2}
    return [
        row("balance.caused_wait", 0.25, category=rank),
        row("balance.straggler_rank", 1.0, reason=SAID.format(rank, p) + "; left out: 2 in groups of one"),
        *(row("balance.straggler_rank", value, category=rank, stat=stat) for stat, value in stats.items()),
    ]


def nobody() -> list[Row]:
    reason = "no rank stands out: rank 1 is late by 250 ms a step, latest in 2 of 5 steps"
    p_value = row("balance.straggler_rank", 0.2, category="1", stat="p_value")
    return [row("balance.straggler_rank", 0.4, reason=reason), p_value]


def test_the_rank_that_the_metric_names_is_late() -> None:
    rows = [*STEP, *waits(0.3, 0.0)]
    one = found(*rows, *named("1", 0.001))["late_rank"]
    assert (one.ranks, one.confidence) == ([1], "high")
    assert one.claim == "Ranks wait up to 300 ms of a step; " + SAID.format(1, 0.001) + "."
    shown = {("balance.straggler_rank", stat) for stat in ("p_value", "excess_compute")}
    assert {(e.metric, e.stat) for e in one.evidence} >= shown | {("balance.caused_wait", None)}
    (uneven,) = found(*rows, *nobody()).values()
    assert uneven.name == "uneven_ranks"
    assert "; no rank stands out: rank 1 is late by 250 ms" in uneven.claim


def test_a_slow_device_is_no_late_rank() -> None:
    step = by_rank("time.step", 1.0, 1.0, 1.0)
    rows = [*step, *waits(0.2, 0.2, 0.0), *by_rank("compute.time", 0.7, 0.7, 0.9)]

    def speed(*ratios: float, gemm: float = 1.25, norm: float | None = 1.2) -> list[Row]:
        families = {"gemm": gemm} | ({} if norm is None else {"normalization": norm})
        return [
            *(row("balance.kernel_speed", own, category=str(rank)) for rank, own in enumerate(ratios)),
            *(row("balance.kernel_speed", own, category="2", stat=one) for one, own in families.items()),
        ]

    late = named("2", 0.001, "device")
    names = found(*rows, *late, *speed(1, 0.99, 1.25))
    assert set(names) == {"slow_device"}
    assert names["slow_device"].lost_s == pytest.approx(0.9 * (1 - 1 / 1.25))
    assert names["slow_device"].confidence == "high"
    less = found(*rows, *late, *speed(1, 0.99, 1.09, gemm=1.09, norm=1.09))["slow_device"]
    assert less.confidence == "medium"
    # by kernels alone where steps can tell nothing; but not where they do, or where another rank is late
    assert "slow_device" in found(*rows, *speed(1, 0.99, 1.25))
    assert set(found(*rows, *nobody(), *speed(1, 0.99, 1.25))) == {"uneven_ranks"}
    assert "slow_device" not in found(*rows, *named("0", 0.001), *speed(1, 0.99, 1.25))
    # One that itself waits most is not what others wait for; nor is one among ranks that all differ as much.
    waiting = [*step, *waits(0.0, 0.2, 0.4), *by_rank("compute.time", 0.7, 0.7, 0.5)]
    assert "slow_device" not in found(*waiting, *speed(1, 0.99, 1.25))
    assert "slow_device" not in found(*rows, *late, *speed(1, 0.85, 1.2))
    # nor one of which some kernels take longer, or of which there is one family alone
    assert set(found(*rows, *named("2", 0.001), *speed(1, 0.99, 1.25, norm=1.12))) == {"late_rank"}
    assert set(found(*rows, *named("2", 0.001), *speed(1, 0.99, 1.25, norm=None))) == {"late_rank"}


def test_busy_experts_are_named_and_are_no_late_rank() -> None:
    rows = [*STEP, *waits(0.3, 0.0, kind="all_to_all"), row("compute.category_share", 0.1, category="moe")]
    one = found(*rows, *named("1", 0.001, "experts"))["expert_imbalance"]
    assert one.ranks == [1]
    assert "the busiest experts: rank 1 is late by 250 ms" in one.claim
    (other,) = found(*rows, *nobody()).values()
    assert (other.name, other.ranks) == ("expert_imbalance", [])
    assert other.claim.endswith(
        "the busiest experts; no rank stands out: rank 1 is late by 250 ms a step, latest in 2 of 5 steps."
    )
    # a rank that computes longer is late beside uneven experts
    rows = [*STEP, *by_rank("time.exposed_wait", 0.5, 0.0)]
    rows += [row("compute.category_share", 0.1, category="moe")]
    rows += by_rank("time.exposed_wait", 0.3, 0.0, collective="all_to_all")
    names = found(*rows, *named("1", 0.001, "compute"))
    assert set(names) == {"late_rank", "expert_imbalance"}
    # of 0.5 s of waits 0.3 are the experts'
    assert names["late_rank"].claim.startswith("Ranks wait up to 200 ms of a step; rank 1 is late")
    one = names["expert_imbalance"]
    assert (one.ranks, "; rank 1 is late by 250 ms a step" in one.claim) == ([], True)


def test_a_bubble_behind_a_late_rank_says_so() -> None:
    rows = [*STEP, *waits(0.3, 0.2, kind="recv")]
    bubble = found(*rows, *nobody())["pipeline_bubble"]
    assert (bubble.ranks, bubble.lost_s) == ([], 0.3)
    assert bubble.claim == "Pipeline stages wait up to 300 ms of a step for one another."
    one = found(*rows, *named("1", 0.001))["pipeline_bubble"]
    assert one.ranks == [1]
    assert "; rank 1 is late by 250 ms a step" in one.because
    # waits of pipelines and experts have their own names
    assert set(found(*STEP, *waits(0.3, 0.2, kind="recv"))) == {"pipeline_bubble"}
    # 0.8 − (0.7 + 0.1) is not 0 in floating point
    parts = [("send", 0.7), ("recv", 0.1)]
    rows = [one for kind, s in parts for one in by_rank("time.exposed_wait", s, collective=kind)]
    assert set(found(*STEP, *by_rank("time.exposed_wait", 0.8), *rows)) == {"pipeline_bubble"}
    assert set(found(*STEP, *waits(0.3, 0.2, kind="all_to_all"))) == {"uneven_ranks"}
    moe = row("compute.category_share", 0.1, category="moe")
    assert set(found(*STEP, *waits(0.3, 0.2, kind="all_to_all"), moe)) == {"expert_imbalance"}


def test_matrix_products_far_below_the_peak() -> None:
    above = by_rank("compute.above_roofline", 0.3, 0.3, category="gemm")
    low = row("compute.gemm_efficiency", 0.4)
    one = found(*STEP, *above, low)["low_gemm_efficiency"]
    assert one.lost_s == pytest.approx(0.3)
    assert one.whatif == ["kernels[gemm].time=roofline"]
    assert "low_gemm_efficiency" not in found(*STEP, *above, row("compute.gemm_efficiency", 0.6))
    # Small ones are bound by memory: far below the peak, near the roofline.
    near = row("compute.roofline_efficiency", 0.9, category="gemm")
    assert "low_gemm_efficiency" not in found(*STEP, *above, low, near)
    # what the backward pass runs again
    rows = [*STEP, *by_rank("compute.time", 0.8, 0.8), *by_rank("compute.recompute_share", 0.25, 0.25)]
    assert found(*rows)["recompute"].lost_s == pytest.approx(0.2)


def test_kernels_that_move_bytes() -> None:
    rows = [*STEP, *by_rank("compute.time", 0.8, 0.8), *by_rank("time.exposed_comm", 0.2, 0.2)]
    one = found(*rows, *by_rank("compute.category_share", 0.4, 0.4, category="elementwise"))["memory_bound"]
    assert one.lost_s == pytest.approx(0.4)
    assert one.claim.endswith(" on rank 0 is in memory-bound kernels (elementwise 50.0 %).")
    shares = {"elementwise": 0.2, "copy": 0.15, "normalization": 0.05, "reduction": 0.1}
    four = [
        one
        for name, share in shares.items()
        for one in by_rank("compute.category_share", share, share, category=name)
    ]
    claim = found(*rows, *four)["memory_bound"].claim  # half of a second of kernels, of 0.8 s of compute
    assert claim.startswith("62.5 % of the compute time on rank 0 ")
    assert claim.endswith(" (elementwise 25.0 %, copy 18.8 %, reduction 12.5 %).")
    few = by_rank("compute.category_share", 0.1, 0.1, category="elementwise")
    assert "memory_bound" not in found(*rows, *few)


def test_contention_unless_it_is_confounded() -> None:
    """0.5 s of overlap at 1.25 times the time are 0.1 s of delay."""
    rows = [*STEP, *by_rank("time.overlapped", 0.5, 0.5)]
    shapes = row("compute.achieved_flops", 1e12)

    def slowed(ratio: float, *excess: float) -> list[Row]:
        ratios = by_rank("compute.contention", *[ratio] * len(excess))
        return [*ratios, *by_rank("compute.contention", *excess, stat="excess", unit="s")]

    one = found(*rows, shapes, *slowed(1.25, 0.06, 0.1))["contention"]
    assert one.lost_s == pytest.approx(0.1)
    # The same kernel may do other work beside communication; one rank of two says the contrary; too little.
    assert "contention" not in found(*rows, *slowed(1.25, 0.1, 0.1))
    assert "contention" not in found(*rows, shapes, *slowed(1.25, -0.01, 0.1))
    assert "contention" not in found(*rows, shapes, *slowed(1.02, 0.01, 0.01))
    # they lose all of their overlap; what they lose beyond that is not communication's
    rows = [*STEP, *by_rank("time.overlapped", 0.5, 0.5), row("compute.achieved_flops", 1e12)]
    excess = by_rank("compute.contention", 0.5, 0.505, stat="excess", unit="s")
    one = found(*rows, *excess)["contention"]
    assert one.lost_s == pytest.approx(0.5)
    assert one.claim == "Kernels stand still while communication runs."
    more = by_rank("compute.contention", 0.5, 0.6, stat="excess", unit="s")
    assert "contention" not in found(*rows, *more)


def test_throttling_where_late_steps_are_longer() -> None:
    rows = [*STEP, *by_rank("compute.time", 0.6, 0.9), *by_rank("compute.drift", 1.0, 1.2)]
    rows += by_rank("time.exposed_comm", 0.4, 0.1)
    apart = by_rank("compute.drift", 0.5, 0.99, stat="later_longer")
    one = found(*rows, *apart, *named("1", 0.001, "device"))["throttling"]
    # of ranks of one law some have longer last steps
    assert "throttling" not in found(*rows, *apart)
    assert "throttling" not in found(*rows, *apart, *nobody())
    assert "throttling" not in found(*rows, *apart, *named("0", 0.001))
    assert one.claim.endswith(" than in the first on rank 1.")
    every = [*by_rank("compute.drift", 1.1, 1.2), *by_rank("compute.drift", 0.99, 0.99, stat="later_longer")]
    assert found(*rows[:-4], *every)["throttling"].claim.endswith(" than in the first on all 2 ranks.")
    assert (one.ranks, one.lost_s) == ([1], pytest.approx(0.9 * (1 - 1 / 1.2)))
    assert "throttling" not in found(*rows, *by_rank("compute.drift", 0.5, 0.9, stat="later_longer"))
    one_rank = [*by_rank("time.step", 1.0), *by_rank("compute.time", 0.9), *by_rank("compute.drift", 1.2)]
    one = found(*one_rank, *by_rank("compute.drift", 0.99, stat="later_longer"))["throttling"]
    assert one.claim == "The same kernels take 20 % longer in the last third of the steps than in the first."


SLOW_TO_DEVICE = {None: 58.7e9, "h2d": 27.7e9, "d2d": 1.2e12, "d2h": 25e9}


def test_exposed_copies_name_the_memory() -> None:
    rows = by_rank("time.exposed_copy", 0.1, 0.1)
    parts = [*by_rank("time.exposed_copy", 0.08, 0.08, category="h2d pageable")]
    parts += [*by_rank("time.exposed_copy", 0.02, 0.02, category="d2d")]
    one = found(*STEP, *rows, *parts)["exposed_copies"]
    assert "h2d pageable 80.0 ms, d2d 20.0 ms" in one.claim
    assert "pageable memory" in one.claim
    rates = [row("memory.copy_bandwidth", rate, category=way) for way, rate in SLOW_TO_DEVICE.items()]
    one = found(*STEP, *rows, *parts, *rates)["exposed_copies"]
    assert one.claim.endswith(" Bandwidth of all copies by direction: h2d 27.7 GB/s, d2d 1.20 TB/s.")
    rows = by_rank("time.exposed_copy", 0.08, 0.1)  # parts of rank 1, which loses most
    four = [
        one
        for n, label in enumerate("abcd", 1)
        for one in by_rank("time.exposed_copy", 0.02, n / 100, category=label)
    ]
    assert "(d 40.0 ms, c 30.0 ms, b 20.0 ms)" in found(*STEP, *rows, *four)["exposed_copies"].claim
    pinned = [row("time.exposed_copy", 0.1, category="h2d pinned")]
    assert "Most of it" not in found(*STEP, *rows, *pinned)["exposed_copies"].claim


def test_fragmentation_gains_no_time() -> None:
    reserved = row("memory.peak_reserved", 10e9)
    one = found(*STEP, reserved, row("memory.reserved_unused", 2e9))["fragmentation"]
    assert (one.gain_s, one.gain_share) == (None, None)
    assert one.claim == "2.00 GB of the memory that the allocator reserves are unused at the peak."
    assert "fragmentation" not in found(*STEP, reserved, row("memory.reserved_unused", 1.9e9))
    assert "fragmentation" not in found(*STEP, row("memory.reserved_unused", 2e9))

    # out of memory names what was asked and who holds most
    def failed(value: float, **keys: str) -> Row:
        return row("memory.out_of_memory", value, **keys)

    rows = [failed(1.0, reason="too much is held; asked at f a.py:1")]
    rows += [*(failed(n * 1e9, stat=stat) for n, stat in enumerate(("missing", "asked", "unused"), 1))]
    rows += [failed(5e8, stat="largest_free"), failed(4e9, stat="held", category="g a.py:2")]
    assert found(*STEP, *rows)["out_of_memory"].claim == (
        "A request of 2.00 GB found no memory (too much is held; asked at f a.py:1). Free blocks held 3.00 GB"
        ", the largest that could serve it 500 MB. 1.00 GB more had to be free. Most is held by g a.py:2:"
        " 4.00 GB."
    )
    assert "out_of_memory" not in found(*STEP, failed(0.0))
    # a leak names its line
    rows = [row("memory.leak", 4e6), row("memory.leak", 4e6, category="log train.py:9")]
    claim = "4.00 MB more remain allocated after each step: 4.00 MB at log train.py:9."
    assert found(*STEP, *rows)["memory_leak"].claim == claim
    assert "memory_leak" not in found(*STEP, row("memory.leak", 0.0))


def test_first_steps_are_warm_up() -> None:
    def steps(*seconds: float) -> list[Row]:
        return [row("time.step", length, step=number) for number, length in enumerate(seconds, 3)]

    one = found(*steps(5.0, 1.0, 1.1, 0.9))["warm_up"]
    assert "leave it out with --steps 4:" in one.claim
    assert "--steps 5:" in found(*steps(5.0, 3.0, 1.0, 1.1, 0.9, 1.0))["warm_up"].claim
    assert "warm_up" not in found(*steps(1.2, 1.0, 1.1, 0.9))
    assert "warm_up" not in found(*steps(1.0, 5.0, 1.1, 0.9))


def test_what_a_capture_lacks() -> None:
    ranks = [a_rank(facts={"world_size": 8})]
    unmatched = by_rank("time.exposed_unmatched", 0.001)
    assert "missing_ranks" in found(*STEP, *unmatched, ranks=ranks)
    assert "missing_ranks" not in found(*STEP, *unmatched, ranks=[a_rank(facts={"world_size": 1})])
    still_open = [row("time.step", 1.0, step=3, stat="open")]
    assert "open_step" in found(*still_open)
    assert "open_step" not in found(*still_open, row("time.step", 1.0, step=2))
    assert "no_steps" in found(row("time.step", 1.0, window="trace"), ranks=[a_rank()])
    busy = row("compute.busy", 0.9)
    assert "no_shapes" in found(*STEP, busy, ranks=[a_rank(operators=5)])
    assert "no_shapes" not in found(*STEP, busy, ranks=[a_rank()])
    assert "unlinked_launches" in found(*STEP, row("time.idle_unknown", 0.1))
    assert "unlinked_launches" not in found(*STEP, row("time.idle_unknown", 0.09))


def step_times(rank: int, unprofiled: float, profiled: float, *extremes: float) -> dict[str, Any]:
    """A file of evidence; `extremes` are the longest unprofiled step and the shortest profiled one."""
    facts = {"rank": rank, "profiler": "torch.profiler", "records": ["shapes", "stacks"]}
    facts |= {"unprofiled_steps": 4, "unprofiled_step_s": unprofiled}
    facts |= {"profiled_steps": 5, "profiled_step_s": profiled}
    facts |= dict(zip(("unprofiled_most_s", "profiled_least_s"), extremes, strict=False))
    file = {"name": f"rank{rank}_step_times.json", "bytes": 1, "sha256": "0", "reader": "step_times"}
    return {**file, "facts": facts}


def test_the_profilers_overhead_is_that_of_the_middle_rank() -> None:
    overheads = enumerate((0.3, 0.08, 0.1))
    files = [step_times(rank, 0.1, 0.1 * (1 + over), 0.101, 0.105) for rank, over in overheads]
    one = found(*STEP, evidence=files)["profiler_overhead"]
    assert "10.0 % longer: 110 ms against 100 ms without it (means of 5 and 4 steps of rank 2)." in one.claim
    assert (one.confidence, one.gain_s, one.lost_s) == ("high", None, None)


@pytest.mark.parametrize(
    ("file", "confidence"),
    [
        *((step_times(0, 1.0, 1.0299), None), (step_times(0, 1.0, 0.9), None)),
        (step_times(0, 1.0, 1.0301), "medium"),
        *((step_times(0, 1.0, 1.1, 1.05, 1.05), "low"), (step_times(0, 1.0, 1.1, 1.04, 1.05), "high")),
    ],
)
def test_how_sure_an_overhead_is(file: dict[str, Any], confidence: str | None) -> None:
    one = found(*STEP, evidence=[file]).get("profiler_overhead")
    assert (one.confidence if one else None) == confidence


@pytest.mark.parametrize(
    ("overhead", "logged", "confidence"),
    [(0.029, 0.5, None), (0.24, None, "low"), (0.24, 0.02, "low"), (0.24, 0.2, "medium")],
)
def test_the_jobs_log_tells_the_overhead_that_the_capture_does_not(
    overhead: float, logged: float | None, confidence: str | None
) -> None:
    rows = [row("log.profiler_overhead", overhead, reason="2.48 s traced, 2.00 s in the log")]
    rows += [row("log.profiler_overhead", logged, stat="logged")] if logged is not None else []
    one = found(*STEP, *rows).get("profiler_overhead")
    assert (one.confidence if one else None) == confidence
    if one is not None:
        assert "24.0 % longer than the job's steps without a profiler: 2.48 s traced, 2.00 s" in one.claim
    timed = found(*STEP, *rows, evidence=[step_times(0, 1.0, 1.5)])["profiler_overhead"]
    assert timed.claim.startswith("Under the profiler, which records")


def moved(group: str, nbytes: float, exposed_s: float) -> list[Row]:
    keys = {"collective": "all_reduce", "group": group}
    rows = by_rank("time.exposed_transfer", *[exposed_s] * 4, **keys)
    return [*rows, row("comm.volume", nbytes, **keys), row("comm.count", 2.0, **keys)]


def test_what_moves_most_stays_within_nodes_where_it_can() -> None:
    ranks = [a_rank(rank, facts={"world_size": 4, "device_count": 2}) for rank in range(4)]
    step = by_rank("time.step", *[1.0] * 4)
    near = [*moved("0-1", 100.0, 0.01), *moved("2-3", 100.0, 0.01)]
    far = [*moved("0,2", 400.0, 0.2), *moved("1,3", 300.0, 0.2)]
    one = found(*step, *near, *far, ranks=ranks)["wrong_tier"]
    assert one.claim.startswith("Transfers in groups 0,2, 1,3 cross nodes and move 400 B a step")
    assert "those in groups 0-1, 2-3 stay within nodes and move 100 B." in one.claim
    shown = [(e.metric, e.group, e.value) for e in one.evidence]
    assert shown == [("comm.volume", "0,2", 400.0), ("comm.volume", "0-1", 100.0)]
    # Each rank of these rows is said to spend 0.2 s in both groups, of which a quarter would stay.
    assert one.whatif == ["transfers[group=0,2|1,3].time=x0.250"]
    # It moves less than twice as much; does not fit into a node; or nodes are not known.
    assert "wrong_tier" not in found(*step, *near, *moved("0,2", 199.0, 0.2), ranks=ranks)
    assert "wrong_tier" not in found(*step, *near, *moved("0-3", 400.0, 0.2), ranks=ranks)
    unknown = [a_rank(rank, facts={"world_size": 4}) for rank in range(4)]
    assert "wrong_tier" not in found(*step, *near, *far, ranks=unknown)
    assert one.lost_s == pytest.approx(0.4)


def used(
    bus: float, share: float, *, group: str = "0-15", size: str = "64MiB-256MiB", **more: Any
) -> list[Row]:
    keys = {"collective": "all_reduce", "group": group, "category": size}
    return [row("comm.busbw", bus, **keys), row("comm.bandwidth_utilization", share, **keys, **more)]


def test_large_messages_far_below_the_links() -> None:
    """2 GB/s where the links can 50 take 25 times as long as they need."""
    ranks = [a_rank(one, facts={"device_count": 8, "world_size": 16}) for one in range(16)]
    rows = [*by_rank("time.step", *[1.0] * 16), *exposed("all_reduce", "0-15", 0.5)]
    names = found(*rows, *used(2e9, 0.04), ranks=ranks)
    assert set(names) == {"slow_network"}
    one = names["slow_network"]
    assert "reaches 2.00 GB/s of the 50.0 GB/s of its links: looks like sockets" in one.claim
    assert (one.lost_s, one.whatif) == (0.48, ["transfers[all_reduce&group=0-15].time=x0.040000"])
    # nearer to the rate, smaller messages, or times that hold waiting: nothing is said
    for other in (used(15e9, 0.3), used(2e9, 0.04, size="4MiB-16MiB"), used(2e9, 0.04, reason=WAITING)):
        assert "slow_network" not in found(*rows, *other, ranks=ranks)
    # rows of a kind alone, of all its groups, name no links
    kind = {"collective": "all_reduce", "category": "1GiB-4GiB"}
    both = [row("comm.busbw", 1e9, **kind), row("comm.bandwidth_utilization", 0.02, **kind)]
    assert found(*rows, *used(2e9, 0.04), *both, ranks=ranks)["slow_network"].claim == one.claim
    assert "slow_network" not in found(*rows, *both, ranks=ranks)
    # of two sizes the larger one counts
    sizes = [*used(2e9, 0.04, size="16MiB-64MiB"), *used(40e9, 0.8)]
    assert "slow_network" not in found(*rows, *sizes, ranks=ranks)
    # within a node it looks like host memory
    ranks = [a_rank(one, facts={"device_count": 8, "world_size": 8}) for one in range(8)]
    rows = [*by_rank("time.step", *[1.0] * 8), *exposed("all_reduce", "0-7", 0.5)]
    one = found(*rows, *used(12e9, 0.05, group="0-7"), ranks=ranks)["slow_network"]
    assert one.claim.endswith("of the 240 GB/s of its links: looks like PCIe or host memory.")

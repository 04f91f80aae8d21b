# SPDX-License-Identifier: Apache-2.0
"""How late ranks are in steps and whether chance explains it, worked out by hand and on drawn lateness."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers.hand_made import a_rank, collective, comm, compute, window
from helpers.hand_values import in_ns, rows_of, run_parts

from cclbench.analyzers.view.arrivals import arrivals_of
from cclbench.analyzers.view.late_cause import LateCause, RankWork, late_cause
from cclbench.analyzers.view.late_rank import (
    StragglerVerdict,
    chance_of_lateness,
    late_rank,
    trend_probability,
)
from cclbench.analyzers.view.lateness import Lateness, step_lateness
from cclbench.analyzers.view.meetings import rank_meetings
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9
Float = npt.NDArray[np.float64]
Call = tuple[str, tuple[int, ...], str | None, dict[int, int]]
"""Kind, ranks, dimension, and when each arrives after the step's begin; it ends at once for all."""


def job(*steps: list[Call], spans: int = 1000, residual: float = 0.0, **work: Any) -> list[RankView]:
    """Ranks that run those calls in each step, of so many ns; they compute from its begin to their first one.

    Of a rank in `work` ("r2") it is that: a function of the step's begin.
    """
    ranks = sorted({rank for calls in steps for _, group, _, _ in calls for rank in group})
    rows: dict[int, list[dict[str, Any]]] = {rank: [] for rank in ranks}
    kernels: dict[int, list[dict[str, Any]]] = {rank: [] for rank in ranks}
    instances = count()
    for number, calls in enumerate(steps):
        begin = spans * number
        for rank in ranks:
            first = min((arrivals[rank] for _, group, _, arrivals in calls if rank in group), default=0)
            made = work.get(f"r{rank}")
            kernels[rank] += made(begin) if made else [compute(begin, begin + first)]
        for kind, group, dimension, arrivals in calls:
            latest, instance = max(arrivals.values()), next(instances)
            alike = {"instance": instance, "step": number, "dimension": dimension, "group_size": len(group)}
            alike["group"] = ",".join(map(str, group))
            for rank in group:
                at, own = begin + arrivals[rank], kind if isinstance(kind, str) else kind[rank]
                times = {"arrival_ns": at, "wait_ns": latest - arrivals[rank]}
                rows[rank].append(collective(own, at, begin + latest + 10, **times, **alike))
    windows = [window(spans * number, spans * (number + 1), number) for number in range(len(steps))]
    return [
        a_rank(kernels[rank], windows, rows[rank], rank=rank, clock_residual_ns=residual) for rank in ranks
    ]


def together(*late: int) -> list[Call]:
    """One all-reduce of all ranks, each so many ns after 100."""
    return [("all_reduce", tuple(range(len(late))), None, {r: 100 + own for r, own in enumerate(late)})]


def late_of(ranks: list[RankView], residual: float = 0.0) -> Lateness:
    return step_lateness(rank_meetings({rank.rank: [arrivals_of(rank)] for rank in ranks}), residual)


def test_lateness_is_after_the_median_of_the_others() -> None:
    """Of 0, 10, 30 and 70: the last beside 10, 30 beside 10, 10 beside 30; not of its own median."""
    found = late_of(job(together(0, 10, 30, 70), together(0, 0, 0, 0)))
    assert found.late_ns.tolist() == [[0, 0], [0, 0], [20, 0], [60, 0]]
    assert (found.ranks, found.steps, found.across) == ((0, 1, 2, 3), (0, 1), 0)
    # from the median arrival, 20, those that wait wait until 70
    assert found.waited_ns.tolist() == [[50, 0], [50, 0], [40, 0], [0, 0]]
    assert found.latest_mask.tolist() == [[False] * 2, [False] * 2, [False] * 2, [True, False]]


@pytest.mark.parametrize(
    ("steps", "options", "late"),
    [
        # A float of such an instant is a multiple of 256 ns; a lateness is rounded to ns, 71 − 31/2 to even.
        ([(0, 0, 0), (0, 31, 71)], {"spans": 1_760_000_000_000_000_123}, [[0, 0], [0, 0], [0, 56]]),
        ([(0, 0, 40)], {"residual": 40.0}, [[0], [0], [0]]),
        ([(0, 0, 40)], {"residual": 39.0}, [[0], [0], [40]]),
    ],
    ids=["exact since the epoch", "within the clocks' residual", "beyond it"],
)
def test_lateness_counts_to_a_nanosecond(
    steps: list[tuple[int, ...]], options: dict[str, Any], late: list[list[int]]
) -> None:
    residual = options.pop("residual", 0.0)
    assert late_of(job(*(together(*one) for one in steps), **options), residual).late_ns.tolist() == late


def test_lateness_and_waits_are_unions_not_sums() -> None:
    """Two all-reduces that overlap: late from 100 to 140, and from 120 to 150: 50 ns, not 70."""
    calls = [("all_reduce", (0, 1), None, {0: at, 1: last}) for at, last in ((100, 140), (120, 150))]
    found = late_of(job(calls))
    assert found.late_ns.tolist() == [[0], [50]]
    # the median arrivals are 120 and 135: from there to 140 and 150
    assert found.waited_ns.tolist() == [[30], [0]]


def test_whom_other_communication_holds_up_is_not_late_itself() -> None:
    """Rank 1 computes 300 ns longer, its neighbour 0 waits for it, and both come late to ranks 2 and 3."""
    calls = [("all_reduce", (0, 1), "tp", {0: 100, 1: 400}), ("all_reduce", (2, 3), "tp", {2: 100, 3: 100})]
    calls += [("all_gather", (0, 2), "dp", {0: 420, 2: 120}), ("all_gather", (1, 3), "dp", {1: 420, 3: 120})]

    def work(until: int) -> Any:
        return lambda begin: [compute(begin, begin + until), comm(begin + until, begin + 410)]

    found = late_of(job(*[calls] * 3, r0=work(100), r1=work(400)))
    late = dict(zip(found.ranks, found.late_ns.mean(axis=1).tolist(), strict=True))
    assert late[1] >= 300
    assert late[0] < 20
    assert (late[2], late[3]) == (0, 0)
    assert len(set(found.role.tolist())) == 1


STAGES: list[Call] = [
    ({0: "send", 2: "recv"}, (0, 2), None, {0: 100, 2: 50}),  # type: ignore[list-item]
    ({1: "send", 3: "recv"}, (1, 3), None, {1: 100, 3: 50}),  # type: ignore[list-item]
    ("all_reduce", (0, 1), None, {0: 300, 1: 300}),
    ("all_reduce", (2, 3), None, {2: 700, 3: 700}),
    ("all_reduce", (0, 1, 2, 3), None, {0: 320, 1: 320, 2: 720, 3: 720}),
]


def test_stages_of_a_pipeline_are_never_compared() -> None:
    """Ranks 2 and 3 are a slow second stage, with its own role; the world's all-reduce spans stages."""
    found = late_of(job(*[STAGES] * 8))
    assert found.late_ns.max() == 0
    assert found.across == 8
    assert found.role[0] == found.role[1] != found.role[2] == found.role[3]
    rows = rows_of("balance.straggler_rank", *job(*[STAGES] * 8))
    assert rows[0]["reason"].startswith("no rank stands out")


def test_sends_and_receives_of_a_ring_are_no_pipeline_and_those_alone_compare_nobody() -> None:
    ring = [(kind, group, "cp", arrivals) for kind, group, _, arrivals in STAGES[:2]]
    found = late_of(job(*[[*ring, *STAGES[2:]]] * 8))
    assert found.across == 0
    assert found.late_ns[2:].min() > 0
    for calls, why in (
        (STAGES[:2], "one side waits by design"),
        ([*STAGES[:2], STAGES[4]], "span pipeline stages, whose arrivals differ by design"),
    ):
        (row,) = rows_of("balance.straggler_rank", *job(calls))
        assert why in row["reason"]


def stats_of(ranks: list[RankView]) -> tuple[dict[str, Any], dict[str, tuple[str, float]]]:
    row, *others = rows_of("balance.straggler_rank", *ranks)
    return row, {one["stat"]: (one["category"], one["value"]) for one in others if one["stat"]}


def test_a_rank_that_is_late_in_each_step_is_named_with_its_cause() -> None:
    row, stats = stats_of(job(*[together(0, 0, 60, 0)] * 12))
    assert row["value"] == 1.0
    assert row["reason"].startswith("rank 2 is late by 60.0 ns a step, latest in 12 of 12 steps (p = ")
    assert "because it computes longer" in row["reason"]
    assert stats["late_by"] == ("2", pytest.approx(60 * NS))
    assert stats["excess_compute"][0] == "2"
    assert stats["p_value"][1] < 1e-3


def test_a_late_collective_counts_once_a_step_however_many_there_are() -> None:
    """24 collectives of two steps, rank 1 last in all: by collectives 2⁻²⁴, by steps chance."""
    calls = [("all_reduce", (0, 1, 2), None, {0: at, 1: at + 20, 2: at}) for at in range(30, 390, 30)]
    row, stats = stats_of(job(calls, calls))
    assert row["reason"].startswith("no rank stands out: rank 1 is late by ")
    assert "which chance explains" in row["reason"]
    assert stats["p_value"][1] > 0.1
    # Nor does a lateness of a hundredth of a step name anybody.
    (row, _), (longer, _) = (stats_of(job(*[together(0, 0, own, 0)] * 12)) for own in (10, 11))
    assert row["reason"].endswith("no more than 1 % of a step")
    assert longer["reason"].startswith("rank 2 is late by 11.0 ns")


def test_the_delay_of_many_that_wait_and_the_wait_that_a_last_rank_alone_causes() -> None:
    """63 of 64 ranks wait from 100 to 600 of 1,000 ns."""
    row, *_ = rows_of("balance.straggler_delay", *job(together(*[0] * 63, 500)))
    assert row["value"] == pytest.approx(63 / 64 * 0.5)
    ranks = job(together(0, 10, 30), together(0, 5, 25))
    assert in_ns(run_parts("balance.caused_wait", *ranks)) == pytest.approx(
        {None: 20, "0": 0, "1": 0, "2": 20}
    )
    row, *_ = rows_of("balance.caused_wait", *ranks)
    assert (row["reason"], row["unit"]) == ("2 instances in 2 steps", "s")


def drawn(law: str, ranks: int, steps: int, random: np.random.Generator) -> Float:
    """How long each rank works in each step by a law that is the same for all, shape (ranks, steps)."""
    shape = ranks, steps
    if law == "jitter":
        return random.exponential(1.0, shape)
    if law == "lengths":
        return random.lognormal(0.0, 1.0, shape)
    if law == "stalls":
        return random.normal(0.0, 0.1, shape) + (random.random(shape) < 0.1) * random.exponential(10.0, shape)
    if law == "heavy tails":
        return np.abs(random.standard_cauchy(shape))
    rho = float(law.removeprefix("alike "))
    own = random.normal(size=shape)
    for step in range(1, steps):
        own[:, step] = rho * own[:, step - 1] + np.sqrt(1 - rho**2) * own[:, step]
    return own


def behind(work: Float) -> Float:
    """How much longer than the median of the others, shape (ranks, steps)."""
    others = [np.median(np.delete(work, rank, axis=0), axis=0) for rank in range(len(work))]
    return np.maximum(work - np.array(others), 0.0)


@pytest.mark.parametrize("law", ["jitter", "lengths", "stalls", "heavy tails", "alike 0.3", "alike 0.5"])
def test_of_equal_ranks_hardly_any_is_named(law: str) -> None:
    """At most 2 % of 320 jobs of 4 to 64 ranks, 6 to 60 steps, however little of a step it is late."""
    random = np.random.default_rng(20)
    sizes = [(ranks, steps) for ranks in (4, 8, 16, 64) for steps in (6, 12, 30, 60)]
    named = sum(
        chance_of_lateness(behind(drawn(law, ranks, steps, random))).min() * ranks < 0.01
        for ranks, steps in sizes
        for _ in range(20)
    )
    assert named <= 0.02 * 20 * len(sizes)


def found_late(work: Float) -> int | None:
    """The rank that chance does not explain."""
    p = chance_of_lateness(behind(work))
    return int(p.argmin()) if p.min() * len(work) < 0.01 else None


def test_a_rank_that_is_late_by_more_than_others_vary_is_found() -> None:
    """By four standard deviations, in 12 steps of 8 ranks, each time; by 20 in every tenth step of 60."""
    random = np.random.default_rng(21)
    for _ in range(20):
        work = random.normal(size=(8, 12))
        work[3] += 4
        assert found_late(work) == 3
    work = np.random.default_rng(22).normal(size=(8, 60))
    work[5, 4::10] += 20
    assert found_late(work) == 5


def alike(rho: float, size: tuple[int, int], seed: int) -> Float:
    """Work of ranks that is like itself from step to step."""
    return drawn(f"alike {rho}", *size, np.random.default_rng(seed))


@pytest.mark.parametrize("since", [0, 3])
def test_a_rank_that_stands_apart_is_found_in_few_steps(since: int) -> None:
    """Later by ten times what ranks differ by, in all of 7 steps or in 7 of 10."""
    for seed in range(20):
        work = alike(0.6, (8, 7 + since), seed)
        work[2, since:] += 30
        assert found_late(work) == 2


@pytest.mark.parametrize(("ranks", "steps"), [(2, 6), (3, 4), (4, 4), (8, 3), (64, 2)])
def test_few_steps_are_never_enough(ranks: int, steps: int) -> None:
    """The latest in all of them: twice ranks^(1 − steps) is not below 0.01, or nearly."""
    late = np.zeros((ranks, steps))
    assert chance_of_lateness(late).tolist() == [1.0] * ranks
    assert chance_of_lateness(late[:1] + 1).tolist() == [1.0]  # one rank alone
    late[0] = 1e6
    assert chance_of_lateness(late)[0] * ranks >= min(1.0, 2 * float(ranks) ** (1 - steps)) * (1 - 1e-9)
    assert chance_of_lateness(late)[0] * ranks > 0.01


def verdict(late: Float) -> StragglerVerdict:
    ranks, steps = (tuple(range(length)) for length in late.shape)
    spent, role = np.stack([late, 0 * late, 0 * late, 0 * late]), np.zeros(len(ranks), np.int64)
    return late_rank(Lateness(ranks, tuple(100 + n for n in steps), role, late, late, spent, 0), 100.0)


def test_how_often_and_when_a_rank_is_late() -> None:
    late = np.random.default_rng(23).random((4, 40)) * 3
    always, since, periodic, seldom = (late.copy() for _ in range(4))
    always[1] += 50
    since[1, 15:] += 50
    periodic[1, 2::5] += 50
    seldom[1, [3, 4, 9, 20, 22, 23, 30, 37]] += 50
    for own, pattern, words in (
        (always, "always", "latest in 40 of 40 steps"),
        (since, "since", ": since step 115"),
        (periodic, "periodic", ": in every 5th step"),
        (seldom, "intermittent", " of 40 steps"),
    ):
        found = verdict(own)
        assert (found.stands_out, found.rank, found.pattern) == (True, 1, pattern)
        assert found.pattern_words.endswith(words)
    assert (verdict(since).since, verdict(periodic).period) == (115, 5)
    drifting = late.copy()
    drifting[1] += np.arange(40) * 5 + 5
    assert verdict(drifting).pattern == "drifting"


def work(product: float, attention: float = 100, norm: float = 50, moe: float = 0, grid: int = 8) -> RankWork:
    """One window: what a product takes, and other families; no loading."""
    kernels: dict[tuple[str | None, str | None, int | None, int | None, int | None], tuple[int, int]] = {
        ("gemm", "mm", grid, 1, 1): (10, round(product)),
        ("attention", "fa", 8, 1, 1): (5, round(attention)),
        ("normalization", "rms", 8, 1, 1): (5, round(norm)),
    }
    if moe:
        kernels["moe", "grouped", 132, 1, 1] = (4, round(moe))
    return RankWork(on_host=False, windows=1, kernels=kernels, loading_ns=0.0)


def late_by(**excess: float) -> StragglerVerdict:
    own = tuple(excess.get(what, 0.0) for what in ("compute", "copy", "communication", "idle"))
    return StragglerVerdict(2, 1e-6, 50.0, 1000.0, 9, 9, own, "always", None, None, None)


USUAL = {rank: work(200.0, moe=100) for rank in (0, 1)}


@pytest.mark.parametrize(
    ("mine", "excess", "experts", "cause"),
    [
        (work(240.0, attention=120, norm=60, moe=120), "compute", False, "device"),
        (work(200.0, moe=300), "compute", False, "experts"),
        (work(300.0, moe=100), "compute", True, "experts"),
        (work(200.0, attention=300, moe=100), "compute", False, "lengths"),
        (work(300.0, moe=100, grid=12), "compute", False, "lengths"),
        (work(300.0, moe=100), "compute", False, "compute"),
        (work(200.0, moe=100), "copy", False, "copy"),
        (work(200.0, moe=100), "idle", False, "launch"),
    ],
)
def test_why_a_rank_is_late(mine: RankWork, excess: str, *, experts: bool, cause: str) -> None:
    found = late_cause(late_by(**{excess: 40.0}), USUAL | {2: mine}, experts=experts)
    assert found == LateCause(cause, 40.0)


@pytest.mark.parametrize(
    ("excess", "on_host", "loading", "cause"),
    [
        *(("idle", False, 30.0, "loader"), ("idle", False, 10.0, "launch"), ("idle", True, 10.0, "host")),
        # the operators of a CPU that loads are the loader's
        *(("compute", True, 30.0, "loader"), ("compute", False, 30.0, "compute")),
    ],
)
def test_a_slow_loader_computes_no_longer(excess: str, *, on_host: bool, loading: float, cause: str) -> None:
    works = {rank: RankWork(on_host, 1, {}, loading if rank == 2 else 0.0) for rank in range(3)}
    found = late_cause(late_by(**{excess: 40.0}), works, experts=False)
    assert found.name == cause


def test_what_a_rank_does_no_longer_than_others_is_no_cause() -> None:
    assert late_cause(late_by(communication=40.0, compute=-3.0), USUAL, experts=False) is None


def test_trends() -> None:
    rising, level = np.arange(32.0), np.tile([1.0, 0.0], 16)
    assert trend_probability(rising) == trend_probability(-rising) == pytest.approx(1.5e-7, rel=0.5)
    assert trend_probability(level) == trend_probability(np.zeros(32)) == 1.0
    assert trend_probability(rising[:15]) is None
    noise = np.random.default_rng(0).normal(size=(2_000, 40))
    assert sum((trend_probability(one) or 0) < 0.01 for one in noise) <= 2 * 0.01 * len(noise)

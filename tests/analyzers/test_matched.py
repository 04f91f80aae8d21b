# SPDX-License-Identifier: Apache-2.0
"""What only several ranks' traces tell: waiting and transfer, stragglers, fits; worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from helpers.hand_made import a_rank, card, collective, comm, compute, window
from helpers.hand_values import in_ns, main, parts, reason, rows_of, told, values

from cclbench.analyzers.hockney import t_quantile
from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.waiting import AT_ONCE

NS = 1e-9
PAIR = {"group": "0-1", "group_size": 2, "dimension": "dp"}
TRIO = {"group": "0-2", "group_size": 3, "dimension": "tp"}


def met(
    kind: str,
    instance: int,
    start: int,
    end: int,
    wait: int | None,
    nbytes: int = 1000,
    least: int | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """A matched row on true clocks; without `wait` one of an instance that lacks a rank."""
    lacking = {} if least is None else {"least_wait_ns": least}
    split = lacking if wait is None else {"wait_ns": wait, "transfer_ns": end - start - wait}
    sides = {"in_bytes": nbytes, "out_bytes": nbytes}
    known = {"instance": instance, "arrival_ns": start, **PAIR, **sides, **split}
    return collective(kind, start, end, **known | columns)


def occurrences(
    *calls: Sequence[dict[str, Any]], work: Sequence[Sequence[dict[str, Any]]] = ((), (), ()), end: int = 1000
) -> list[Any]:
    """Ranks 0, 1, ... with those collectives, a kernel for each of them, and other work."""
    return [
        a_rank([*more, *(comm(c["start_ns"], c["end_ns"]) for c in own)], [window(0, end, 1)], own, rank=n)
        for n, (own, more) in enumerate(zip(calls, work, strict=False))
    ]


def by(name: str, *ranks: RankView) -> dict[Any, Any]:
    """ns of the run over all steps, by what they are about."""
    rows = rows_of(f"comm.{name}", *ranks)
    return in_ns(told(row for row in rows if row["rank"] is row["step"] is None))


def two_ranks() -> list[Any]:
    """Rank 0 waits 40 of 60 ns, then 0 of 30; rank 1 waits 0 of 20, then 10 of 40."""
    early = [met("all_reduce", 1, 100, 160, 40), met("all_gather", 2, 310, 340, 0)]
    early += [met("all_reduce", 9, 500, 510, None), collective("all_reduce", 600, 610, **PAIR)]
    early += [collective("broadcast", 700, 705, group="0", group_size=1)]
    return occurrences(early, [met("all_reduce", 1, 140, 160, 0), met("all_gather", 2, 300, 340, 10)])


def test_wait_and_transfer_are_sums_per_step_by_kind_group_and_dimension() -> None:
    assert by("wait", *two_ranks()) == pytest.approx(
        {None: 25, "all_gather": 5, ("all_gather", "0-1"): 5, "all_reduce": 20, ("all_reduce", "0-1"): 20}
        | {"dp": 25}
    )
    transfer = rows_of("comm.transfer", *two_ranks())
    own = {row["rank"]: row["value"] for row in transfer if row["category"] is row["collective"] is None}
    assert in_ns(own) == pytest.approx({None: 50, 0: 50, 1: 50})


def test_collectives_at_once_wait_once_and_those_that_follow_one_another_each() -> None:
    """Waiting 0-40 and 20-60 at once; transfer 40-50 and 60-80: unions of 60 and of 30 ns."""
    (rank,) = occurrences([met("all_reduce", 1, 0, 50, 40), met("all_gather", 2, 20, 80, 40, **TRIO)])
    wait, transfer = (
        {(v.collective, v.group): v for v in values(rank, f"comm.{n}") if v.step is v.category is None}
        for n in ("wait", "transfer")
    )
    assert wait[None, None].value == pytest.approx(60 * NS)
    assert transfer[None, None].value == pytest.approx(30 * NS)
    assert wait["all_reduce", "0-1"].value == wait["all_gather", "0-2"].value == pytest.approx(40 * NS)
    assert wait["all_reduce", "0-1"].reason == AT_ONCE
    assert {v.reason for v in transfer.values()} == {None}
    assert main(rank, "comm.time") == pytest.approx(80 * NS)
    (rank,) = occurrences([met("all_reduce", 1, 0, 50, 40), met("all_gather", 2, 40, 80, 30, **TRIO)])
    assert main(rank, "comm.wait") == pytest.approx(70 * NS)
    assert {v.reason for v in values(rank, "comm.wait")} == {None}


def test_a_rank_without_a_trace_leaves_a_lower_bound_of_waiting() -> None:
    """Of three ranks one has no trace: the later of the two others comes at 60, the end is at 100."""
    early, late = (met("all_reduce", 1, at, 100, None, least=60 - at, **TRIO) for at in (20, 60))
    whole = met("all_reduce", 2, 200, 260, 10, **TRIO)
    (rank, other) = occurrences([early, whole], [late, met("all_reduce", 2, 210, 260, 0, **TRIO)])
    first = values(rank, "comm.wait")[0]
    assert first.value == pytest.approx((40 + 10) * NS)
    assert (first.status, first.coverage) == ("partial", Coverage(1, 2, 60, 140))
    assert first.reason == "a lower bound: 1 collectives lack a rank's trace"
    assert values(other, "comm.wait")[0].value == pytest.approx(0)
    assert main(rank, "comm.transfer", "partial") == pytest.approx(50 * NS)
    # Exposed alike: 40 + 10 ns wait, 50 transfer, and of 60-100 nobody knows.
    exposed = [values(rank, f"time.exposed_{part}")[0] for part in ("wait", "transfer", "unmatched")]
    assert [v.value for v in exposed] == pytest.approx([50 * NS, 50 * NS, 40 * NS])
    assert [v.status for v in exposed] == ["partial", "partial", "ok"]
    assert exposed[0].coverage == Coverage(1, 2, 100, 140)
    alone = occurrences([early])[0]
    assert main(alone, "comm.wait", "partial") == pytest.approx(40 * NS)
    assert reason(alone, "comm.transfer").startswith("no collective is matched across its ranks")


def test_a_run_of_which_a_rank_is_unknown_is_partial() -> None:
    told = met("all_reduce", 1, 0, 60, 20)
    silent = collective("all_reduce", 0, 40, **PAIR)
    rows = rows_of("comm.wait", *occurrences([told], [silent]))
    own = next(row for row in rows if row["rank"] is None)
    assert (own["status"], own["value"]) == ("partial", pytest.approx(20 * NS))
    assert (own["coverage"], own["coverage_time"]) == (1 / 2, 60 / 100)
    # A rank without any collective has nothing to be left out.
    rows = rows_of("comm.wait", *occurrences([told], []))
    assert next(row for row in rows if row["rank"] is None)["status"] == "ok"


def test_what_is_not_matched_is_counted_by_why() -> None:
    assert rows_of("comm.wait", *two_ranks())[0]["reason"] == (
        "left out: 1 in groups of one, 1 in instances that lack a rank, 1 not matched with another rank's"
    )
    alone = a_rank([comm(0, 9)], [window(0, 9)], [met("all_reduce", 0, 0, 9, None)])
    assert reason(alone, "comm.transfer") == (
        "no collective is matched across its ranks: 1 in instances that lack a rank"
    )
    assert reason(a_rank([compute(0, 9)], [window(0, 9)]), "comm.wait") == (
        "there are no collectives in the window"
    )
    (row,) = rows_of("comm.skew", two_ranks()[0])
    assert row["reason"] == "no collective has all its ranks among the selected ones"


def test_skew_is_a_mean_over_instances_with_quantiles() -> None:
    found = by("skew", *two_ranks())
    assert {key: found[key] for key in (None, "p50", "max", ("all_gather", "0-1"))} == pytest.approx(
        {None: 25, "p50": 25, "max": 40, ("all_gather", "0-1"): 10}
    )
    assert {row["rank"] for row in rows_of("comm.skew", *two_ranks())} == {None}
    # Rank 1's broadcast lies behind its window: of that kind there is no figure, rather than 0 / 0.
    first = [met("all_reduce", 1, 100, 160, 40), met("broadcast", 2, 310, 340, 0)]
    second = [met("all_reduce", 1, 140, 160, 0), met("broadcast", 2, 2000, 2010, 0)]
    found = by("skew", *occurrences(first, second))
    assert (found[None], found["all_reduce", "0-1"]) == pytest.approx((40, 40))
    assert "broadcast" not in found


def test_skew_by_kind_group_and_dimension() -> None:
    """Skews of 10, 30 and 80 ns: of two all-reduces in one group, and of an all-gather in another.

    A send and its receive are one instance of two ranks, whatever their group's size.
    """
    other = {"group": "0,1", "dimension": None}
    first = [met("all_reduce", 1, 100, 160, 10), met("all_reduce", 2, 200, 260, 30)]
    second = [met("all_reduce", 1, 110, 160, 0), met("all_reduce", 2, 230, 260, 0)]
    first.append(met("all_gather", 3, 300, 400, 80, **other))
    second.append(met("all_gather", 3, 380, 400, 0, **other))
    ranks = occurrences(first, second)
    found = by("skew", *ranks)
    quantiles = {key: found.pop(key) for key in ("p50", "p95", "max")}
    assert quantiles == pytest.approx({"p50": 30, "p95": None, "max": 80})
    assert found == pytest.approx(
        {None: 40, "all_reduce": 20, ("all_reduce", "0-1"): 20, "dp": 20}
        | {"all_gather": 80, ("all_gather", "0,1"): 80}
    )
    assert rows_of("comm.skew", *ranks)[0]["reason"] == "3 instances"
    of_four = {"group": "0-3", "group_size": 4, "dimension": "pp"}
    send, recv = met("send", 5, 100, 130, 0, **of_four), met("recv", 5, 70, 130, 30, **of_four)
    found = by("skew", *occurrences([send], [recv]))
    assert (found[None], found["send"], found["recv"]) == pytest.approx((30, 30, 30))


def test_a_run_takes_the_ranks_that_have_transfers() -> None:
    unmatched = [collective("all_reduce", 0, 500, in_bytes=1000, **PAIR)]
    run = rows_of("comm.busbw", *occurrences([met("all_reduce", 1, 100, 160, 40)], unmatched))[0]
    assert run["value"] == pytest.approx(1000 / 20e-9)
    assert run["reason"] == "left out: 1 not matched across their ranks"


def test_hockneys_line_through_points_of_last_ranks() -> None:
    """t = 100 ns + S / 10 B per ns, told by whoever is last; the other's waiting is no point."""
    early, late = moved(line_of(*LINE), end=50, wait=50), moved(line_of(*LINE), begin=50, end=50)
    assert line("alpha", early, late) == pytest.approx(100)
    assert line("beta", early, late) == pytest.approx(0.1)
    alpha = by("alpha", *occurrences(early, late, end=100_000))
    low, high, r2 = (alpha["all_reduce", "0-1", stat] for stat in ("low", "high", "r2"))
    assert (low, high, r2) == pytest.approx((100, 100, 1e9))
    assert fitted("alpha", early, late)[0]["reason"] == "5 collectives of 4 sizes"
    assert "5 matched instances of 2 sizes" in fitted("beta", early[:4], late[:4])[0]["reason"]


def test_hockneys_interval_by_hand() -> None:
    """S = 1, 1, 1, 2, 2, 2 B with times around 10 and 20 ns by a share of −10 %, 0, +10 %, weights 1/t².

    Each size's weighted mean is Σ(1/t) / Σ(1/t²), and β is their difference: there are two sizes.
    """
    times = [9, 10, 11, 18, 20, 22]
    late = line_of(*zip((1, 1, 1, 2, 2, 2), times, strict=True))
    early = moved(late, begin=-1, wait=1)
    alpha, beta = (by(name, *occurrences(early, late, end=100_000)) for name in ("alpha", "beta"))
    place = ("all_reduce", "0-1")
    mass = sum(1 / t**2 for t in times[:3])
    mean = sum(1 / t for t in times[:3]) / mass
    assert beta[place] == pytest.approx(mean)
    unexplained = 2 * sum((t - mean) ** 2 / t**2 for t in times[:3])
    error = (unexplained / 4 * (1 / mass + 4 / mass)) ** 0.5
    assert beta[*place, "high"] - beta[place] == pytest.approx(2.776445 * error, rel=1e-3)
    # α is twice the first size's mean less the second's: variance 4/m of the first, 1/(m/4) of the second.
    error = (unexplained / 4 * (4 / mass + 4 / mass)) ** 0.5
    assert alpha[place] == 0
    assert alpha[*place, "high"] == -alpha[*place, "low"] == pytest.approx(2.776445 * error, rel=1e-3)
    of_all = sum(1 / t for t in times) / sum(1 / t**2 for t in times)
    whole = sum((t - of_all) ** 2 / t**2 for t in times)
    (share,) = [row for row in fitted("beta", early, late) if row["stat"] == "r2"]
    assert (share["value"], share["unit"]) == (pytest.approx(1 - unexplained / whole), "1")


def line_of(*points: tuple[int, int], kind: str = "all_reduce", **columns: Any) -> list[dict[str, Any]]:
    """Collectives of those bytes and ns, of which this rank is the last."""
    return [
        met(kind, columns.get("instance", n), 10_000 * n, 10_000 * n + ns, 0, size, **columns)
        for n, (size, ns) in enumerate(points)
    ]


def fitted(name: str, *calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows_of(f"comm.{name}", *occurrences(*calls, end=100_000))


def line(name: str, *calls: Sequence[dict[str, Any]], of: str = "all_reduce") -> float:
    """ns or ns a byte of the line of that kind among ranks 0 and 1."""
    return by(name, *occurrences(*calls, end=100_000))[of, "0-1"]


LINE = [(1000, 200), (1000, 200), (2000, 300), (4000, 500), (8000, 900)]  # 100 ns + S / 10 B per ns


@pytest.mark.parametrize("ns", [7, 100, 1234, 2997])
def test_times_that_are_all_alike_are_latency_alone(ns: int) -> None:
    calls = line_of(*((size, ns) for size, _ in LINE))
    assert (line("alpha", calls), line("beta", calls)) == (pytest.approx(ns), 0)
    assert {row["stat"] for row in fitted("beta", calls)} == {None, "low", "high"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(met("all_reduce", 9, 90_000, 90_700, 0, 0), id="no bytes"),
        pytest.param(met("all_reduce", 9, 90_000, 90_000, 0, 4000), id="no time"),
        pytest.param(met("all_reduce", 9, 90_000, 90_700, 1, 4000), id="a wait"),
        pytest.param(met("all_reduce", 9, 90_000, 90_700, 0, 4000, group=None), id="no group"),
        pytest.param(met("all_gather", 9, 90_000, 95_000, 0, 9, out_bytes=None), id="one side of a gather"),
    ],
)
def test_what_is_no_point_of_the_line(other: dict[str, Any]) -> None:
    kind = other["kind"]
    calls = line_of(*LINE, kind=kind)
    assert line("alpha", [*calls, other], of=kind) == pytest.approx(100)
    assert fitted("alpha", [*calls, other])[0]["reason"] == "5 collectives of 4 sizes"
    assert "no kind and group has at least 5" in fitted("alpha", [*calls[:4], other])[0]["reason"]


def test_what_is_a_point_of_the_line() -> None:
    """t = 1 ns in 1 B, 2 ns in 2 B, ...: no latency, 1 ns a byte; of sends all, though it waited in them."""
    shortest = line_of(*((n, n) for n in range(1, 6)))
    assert line("beta", shortest) == pytest.approx(1)
    assert fitted("beta", shortest)[0]["reason"] == "5 collectives of 5 sizes"
    sends = moved(line_of(*LINE, kind="send"), end=30, wait=30)
    assert line("alpha", sends, of="send") == pytest.approx(100)
    # An instance of which two ranks are last is one.
    four, five = line_of(*LINE[:4]), line_of(*LINE)
    assert "at least 5 matched instances" in fitted("alpha", four, four)[0]["reason"]
    assert fitted("alpha", five, five)[0]["reason"] == "5 collectives of 4 sizes"


def moved(
    rows: Sequence[dict[str, Any]], begin: int = 0, end: int = 0, wait: int = 0
) -> list[dict[str, Any]]:
    """The calls with their begin, end and waiting so many ns later; none has waited before."""
    shifts = {"start_ns": begin, "arrival_ns": begin, "end_ns": end, "wait_ns": wait}
    return [row | {name: row[name] + ns for name, ns in shifts.items()} for row in rows]


def numbered(first: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"instance": first + n} for n, row in enumerate(rows)]


def test_kinds_and_groups_have_lines_of_their_own_and_one_size_makes_none() -> None:
    """Of three in one run, told by turns by two ranks: 100 ns + S / 10 B per ns, and half of both."""
    gathers = numbered(20, line_of(*LINE, kind="all_gather"))
    halves = numbered(40, line_of(*((size, ns // 2) for size, ns in LINE), **TRIO))
    alike = numbered(60, line_of(*[(50, 9)] * 5, kind="broadcast"))
    calls = [*gathers, *line_of(*LINE), *alike, *halves]
    found = by("beta", *occurrences(calls[::2], calls[1::2], end=100_000))
    assert {key: slope for key, slope in found.items() if len(key) == 2} == pytest.approx(
        {("all_reduce", "0-1"): 0.1, ("all_gather", "0-1"): 0.1, ("all_reduce", "0-2"): 0.05}
    )
    (row,) = fitted("alpha", alike)
    assert row["reason"] == "no kind and group has at least 5 matched instances of 2 sizes"


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_times_that_do_not_grow_along_a_line_have_no_fit(name: str) -> None:
    """Doubled bytes take three times as long, from 10 ns on: below none at no bytes; or they take less."""
    steep = line_of(*((2**n, 10 * 3**n) for n in range(5)))
    falling = numbered(10, line_of(*((2**n, 500 - 10 * n) for n in range(5)), kind="all_gather"))
    (row,) = fitted(name, [*steep, *falling])
    assert row["reason"].startswith("the fits of 2 kinds and groups have a negative latency or inverse")
    good = numbered(20, line_of(*LINE, kind="broadcast"))
    found = by(name, *occurrences([*steep, *falling, *good], end=100_000))
    assert {kind for kind, *_ in found} == {"broadcast"}


@pytest.mark.parametrize(
    ("freedom", "quantile", "rel"),
    [
        # 1.959964 + 2.372271 / 3 + 2.822499 / 3² + 2.555850 / 3³ + 1.589534 / 3⁴: the expansion's exact sum
        (3, 3.178616995054, 1e-9),
        *((3, 3.182446, 1.5e-3), (10, 2.228139, 1.5e-3), (60, 2.000298, 1.5e-3)),
    ],
)
def test_quantiles_of_student(freedom: int, quantile: float, rel: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, rel=rel)


def test_exposed_time_is_waiting_until_the_last_arrival_and_transfer_from_then_on() -> None:
    """20-80 waits to 60; 50-80 waits to 70; compute hides 0-30; in 50-80 each has half of an instant."""
    calls = [met("all_reduce", 1, 20, 80, 40), met("all_gather", 2, 50, 80, 20)]
    rank = a_rank([compute(0, 30), comm(20, 80), comm(90, 93)], [window(0, 100, 1)], calls)
    assert main(rank, "time.exposed_wait", "partial") == pytest.approx((20 + 5 + 10) * NS)
    assert main(rank, "time.exposed_transfer", "partial") == pytest.approx((10 + 5) * NS)
    assert main(rank, "time.exposed_unmatched") == pytest.approx(3 * NS)
    found = in_ns(parts(rank, "time.exposed_wait"))
    assert (found["all_reduce"], found["all_gather"]) == pytest.approx((25, 10))


def test_exposed_time_of_unmatched_collectives_is_neither_and_what_is_hidden_need_not_be_matched() -> None:
    rank = a_rank([comm(0, 30)], [window(0, 30)], [collective("all_reduce", 0, 30, **PAIR)])
    assert main(rank, "time.exposed_unmatched") == pytest.approx(30 * NS)
    assert reason(rank, "time.exposed_wait") == (
        "none of the rank's exposed communication is matched across ranks"
    )
    hidden = a_rank([comm(0, 30), compute(0, 30)], [window(0, 30)], [collective("all_reduce", 0, 30)])
    assert main(hidden, "time.exposed_wait") == 0
    calls = [met("all_reduce", 1, 20, 80, 40), collective("all_reduce", 85, 95, **PAIR)]
    rank = a_rank([comm(20, 80), comm(85, 95), compute(85, 95)], [window(0, 100, 1)], calls)
    own = values(rank, "time.exposed_wait")[0]
    assert (own.value, own.status, own.coverage) == (pytest.approx(40 * NS), "ok", Coverage(2, 2, 60, 60))
    blind = values(a_rank([comm(85, 95)], [window(0, 100, 1)], calls[1:]), "time.exposed_transfer")[0]
    assert blind.coverage == Coverage(0, 1, 0, 10)


STAGES = {"group": "0-1", "group_size": 2, "dimension": "pp"}
BUBBLE = "overlap.pipeline_bubble"
PIPELINE = card(parallelism={"pp": 2})


def a_stage(*calls: dict[str, Any], **options: Any) -> RankView:
    """A rank that communicates for its calls, in a window of 100 ns."""
    return a_rank([comm(c["start_ns"], c["end_ns"]) for c in calls], [window(0, 100)], calls, **options)


def test_a_pipelines_bubble_is_idling_and_waiting_for_its_neighbour() -> None:
    recv, reduce = met("recv", 1, 0, 50, 30, **STAGES), met("all_reduce", 2, 60, 90, 20, **TRIO)
    assert main(a_stage(recv, reduce), BUBBLE) == pytest.approx((20 + 30) / 100)
    assert main(a_stage(reduce, card=PIPELINE), BUBBLE) == pytest.approx(0.7)


LONE = met("send", 1, 0, 50, 0, group="0", group_size=1, dimension="pp")


@pytest.mark.parametrize(
    ("rank", "why"),
    [
        (a_stage(met("all_reduce", 2, 60, 90, 20, **TRIO)), "states a pipeline"),
        (a_stage(LONE), "states a pipeline"),
        (a_stage(met("recv", 1, 0, 50, 30, dimension=None), card=card(parallelism={"pp": 1})), "a pipeline"),
        (a_stage(collective("recv", 0, 50, **STAGES)), "1 not matched with another rank's"),
        (a_rank([compute(0, 9)], [window(50, 50, 1)], card=PIPELINE), "there is no time in the window"),
    ],
    ids=["no stages", "a stage of one rank", "a card of one stage", "unmatched", "no time"],
)
def test_why_there_is_no_bubble(rank: RankView, why: str) -> None:
    assert why in reason(rank, BUBBLE)


def test_a_bubble_by_step_and_over_ranks_is_of_the_windows() -> None:
    """Idle 50-100 and 130-200, waiting 0-30: 80 of 100 and 70 of 100; on the other rank 20 of 50."""
    call = met("recv", 1, 0, 50, 30, **STAGES)
    rank = a_rank([comm(0, 50), compute(100, 130)], [window(0, 100, 1), window(100, 200, 2)], [call])
    assert parts(rank, BUBBLE) == pytest.approx({None: 150 / 200, 1: 80 / 100, 2: 70 / 100})
    empty = a_rank([comm(0, 50)], [window(0, 100, 1), window(100, 100, 2)], [call])
    assert list(parts(empty, BUBBLE)) == [None, 1]
    other = a_rank([compute(0, 30)], [window(0, 50)], [met("send", 1, 0, 10, 0, **STAGES)], rank=1)
    assert rows_of(BUBBLE, rank, other)[0]["value"] == pytest.approx(170 / 250)


def test_transfers_of_no_stated_dimension_are_the_pipelines_and_unmatched_ones_leave_it_partial() -> None:
    nobodys, tensors = met("recv", 1, 0, 50, 30, dimension=None), met("recv", 2, 60, 90, 20)
    own = values(a_stage(nobodys, tensors, card=PIPELINE), BUBBLE)[0]
    assert (own.value, own.coverage) == (pytest.approx((20 + 30) / 100), Coverage(1, 1, 50, 50))
    unmatched = collective("send", 60, 70, **STAGES)
    (own,) = values(a_stage(met("recv", 1, 0, 50, 30, **STAGES), unmatched), BUBBLE)
    assert (own.value, own.coverage) == (pytest.approx((10 + 30 + 30) / 100), Coverage(1, 2, 50, 60))
    assert own.words == "left out: 1 not matched with another rank's"


def test_parts_of_a_call_across_a_windows_edge_count_in_each_and_are_means_over_steps() -> None:
    """20-60 waiting, 60-80 transfer, in windows of 50 ns."""
    rank = a_rank([comm(20, 80)], [window(0, 50, 1), window(50, 100, 2)], [met("all_reduce", 1, 20, 80, 40)])
    for name, (whole, first, second) in {"wait": (40, 30, 10), "transfer": (20, 0, 20)}.items():
        mean = dict.fromkeys([None, "all_reduce", ("all_reduce", "0-1"), "dp"], whole / 2)
        for metric in (f"time.exposed_{name}", f"comm.{name}"):
            assert in_ns(parts(rank, metric)) == pytest.approx({**mean, 1: first, 2: second})


@pytest.mark.parametrize("kind", ["send", "recv", "send_recv"])
def test_a_pipelines_transfers_of_each_kind_alone_make_a_bubble(kind: str) -> None:
    """Idle 50-100, waiting 0-30; the wait of another kind in the same group is none of the pipeline's."""
    own = met(kind, 1, 0, 50, 30, **STAGES)
    assert main(a_stage(own), BUBBLE) == pytest.approx((50 + 30) / 100)
    other = met("all_reduce", 2, 50, 80, 20, **STAGES)
    assert main(a_stage(own, other), BUBBLE) == pytest.approx((20 + 30) / 100)


def phases(*ranks: RankView) -> dict[Any, Any]:
    """The run's phases by dimension and stat; times in ns."""
    rows = [row for row in rows_of("comm.windows", *ranks) if row["rank"] is None]
    return {**told(r for r in rows if r["stat"] is None), **in_ns(told(r for r in rows if r["stat"]))}


def test_phases_and_the_gaps_between_them() -> None:
    calls = [met("all_reduce", 1, 0, 20, 0), met("all_reduce", 2, 30, 50, 0)]
    calls += [met("all_gather", 3, 60, 90, 0, **TRIO), met("all_reduce", 4, 80, 100, 0)]
    found = phases(*occurrences(calls))
    assert found == pytest.approx(
        {None: 3, "phase": (50 + 30 + 20) / 3, "gap": 5, "gap_p50": 5, "gap_max": 10}
        | {"dp": 2, ("dp", "phase"): (50 + 20) / 2}
        | dict.fromkeys([("dp", "gap"), ("dp", "gap_p50"), ("dp", "gap_max")], 0)
        | {"tp": 1, ("tp", "phase"): 30}
        | dict.fromkeys([("tp", "gap"), ("tp", "gap_p50"), ("tp", "gap_max")], 10)
    )
    nowhere = occurrences([collective("all_reduce", 0, 20)])[0]
    assert "dimension" in reason(nowhere, "comm.windows")


def test_phases_of_calls_that_begin_at_once_do_not_depend_on_the_order_of_rows() -> None:
    """dp, tp and dp at 0, then tp: by their ends tp, dp, dp and tp make three phases."""
    calls = [met("all_reduce", 1, 0, 20, 0), met("all_gather", 2, 0, 10, 0, **TRIO)]
    calls += [met("all_reduce", 3, 0, 30, 0), met("all_gather", 4, 40, 50, 0, **TRIO)]
    found = phases(*occurrences(calls))
    assert found == phases(*occurrences(calls[::-1]))
    assert found[None] == 3


def test_phases_count_by_step_groups_of_one_and_unknown_dimensions_apart() -> None:
    """In two steps: dp 0-10, unknown 15-30 with a group of one within, tp 22-40, dp 90-95."""
    calls = [
        met("all_reduce", 4, 90, 95, 0),
        met("all_reduce", 1, 0, 10, 0),
        collective("all_reduce", 15, 30),
        met("broadcast", 9, 17, 21, 0, group="0", group_size=1, dimension="ep"),
        met("all_gather", 3, 22, 40, 0, **TRIO),
    ]
    rank = a_rank([comm(0, 95)], [window(0, 50, 1), window(50, 100, 2)], calls)
    expected = {None: 4 / 2, "phase": (10 + 15 + 18 + 5) / 4, "gap": (5 + 0 + 50) / 3, "gap_p50": 5}
    expected["gap_max"] = 50
    for dimension, count, phase, gap in (
        ("dp", 2, (10 + 5) / 2, 50), ("tp", 1, 18, 0), ("unknown", 1, 15, 5)
    ):  # fmt: skip
        expected |= {dimension: count / 2, (dimension, "phase"): phase}
        expected |= {(dimension, stat): gap for stat in ("gap", "gap_p50", "gap_max")}
    assert phases(rank) == pytest.approx(expected)


def test_a_pipelines_ideal_bubble_is_that_of_its_card() -> None:
    """3 of the 11 turns that 8 micro-batches take on 4 stages."""

    def rank(**parallelism: int) -> RankView:
        return a_rank([compute(0, 1)], [window(0, 9)], card=card(parallelism=parallelism))

    assert main(rank(pp=4, microbatches=8), "overlap.bubble_ideal") == pytest.approx(3 / 11)
    assert "lacks parallelism.microbatches" in reason(rank(pp=4), "overlap.bubble_ideal")
    assert "no pipeline of several stages" in reason(rank(pp=1, microbatches=8), "overlap.bubble_ideal")

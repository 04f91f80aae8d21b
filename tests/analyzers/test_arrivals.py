# SPDX-License-Identifier: Apache-2.0
"""When ranks arrive at collectives, their payloads, bytes exchanged and exposed instants, by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, collective, collectives_table, comm, compute, event, window

from cclbench.analyzers.balance import late_more_than_chance, waits_over_window
from cclbench.analyzers.lateness import caused_by_rank
from cclbench.analyzers.metric import Coverage, NotApplicable, Unknown, Value
from cclbench.analyzers.view.arrivals import (
    NOTHING_BEFORE,
    UNKNOWN_BEFORE,
    Arrivals,
    arrivals_of,
    matched_collectives,
    matched_rows,
)
from cclbench.analyzers.view.collectives import Label, collective_payloads
from cclbench.analyzers.view.exchanged import ExchangedBytes, exchanged_bytes
from cclbench.analyzers.view.exposed import Exposed, split_exposed
from cclbench.analyzers.view.meetings import CollectiveInstances, rank_meetings, value_over_instances
from cclbench.analyzers.waiting import mean_over_instances
from cclbench.ground.intervals import union

PAIR = {"group": "0-1", "group_size": 2}
TRIO = {"group": "0-2", "group_size": 3}
ALONE = {"group": "0", "group_size": 1}
REDUCE, GATHER, SEND = Label("all_reduce", "0-1"), Label("all_gather", "0-2"), Label("send", "0-1")


def test_what_is_not_complete_is_counted_by_the_first_reason_that_holds() -> None:
    told: list[tuple[int, int, dict[str, Any]]] = [
        *((0, 1, {"wait_ns": 0, "instance": 1, **PAIR}), (10, 12, {"instance": 2, **ALONE})),
        *((20, 24, ALONE), (30, 38, {"instance": 3, **PAIR}), (40, 56, {"group_size": 2})),
        *((60, 92, PAIR), (100, 164, PAIR), (200, 328, {"wait_ns": 0, "instance": 9, **ALONE})),
        (400, 656, PAIR),
    ]
    rows = [collective("all_reduce", start, end, **columns) for start, end, columns in told]
    found = matched_rows(collectives_table(*rows))
    assert found.complete.tolist() == [True, False, False, False, False, False, False, True, False]
    expected = {"in groups of one": 2, "in instances that lack a rank": 1, "of unknown process group": 1}
    expected |= {"not matched with another rank's": 3}
    assert found.left_out == expected
    # Groups of one are in no coverage, be they complete or not; reasons that do not occur are not listed.
    assert found.coverage == Coverage(1, 6, 1, 1 + 8 + 16 + 32 + 64 + 256)
    assert matched_rows(collectives_table(rows[0])).left_out == {}


def test_nothing_matched_is_unknown_unless_all_are_alone() -> None:
    lacking = a_rank([], [window(0, 100)], [collective("all_gather", 30, 50, **PAIR)])
    with pytest.raises(Unknown, match="across its ranks: 1 not matched with another rank's") as unknown:
        matched_collectives(lacking)
    assert unknown.value.coverage == Coverage(0, 1, 0, 20)
    alone = a_rank([], [window(0, 100)], [collective("all_gather", 30, 50, **ALONE)])
    with pytest.raises(NotApplicable, match="across its ranks: 1 in groups of one") as absent:
        matched_collectives(alone)
    assert not isinstance(absent.value, Unknown)
    with pytest.raises(NotApplicable, match="there are no collectives in the window"):
        matched_collectives(a_rank([], [window(0, 100)]))


def a_busy_rank() -> Any:
    """A rank whose clock is 5 ns behind the common one, with a collective before its window.

    C is 10-30 and 350-380; K is 20-60 and the collectives in the window; M is 55-70 and 370-390.
    """
    of_eight = {"group": "0-1", "group_size": 8, "step": 2}
    own = [
        ("all_reduce", 300, 340, 7, {"instance": 3, **PAIR, "step": 1}),
        ("all_reduce", 20, 60, 4, PAIR),
        ("all_gather", 200, 220, 5, {"instance": 2, **TRIO}),
        ("send", 400, 450, 9, {"instance": 4, **of_eight}),
        ("recv", 430, 460, 11, {"instance": 5, **of_eight}),
    ]
    calls = [
        collective(kind, start, end, collective=key, **columns)
        | ({"arrival_ns": start + 5, "wait_ns": 0} if "instance" in columns else {})
        for kind, start, end, key, columns in own
    ]
    rows = [compute(10, 30), compute(350, 380), event("copy", 55, 70, track=3)]
    rows += [event("copy", 370, 390, track=3)]
    rows += [comm(start, end) for _, start, end, *_ in own]
    return a_rank(rows, [window(100, 1000)], calls, clock_residual_ns=2.5)


def test_what_a_rank_does_since_its_groups_previous_collective() -> None:
    found, others = a_busy_rank().arrivals
    assert found.instance.tolist() == [3, 2, 4, 5]
    assert found.arrival_ns.tolist() == [305, 205, 405, 435]
    assert found.before.tolist() == [UNKNOWN_BEFORE, NOTHING_BEFORE, 3, 4]
    # No instance has the number of either.
    assert NOTHING_BEFORE < 0 > UNKNOWN_BEFORE
    assert NOTHING_BEFORE != UNKNOWN_BEFORE
    assert found.spent.T.tolist() == [
        # 60-300: the copy's 60-70, the all-gather's 200-220
        [0, 10, 20, 210],
        # 10-200: compute 10-30, communication 30-60, a copy 60-70; and 15 ns from the common clock's zero
        [20, 10, 30, 130 + 15],
        # 340-400: compute 350-380, of the copy 380-390
        [30, 10, 0, 20],
        # It begins before the one before it ends.
        [0, 0, 0, 0],
    ]
    assert found.members.tolist() == [2, 3, 2, 2]
    assert found.step.tolist() == [1, -1, 2, 2]
    kinds = [found.labels[n].collective for n in found.label.tolist()]
    assert kinds == ["all_reduce", "all_gather", "send", "recv"]
    assert (found.window_ns, found.on_host, found.clock_residual_ns) == (900, False, 2.5)
    assert others.left_out == {}
    value = arrivals_of(a_busy_rank())
    assert (value.value, value.coverage) == (4, Coverage(4, 4, 40 + 20 + 50 + 30, 140))
    assert isinstance(value.detail, Arrivals)


@pytest.mark.parametrize("others", [0, 1, 2])
def test_the_first_collective_of_a_group_has_none_before_it(others: int) -> None:
    """Whatever the number of groups is, and wherever the group stands among them."""
    groups = [*(f"0-{m}" for m in range(5, 5 + others)), "0-1", "0-1", None, None]
    known = {"arrival_ns": 0, "wait_ns": 0}
    calls = [
        collective("all_reduce", 100 * n, 100 * n + 50, instance=n, group=group, **known)
        for n, group in enumerate(groups)
    ]
    found, _ = a_rank([], [window(0, 1000)], calls).arrivals
    own = [NOTHING_BEFORE, others, NOTHING_BEFORE, others + 2]
    assert found.before.tolist() == [NOTHING_BEFORE] * others + own


def part(instances: list[int], arrivals: list[int], labels: list[Label], **changes: Any) -> Value:
    """What a rank hands over: the n-th row has the n-th label; two members each unless told otherwise."""
    rows, numbers, at = len(instances), np.array(instances, np.int64), np.array(arrivals, np.int64)
    told: dict[str, Any] = {"window_ns": 1000, "on_host": False, "clock_residual_ns": 0.0, "labels": labels}
    told |= {"label": np.arange(rows, dtype=np.int32), "instance": numbers, "arrival_ns": at}
    told |= {"members": np.full(rows, 2, np.int32), "before": numbers - 1, "step": numbers * 10}
    told["spent"] = np.array([at, numbers, numbers, numbers]).reshape(4, rows)
    left_out, coverage = changes.pop("left_out", {}), Coverage(rows, 5, 1, 2)
    return Value(value=1.0, detail=Arrivals(**(told | changes)), left_out=left_out, coverage=coverage)


def three_ranks() -> dict[int, list[Value]]:
    """Instance 0 of ranks 1 and 4, instance 2 of 1, 3 and 4, instance 5 of 1 alone, 7 of 3 and 4."""

    def one(*told: tuple[int, int, Label], left_out: int = 0) -> Value:
        numbers, at, labels = zip(*told, strict=True)
        members = np.array([3 if number == 2 else 2 for number in numbers], np.int32)
        more = {"left_out": {"a": left_out}} if left_out else {}
        return part([*numbers], [*at], [*labels], members=members, **more)

    return {
        4: [one((0, 50, REDUCE), (2, 90, GATHER), (7, 300, SEND), left_out=1)],
        1: [one((2, 80, GATHER), (5, 200, REDUCE), (0, 60, REDUCE), left_out=2)],
        3: [one((2, 70, GATHER), (7, 290, SEND)), Value(value=9.0)],
    }


def listed(found: CollectiveInstances) -> list[tuple[int, ...]]:
    """Instance's place, rank, arrival, before and step of each row."""
    columns = (found.instance_of_row, found.rank, found.arrival_ns, found.before, found.step)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_instances_are_those_that_all_their_ranks_tell_of() -> None:
    found = rank_meetings(three_ranks())
    expected = [(0, 4, 50, -1, 0), (0, 1, 60, -1, 0), (1, 3, 70, 1, 20), (1, 1, 80, 1, 20), (1, 4, 90, 1, 20)]
    expected += [(2, 3, 290, 6, 70), (2, 4, 300, 6, 70)]
    assert listed(found) == expected
    assert (found.first.tolist(), found.count.tolist(), found.incomplete) == ([0, 2, 5], [2, 3, 2], 1)
    assert [found.labels[n] for n in found.label] == [REDUCE] * 2 + [GATHER] * 3 + [SEND] * 2
    assert found.spent.tolist() == [[50, 60, 70, 80, 90, 290, 300], *[[0, 0, 2, 2, 2, 7, 7]] * 3]
    assert (found.earliest_ns.tolist(), found.latest_ns.tolist()) == ([50, 70, 290], [60, 90, 300])


def test_instances_of_groups_are_without_sends_and_receives() -> None:
    found = rank_meetings(three_ranks()).of_groups()
    assert [row[:3] for row in listed(found)] == [(0, 4, 50), (0, 1, 60), (1, 3, 70), (1, 1, 80), (1, 4, 90)]
    assert (found.first.tolist(), found.count.tolist()) == ([0, 2], [2, 3])
    assert found.spent.shape == (4, 5)
    sends = {rank: [part([7], [rank], [SEND])] for rank in (3, 4)}
    with pytest.raises(NotApplicable, match="all matched collectives are sends and receives"):
        rank_meetings(sends).of_groups()


def test_a_figure_over_instances_leaves_out_what_its_ranks_do_and_instances_that_lack_one() -> None:
    ranks = three_ranks()
    value = value_over_instances(ranks, rank_meetings(ranks), 1.5, "so")
    assert (value.value, value.reason) == (1.5, "so")
    assert value.left_out == {"a": 3, "instances that lack a rank in the windows": 1}
    assert value.coverage == Coverage(3 + 3 + 2, 15, 3, 6)


def random_ranks(seed: int) -> dict[int, list[Value]]:
    """Three ranks, of which each may lack an instance, with sends among the instances, and equal arrivals."""
    random = np.random.default_rng(seed)
    kinds = [((0, 1), REDUCE), ((0, 1, 2), GATHER), ((1, 2), SEND)]
    of = {number: kinds[random.integers(3)] for number in random.permutation(40).tolist()}
    found = {}
    for rank in range(3):
        own = [n for n, (members, _) in of.items() if rank in members and random.random() < 0.9]
        found[rank] = [part(own, random.integers(0, 30, len(own)).tolist(), [of[n][1] for n in own])]
    return found


@pytest.mark.parametrize(
    "combine", [waits_over_window, late_more_than_chance, mean_over_instances, caused_by_rank]
)
def test_what_is_told_of_some_instances_at_a_time_is_told_of_all(combine, monkeypatch) -> None:
    def told(seed: int) -> list[Value] | str:
        try:
            return list(combine(random_ranks(seed)))
        except NotApplicable as why:
            return str(why)

    whole = [told(seed) for seed in range(40)]
    assert sum(isinstance(one, list) for one in whole) > 30
    monkeypatch.setattr("cclbench.analyzers.view.meetings._ROWS", 4)
    assert len(list(rank_meetings(random_ranks(0)).parts())) > 3
    assert [told(seed) for seed in range(40)] == whole


@pytest.mark.parametrize(
    ("kind", "sides", "ranks", "expected"),
    [
        ("all_reduce", (30, 20), 4, (30, True)),
        ("all_reduce", (20, 30), 4, (30, True)),
        ("all_reduce", (30, None), 4, (30, True)),
        ("broadcast", (None, 30), 4, (30, True)),
        ("all_to_all", (None, None), 4, (0, False)),
        (None, (7, None), None, (7, True)),
        # One side alone does not tell whether it is the large one.
        ("all_gather", (10, 40), 4, (40, True)),
        ("all_gather", (10, None), 4, (10, False)),
        ("all_gather", (None, 40), 4, (40, False)),
        ("reduce_scatter", (40, 10), 4, (40, True)),
        ("reduce_scatter", (40, None), 4, (40, False)),
        ("reduce_scatter", (None, 10), 4, (10, False)),
        # What a rank hands in to a gather, and gets of a scatter, times the ranks.
        ("gather", (10, None), 4, (40, True)),
        ("gather", (10, 1), 1, (10, True)),
        ("gather", (None, 40), 4, (0, False)),
        ("gather", (10, 40), None, (0, False)),
        ("scatter", (None, 10), 4, (40, True)),
        ("scatter", (50, 10), 4, (40, True)),
        ("scatter", (40, None), 4, (0, False)),
        ("scatter", (40, 10), None, (0, False)),
    ],
)
def test_payload_is_the_larger_side_where_that_is_known(
    kind: str | None, sides: tuple[Any, Any], ranks: int | None, expected: tuple[int, bool]
) -> None:
    row = collective(kind, 0, 1, in_bytes=sides[0], out_bytes=sides[1], group_size=ranks)
    other = collective("all_reduce", 0, 1, in_bytes=1, group_size=2)
    size, known = collective_payloads(collectives_table(other, row))
    assert (size.tolist(), known.tolist()) == ([1, expected[0]], [True, expected[1]])


def exposed(
    calls: list[dict[str, Any]], alone: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> Exposed:
    pieces, edges = (np.array(spans, np.int64).reshape(-1, 2).T for spans in (alone, windows))
    return split_exposed(collectives_table(*calls), union(*pieces), *edges)


# reduce waits 10-30 and transfers 30-60; gather lacks a rank, waits 40-50 at least and runs to 80; nobody
# matched the broadcast, 50-70, nor the collective of no kind, 70-75.
CALLS = [collective("all_reduce", 10, 60, wait_ns=20), collective("all_gather", 40, 80, least_wait_ns=10)]
CALLS += [collective("broadcast", 50, 70), collective(None, 70, 75)]


HALF = Fraction(5, 2)


@pytest.mark.parametrize(
    ("calls", "alone", "windows", "expected"),
    [
        # Of 10-80 the windows hold 10-20, 25-45 and 60-90; 30-35 and 65-100 are not exposed.
        (*(CALLS, [(0, 30), (35, 65)], [(0, 20), (25, 45), (60, 90)]),
         ([10, 5 + HALF, 0], [0, 5 + HALF, 0], [0, 0, HALF + HALF])),
        # What lies before the first window is in none.
        (*([collective("all_reduce", 10, 60, wait_ns=30)], [(0, 100)], [(20, 30), (50, 55)]),
         ([10, 0], [0, 5], [0, 0])),
        # Of a matched collective its own wait counts, whatever it waited for at least.
        (*([collective("all_reduce", 10, 60, wait_ns=30, least_wait_ns=20)], [(0, 100)], [(0, 100)]),
         ([30], [20], [0])),
    ],
)  # fmt: skip
def test_only_what_is_exposed_and_in_a_window_counts(
    calls: list[Any], alone: list[Any], windows: list[Any], expected: tuple[list[Any], ...]
) -> None:
    found = exposed(calls, alone, windows)
    assert tuple(own.by_window() for own in (found.wait, found.transfer, found.unmatched)) == expected


GROUPS = {"0-2": (0, 1, 2), "0-1": (0, 1)}


def found(*ranks: list[dict[str, Any]]) -> ExchangedBytes:
    tables = {
        rank: collectives_table(*(row | {"rank": rank} for row in rows)) for rank, rows in enumerate(ranks)
    }
    return exchanged_bytes(tables, GROUPS)


def call(kind: str, nbytes: int | None, group: str | None = None, **more: Any) -> dict[str, Any]:
    size = {"in_bytes": nbytes, "out_bytes": nbytes} if nbytes is not None else {}
    named = {"group": group, "group_size": len(GROUPS[group])} if group else {}
    return collective(kind, 0, 100, **named, **size, **more)


def test_collectives_are_spread_over_their_group() -> None:
    """An all-reduce of 300 among 3 sends 2 · 2/3 · 300 = 400 a rank, an all-to-all of 100 among 2 half."""
    rows = [call("all_reduce", 300, "0-2", wait_ns=60, transfer_ns=40), call("all_to_all", 100, "0-1")]
    told = found(rows, rows, rows[:1])
    assert told.sent_bytes.tolist() == [[0, 250, 200], [250, 0, 200], [200, 200, 0]]
    # only the all-reduce's transfer is known: 200 bytes in 40 ns
    np.testing.assert_allclose(told.pair_rates[0, 1:], 200 / 40e-9)
    assert told.left_out == {}


def test_sends_go_where_they_went_and_once() -> None:
    send = call("send", 64, src_rank=0, dst_rank=1, wait_ns=0, transfer_ns=100)
    recv = call("recv", 64, src_rank=0, dst_rank=1, wait_ns=0, transfer_ns=100)
    told = found([send], [recv, recv])
    assert told.sent_bytes[:2, :2].tolist() == [[0, 64], [0, 0]]
    # nobody has rank 2's trace: what is received from it counts
    lone = found([], [call("recv", 8, src_rank=2, dst_rank=1)])
    assert lone.sent_bytes[2].tolist() == [0, 8, 0]
    assert np.isnan(lone.pair_rates).all()


@pytest.mark.parametrize(
    ("kind", "each"), [("all_reduce", 600), ("all_gather", 300), ("reduce_scatter", 300), ("all_to_all", 300)]
)
def test_bytes_of_each_kind_by_nccl_tests_factors(kind: str, each: int) -> None:
    """Of 3 ranks each sends 4/3 of S, or 2/3, half of it to either other; S is the large side."""
    told = found([call(kind, None, "0-2", in_bytes=300, out_bytes=900)])
    assert told.sent_bytes.tolist() == [[0, each, each], [0, 0, 0], [0, 0, 0]]
    assert told.left_out == {}


def exchange(size: int, group: str = "0-1", **more: Any) -> dict[str, Any]:
    return call("all_to_all", size, group, **more)


def test_only_calls_whose_transfer_is_known_are_timed() -> None:
    told = found([exchange(100, transfer_ns=10), exchange(40, transfer_ns=30), exchange(7)])
    assert (told.sent_bytes[0, 1], told.timed_bytes[0, 1]) == ((100 + 40 + 7) / 2, 70)
    assert told.seconds[0, 1] == pytest.approx(40e-9)
    assert told.pair_rates[0, 1] == pytest.approx(70 / 40e-9)
    assert np.isnan(told.pair_rates[1, 0])
    # A transfer of no time is known and has no rate.
    instant = exchange(100, transfer_ns=0)
    told = found([instant])
    assert (told.timed_bytes[0, 1], told.seconds[0, 1]) == (50, 0)
    assert np.isnan(told.pair_rates[0, 1])
    assert found([instant, exchange(60, transfer_ns=20)]).pair_rates[0, 1] == pytest.approx(80 / 20e-9)


def test_ranks_are_those_of_traces_and_of_groups_in_order() -> None:
    sends = [call("send", size, src_rank=9, dst_rank=to) for size, to in ((6, 2), (8, 4))]
    told = exchanged_bytes({9: collectives_table(*sends), 4: collectives_table()}, {"2,4": (2, 4)})
    assert told.ranks.tolist() == [2, 4, 9]
    assert told.sent_bytes.tolist() == [[0, 0, 0], [0, 0, 0], [6, 8, 0]]


def test_a_receive_counts_where_its_source_has_no_trace() -> None:
    """Ranks 0 and 1 have traces; each receives from the other and from 2."""
    from_two = [call("recv", n, src_rank=2, dst_rank=0, transfer_ns=ns) for n, ns in ((7, 14), (8, 6))]
    first = [call("recv", 5, src_rank=1, dst_rank=0), *from_two]
    told = found(first, [call("recv", 9, src_rank=2, dst_rank=1)])
    assert told.sent_bytes.tolist() == [[0, 0, 0], [0, 0, 0], [15, 9, 0]]
    assert told.pair_rates[2, 0] == pytest.approx(15 / 20e-9)


def test_what_a_rank_sends_to_itself_is_no_exchange_nor_is_a_group_of_one() -> None:
    told = found([call("send", 5, src_rank=0, dst_rank=0, transfer_ns=5), exchange(10, transfer_ns=3)])
    for array in (told.sent_bytes, told.timed_bytes, told.seconds):
        assert (array[0, 0], array[0, 1] > 0) == (0, True)
    # A group of one rank exchanges nothing.
    table = collectives_table(call("all_reduce", 8) | {"group": "0"})
    assert exchanged_bytes({0: table}, {"0": (0,)}).sent_bytes.tolist() == [[0]]


NO_RANKS = "of unknown ranks or root"


@pytest.mark.parametrize(
    ("row", "left_out"),
    [
        (call("all_reduce", 8, "0-1"), {}),
        (call("all_reduce", 8, "0-1", src_rank=0, dst_rank=1), {}),
        (call("all_reduce", None, "0-1"), {"of unknown payload": 1}),
        # A transfer without its target or source; ranks are numbered from 0 on.
        *((call("send", 8, src_rank=0), {NO_RANKS: 1}), (call("recv", 8, dst_rank=0), {NO_RANKS: 1})),
        (call("send", None, src_rank=0, dst_rank=1), {"of unknown payload": 1}),
        (call("send", 8, src_rank=1, dst_rank=0), {}),
        # A group whose ranks nobody lists, or no group, or a root.
        (call("all_reduce", 8) | {"group": "0-7", "group_size": 8}, {NO_RANKS: 1}),
        *((call("all_reduce", 8), {NO_RANKS: 1}), (call("broadcast", 8, "0-1"), {NO_RANKS: 1})),
        (call("reduce", 8, "0-1"), {NO_RANKS: 1}),
        # Nothing is exchanged in a barrier or in a group of one.
        *((call("barrier", size, "0-1"), {}) for size in (None, 8)),
        *((call("all_reduce", size) | ALONE, {}) for size in (None, 8)),
    ],
)
def test_what_is_left_out_by_why(row: dict[str, Any], left_out: dict[str, int]) -> None:
    told = found([row])
    assert told.left_out == left_out
    assert not (left_out and told.sent_bytes.any())
    assert found([row, row]).left_out == {why: 2 * number for why, number in left_out.items()}

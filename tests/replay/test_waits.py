# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom, in µs."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.replay.waits import (
    DeviceLaunches,
    between_streams,
    handed_over,
    held_up,
    other_lane,
    thread_stretches,
)

NO_TURNS = np.zeros((10, 10), np.bool_)


def ns(*values: float) -> np.ndarray:
    return np.array([round(value * 1000) for value in values], np.int64)


def issued(
    *rows: tuple[int, float, float, float, float], collectives: tuple[int, ...] = ()
) -> DeviceLaunches:
    """(lane, issue, bound, start, end); the lanes of collectives."""
    lane, *times = zip(*rows, strict=True)
    issue, bound, start, end = (ns(*column) for column in times)
    return DeviceLaunches(np.array(lane), issue, bound, start, end, np.isin(lane, collectives))


def found(rows: DeviceLaunches, doubt: int = 1_000, grain: int = 1) -> list[tuple[int, int, int, bool]]:
    """Source, target, lag and whether it shows, of each wait."""
    waits = between_streams(rows, doubt, grain)
    columns = waits.source, waits.target, waits.lag, waits.seen
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_stretches_know_the_row_around_them() -> None:
    # an outer row 0-1000 holds one of 100-200 and one of 400-410; then nothing until 2000
    found = thread_stretches(ns(0, 100, 400, 2000), ns(1000, 200, 410, 2001))
    assert found.start.tolist() == ns(0, 100, 200, 410, 1000).tolist()
    assert found.end.tolist() == ns(100, 200, 400, 1000, 2000).tolist()
    assert found.around.tolist() == [0, 1, 0, 0, -1]


def test_a_stream_that_always_waits_has_an_edge_for_every_row() -> None:
    """Twice it starts as the other ends; once it comes later anyway, and would wait all the same."""
    rows = issued(
        (0, 0, 5, 5, 50),
        (1, 1, 6, 51, 60),
        (0, 100, 105, 105, 150),
        (1, 101, 106, 151, 160),
        (0, 200, 205, 205, 210),
        (1, 250, 255, 255, 260),
    )
    assert found(rows) == [(0, 1, 1_000, True), (2, 3, 1_000, True), (4, 5, 1_000, True)]


def test_a_stream_that_overlaps_another_waits_only_where_it_visibly_does() -> None:
    """Its second row runs beside the other stream's: asynchronous; its third is held until that one ends."""
    rows = issued((0, 0, 5, 5, 500), (1, 1, 6, 6, 20), (1, 2, 20, 502, 510))
    assert found(rows) == [(0, 2, 2_000, True)]


def test_a_late_start_behind_nothing_is_not_explained() -> None:
    assert not found(issued((0, 0, 5, 5, 50), (1, 1, 6, 400, 410)))


def test_a_short_wait_shows_in_the_nanosecond_of_the_others_end() -> None:
    """0.5 µs late is within the doubt, but not at the very instant at which the other stream's row ends."""
    assert not found(issued((0, 0, 5, 5, 50), (1, 40, 49.5, 50, 60)), grain=1_000)
    assert found(issued((0, 0, 5, 5, 50), (1, 40, 49.5, 50.2, 60)), doubt=100) == [(0, 1, 200, True)]


def test_what_starts_before_the_others_end_has_not_waited_for_it() -> None:
    """By half a µs, which says something only where times are exact."""
    rows = issued((0, 0, 5, 5, 50), (1, 1, 6, 49.5, 60))
    assert not found(rows)
    assert found(rows, grain=1_000) == [(0, 1, -500, True)]


def test_a_row_waited_for_what_ended_last() -> None:
    """Two streams have ended before it starts: 20 µs before, and just then."""
    rows = issued((0, 0, 5, 5, 30), (2, 1, 6, 6, 50), (1, 2, 7, 50, 60))
    assert found(rows) == [(1, 2, 0, True)]


def test_of_three_lanes_the_latest_end_counts_whatever_their_starts() -> None:
    """They begin at 5, 10 and 15 and end at 50, 40 and 30; one more begins at 50."""
    rows = issued((0, 0, 5, 5, 50), (2, 1, 6, 10, 40), (3, 2, 7, 15, 30), (1, 3, 8, 50, 60))
    assert found(rows) == [(0, 3, 0, True)]
    # and where the one that begins first ends first
    rows = issued((0, 0, 5, 5, 30), (2, 1, 6, 10, 40), (3, 2, 7, 15, 50), (1, 3, 8, 50, 60))
    assert found(rows) == [(2, 3, 0, True)]


def test_collectives_wait_for_the_busiest_stream_unless_they_overlap_it() -> None:
    """The collective starts with its launch, 10 µs behind the kernel's end; no row shows that it waits."""
    behind = (0, 0, 5, 5, 50), (1, 55, 60, 60, 70)
    assert found(issued(*behind, collectives=(1,))) == [(0, 1, 0, False)]
    assert not found(issued(*behind))
    beside = (*behind, (0, 100, 105, 105, 190), (1, 101, 106, 106, 120))
    assert not found(issued(*beside, collectives=(1,)))


def test_a_pause_ends_with_the_thread_that_paused_last_within_it() -> None:
    thread = np.array([1, 2, 1, 2])
    start, end = ns(0, -1000, 900, 500), ns(520, 10, 2000, 910)
    released, resumed = handed_over(thread, start, end, NO_TURNS)
    # thread 1 pauses at 0, thread 2 goes on at 10; it pauses at 500, 1 goes on at 520; 1 pauses at 900
    assert sorted(zip(released.tolist(), resumed.tolist(), strict=True)) == [(0, 1), (2, 3), (3, 0)]


def test_rows_that_begin_together_nest_and_rows_that_meet_do_not() -> None:
    """One of 1,000 holds one of 100 from its begin on; then one of 100 to 200, and one from 200 to 300."""
    found = thread_stretches(ns(200, 0, 0, 100), ns(300, 100, 1000, 200))
    assert found.start.tolist() == ns(0, 100, 200, 300).tolist()
    assert found.end.tolist() == ns(100, 200, 300, 1000).tolist()
    assert found.around.tolist() == [1, 3, 0, 2]


def test_a_row_of_no_length_parts_no_stretch() -> None:
    found = thread_stretches(ns(0, 500, 1000), ns(100, 500, 1100))
    assert (found.start.tolist(), found.end.tolist()) == (
        [0, 100_000, 1_000_000],
        [100_000, 1_000_000, 1_100_000],
    )
    assert found.around.tolist() == [0, -1, 2]


@pytest.mark.parametrize(("quiet", "count"), [(49_999, 0), (50_000, 1)])
def test_the_shortest_stretch_is_of_50_us(quiet: int, count: int) -> None:
    start = np.array([0, 1_000 + quiet])
    assert len(thread_stretches(start, start + 1_000).start) == count


def test_rows_are_known_around_stretches_up_to_512_deep() -> None:
    """514 rows, one in the other, the innermost ending first, each 100 µs before the one around it."""
    inner = np.arange(514)
    found = thread_stretches(inner, 100_000 * (514 - inner))
    assert found.around.tolist() == [513, -1, *range(511, -1, -1)]


def test_what_is_late_by_no_more_than_the_doubt_shows_nothing() -> None:
    """It begins 10 ns behind the other's end, 1 µs later than its stream explains, and 1 ns more."""
    ended = (0, 0, 5, 5, 49.99)
    assert not found(issued(ended, (1, 40, 49, 50, 60)))
    assert found(issued(ended, (1, 40, 48.999, 50, 60))) == [(0, 1, 10, True)]
    assert not found(issued(ended, (1, 40, 49, 50, 60)), doubt=100, grain=1_000)
    assert found(issued(ended, (1, 40, 48.999, 50, 60)), doubt=100, grain=1_000) == [(0, 1, 10, True)]


@pytest.mark.parametrize(
    ("ended", "lag"), [(49.998, None), (49.999, 1), (50, 0), (50.001, -1), (50.002, None)]
)
def test_the_nanosecond_of_the_other_s_end_is_its_neighbours_too(ended: float, lag: int | None) -> None:
    waits = found(issued((0, 0, 5, 5, ended), (1, 40, 49.5, 50, 60)))
    assert waits == ([] if lag is None else [(0, 1, lag, True)])


def test_a_row_that_begins_when_it_may_has_waited_for_nothing() -> None:
    assert not found(issued((0, 0, 5, 5, 50.001), (1, 40, 50, 50, 60)))


@pytest.mark.parametrize(("early", "always"), [(0.001, True), (0.002, False)])
def test_one_row_that_begins_before_the_other_s_end_says_that_streams_do_not_wait(
    early: float, always: bool
) -> None:
    """By more than clocks may err.  The first row visibly waits, the second one begins with its launch."""
    rows = issued(
        (0, 0, 5, 5, 50), (1, 1, 6, 51, 60), (0, 100, 105, 105, 150), (1, 101, 150 - early, 150 - early, 160)
    )
    assert found(rows) == [(0, 1, 1_000, True), *([(2, 3, -1, True)] if always else [])]


def test_a_stream_that_waits_does_so_before_it_shows_and_once_for_a_row() -> None:
    """Its first row comes late anyway; the third follows its own stream's second, which has waited."""
    rows = issued(
        (3, 0, 0, 0, 1),
        (0, 0, 5, 5, 50),
        (1, 90, 95, 95, 100),
        (0, 100, 105, 105, 150),
        (1, 101, 106, 151, 160),
        (1, 102, 160, 160, 170),
    )
    assert found(rows) == [(1, 2, 1_000, True), (3, 4, 1_000, True)]


def test_a_wait_that_another_stream_explains_only_in_part_is_kept() -> None:
    """Stream 1 always waits for 0; of what 2 was given it waits for one row, and runs beside another."""
    rows = issued(
        (0, 0, 5, 5, 50),
        (1, 1, 6, 51, 60),
        (2, 2, 7, 7, 300),
        (0, 2.5, 50, 100, 110),
        (1, 3, 60, 301, 310),
        (2, 4, 300, 302, 400),
        (1, 5, 310, 310, 320),
    )
    assert found(rows) == [(0, 1, 1_000, True), (2, 4, 1_000, True), (3, 4, 1_000, True)]


def test_collectives_wait_for_the_stream_with_most_work() -> None:
    """Of 10 µs on stream 0, late in time, and 45 on stream 2; a collective beside another waits for none."""
    rows = issued((2, 0, 5, 5, 50), (0, 400, 405, 405, 415), (1, 500, 505, 505, 510), collectives=(1,))
    assert found(rows) == [(0, 2, 0, False)]
    both = issued(
        *((0, 0, 5, 5, 50), (1, 100, 105, 105, 110), (0, 200, 205, 205, 250), (1, 300, 305, 305, 310)),
        collectives=(0, 1),
    )
    assert not found(both)


def test_what_is_launched_in_the_same_instant_was_not_given_before() -> None:
    assert not found(issued((0, 55, 60, 5, 50), (1, 55, 60, 60, 70), collectives=(1,)))


def cause(*rows: tuple[int, float, float, float, float], grain: int = 1) -> int:
    """What the last of the rows waited for."""
    return int(other_lane(issued(*rows), np.array([len(rows) - 1]), grain)[-1])


@pytest.mark.parametrize(
    ("row", "grain", "of"),
    [
        ((1, 1, 6, 80, 90), 1, 0),
        # 1 ns more than 30 µs behind the other's end
        ((1, 1, 6, 80.001, 90), 1, -1),
        # launched in the same instant
        ((1, 0, 6, 51, 90), 1, -1),
        # free to begin when the other ended, and 1 ns before
        ((1, 1, 50, 51, 90), 1, -1),
        ((1, 1, 49.999, 51, 90), 1, 0),
        # begins before the other's end, by the grain and 1 ns more
        ((1, 1, 6, 49, 90), 1_000, 0),
        ((1, 1, 6, 48.999, 90), 1_000, -1),
        # of the same lane
        ((0, 1, 6, 51, 90), 1, -1),
    ],
)
def test_the_cause_ended_promptly_before_and_was_launched_earlier(
    row: tuple[int, float, float, float, float], grain: int, of: int
) -> None:
    assert cause((0, 0, 5, 5, 50), row, grain=grain) == of


@pytest.mark.parametrize(("between", "of"), [(7, 0), (8, -1)])
def test_the_cause_is_among_the_last_eight_rows_that_ended(between: int, of: int) -> None:
    own = [(1, 1, 6, 51 + i, 52 + i) for i in range(between)]
    assert cause((0, 0, 5, 5, 50), *own, (1, 1, 6, 70, 90)) == of


@pytest.mark.parametrize(
    ("pause", "released"),
    [
        # 1 ms before the other goes on, and 1 ns more
        ((2, 1000, 5000), True),
        ((2, 999.999, 5000), False),
        # in the same instant as the other's pause begins, and 1 ns before; when it ends, as far as times are
        # rounded to 1 µs, and 1 ns behind
        ((2, 2001, 5000), True),
        ((2, 2001.001, 5000), False),
        ((1, 1500, 5000), False),
    ],
)
def test_a_thread_that_pauses_within_the_last_ms_of_another_s_pause_releases_it(
    pause: tuple[int, float, float], released: bool
) -> None:
    thread, begin, end = pause
    found = handed_over(np.array([1, thread]), ns(0, begin), ns(2000, end), NO_TURNS)
    assert [column.tolist() for column in found] == ([[1], [0]] if released else [[], []])


@pytest.mark.parametrize(("begin", "released"), [(1500, [1]), (1499.999, [])])
def test_a_thread_that_paused_before_another_did_releases_nobody(begin: float, released: list[int]) -> None:
    found, _ = handed_over(np.array([1, 2]), ns(1500, begin), ns(2000, 5000), NO_TURNS)
    assert found.tolist() == released


@pytest.mark.parametrize(("since", "released"), [(7, True), (8, False)])
def test_the_release_is_among_the_last_eight_pauses(since: int, released: bool) -> None:
    thread = np.array([1, 2, *[1] * since])
    start = ns(0, 1500, *(1600 + i for i in range(since)))
    end = ns(2000, 9000, *[1500.5] * since)
    assert (
        (1, 0) in zip(*(column.tolist() for column in handed_over(thread, start, end, NO_TURNS)), strict=True)
    ) == released


def test_where_nothing_pauses_nothing_is_handed_over() -> None:
    none = np.empty(0, np.int64)
    assert [len(column) for column in handed_over(none, none, none, NO_TURNS)] == [0, 0]


def holding(*rows: tuple[int, float, float, float], fills: tuple[int, ...] = (0,)) -> list[tuple[int, int]]:
    """What holds the last of the rows up, (lane, bound, start, end), and by how much it began earlier, ns."""
    lane, bound, start, end = zip(*rows, strict=True)
    made = DeviceLaunches(
        np.array(lane), ns(*bound), ns(*bound), ns(*start), ns(*end), np.zeros(len(rows), np.bool_)
    )
    number = np.arange(len(rows))
    source, target, lag = held_up(made, np.isin(number, fills), number == len(rows) - 1)
    assert set(target.tolist()) <= {len(rows) - 1}
    return list(zip(source.tolist(), lag.tolist(), strict=True))


@pytest.mark.parametrize(
    ("kernel", "row", "lag"),
    [
        # in the last tenth of a kernel of 1 ms, and 1 ns before that
        ((0, 0, 0, 1000), (1, 10, 900, 950), -100_000),
        ((0, 0, 0, 1000), (1, 10, 899.999, 950), None),
        # in the last 30 µs of one of 100
        ((0, 0, 0, 100), (1, 10, 70, 95), -30_000),
        ((0, 0, 0, 100), (1, 10, 69.999, 95), None),
        # one of 20 began half a µs behind the row that it would have to hold up
        ((0, 0, 0.5, 20.5), (1, 0, 0, 95), None),
        ((0, 0, 0.5, 20.5), (1, 0, 0.5, 95), -20_000),
        # the kernel began up to 1 µs after the row was ready
        ((0, 0, 11, 1000), (1, 10, 950, 990), -50_000),
        ((0, 0, 11.001, 1000), (1, 10, 950, 990), None),
        # it has ended when the row begins
        ((0, 0, 0, 950), (1, 10, 950, 990), None),
        ((0, 0, 0, 940), (1, 10, 950, 990), None),
        # a stream is in order anyway
        ((1, 0, 0, 1000), (1, 10, 950, 990), None),
    ],
)
def test_the_last_blocks_of_a_kernel_that_fills_the_device_hold_others_up(
    kernel: tuple[int, float, float, float], row: tuple[int, float, float, float], lag: int | None
) -> None:
    assert holding(kernel, row) == ([] if lag is None else [(0, lag)])
    assert not holding(kernel, row, fills=())


def test_of_two_kernels_that_might_the_one_that_ends_first_holds_up() -> None:
    first, second, late = (0, 0, 0, 1010), (2, 0, 0, 1000), (1, 10, 950, 990)
    assert holding(first, second, late, fills=(0, 1)) == [(1, -50_000)]
    assert holding((0, 0, 0, 1000), (2, 0, 500, 990), late, fills=(0, 1)) == [(0, -50_000)]
    assert holding((2, 0, 500, 990), (0, 0, 0, 1000), late, fills=(0, 1)) == [(1, -50_000)]


@pytest.mark.parametrize(("before", "held"), [(7, True), (8, False)])
def test_what_holds_up_is_among_the_next_eight_to_end(before: int, held: bool) -> None:
    later = [(2, 0.0, 500.0, 960.0 + i) for i in range(before)]
    rows = [*later, (0, 0.0, 0.0, 1000.0), (1, 10.0, 950.0, 990.0)]
    assert bool(holding(*rows, fills=tuple(range(before + 1)))) == held


def test_threads_that_take_turns_hand_over_after_any_time() -> None:
    """Thread 0 rests from 5 ms on, thread 1 goes on at 30."""
    turns = np.array([[False, True], [True, False]])
    both = np.array([0, 1]), ns(5_000, 0), ns(40_000, 30_000)
    assert [column.tolist() for column in handed_over(*both, turns)] == [[0], [1]]
    assert [len(column) for column in handed_over(*both, NO_TURNS)] == [0, 0]

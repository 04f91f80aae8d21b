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


Row = tuple[int, float, float, float, float]
Waits = list[tuple[int, int, int, bool]]


def issued(*rows: Row, collectives: tuple[int, ...] = ()) -> DeviceLaunches:
    """(lane, issue, bound, start, end); the lanes of collectives."""
    lane, *times = zip(*rows, strict=True)
    issue, bound, start, end = (ns(*column) for column in times)
    return DeviceLaunches(np.array(lane), issue, bound, start, end, np.isin(lane, collectives))


def found(*rows: Row, doubt: int = 1_000, grain: int = 1, collectives: tuple[int, ...] = ()) -> Waits:
    """Source, target, lag and whether it shows, of each wait."""
    waits = between_streams(issued(*rows, collectives=collectives), doubt, grain)
    columns = waits.source, waits.target, waits.lag, waits.is_observed
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


FIRST = (0, 0, 5, 5, 50)
STREAMS: dict[str, tuple[list[Row], Waits]] = {
    # twice stream 1 starts as 0 ends; once it comes later anyway, and would wait all the same
    "one that always waits has an edge for every row": (
        [*(FIRST, (1, 1, 6, 51, 60), (0, 100, 105, 105, 150), (1, 101, 106, 151, 160)),
         *((0, 200, 205, 205, 210), (1, 250, 255, 255, 260))],
        [(0, 1, 1_000, True), (2, 3, 1_000, True), (4, 5, 1_000, True)],
    ),
    # its second row runs beside the other stream's: asynchronous; its third is held until that one ends
    "one that overlaps another waits only where it visibly does": (
        [(0, 0, 5, 5, 500), (1, 1, 6, 6, 20), (1, 2, 20, 502, 510)],
        [(0, 2, 2_000, True)],
    ),
    "a late start behind nothing is not explained": ([FIRST, (1, 1, 6, 400, 410)], []),
    # two streams have ended before it starts: 20 µs before, and just then
    "it waited for what ended last": (
        [(0, 0, 5, 5, 30), (2, 1, 6, 6, 50), (1, 2, 7, 50, 60)],
        [(1, 2, 0, True)],
    ),
    "of three lanes that which begins first ends last": (
        [FIRST, (2, 1, 6, 10, 40), (3, 2, 7, 15, 30), (1, 3, 8, 50, 60)],
        [(0, 3, 0, True)],
    ),
    "of three lanes that which begins first ends first": (
        [(0, 0, 5, 5, 30), (2, 1, 6, 10, 40), (3, 2, 7, 15, 50), (1, 3, 8, 50, 60)],
        [(2, 3, 0, True)],
    ),
    "one that begins when it may has waited for nothing": ([(0, 0, 5, 5, 50.001), (1, 40, 50, 50, 60)], []),
    # its first row comes late anyway; the third follows its own stream's second, which has waited
    "one that waits does so before it shows and once for a row": (
        [*((3, 0, 0, 0, 1), FIRST, (1, 90, 95, 95, 100), (0, 100, 105, 105, 150)),
         *((1, 101, 106, 151, 160), (1, 102, 160, 160, 170))],
        [(1, 2, 1_000, True), (3, 4, 1_000, True)],
    ),
    # stream 1 always waits for 0; of what 2 was given it waits for one row, and runs beside another
    "a wait that another stream explains only in part is kept": (
        [*(FIRST, (1, 1, 6, 51, 60), (2, 2, 7, 7, 300), (0, 2.5, 50, 100, 110), (1, 3, 60, 301, 310)),
         *((2, 4, 300, 302, 400), (1, 5, 310, 310, 320))],
        [(0, 1, 1_000, True), (2, 4, 1_000, True), (3, 4, 1_000, True)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "waits"), STREAMS.values(), ids=STREAMS)
def test_streams_that_wait_for_others(rows: list[Row], waits: Waits) -> None:
    assert found(*rows) == waits


@pytest.mark.parametrize(
    ("ended", "bound", "start", "doubt", "grain", "lag"),
    [
        # 0.5 µs late is within the doubt, but not at the very instant at which the other stream's row ends,
        # or a nanosecond beside that, where times are exact
        *((50, 49.5, 50, 1_000, 1_000, None), (50, 49.5, 50.2, 100, 1, 200)),
        *((49.998, 49.5, 50, 1_000, 1, None), (49.999, 49.5, 50, 1_000, 1, 1), (50, 49.5, 50, 1_000, 1, 0)),
        *((50.001, 49.5, 50, 1_000, 1, -1), (50.002, 49.5, 50, 1_000, 1, None)),
        # what starts half a µs before the other's end has not waited for it where times are exact
        *((50, 6, 49.5, 1_000, 1, None), (50, 6, 49.5, 1_000, 1_000, -500)),
        # 10 ns behind the other's end, 1 µs later than its stream explains, and 1 ns more
        *((49.99, 49, 50, 1_000, 1, None), (49.99, 48.999, 50, 1_000, 1, 10)),
        *((49.99, 49, 50, 100, 1_000, None), (49.99, 48.999, 50, 100, 1_000, 10)),
    ],
)
def test_lateness_within_the_doubt_shows_nothing(
    ended: float, bound: float, start: float, doubt: int, grain: int, lag: int | None
) -> None:
    issue = 1 if bound == 6 else 40
    waits = found((0, 0, 5, 5, ended), (1, issue, bound, start, 60), doubt=doubt, grain=grain)
    assert waits == ([] if lag is None else [(0, 1, lag, True)])


@pytest.mark.parametrize(("early", "always"), [(0.001, True), (0.002, False)])
def test_a_row_that_begins_before_the_other_s_end_shows_no_wait(early: float, always: bool) -> None:
    """By more than clocks may err.  The first row visibly waits, the second one begins with its launch."""
    second = (1, 101, 150 - early, 150 - early, 160)
    waits = found(FIRST, (1, 1, 6, 51, 60), (0, 100, 105, 105, 150), second)
    assert waits == [(0, 1, 1_000, True), *([(2, 3, -1, True)] if always else [])]


@pytest.mark.parametrize(
    ("rows", "collectives", "waits"),
    [
        # the collective starts with its launch, 10 µs behind the kernel's end; no row shows that it waits
        ([FIRST, (1, 55, 60, 60, 70)], (1,), [(0, 1, 0, False)]),
        ([FIRST, (1, 55, 60, 60, 70)], (), []),
        # one that overlaps that stream does not
        ([FIRST, (1, 55, 60, 60, 70), (0, 100, 105, 105, 190), (1, 101, 106, 106, 120)], (1,), []),
        # the stream with most work has 45 µs; another one 10, later in time
        ([(2, 0, 5, 5, 50), (0, 400, 405, 405, 415), (1, 500, 505, 505, 510)], (1,), [(0, 2, 0, False)]),
        # a collective beside another waits for none
        ([FIRST, (1, 100, 105, 105, 110), (0, 200, 205, 205, 250), (1, 300, 305, 305, 310)], (0, 1), []),
        # what is launched in the same instant was not given before
        ([(0, 55, 60, 5, 50), (1, 55, 60, 60, 70)], (1,), []),
    ],
)
def test_collectives_wait_for_busiest(rows: list[Row], collectives: tuple[int, ...], waits: Waits) -> None:
    assert found(*rows, collectives=collectives) == waits


@pytest.mark.parametrize(
    ("rows", "stretches"),
    [
        # an outer row 0-1000 holds one of 100-200 and one of 400-410; then nothing until 2000
        ([(0, 1000), (100, 200), (400, 410), (2000, 2001)],
         [(0, 100, 0), (100, 200, 1), (200, 400, 0), (410, 1000, 0), (1000, 2000, -1)]),
        # rows that begin together nest, and rows that meet do not
        ([(200, 300), (0, 100), (0, 1000), (100, 200)],
         [(0, 100, 1), (100, 200, 3), (200, 300, 0), (300, 1000, 2)]),
        # a row of no length parts no stretch
        ([(0, 100), (500, 500), (1000, 1100)], [(0, 100, 0), (100, 1000, -1), (1000, 1100, 2)]),
    ],
)  # fmt: skip
def test_within_rows(rows: list[tuple[float, float]], stretches: list[tuple[float, float, int]]) -> None:
    made = thread_stretches(*(ns(*column) for column in zip(*rows, strict=True)))
    start, end, around = zip(*stretches, strict=True)
    assert (made.start.tolist(), made.end.tolist()) == (ns(*start).tolist(), ns(*end).tolist())
    assert made.around.tolist() == [*around]


@pytest.mark.parametrize(("quiet", "count"), [(49_999, 0), (50_000, 1)])
def test_the_shortest_stretch_is_of_50_us(quiet: int, count: int) -> None:
    start = np.array([0, 1_000 + quiet])
    assert len(thread_stretches(start, start + 1_000).start) == count


def test_rows_are_known_around_stretches_up_to_512_deep() -> None:
    """514 rows, one in the other, the innermost ending first, each 100 µs before the one around it."""
    inner = np.arange(514)
    found = thread_stretches(inner, 100_000 * (514 - inner))
    assert found.around.tolist() == [513, -1, *range(511, -1, -1)]


def cause(*rows: Row, grain: int = 1) -> int:
    return int(other_lane(issued(*rows), np.array([len(rows) - 1]), grain)[-1])


@pytest.mark.parametrize(
    ("row", "grain", "of"),
    [
        # up to 30 µs behind the other's end
        *(((1, 1, 6, 80, 90), 1, 0), ((1, 1, 6, 80.001, 90), 1, -1)),
        # launched in the same instant
        ((1, 0, 6, 51, 90), 1, -1),
        # free to begin when the other ended, and 1 ns before
        *(((1, 1, 50, 51, 90), 1, -1), ((1, 1, 49.999, 51, 90), 1, 0)),
        # begins before the other's end, by the grain and 1 ns more
        *(((1, 1, 6, 49, 90), 1_000, 0), ((1, 1, 6, 48.999, 90), 1_000, -1)),
        # of the same lane
        ((0, 1, 6, 51, 90), 1, -1),
    ],
)
def test_the_cause_ended_promptly_before_and_was_launched_earlier(row: Row, grain: int, of: int) -> None:
    assert cause(FIRST, row, grain=grain) == of


@pytest.mark.parametrize(("between", "of"), [(7, 0), (8, -1)])
def test_the_cause_is_among_the_last_eight_rows_that_ended(between: int, of: int) -> None:
    own = [(1, 1, 6, 51 + i, 52 + i) for i in range(between)]
    assert cause((0, 0, 5, 5, 50), *own, (1, 1, 6, 70, 90)) == of


@pytest.mark.parametrize(
    ("thread", "begin", "since", "released"),
    [
        # 1 ms before the other goes on, and 1 ns more
        *((2, 1000, 0, True), (2, 999.999, 0, False)),
        # when the other's pause ends, as far as times are rounded to 1 µs, and 1 ns behind
        *((2, 2001, 0, True), (2, 2001.001, 0, False)),
        # in the same instant as the other's pause begins, and 1 ns before
        *((2, 1500, 1500, True), (2, 1499.999, 1500, False)),
        # its own
        (1, 1500, 0, False),
    ],
)
def test_a_thread_that_pauses_before_another(thread: int, begin: float, since: float, released: bool) -> None:
    made = handed_over(np.array([1, thread]), ns(since, begin), ns(2000, 5000), NO_TURNS)
    assert [column.tolist() for column in made] == ([[1], [0]] if released else [[], []])


@pytest.mark.parametrize(("since", "released"), [(7, True), (8, False)])
def test_the_release_is_among_the_last_eight_pauses(since: int, released: bool) -> None:
    thread = np.array([1, 2, *[1] * since])
    start = ns(0, 1500, *(1600 + i for i in range(since)))
    end = ns(2000, 9000, *[1500.5] * since)
    assert (
        (1, 0) in zip(*(column.tolist() for column in handed_over(thread, start, end, NO_TURNS)), strict=True)
    ) == released


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
        *(((0, 0, 0, 1000), (1, 10, 900, 950), -100_000), ((0, 0, 0, 1000), (1, 10, 899.999, 950), None)),
        # in the last 30 µs of one of 100
        *(((0, 0, 0, 100), (1, 10, 70, 95), -30_000), ((0, 0, 0, 100), (1, 10, 69.999, 95), None)),
        # one of 20 began half a µs behind the row that it would have to hold up
        *(((0, 0, 0.5, 20.5), (1, 0, 0, 95), None), ((0, 0, 0.5, 20.5), (1, 0, 0.5, 95), -20_000)),
        # the kernel began up to 1 µs after the row was ready
        *(((0, 0, 11, 1000), (1, 10, 950, 990), -50_000), ((0, 0, 11.001, 1000), (1, 10, 950, 990), None)),
        # it has ended when the row begins
        *(((0, 0, 0, 950), (1, 10, 950, 990), None), ((0, 0, 0, 940), (1, 10, 950, 990), None)),
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
    # where nothing pauses nothing is handed over
    none = np.empty(0, np.int64)
    assert [len(column) for column in handed_over(none, none, none, NO_TURNS)] == [0, 0]
    # a pause ends with the thread that paused last within it
    thread = np.array([1, 2, 1, 2])
    start, end = ns(0, -1000, 900, 500), ns(520, 10, 2000, 910)
    released, resumed = handed_over(thread, start, end, NO_TURNS)
    # thread 1 pauses at 0, thread 2 goes on at 10; it pauses at 500, 1 goes on at 520; 1 pauses at 900
    assert sorted(zip(released.tolist(), resumed.tolist(), strict=True)) == [(0, 1), (2, 3), (3, 0)]

# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom, in µs."""

from __future__ import annotations

import numpy as np

from cclbench.replay.waits import Issued, between_streams, handed_over, stretches


def ns(*values: float) -> np.ndarray:
    return np.array([round(value * 1000) for value in values], np.int64)


def issued(*rows: tuple[int, float, float, float, float], collectives: tuple[int, ...] = ()) -> Issued:
    """(lane, issue, bound, start, end); the lanes of collectives."""
    lane, *times = zip(*rows, strict=True)
    issue, bound, start, end = (ns(*column) for column in times)
    return Issued(np.array(lane), issue, bound, start, end, np.isin(lane, collectives))


def found(rows: Issued, doubt: int = 1_000, grain: int = 1) -> list[tuple[int, int, int, bool]]:
    """Source, target, lag and whether it shows, of each wait."""
    waits = between_streams(rows, doubt, grain)
    columns = waits.source, waits.target, waits.lag, waits.seen
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_stretches_know_the_row_around_them() -> None:
    # an outer row 0-1000 holds one of 100-200 and one of 400-410; then nothing until 2000
    found = stretches(ns(0, 100, 400, 2000), ns(1000, 200, 410, 2001))
    assert found.start.tolist() == ns(0, 100, 200, 410, 1000).tolist()
    assert found.end.tolist() == ns(100, 200, 400, 1000, 2000).tolist()
    assert found.around.tolist() == [0, 1, 0, 0, -1]


def test_short_stretches_are_the_threads_own() -> None:
    assert len(stretches(ns(0, 20), ns(10, 60), least=60_000).start) == 0


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
    assert found(issued((0, 0, 5, 5, 50), (1, 40, 49.5, 50, 60))) == [(0, 1, 0, True)]
    assert not found(issued((0, 0, 5, 5, 50), (1, 40, 49.5, 50.2, 60)))
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
    released, resumed = handed_over(thread, start, end)
    # thread 1 pauses at 0, thread 2 goes on at 10; it pauses at 500, 1 goes on at 520; 1 pauses at 900
    assert sorted(zip(released.tolist(), resumed.tolist(), strict=True)) == [(0, 1), (2, 3), (3, 0)]

# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom, in µs."""

from __future__ import annotations

import numpy as np

from cclbench.replay.waits import Issued, between_streams, handed_over, stretches


def ns(*values: float) -> np.ndarray:
    return np.array([round(value * 1000) for value in values], np.int64)


def issued(*rows: tuple[int, float, float, float, float]) -> Issued:
    """(lane, issue, bound, start, end)"""
    lane, *times = zip(*rows, strict=True)
    return Issued(np.array(lane), *(ns(*column) for column in times))


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
    waits = between_streams(rows)
    assert sorted(zip(waits.source.tolist(), waits.target.tolist(), strict=True)) == [(0, 1), (2, 3), (4, 5)]


def test_a_stream_that_overlaps_another_waits_only_where_it_visibly_does() -> None:
    """Its second row runs beside the other stream's: asynchronous; its third is held until that one ends."""
    rows = issued((0, 0, 5, 5, 500), (1, 1, 6, 6, 20), (1, 2, 20, 502, 510))
    waits = between_streams(rows)
    assert waits.source.tolist() == [0]
    assert waits.target.tolist() == [2]
    assert waits.lag.tolist() == [2_000]


def test_a_late_start_behind_nothing_is_not_explained() -> None:
    rows = issued((0, 0, 5, 5, 50), (1, 1, 6, 400, 410))
    assert not len(between_streams(rows).source)


def test_a_pause_ends_with_the_thread_that_paused_last_within_it() -> None:
    thread = np.array([1, 2, 1, 2])
    start, end = ns(0, -1000, 900, 500), ns(520, 10, 2000, 910)
    released, resumed = handed_over(thread, start, end)
    # thread 1 pauses at 0, thread 2 goes on at 10; it pauses at 500, 1 goes on at 520; 1 pauses at 900
    assert sorted(zip(released.tolist(), resumed.tolist(), strict=True)) == [(0, 1), (2, 3), (3, 0)]

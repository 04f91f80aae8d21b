# SPDX-License-Identifier: Apache-2.0
"""What a step would gain, worked out by hand."""

from __future__ import annotations

import pytest
from hand_results import by_rank, case


def test_of_one_rank_it_is_what_the_rank_loses() -> None:
    run = case(*by_rank("time.step", 10.0))
    assert run.gain({0: 3.0}) == (3.0, 3.0)
    assert run.gain({0: 3.0}, idle=True) == (3.0, 3.0)


def test_ranks_that_all_lose_as_much_gain_that() -> None:
    run = case(*by_rank("time.step", 10.0, 10.0), *by_rank("time.exposed_comm", 2.0, 2.0))
    assert run.gain({0: 3.0, 1: 3.0}) == (3.0, 3.0)


def test_a_rank_that_loses_nothing_may_wait_for_one_that_does() -> None:
    run = case(*by_rank("time.step", 10.0, 10.0), *by_rank("time.exposed_comm", 0.0, 4.0))
    # Rank 1 goes on taking 10 if it waits as before; without its 3 of waiting it takes 7, as rank 0 does.
    assert run.gain({0: 3.0}) == (0.0, 3.0)
    # What it does not hide does not exceed 4: of 6 that rank 0 loses it is spared 4.
    assert run.gain({0: 6.0}) == (0.0, 4.0)


def test_what_is_idle_goes_on_beside_communication() -> None:
    run = case(*by_rank("time.step", 10.0), *by_rank("time.exposed_comm", 2.0))
    assert run.gain({0: 3.0}, idle=True) == (3.0, 5.0)
    assert run.gain({0: 1.0}, idle=True) == (1.0, 2.0)


def test_nobody_gains_more_than_all_lose() -> None:
    run = case(*by_rank("time.step", 10.0, 4.0))
    assert run.gain({0: 1.0}) == (1.0, 1.0)
    assert run.gain({1: 1.0}) == (0.0, 0.0)


def test_even_work_takes_the_mean() -> None:
    run = case(*by_rank("time.step", 10.0, 10.0))
    assert run.gain_if_even({0: 4.0, 1: 0.0}) == pytest.approx(2.0)


def test_a_rank_that_is_not_late_is_as_much_sooner_as_others_wait() -> None:
    run = case(*by_rank("time.step", 10.0, 10.0, 9.0))
    # Rank 2 is late: ranks 0 and 1 take 7 and 6 without waiting, rank 2 is 4 sooner: 5.
    assert run.gain_without(2, {0: 3.0, 1: 4.0}) == pytest.approx(3.0)


def test_without_steps_there_is_nothing_to_gain() -> None:
    assert case().gain({}) == (0.0, 0.0)
    assert case().gain_if_even({}) == 0.0

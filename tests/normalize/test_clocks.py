# SPDX-License-Identifier: Apache-2.0
"""Clocks of ranks, recovered from ends that they share."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.normalize.clocks import estimate, for_all

RANKS, INSTANCES = 8, 60


def shared_ends(*, offset=None, drift=None, noise=0.0, span=2_000_000_000):
    """Ends of instances that all ranks share, on each rank's own clock: (rank, instance, ends)."""
    random = np.random.default_rng(7)
    when = np.sort(random.integers(0, span, INSTANCES))
    rank, instance = np.tile(np.arange(RANKS), INSTANCES), np.repeat(np.arange(INSTANCES), RANKS)
    at = when[instance].astype(float)
    own = at + random.normal(0, 1, len(at)) * noise
    own += np.zeros(RANKS)[rank] if offset is None else np.asarray(offset)[rank]
    own += 0.0 if drift is None else np.asarray(drift)[rank] * at
    return rank.astype(np.int32), instance, np.rint(own).astype(np.int64) + 10**18


def unknown_hosts():
    return np.full(RANKS, -1, np.int32)


def test_true_clocks_are_left_alone():
    found = estimate(*shared_ends(noise=2_000), unknown_hosts())
    assert not found.applied.any()
    assert found.offset_ns.tolist() == [0.0] * RANKS
    assert 2_000 < found.worst_residual_ns < 8_000


def test_offsets_are_recovered_exactly_without_noise():
    offset = [0, 0, 0, 250_000, 0, 0, -9_000, 0]
    found = estimate(*shared_ends(offset=offset), unknown_hosts())
    assert found.offset_ns == pytest.approx(offset, abs=1e-3)
    assert found.applied.tolist() == [o != 0 for o in offset]


def test_offsets_within_the_residual_with_noise():
    offset = np.array([0, 0, 0, 250_000, 0, 0, -90_000, 0])
    found = estimate(*shared_ends(offset=offset, noise=1_000), unknown_hosts())
    assert (abs(found.offset_ns - offset) <= found.residual_ns).all()


def test_a_drift_in_a_long_window_is_found():
    drift = np.zeros(RANKS)
    drift[5] = 20e-6
    rank, instance, ends = shared_ends(drift=drift, noise=500)
    found = estimate(rank, instance, ends, unknown_hosts())
    assert found.drift[5] == pytest.approx(20e-6, rel=0.01)
    assert found.applied.tolist() == [False] * 5 + [True] + [False] * 2
    corrected = found.corrected(rank, ends)
    spread = [np.ptp(corrected[instance == i]) for i in range(INSTANCES)]
    assert max(spread) < 6 * 500 + 2 * found.worst_residual_ns


def test_a_drift_in_a_short_window_is_not_told_from_noise():
    drift = np.zeros(RANKS)
    drift[5] = 20e-6
    found = estimate(*shared_ends(drift=drift, noise=500, span=10_000_000), unknown_hosts())
    assert not found.applied.any()


def test_outliers_do_not_pull_a_clock():
    rank, instance, ends = shared_ends(noise=300)
    ends[(rank == 2) & (instance % 10 == 0)] += 5_000_000
    found = estimate(rank, instance, ends, unknown_hosts())
    assert abs(found.offset_ns[2]) < 1_000


def test_an_outlier_counts_as_far_as_hubers_bound():
    """Rank 0's ends less rank 1's, in µs, in 20 instances: 100 nine times, 110 ten times, and once 1100.

    Between 105 and 110 the median distance from μ is 5, whatever μ: its scale is 1.4826 · 5, the bound
    1.5 · 1.4826 · 5 = 11.12.  So Σ of bounded distances is 9 (100 − μ) + 10 (110 − μ) + 11.12 = 0.
    """
    ahead = np.array([100_000] * 9 + [110_000] * 10 + [1_100_000])
    rank, instance = np.tile(np.array([0, 1], np.int32), 20), np.repeat(np.arange(20), 2)
    ends = 10**18 + np.stack([ahead, np.zeros(20, np.int64)], axis=1).ravel()
    found = estimate(rank, instance, ends, np.full(2, -1, np.int32))
    expected = (9 * 100_000 + 10 * 110_000 + 1.5 * 1.4826 * 5_000) / 19
    assert found.offset_ns[0] - found.offset_ns[1] == pytest.approx(expected, abs=20)


def test_ranks_of_one_host_share_its_offset():
    """Host 1 (ranks 4 to 7) is 300 µs ahead; its ranks differ by less than the ends spread."""
    offset = np.array([0, 0, 0, 0, 300_400, 299_700, 300_200, 299_900])
    host = np.repeat([0, 1], 4).astype(np.int32)
    found = estimate(*shared_ends(offset=offset, noise=2_000), host)
    assert len(set(found.offset_ns[4:].tolist())) == 1
    assert found.offset_ns[4] - found.offset_ns[0] == pytest.approx(300_000, abs=2_000)


def test_sets_of_ranks_that_share_nothing_are_apart():
    rank, instance, ends = shared_ends(offset=[0, 0, 0, 0, 70_000, 0, 0, 0])
    instance = instance * 2 + (rank >= 4)
    found = estimate(rank, instance, ends, unknown_hosts())
    assert found.part.tolist() == [0] * 4 + [1] * 4
    assert found.offset_ns == pytest.approx([0, 0, 0, 0, 70_000, 0, 0, 0], abs=1e-3)


@pytest.mark.parametrize("every", [2, 4, 20])
def test_groups_that_few_collectives_link_share_one_clock(every):
    """Four hosts of two ranks: most collectives stay in a host, one in `every` links a rank of each."""
    random = np.random.default_rng(3)
    offset, drift = np.repeat([0, 800_000, -300_000, 0], 2), np.repeat([0, 0, 0, 20e-6], 2)
    rank, instance, ends = [], [], []
    for call in range(400):
        for r in range(RANKS):
            linking = call % every == 0
            rank.append(r)
            instance.append(1000 * call + (100 + r % 2 if linking else r // 2))
            ends.append(call * 5_000_000 * (1 + drift[r]) + offset[r] + random.normal(0, 300))
    found = estimate(
        np.array(rank, np.int32), np.array(instance), np.array(ends).astype(int), unknown_hosts()
    )
    assert abs(np.diff(found.offset_ns, append=0) - np.diff(offset, append=0)).max() < 500
    assert found.drift - found.drift[0] == pytest.approx(drift, abs=5e-7)
    assert found.worst_residual_ns < 1_000


def test_ranks_without_shared_collectives_run_true():
    rank, instance, ends = shared_ends(offset=[0, 0, 0, 40_000, 0, 0, 0, 0])
    every = np.arange(RANKS + 2)
    found = for_all(estimate(rank, instance, ends, unknown_hosts()), every, every)
    assert found.known.tolist() == [True] * RANKS + [False] * 2
    assert found.offset_ns[-2:].tolist() == [0.0, 0.0]
    assert found.corrected(np.array([9], np.int32), np.array([5])).tolist() == [5]


def test_nothing_shared_at_all():
    nothing = np.empty(0, np.int64)
    found = estimate(nothing.astype(np.int32), nothing, nothing, nothing.astype(np.int32))
    assert (len(found.ranks), found.worst_residual_ns) == (0, 0.0)


def test_ranks_of_one_clock_have_its_correction():
    """Ranks 0 and 1 read clock 0, rank 2 reads clock 2, which is 600 ns ahead; rank 3 shares nothing."""
    instance = np.repeat(np.arange(4), 2)
    clock = np.tile(np.array([0, 2], np.int32), 4)
    ends = np.array([1_000, 1_600, 2_000, 2_600, 3_000, 3_600, 4_000, 4_600])
    found = for_all(
        estimate(clock, instance, ends, np.full(2, -1, np.int32)), np.arange(4), np.array([0, 0, 2, 3])
    )
    assert found.known.tolist() == [True, True, True, False]
    assert found.offset_ns.tolist() == [-300.0, -300.0, 300.0, 0.0]
    assert found.applied.tolist() == [True, True, True, False]

# SPDX-License-Identifier: Apache-2.0
"""Clocks of ranks, recovered from ends that they share."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.normalize.clocks import estimate_clocks, for_all
from cclbench.normalize.shared_ends import index_of, median_magnitude

RANKS, INSTANCES = 8, 60


def shared_ends(*, offset=None, drift=None, noise=0.0, span=2_000_000_000):
    """Ends of instances that all ranks share, on each rank's own clock: (rank, instance, ends)."""
    random = np.random.default_rng(7)
    when = np.sort(random.integers(0, span, INSTANCES))
    rank, instance = np.repeat(np.arange(RANKS), INSTANCES), np.tile(np.arange(INSTANCES), RANKS)
    at = when[instance].astype(float)
    own = at + random.normal(0, 1, len(at)) * noise
    own += np.zeros(RANKS)[rank] if offset is None else np.asarray(offset)[rank]
    own += 0.0 if drift is None else np.asarray(drift)[rank] * at
    return rank.astype(np.int32), instance, np.rint(own).astype(np.int64) + 10**18


def estimated(rank, instance, ends, host=None):
    """Clocks of ranks of the same hosts, or of unknown ones."""
    rank = np.asarray(rank, np.int32)
    host = np.full(len(np.unique(rank)), -1) if host is None else np.asarray(host)
    return estimate_clocks(rank, np.asarray(instance), np.asarray(ends), host.astype(np.int32))


def test_true_clocks_are_left_alone():
    found = estimated(*shared_ends(noise=2_000))
    assert not found.applied.any()
    assert found.offset_ns.tolist() == [0.0] * RANKS
    assert 2_000 < found.worst_residual_ns < 8_000


def test_rows_of_one_clock_may_stand_in_any_order():
    """Ranks 0 and 2 are threads of one process, 1 and 3 of another, whose clock is 70 µs ahead."""
    members = [(0, 1), (1, 2), (0, 3), (0, 1, 2, 3)] * 20
    rank, instance = np.array(sorted((rank, i) for i, ranks in enumerate(members) for rank in ranks)).T
    clock = rank % 2
    found = estimated(clock, instance, 10**18 + instance * 1_000_000 + 70_000 * clock)
    assert np.diff(found.offset_ns) == pytest.approx([70_000], abs=1e-3)
    assert found.worst_residual_ns < 1e-3


def test_offsets_are_recovered_exactly_without_noise_and_within_the_residual_with_noise():
    offset = np.array([0, 0, 0, 250_000, 0, 0, -9_000, 0])
    found = estimated(*shared_ends(offset=offset))
    assert found.offset_ns == pytest.approx(offset, abs=1e-3)
    assert found.applied.tolist() == [o != 0 for o in offset]
    offset[6] = -90_000
    found = estimated(*shared_ends(offset=offset, noise=1_000))
    assert (abs(found.offset_ns - offset) <= found.residual_ns).all()


def test_a_drift_in_a_long_window_is_found_and_in_a_short_one_not_told_from_noise():
    drift = np.zeros(RANKS)
    drift[5] = 20e-6
    rank, instance, ends = shared_ends(drift=drift, noise=500)
    found = estimated(rank, instance, ends)
    assert found.drift[5] == pytest.approx(20e-6, rel=0.01)
    assert found.applied.tolist() == [False] * 5 + [True] + [False] * 2
    corrected = found.correct_times(rank, ends)
    spread = [np.ptp(corrected[instance == i]) for i in range(INSTANCES)]
    assert max(spread) < 6 * 500 + 2 * found.worst_residual_ns
    assert not estimated(*shared_ends(drift=drift, noise=500, span=10_000_000)).applied.any()


@pytest.mark.parametrize("far", [1_100_000, 10**12])
def test_an_outlier_counts_as_far_as_hubers_bound(far):
    """Rank 0's ends less rank 1's, in µs, in 20 instances: 100 nine times, 110 ten times, and once `far`.

    Between 105 and 110 the median distance from μ is 5, whatever μ: its scale is 1.4826 · 5, the bound
    1.5 · 1.4826 · 5 = 11.12.  So Σ of bounded distances is 9 (100 − μ) + 10 (110 − μ) + 11.12 = 0.
    """
    ahead = np.array([100_000] * 9 + [110_000] * 10 + [far])
    rank, instance = np.tile([0, 1], 20), np.repeat(np.arange(20), 2)
    ends = 10**18 + np.stack([ahead, np.zeros(20, np.int64)], axis=1).ravel()
    found = estimated(rank, instance, ends)
    expected = (9 * 100_000 + 10 * 110_000 + 1.5 * 1.4826 * 5_000) / 19
    assert found.offset_ns[0] - found.offset_ns[1] == pytest.approx(expected, abs=20)


def apart(*ahead, step=1 << 20):
    """Ends of ranks 0 and 1 in an instance each `step` ns: rank 0's less rank 1's are those."""
    instances = len(ahead)
    rank, instance = np.tile([0, 1], instances), np.repeat(np.arange(instances), 2)
    ends = np.repeat(np.arange(instances) * step, 2)
    ends[::2] += np.array(ahead)
    return estimated(rank, instance, 10**18 + ends)


@pytest.mark.parametrize(("instances", "told"), [(7, False), (8, True)])
def test_a_drift_is_told_from_eight_instances_on(instances, told):
    """A step is 1,000,100 ns of rank 0, 1,000,000 of rank 1: 1,000,100 (1 − b) = 1,000,000 (1 + b)."""
    found = apart(*(100 * k for k in range(instances)), step=1_000_000)
    drift = 100 / 2_000_100 if told else 0.0
    assert found.drift.tolist() == pytest.approx([drift, -drift], rel=1e-9, abs=0)


@pytest.mark.parametrize(("ahead", "told"), [(310, True), (290, False)])
def test_a_drift_has_to_move_a_clock_three_times_as_far_as_ends_spread(ahead, told):
    """Seven steps of a slope s move the ranks s · 7 / 2 each to either side of their middle.

    About the slope lie ±e, mean and slope 0, so ±e/2 each: √(8 · e² / 4 / (8 − 2)) = e / √3.
    With s · 7 / 2 / (e / √3) = `ahead` / 100, e = 100 · 3.5 · √3 · s / `ahead`.
    """
    sign = np.array([1, -1, -1, 1, -1, 1, 1, -1])
    slope = 1_000_000
    e = round(100 * 3.5 * 3**0.5 * slope / ahead)
    found = apart(*(slope * np.arange(8) + e * sign), step=1 << 30)
    assert (found.drift != 0).tolist() == [told] * 2


@pytest.mark.parametrize(("ahead", "told"), [(1, False), (3, True)])
def test_a_drift_has_to_move_a_clock_by_more_than_a_nanosecond(ahead, told):
    """Four instances at once and four later, by when each rank has gone half of `ahead` to either side."""
    rank, instance = np.tile([0, 1], 8), np.repeat(np.arange(8), 2)
    ends = np.repeat([0] * 4 + [1 << 20] * 4, 2)
    ends[8::2] += ahead
    found = estimated(rank, instance, ends)
    assert (found.drift != 0).tolist() == [told] * 2


def test_a_drift_without_noise_is_taken_off_to_the_nanosecond():
    drift, offset = np.zeros(RANKS), np.zeros(RANKS)
    drift[2], drift[5], offset[4] = -30e-6, 20e-6, 70_000
    rank, instance, ends = shared_ends(drift=drift, offset=offset)
    found = estimated(rank, instance, ends)
    assert found.drift == pytest.approx(drift, abs=1e-9)
    corrected = found.correct_times(rank, ends)
    assert max(np.ptp(corrected[instance == i]) for i in range(INSTANCES)) <= 2
    assert found.uncertainty_ns.max() <= 2
    assert found.worst_residual_ns <= 2
    # Ranks 6 and 7 meet once by themselves, and rank 8 meets rank 0 twice.
    drift = np.zeros(RANKS)
    drift[5] = 20e-6
    more = ([6, 7, 0, 8, 0, 8], [70, 70, 71, 71, 72, 72], np.array([5, 5, 5, 9_005, 999, 9_999]) + 10**18)
    found = estimated(*(np.append(*both) for both in zip(shared_ends(drift=drift), more, strict=True)))
    assert found.drift == pytest.approx([0, 0, 0, 0, 0, 20e-6, 0, 0, 0], abs=1e-9)
    assert found.offset_ns[8] == pytest.approx(9_000, abs=1)
    assert found.applied.tolist() == [False] * 5 + [True, False, False, True]


@pytest.mark.parametrize(("ahead", "applied"), [(1, False), (2, False), (3, True)])
def test_an_offset_has_to_exceed_a_nanosecond(ahead, applied):
    """Two of four ranks are ahead: half of it to either side of the middle of all."""
    rank, instance = np.tile(np.arange(4), 4), np.repeat(np.arange(4), 4)
    ends = np.repeat(np.arange(4) * 1000, 4) + np.tile([0, 0, ahead, ahead], 4)
    found = estimated(rank, instance, ends)
    half = ahead / 2 if applied else 0.0
    assert found.offset_ns.tolist() == [-half, -half, half, half]
    assert found.applied.tolist() == [applied] * 4
    assert found.uncertainty_ns.tolist() == [1.0] * 4


@pytest.mark.parametrize("aside", [[*range(1, 21)] * 2, [0, *[*range(1, 20)] * 2]])
def test_what_is_left_is_the_95th_percentile(aside):
    """Ends lie up to 40 ns apart, each way as often: of 40 and of 39 the 38th is 19 ns aside."""
    sign = np.where(np.arange(len(aside)) < len(aside) / 2, 1, -1)
    ahead = 2 * np.array(aside) * sign
    instances = len(ahead)
    rank, instance = np.tile(np.arange(4), instances), np.repeat(np.arange(2 * instances), 2)
    order = np.random.default_rng(1).permutation(instances)
    ends = np.repeat(np.arange(instances) << 20, 4)
    ends[::4] += ahead[order]
    ends[2::4] += 10 * ahead[order]  # of ranks 2 and 3 ten times as much
    found = estimated(rank, instance, ends)
    assert found.offset_ns.tolist() == [0.0] * 4
    assert found.uncertainty_ns.tolist() == pytest.approx([19.0, 19.0, 190.0, 190.0])
    assert found.residual_ns.tolist() == pytest.approx([19.0, 19.0, 190.0, 190.0])


@pytest.mark.parametrize(("last", "own"), [(1001, 1000.0), (1002, 1002.0)])
def test_a_rank_that_differs_from_its_host_by_what_ends_spread_agrees(last, own):
    """Without any spread a nanosecond is what is told: 1000, 1000 and 1001 ns are one clock, 1002 is not."""
    found = estimated(*shared_ends(offset=[0] * 5 + [1000, 1000, last]), host=[-1] * 5 + [0] * 3)
    assert found.offset_ns == pytest.approx([0] * 5 + [1000, 1000, own], abs=1e-6)


def test_ranks_that_only_others_link_share_a_clock():
    """A chain: each rank shares instances with the next one alone."""
    ranks, times = 40, 3
    offset = np.array([1_000 * (7 * k * k % 97) for k in range(ranks)])
    pairs = np.repeat(np.arange(ranks - 1), times)
    rank, instance = np.stack([pairs, pairs + 1], axis=1).ravel(), np.repeat(np.arange(len(pairs)), 2)
    found = estimated(rank, instance, instance * 10_000 + offset[rank])
    assert set(found.part.tolist()) == {0}
    assert found.offset_ns == pytest.approx(offset - np.median(offset), abs=1e-3)


def test_offsets_are_relative_to_the_median_rank_of_each_part():
    """Parts of 3, 2 and 5 ranks; ranks have any numbers."""
    parts = ([0, 100, 700], [0, 50], [0, 10, 20, 500, 900])
    rows = [
        (10 * (part + 1) + place, 10 * part + call, 5_000 * call + offset)
        for part, offsets in enumerate(parts)
        for call in range(3)
        for place, offset in enumerate(offsets)
    ]
    found = estimated(*np.array(rows).T)
    assert found.ranks.tolist() == [10, 11, 12, 20, 21, 30, 31, 32, 33, 34]
    assert found.part.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    expected = [-100, 0, 600, -25, 25, -20, -10, 0, 480, 880]
    assert found.offset_ns == pytest.approx(expected, abs=1e-3)
    assert found.t0_ns == 0


def test_ranks_of_one_host_share_its_offset():
    """Host 1 (ranks 4 to 7) is 300 µs ahead; its ranks differ by less than the ends spread."""
    offset = np.array([0, 0, 0, 0, 300_400, 299_700, 300_200, 299_900])
    host = np.repeat([0, 1], 4)
    found = estimated(*shared_ends(offset=offset, noise=2_000), host)
    assert len(set(found.offset_ns[4:].tolist())) == 1
    assert found.offset_ns[4] - found.offset_ns[0] == pytest.approx(300_000, abs=2_000)
    # Host 0 has three ranks that agree and one that does not, host 1 one rank; nobody knows the
    # others'.
    noise = np.array([-400, 0, 500, 250_000, 90_000, 300, -300, 100])
    host = np.array([0, 0, 0, 0, 1, -1, -1, -1])
    rank, instance, ends = shared_ends(offset=noise + 1_000_000 * (host == 0), noise=2_000)
    found = estimated(rank, instance, ends, host)
    alone = estimated(rank, instance, ends)
    assert len(set(found.offset_ns[:3].tolist())) == 1
    assert found.offset_ns[0] == np.median(alone.offset_ns[:4])
    assert found.offset_ns[3:].tolist() == alone.offset_ns[3:].tolist()
    assert found.offset_ns[3] - found.offset_ns[0] == pytest.approx(250_000, abs=2_000)


@pytest.mark.parametrize("every", [2, 4, 20])
def test_groups_that_few_collectives_link_share_one_clock(every):
    """Four hosts of two ranks: most collectives stay in a host, one in `every` links a rank of each."""
    random = np.random.default_rng(3)
    offset, drift = np.repeat([0, 800_000, -300_000, 0], 2), np.repeat([0, 0, 0, 20e-6], 2)
    call, rank = np.repeat(np.arange(400), RANKS), np.tile(np.arange(RANKS), 400)
    instance = 1000 * call + np.where(call % every == 0, 100 + rank % 2, rank // 2)
    ends = call * 5_000_000 * (1 + drift[rank]) + offset[rank] + random.normal(0, 300, len(call))
    found = estimated(rank, instance, ends.astype(int))
    assert abs(np.diff(found.offset_ns, append=0) - np.diff(offset, append=0)).max() < 500
    assert found.drift - found.drift[0] == pytest.approx(drift, abs=5e-7)
    assert found.worst_residual_ns < 1_000


def test_ranks_without_shared_collectives_run_true():
    rank, instance, ends = shared_ends(offset=[0, 0, 0, 40_000, 0, 0, 0, 0])
    every = np.arange(RANKS + 2)
    found = for_all(estimated(rank, instance, ends), every, every)
    assert found.is_estimated.tolist() == [True] * RANKS + [False] * 2
    assert found.offset_ns[-2:].tolist() == [0.0, 0.0]
    assert found.correct_times(np.array([9], np.int32), np.array([5])).tolist() == [5]
    found = estimated([], np.empty(0, np.int64), np.empty(0, np.int64))
    assert (len(found.ranks), found.worst_residual_ns, found.t0_ns) == (0, 0.0, 0)
    for name in found.__dataclass_fields__.keys() - {"t0_ns"}:
        assert len(getattr(found, name)) == 0
    assert [found.ranks.dtype, found.applied.dtype, found.is_estimated.dtype] == ["i8", "?", "?"]
    every = for_all(found, np.array([3, 5]), np.array([3, 5]))
    assert every.is_estimated.tolist() == [False, False]
    assert every.correct_times(np.array([5], np.int32), np.array([7])).tolist() == [7]


def test_ranks_of_one_clock_have_its_correction():
    """Ranks 0 and 1 read clock 0, rank 2 reads clock 2, which is 600 ns ahead; rank 3 shares nothing."""
    ends = np.array([1_000, 1_600, 2_000, 2_600, 3_000, 3_600, 4_000, 4_600])
    clocks = estimated(np.tile([0, 2], 4), np.repeat(np.arange(4), 2), ends)
    found = for_all(clocks, np.arange(4), np.array([0, 0, 2, 3]))
    assert found.is_estimated.tolist() == [True, True, True, False]
    assert found.offset_ns.tolist() == [-300.0, -300.0, 300.0, 0.0]
    assert found.applied.tolist() == [True, True, True, False]


def test_a_shift_of_all_ranks_is_no_direction_to_go_on_in():
    """Rounding leaves the gradient such a shift, across which the squares are flat: nothing to divide by."""
    rank = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2], np.int32)
    instance = np.array([0, 1, 2, 3, 1, 2, 0, 1, 2, 3])
    first, second = [7841350043, 0, 6339797968, 6795851259], [624877, 6340423563]
    ends = np.array([*first, *second, 7842029893, 680371, 6340478637, 6796532074])
    found = estimated(rank, instance, ends)
    assert found.offset_ns - found.offset_ns[0] == pytest.approx([0, 625_200, 680_000], abs=600)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 200_001])
@pytest.mark.parametrize("law", ["normal", "equal", "half zero"])
def test_the_median_of_magnitudes_is_the_same_from_any_earlier_one(count, law):
    values = np.random.default_rng(count).normal(0, 500, count)
    if law == "equal":
        values[:] = -3.0
    elif law == "half zero":
        values[: count // 2 + 1] = 0.0
    exact = float(np.median(abs(values)))
    for near in (None, 0.0, exact, exact * 1.05, exact / 1.05, exact * 4, exact / 4, 1e300):
        assert median_magnitude(values, near) == exact


def test_index_of_ranks_in_and_out_of_order():
    ranks = np.array([2, 5, 9])
    rank = np.array([5, 5, 2, 9, 9, 9, 2], np.int32)
    assert index_of(ranks, rank).tolist() == [1, 1, 0, 2, 2, 2, 0]
    assert index_of(ranks, rank[:0]).tolist() == []

# SPDX-License-Identifier: Apache-2.0
"""Groups that nobody wrote down: each condition by hand; random layouts, none of which gets a false one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.lockstep import layout
from helpers.typed import record

from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.normalize.inferred_groups import Inference, JobCalls, infer_group

US = 1000
RANKS = 4
LATE = (3, 0, 1, 2, 0, 3, 1, 2)
"""The rank that comes last in each of the eight instances."""
PARTS = 4
LAYOUTS = 500
"""Of each part: 2,000 in all."""


def arrivals() -> Any:
    """One instance a millisecond: ranks arrive at 0, 10, 20 and 30 µs, the late one at 100 µs."""
    starts = np.arange(len(LATE))[:, None] * 1000 * US + np.arange(RANKS) * 10 * US
    starts[np.arange(len(LATE)), LATE] = np.arange(len(LATE)) * 1000 * US + 100 * US
    return starts


def leavings() -> Any:
    """All end at 200 µs, rank 3 always 2 µs later: its clock is 2 µs ahead."""
    return np.arange(len(LATE))[:, None] * 1000 * US + np.array([200, 200, 200, 202]) * US


def calls(starts: Any = None, ends: Any = None, kinds: Any = "all_reduce", **more: Any) -> JobCalls:
    """Calls of instances × ranks; `kinds` of all, of each instance, or of each instance and rank."""
    starts = arrivals() if starts is None else np.asarray(starts)
    ends = leavings() if ends is None else np.asarray(ends)
    words = np.array(kinds, object)
    words = np.broadcast_to(words[:, None] if words.ndim == 1 else words, starts.shape)
    codes = np.vectorize(lambda kind: -1 if kind is None else COLLECTIVE_KINDS.index(kind), otypes=[np.int8])
    instances, ranks = starts.shape
    made = JobCalls(
        rank=np.repeat(np.arange(ranks, dtype=np.int32), instances),
        kind=codes(words).T.ravel(),
        size=np.full(starts.size, -1, np.int32),
        starts=starts.T.ravel(),
        ends=ends.T.ravel(),
        libraries=("nccl",),
        names=[frozenset()] * ranks,
    )
    return replace(made, **more)


def infer_four(*arguments: Any, **more: Any) -> Inference:
    return infer_group(calls(*arguments, **more), range(RANKS), RANKS)


def begins(*ns: int, instances: int = 8) -> Any:
    """An instance a millisecond: its begin plus the ns of each rank."""
    return np.arange(instances)[:, None] * 1000 * US + np.array(ns)


def refused(found: Inference) -> str:
    assert found.rule is None
    return found.reason


def test_all_ranks_run_one_sequence_in_step() -> None:
    reason = "all 4 ranks run one sequence of 8 collectives in step"
    assert infer_four() == Inference("R1", reason)

    def noted(*told: str | None) -> str | None:
        return record({"inference": dict(zip(("rule", "group", "reason"), told, strict=True))}).inference_note

    # A manifest says what rests on it.
    assert noted("R1", "0-3", reason) == f"process groups are inferred (R1): {reason}"
    assert noted(None, None, "2 of 4 ranks have a trace") is record({}).inference_note is None


@pytest.mark.parametrize(
    ("ranks", "world", "reason"),
    [
        *((range(4), None, "nothing states the world size"), (range(4), 8, "4 of 8 ranks have a trace")),
        *(([1, 2, 3, 4], 5, "4 of 5 ranks have a trace"), ([0], 1, "the world has one rank")),
        ([3], 8, "1 of 8 ranks has a trace"),
    ],
)
def test_every_rank_of_the_world_has_to_be_here(ranks: Any, world: int | None, reason: str) -> None:
    assert refused(infer_group(calls(), ranks, world)) == reason


@pytest.mark.parametrize("library", ["gloo", "mpi", "xla"])
def test_libraries_of_the_host_are_refused(library: str) -> None:
    why = f"library {library}, whose calls do not end together"
    assert refused(infer_four(libraries=("nccl", library))) == why
    two = calls(arrivals()[:, :2], leavings()[:, :2], libraries=(library,))
    assert refused(infer_group(two, range(2), 2)).startswith(f"library {library}")


@pytest.mark.parametrize("stated", [0, 2])
def test_what_the_trace_states_of_groups_is_not_contradicted(stated: int) -> None:
    """A group of no ranks, too, is none of all."""
    size = np.where(np.arange(32) == 5, stated, -1).astype(np.int32)
    assert refused(infer_four(size=size)) == f"1 collectives are stated to be of {stated} ranks"
    assert infer_four(size=np.where(size > 0, 4, -1).astype(np.int32)).rule == "R1"
    communicators = [frozenset({"0xa"}), frozenset({"0xa"}), frozenset({"0xb"}), frozenset({"0xb"})]
    assert refused(infer_four(names=communicators)) == "the ranks' collectives name different process groups"
    assert infer_four(names=[frozenset({"0xa", "0xb"})] * 4).rule == "R1"


def test_what_a_kernel_does_has_to_be_known() -> None:
    found = infer_four(kinds=["all_reduce"] * 6 + ["send_recv"] * 2)
    assert refused(found) == "nothing says that 8 sends and receives are a collective of all ranks"
    assert refused(infer_four(kinds=["all_reduce"] * 7 + [None])) == "4 collectives are of unknown kind"
    assert infer_four(kinds=["all_reduce"] * 6 + ["all_to_all"] * 2).rule == "R1"


def test_ranks_have_to_run_the_same_kinds_in_the_same_order() -> None:
    differ = "kind sequences differ at instance"
    kinds = np.full((8, RANKS), "all_reduce", object)
    kinds[4, 2] = "all_gather"
    assert refused(infer_four(kinds=kinds)) == f"{differ} 5: all_reduce on rank 0, all_gather on rank 2"
    kinds[2, 1] = "all_gather"
    assert refused(infer_four(kinds=kinds)).startswith(f"{differ} 3:")
    whole, kept = calls(), np.arange(32) != 31
    rows = {name: getattr(whole, name)[kept] for name in ("rank", "kind", "size", "starts", "ends")}
    assert refused(infer_group(replace(whole, **rows), range(RANKS), RANKS)) == (
        f"{differ} 8: all_reduce on rank 0, none on rank 3"
    )
    assert refused(infer_four(arrivals()[:7], leavings()[:7])) == "7 instances, fewer than 8"


EPOCH = 1_712_195_495_519_689_047


def infer_three(instances: int = 8, gap: int = 70 * US, spread: int = 0, epoch: int = 0) -> Inference:
    """Ranks 0 and 1 of three come at 0 and 30 µs, rank 2 `gap` later; ends differ by `spread`, either way."""
    either = np.where(np.arange(instances) % 2, 1, -1)[:, None]
    starts = epoch + begins(0, 30 * US, 30 * US + gap, instances=instances)
    ends = epoch + begins(200 * US, instances=instances) + either * np.array([0, 0, spread])
    return infer_group(calls(starts, ends), range(3), 3)


def test_three_ranks_have_subgroups_as_well() -> None:
    assert infer_three().rule == "R1"
    assert refused(infer_three(instances=7)) == "7 instances, fewer than 8"
    assert refused(infer_three(gap=0)).startswith("in 0 of 8 instances")


@pytest.mark.parametrize("epoch", [0, EPOCH])
@pytest.mark.parametrize(("gap", "waited"), [(20 * US, False), (20 * US + 1, True), (29 * US, True)])
def test_the_last_rank_is_later_by_twice_what_ends_differ_by(gap: int, epoch: int, *, waited: bool) -> None:
    """A nanosecond later is later, at the time of day, too."""
    assert (infer_three(gap=gap, spread=10 * US, epoch=epoch).rule == "R1") == waited


def test_the_same_rank_is_last_with_its_offset_and_without() -> None:
    """Rank 3 comes 30 µs later than rank 2 and leaves 60 µs later: by a common clock rank 2 comes last."""
    starts = begins(0, 10 * US, 100 * US, 130 * US)
    ahead = begins(200 * US, 200 * US, 200 * US, 260 * US)
    assert refused(infer_four(starts, ahead)).startswith("in 0 of 8")
    assert infer_four(starts, begins(*[200 * US] * 4)).rule == "R1"


def test_of_many_ranks_the_two_that_come_last_are_compared() -> None:
    """Thirty ranks in any order come 1 µs apart, and ends differ by as much."""
    random = np.random.default_rng(5)
    starts = begins(0) + np.stack([random.permutation(30) for _ in range(8)]) * US
    ends = begins(200 * US) + random.permutation(np.arange(30) % 2) * np.array([[1], [-1]] * 4) * US
    assert refused(infer_group(calls(starts, ends), range(30), 30)).startswith("in 0 of 8 instances")
    starts[np.arange(8), starts.argmax(axis=1)] += 50 * US
    assert infer_group(calls(starts, ends), range(30), 30).rule == "R1"


@pytest.mark.parametrize(("early", "fits"), [(0, True), (1, False)])
@pytest.mark.parametrize("instance", [0, 4])
def test_only_what_ends_differ_by_may_overlap_with_the_next(instance: int, early: int, fits: bool) -> None:
    """Rank 1 ends 3 µs later than others; rank 0 begins the next one 3 µs before, or a nanosecond earlier."""
    starts, ends = arrivals(), leavings()
    last = (1000 * (instance + 1)) * US
    ends[instance] = last + np.array([-3, 0, -3, -1]) * US
    starts[instance + 1, 0] = last - 3 * US - early
    found = infer_four(starts, ends)
    assert found.rule == "R1" if fits else refused(found) == "a shift by one also overlaps"


def test_an_instance_in_which_one_leaves_before_another_comes() -> None:
    ends = leavings()
    ends[6, 0] = arrivals()[6, 1]  # rank 1 comes last, as rank 0 leaves
    assert refused(infer_four(ends=ends)) == "instance 7 does not overlap in time across ranks"
    ends[6, 0] += 1
    assert refused(infer_four(ends=ends)) == "ends spread 100 µs around their offsets"


def test_a_shift_that_overlaps_as_well() -> None:
    """Collectives 5 µs apart, with one rank's clock 20 µs ahead: its k-th may be the others' next."""
    begin = np.arange(8)[:, None] * 210 * US
    starts = begin + np.array([0, 10, 20, 30]) * US
    starts[np.arange(8), LATE] = begin[:, 0] + 100 * US
    ends = np.broadcast_to(begin + 205 * US, starts.shape)
    assert infer_four(starts, ends).rule == "R1"
    ahead = np.array([0, 0, 0, 20]) * US
    assert refused(infer_four(starts + ahead, ends + ahead)) == "a shift by one also overlaps"


@pytest.mark.parametrize("epoch", [0, EPOCH])
def test_ends_may_spread_as_far_as_50_us(epoch: int) -> None:
    """The last rank comes 165 µs after any other, more than twice what the ends of its instance differ by.

    A nanosecond counts, at the time of day, too.
    """
    starts, ends = arrivals(), leavings()
    starts[3, LATE[3]] = (3000 + 195) * US
    ends[3, 1] += 50 * US
    assert infer_four(starts + epoch, ends + epoch).rule == "R1"
    ends[3, 1] += 1
    assert refused(infer_four(starts + epoch, ends + epoch)) == "ends spread 50 µs around their offsets"
    ends[3, 1] += 262 * US
    assert refused(infer_four(starts + epoch, ends + epoch)) == "ends spread 312 µs around their offsets"


def two_group_times(late: Any, *, slower: int = 0) -> tuple[Any, Any]:
    """Ranks 0 and 1, and 2 and 3, each pair in step: of each instance what its two last ranks come later, µs.

    `slower` is by how much the second pair's transfers take longer than the 100 µs of the first.
    """
    starts = np.arange(len(late))[:, None] * 1000 * US + np.array([-60, 0, -50, 0]) * US
    starts[:, [1, 3]] += np.asarray(late) * US
    last = starts[:, [1, 1, 3, 3]]
    return starts, last + np.array([100, 100, 100 + slower, 100 + slower]) * US


SKEWS = [(0, 3), (4, 0), (0, 9), (2, 0), (0, 2), (12, 0), (0, 5), (1, 0)]


def test_subgroups_in_lockstep_do_not_wait_for_one_another() -> None:
    assert refused(infer_four(*two_group_times(SKEWS))) == (
        "in 0 of 8 instances all ranks are seen to wait for the last one: the others could be of subgroups in"
        " lockstep"
    )
    # Ranks that come at once show nothing.
    starts = begins(*[0] * RANKS)
    assert refused(infer_four(starts, starts + 50 * US)).startswith("in 0 of 8 instances")


@pytest.mark.parametrize(
    ("late", "slower"),
    [
        # Taken for a clock's offset, it would put the other pair's arrivals 30 µs apart from its own.
        *((SKEWS, slower) for slower in (-30, 30)),
        # Rank 1 comes 40 µs later than any other, and its pair leaves 40 µs later: no one else waits for it.
        (np.array(SKEWS) + np.array([40, 0]), 0),
    ],
    ids=["shorter", "longer", "later"],
)
def test_a_subgroup_that_always_takes_longer_or_comes_later_is_no_clock(late: Any, slower: int) -> None:
    assert refused(infer_four(*two_group_times(late, slower=slower))).startswith("in 0 of 8 instances")


def test_three_of_four_instances_have_to_show_that_ranks_wait() -> None:
    def with_early(instances: int) -> Inference:
        """In the first ones the last rank comes 1 µs later than the next, and ends differ by 2 µs."""
        starts, ends = arrivals(), leavings()
        for k in range(instances):
            starts[k] = (1000 * k + np.array([10, 20, 30, 31])) * US
            ends[k] += np.array([1, -1, 0, 0]) * US
        ends[7] += np.array([1, -1, 0, 0]) * US
        return infer_four(starts, ends)

    assert with_early(2).rule == "R1"
    assert refused(with_early(3)).startswith("in 5 of 8 instances")


def test_what_shows_nothing_must_end_together_as_well() -> None:
    """Seven instances of all ranks, and one of two pairs that leave 3 µs apart."""
    starts, ends = arrivals(), leavings()
    starts[5] = (5000 + np.array([10, 20, 15, 23])) * US
    ends[5] += np.array([0, 0, 3, 3]) * US
    assert refused(infer_four(starts, ends)) == (
        "ends spread 3 µs where no rank is seen to wait for the last one, and at most 0 µs where all do: the"
        " others could be of subgroups in lockstep"
    )


def infer_two(kinds: Any, starts: Any = None, ends: Any = None) -> Inference:
    starts = arrivals()[: len(kinds), :2] if starts is None else starts
    ends = leavings()[: len(kinds), :2] if ends is None else ends
    return infer_group(calls(starts, ends, kinds), range(2), 2)


def test_a_world_of_two_has_one_group_and_need_not_be_seen_to_wait() -> None:
    found = Inference("R0", "a world of 2 ranks has no other group")
    assert infer_two(["all_reduce"]) == found
    assert infer_two(["send_recv", "all_gather", None]) == found
    assert infer_two([("send", "recv"), ("recv", "send"), ("all_reduce", "all_reduce")]) == found
    # Two ranks need not be seen to wait or to end together.
    starts = np.array([[0, 0], [50, 50]])
    assert infer_two(["all_reduce"], starts[:1], np.array([[100, 900_000]])).rule == "R0"
    assert infer_two(["all_reduce"] * 2, starts, np.array([[100] * 2, [200] * 2])).rule == "R0"


def test_two_ranks_have_to_do_the_same_at_the_same_time() -> None:
    differ = "kind sequences differ at instance 1: "
    unknown = infer_two([("all_reduce", None)])
    assert refused(unknown) == f"{differ}all_reduce on rank 0, an unknown one on rank 1"
    assert refused(infer_two([("send", "send")])) == f"{differ}send on rank 0, recv on rank 1"
    starts, ends = arrivals()[:3, :2], leavings()[:3, :2].copy()
    ends[1, 1] = starts[1, 0]
    apart = infer_two(["send_recv"] * 3, starts, ends)
    assert refused(apart) == "instance 2 does not overlap in time across ranks"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_random_layout_gets_a_false_group(part: int) -> None:
    """Among the layouts there are some that are of all ranks and shown to be, and many that only look it."""
    subgroups, in_step, inferred = 0, 0, 0
    for number in range(part * LAYOUTS, (part + 1) * LAYOUTS):
        drawn = layout(0, number)
        found = infer_group(drawn.calls, range(drawn.ranks), drawn.ranks)
        if drawn.whole:
            inferred += found.rule is not None
        else:
            assert found.rule is None, number
            subgroups += 1
            in_step += "wait for the last one" in found.reason
    assert subgroups > LAYOUTS / 2
    assert in_step > subgroups / 20, "those that only waiting tells from layouts of all ranks"
    assert inferred > (LAYOUTS - subgroups) / 10

# SPDX-License-Identifier: Apache-2.0
"""The innermost operator around a launch: by hand, and by search; paths of ops as JAX writes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.intervals import Int64
from cclbench.normalize.name_stacks import NameStack, name_stack
from cclbench.normalize.operators import NO_RANGES, Ids, Ranges, is_wrapper, join_ranges, nearest_flagged

Call = tuple[int, int, int, int]


def ordered(calls: list[Call]) -> tuple[Ranges, Int64]:
    """The calls (id, thread, begin, end) in order, and the id of each."""
    number, track, start, end = np.array(calls, np.int64).reshape(-1, 4).T
    order = Ranges.order_of(track, start, end, number)
    return Ranges(track[order], start[order], end[order]), number[order]


def innermost(calls: list[Call], launches: list[tuple[int, int]]) -> list[int]:
    """Ids for launches (thread, instant) among calls."""
    ranges, number = ordered(calls)
    thread, at = np.array(launches, np.int64).reshape(-1, 2).T
    return np.append(number, -1)[ranges.innermost_at(thread, at)].tolist()


def holding(calls: list[Call], launches: list[tuple[int, int]]) -> list[bool]:
    """Whether any call of its thread holds each launch."""
    thread, at = np.array(launches, np.int64).reshape(-1, 2).T
    return ordered(calls)[0].is_inside(thread, at).tolist()


# Thread 1: linear [0, 100) holds t [5, 10) and addmm [20, 90), and that holds copy_ [20, 40).
CALLS = [(4, 1, 20, 40), (1, 1, 0, 100), (3, 1, 20, 90), (2, 1, 5, 10), (9, 2, 30, 31)]


def test_the_innermost_call_is_of_its_thread_and_has_a_duration() -> None:
    assert innermost(CALLS, [(2, 30), (1, 30), (2, 31), (3, 30), (2, 29)]) == [9, 4, -1, -1, -1]
    # A call without duration holds nothing.
    calls = [(1, 1, 0, 10), (2, 1, 5, 5), (3, 1, 20, 20)]
    assert innermost(calls, [(1, 5), (1, 6), (1, 20)]) == [1, 1, -1]
    # Without calls or launches.
    assert innermost([], [(1, 5)]) == [-1]
    assert innermost(CALLS, []) == []
    # What holds an instant is on its thread.
    assert holding(CALLS, [(1, 95), (2, 30), (2, 95), (3, 30)]) == [True, True, False, False]
    assert holding([], [(1, 5)]) == [False]


@st.composite
def stacks(draw: st.DrawFn) -> list[Call]:
    """Calls that nest: each begins within the last one that is open, and ends with it at the latest."""
    calls: list[Call] = []

    def fill(begin: int, end: int, depth: int) -> None:
        while begin < end and len(calls) < 20 and draw(st.booleans()):
            start = draw(st.integers(begin, end - 1))
            stop = draw(st.integers(start, end))
            calls.append((len(calls) + 1, 1, start, stop))
            if depth < 4:
                fill(start, stop, depth + 1)
            begin = stop

    fill(0, 40, 0)
    return draw(st.permutations(calls))


@given(calls=stacks())
def test_it_is_the_last_that_began_of_those_that_run(calls: list[Call]) -> None:
    """Of calls with equal begins the later id is the inner one."""
    expected = []
    for at in range(-1, 42):
        running = [(start, number) for number, _, start, end in calls if start <= at < end]
        expected.append(max(running)[1] if running else -1)
    instants = range(-1, 42)
    assert innermost(calls, [(1, at) for at in instants]) == expected
    assert holding(calls, [(1, at) for at in instants]) == [number >= 0 for number in expected]


def parents(calls: list[Call]) -> dict[int, int]:
    """The id of the call that each begins in, −1 for none."""
    ranges, number = ordered(calls)
    found = np.append(number, -1)[ranges.parent_indices()]
    return dict(zip(number.tolist(), found.tolist(), strict=True))


def test_a_call_begins_in_the_innermost_one_around_it() -> None:
    assert parents(CALLS) == {1: -1, 2: 1, 3: 1, 4: 3, 9: -1}
    assert parents([]) == {}
    # Call 3 begins as 2 ends, within 1; call 4 as 1 ends; call 6 of thread 2 is in 5, 7 in none.
    calls = [(1, 1, 0, 50), (2, 1, 10, 20), (3, 1, 20, 30), (4, 1, 50, 60)]
    calls += [(5, 2, 0, 10), (6, 2, 5, 7), (7, 2, 10, 12), (8, 3, 0, 10), (9, 3, 9, 10)]
    assert parents(calls) == {1: -1, 2: 1, 3: 1, 4: -1, 5: -1, 6: 5, 7: -1, 8: -1, 9: 8}
    # After many short calls the one around all is found.
    calls = [(0, 7, 0, 1000), *((n, 7, 10 * n, 10 * n + 5) for n in range(1, 50))]
    assert parents(calls) == {0: -1, **dict.fromkeys(range(1, 50), 0)}
    assert innermost(calls, [(7, 497)]) == [0]


@given(calls=stacks())
def test_what_a_call_begins_in_is_what_ran_when_it_began(calls: list[Call]) -> None:
    """Of equal begins the longer one is around the other, of equal ones the earlier id."""
    found = parents(calls)
    for number, _, start, end in calls:
        around = [
            (begin, -stop, other)
            for other, _, begin, stop in calls
            if begin <= start < stop and (begin, -stop, other) < (start, -end, number)
        ]
        assert found[number] == (max(around)[2] if around else -1)


def test_ranges_of_both_are_in_order_and_known_by_their_place() -> None:
    one, _ = ordered([(1, 1, 0, 10), (2, 2, -5, 9)])
    other, _ = ordered([(3, 1, 0, 20), (4, 1, 0, 10), (5, 2, 1, 2)])
    both, place = join_ranges(one, other)
    rows = zip(both.track.tolist(), both.start_ns.tolist(), both.end_ns.tolist(), strict=True)
    assert list(rows) == [(1, 0, 20), (1, 0, 10), (1, 0, 10), (2, -5, 9), (2, 1, 2)]
    assert place.tolist() == [2, 0, 3, 1, 4]
    none, nowhere = join_ranges(NO_RANGES, NO_RANGES)
    assert (len(none.track), len(none.start_ns), len(none.end_ns), len(nowhere)) == (0, 0, 0, 0)
    # Some of the ranges stay in order.
    some = ordered(CALLS)[0].select_ranges(np.array([True, False, True, False, True]))
    found = (some.track.tolist(), some.start_ns.tolist(), some.end_ns.tolist())
    assert found == ([1, 1, 2], [0, 20, 30], [100, 90, 31])


@pytest.mark.parametrize(
    ("flagged", "found"),
    [
        *(([0], [0, 0, 0, 0, -1, -1]), ([1, 5], [-1, 1, 1, 1, -1, 5]), ([0, 2], [0, 0, 2, 2, -1, -1])),
        *(([4], [-1, -1, -1, -1, 4, 4]), ([], [-1] * 6)),
    ],
)
def test_the_nearest_flagged_one_is_itself_or_around_it(flagged: list[int], found: list[int]) -> None:
    """0 holds 1, that 2, that 3; 4 holds 5."""
    parent = np.array([-1, 0, 1, 2, -1, 4], np.int32)
    assert nearest_flagged(parent, np.isin(np.arange(6), flagged)).tolist() == found


def test_ids_are_found_where_they_stand() -> None:
    ids = Ids(np.array([7, 3, 9]))
    assert ids.index_of(np.array([9, 7, 3, 4, 10, 2, 9])).tolist() == [2, 0, 1, -1, -1, -1, 2]
    assert Ids(np.empty(0, np.int64)).index_of(np.array([0, 5])).tolist() == [-1, -1]


def test_rows_around_operators_have_no_namespace_or_autograds() -> None:
    around = "torch::autograd::AccumulateGrad", "MmBackward0"
    assert all(map(is_wrapper, ("autograd::engine::evaluate_function: MmBackward0", *around)))
    assert not any(map(is_wrapper, ("aten::mm", "c10d::allreduce_")))


PATHS = """\
jit(f)/jit(main)/add | add | | other
jit(step)/jvp()/shard_map/mul | mul | | forward
jit(step)/transpose(jvp())/transpose | transpose | | backward
jit(step)/transpose | transpose | | other
jit(step)/jit(main)/transpose(jvp(Llama))/layer_0/mlp/dot_general | dot_general | Llama/layer_0/mlp | backward
jit(step)/jvp(Llama)/while/body/layers/bhqk,bkhd->bqhd/dot_general | dot_general | Llama/layers | forward
transpose(jvp(Wan))/while/checkpoint/rematted_computation/blocks/jit(silu)/mul | mul | Wan/blocks | again
jit(step)/jvp(loss)/reduce_sum | reduce_sum | loss | loss
jit(step)/optimizer/sub | sub | optimizer | optimizer
jit(f)/vmap(vmap(Encoder/block))/dot_general | dot_general | Encoder/block | other
model/dense/MatMul | MatMul | model/dense | other
all-reduce | all-reduce | | other
jit(step)/(transpose(jvp(A))/psum:jvp(B)/psum) | psum | A | backward
(A/psum:transpose(jvp(B))/mul) | psum | A | other
scope:0/jit(f)/mul | mul | scope:0 | other
A/(B)/mul | mul | A/(B | other
"""
"""A path, its operator, module and phase, of which `again` is a backward one that computes again."""


@pytest.mark.parametrize("line", PATHS.splitlines())
def test_what_a_path_says(line: str) -> None:
    """Of what XLA combined, the first."""
    path, operator, module, phase = (part.strip() for part in line.split(" |"))
    said = "backward" if phase == "again" else phase
    assert name_stack(path) == NameStack(operator, module or None, said, phase == "again")


@pytest.mark.parametrize("part", ["(", "/(", "(:", "/(:", ")", "/(:)", "jit(", "a->", "transpose(jvp("])
def test_a_path_of_any_length_is_read_once(part: str) -> None:
    """A pattern that goes back and forth takes minutes for 400 of some of these."""
    assert name_stack(part * 20_000).operator

# SPDX-License-Identifier: Apache-2.0
"""Buffers of compiled programs: kinds, the peak of their heap, missing and damaged assignments."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.xplane_host_files import array, instruction, message

from cclbench.formats.xplane import buffers
from cclbench.formats.xplane.buffers import (
    CONTRADICTION,
    IMPOSSIBLE,
    NO_ASSIGNMENT,
    NO_HEAP_TRACE,
    NO_PROGRAMS,
    program_buffers,
)
from cclbench.formats.xplane.hlo_proto import HloProgram
from cclbench.ground.errors import InputError

ALLOC, FREE, SHARE = 0, 1, 2
PARAMETER, LIVE_OUT, CONSTANT, THREAD_LOCAL, SPACE = 5, 7, 12, 3, 8
PLACES = {1: (0, 64), 2: (64, 32), 3: (0, 64), 4: (64, 16), 5: (96, 8)}
"""Offset and bytes of buffers in temporaries of 112 bytes; instruction a defines buffer 1, b 2, ..."""
Events = list[tuple[int, ...]]
IN_TURN: Events = [
    *((ALLOC, 1), (ALLOC, 2), (FREE, 1), (SHARE, 3, 1), (FREE, 2), (ALLOC, 4), (FREE, 3), (FREE, 4))
]


def allocation(
    index: int, size: int, places: dict[int, tuple[int, int]], *flags: int, space: int = 0
) -> bytes:
    slices = [message((1, buffer), (2, offset), (3, length)) for buffer, (offset, length) in places.items()]
    fields = [(1, index), (2, size), *((flag, 1) for flag in flags), *((9, one) for one in slices)]
    return message(*fields, *([(SPACE, space)] if space else []))


def heap_trace(events: Events, index: int = 3) -> bytes:
    kinds = [message((1, kind), (2, buffer), *((5, of) for of in more)) for kind, buffer, *more in events]
    return message(*((1, event) for event in kinds), (3, index))


def program(allocations: list[bytes], *traces: bytes, by_name: bool = False) -> HloProgram:
    """Module jit_f of instructions a to f; f is a parameter and defines buffer 6."""
    made = [
        instruction(name, "parameter" if name == "f" else "add", array(1), number)
        + message((7, message((2, f"jit(f)/{name}"), (3, "job.py"), (4, number))))
        for number, name in enumerate("abcdef", 1)
    ]
    module = message((1, "jit_f"), (3, message((5, 1), *((2, one) for one in made))))
    buffers = []
    for number, name in enumerate("abcdef", 1):
        place = message((2, name)) if by_name else message((4, number))
        buffers.append((1, message((1, number), (3, place))))
    entries = [*buffers, *((3, one) for one in allocations), *((4, one) for one in traces)]
    return HloProgram(message((1, module), (3, message(*entries))), "here")


def rows(*programs: HloProgram) -> list[dict[str, Any]]:
    return program_buffers(programs).to_pylist()


def parts(*programs: HloProgram) -> list[tuple[str, int, str | None]]:
    return [(row["part"], row["bytes"], row["instruction"]) for row in rows(*programs)]


def test_kinds_as_the_compiler_states_them() -> None:
    made = program(
        [
            allocation(0, 400, {1: (0, 400), 6: (0, 400)}, PARAMETER),
            *(allocation(1, 100, {6: (0, 100)}, PARAMETER, LIVE_OUT), allocation(2, 12, {}, CONSTANT)),
            *(allocation(3, 8, {2: (0, 8)}, LIVE_OUT, space=5), allocation(4, 4, {}, THREAD_LOCAL)),
            allocation(5, 0, {}, space=1),
        ]
    )
    found = rows(made)
    assert [(row["kind"], row["bytes"], row["memory_space"], row["instruction"]) for row in found] == [
        *(("parameter", 400, 0, "f"), ("parameter_output", 100, 0, "f"), ("constant", 12, 0, None)),
        *(("output", 8, 5, "b"), ("thread_local", 4, 0, None), ("temporary", 0, 1, None)),
    ]
    assert {row["part"] for row in found} == {"whole"}
    origin = [found[0][name] for name in ("module", "framework_op", "call_site")]
    assert origin == ["jit_f", "jit(f)/f", "job.py(6)"]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    ("events", "holders"),
    [
        (IN_TURN, "ab"),
        # c takes over a's memory before it is freed: the block counts once.
        ([(ALLOC, 1), (SHARE, 3, 1), (FREE, 1), (ALLOC, 2), (FREE, 2), (FREE, 3)], "cb"),
        # Events of buffers in other allocations do not count.
        ([(ALLOC, 99), *IN_TURN, (FREE, 99)], "ab"),
        # Never freed: live to the end.
        ([(ALLOC, 1), (ALLOC, 2)], "ab"),
    ],
)
def test_the_peak_of_the_heap_by_defining_instruction(events: Events, holders: str, by_name: bool) -> None:
    traced = {event[1] for event in events}
    places = {buffer: place for buffer, place in PLACES.items() if buffer in {*traced, 5}}
    assert parts(program([allocation(7, 112, places)], heap_trace(events), by_name=by_name)) == [
        *(("live", 64, holders[0]), ("live", 32, holders[1]), ("untraced", 8, None), ("unused", 8, None)),
    ]


def test_heaps_at_their_peak_and_buffers_in_two_allocations() -> None:
    both = {1: (0, 64), 2: (64, 32)}
    first, second = heap_trace([(ALLOC, 1), (FREE, 1)]), heap_trace([(ALLOC, 2), (FREE, 2)])
    made = program([allocation(0, 96, both)], first, second, first)
    assert parts(made) == [("live", 64, "a"), ("live", 32, "b"), ("unused", 0, None)]
    # a hostile assignment: its events are read once, not once for each allocation
    events = heap_trace([(ALLOC, 1), (FREE, 1)])
    made = program([allocation(0, 64, {1: (0, 64)}), allocation(1, 64, {1: (0, 64)})], events)
    assert [(row["part"], row["bytes"], row["reason"]) for row in rows(made)] == [
        *(("whole", 64, NO_HEAP_TRACE), ("live", 64, None), ("unused", 0, None))
    ]


@pytest.mark.parametrize(
    "events",
    [
        *([(FREE, 1)], [(ALLOC, 1), (ALLOC, 1)], [(SHARE, 1, 99)], [(ALLOC, 1), (3, 2)]),
        # at the same place, elsewhere, overlapping
        *([(ALLOC, 1), (ALLOC, 3)], [(ALLOC, 1), (SHARE, 2, 1)], [(ALLOC, 1), (ALLOC, 4), (ALLOC, 2)]),
    ],
)
def test_a_heap_trace_that_contradicts_the_layout_splits_nothing(events: Events) -> None:
    (row,) = rows(program([allocation(0, 112, PLACES)], heap_trace(events)))
    assert (row["part"], row["bytes"], row["reason"]) == ("whole", 112, CONTRADICTION)


def test_what_is_not_stated_has_a_reason() -> None:
    (untraced,) = rows(program([allocation(0, 112, PLACES)]))
    assert (untraced["part"], untraced["bytes"], untraced["reason"]) == ("whole", 112, NO_HEAP_TRACE)
    (unassigned,) = rows(program([]))
    assert (unassigned["bytes"], unassigned["kind"], unassigned["reason"]) == (None, None, NO_ASSIGNMENT)
    assert [(row["bytes"], row["reason"]) for row in rows()] == [(None, NO_PROGRAMS)]


@pytest.mark.parametrize(
    ("size", "places"),
    [
        *((-1 % (1 << 64), {}), (1 << 60, {}), (8, {1: (0, 9)})),
        *((8, {1: (-4 % (1 << 64), 4)}), (8, {1: (4, -2 % (1 << 64))})),
    ],
)
def test_impossible_sizes_are_no_account(size: int, places: dict[int, tuple[int, int]]) -> None:
    (row,) = rows(program([allocation(1, 4, {}), allocation(0, size, places)]))
    assert (row["bytes"], row["reason"]) == (None, IMPOSSIBLE)


def test_a_cut_program_is_damaged() -> None:
    content = program([allocation(0, 112, PLACES)], heap_trace(IN_TURN))._content
    damaged = 0
    for end in range(1, len(content)):
        try:
            reasons = program_buffers([HloProgram(content[:end], "here")])["reason"].to_pylist()
        except InputError:
            damaged += 1
        else:  # cut between the module and the assignment
            assert reasons == [NO_ASSIGNMENT]
    assert damaged == len(content) - 2


def test_numbers_of_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program([allocation(0, 112, PLACES)], heap_trace(IN_TURN))
    monkeypatch.setattr(buffers, "_MOST_ENTRIES", len(IN_TURN))
    assert len(rows(made)) > 1
    monkeypatch.setattr(buffers, "_MOST_ENTRIES", len(IN_TURN) - 1)
    assert [row["reason"] for row in rows(made)] == [IMPOSSIBLE]

# SPDX-License-Identifier: Apache-2.0
"""Compiled programs: what an instruction does, its bytes, and who takes part in a collective."""

from __future__ import annotations

import pytest
from formats.xplane_files import groups, hlo_field
from formats.xplane_host_files import (
    array,
    hlo,
    instruction,
    message,
)

from cclbench.formats.xplane.hlo import Participants
from cclbench.formats.xplane.hlo_proto import Instruction, Program


@pytest.mark.parametrize(
    ("opcodes", "category"),
    [
        (["parameter", "dot", "reduce"], "gemm"),
        (["convolution", "add"], "convolution"),
        (["custom-call", "dot"], "gemm"),
        (["custom-call", "add"], None),
        (["gather", "reduce"], "embedding"),
        (["multiply", "reduce"], "reduction"),
        (["parameter", "transpose", "copy"], "copy"),
        (["broadcast", "tanh"], "elementwise"),
    ],
)
def test_a_fusion_is_what_is_in_it(opcodes: list[str], category: str | None) -> None:
    inside = [instruction(f"i{at}", opcode, array(1), at) for at, opcode in enumerate(opcodes)]
    found = Program(hlo(inside, [instruction("f", "fusion", array(1), 90, calls=1)]), "here").instructions
    assert found["f"].category == category


def test_bytes_are_those_of_all_operands_and_results() -> None:
    pair = message((2, 13), (4, array(8, kind=16)), (4, array(3, kind=16)))
    program = hlo(
        [
            instruction("a", "parameter", array(8, kind=16), 1),
            instruction("b", "parameter", array(3, kind=16), 2),
            instruction("r", "all-reduce", pair, 3, 1, 2),
            instruction("absurd", "all-reduce", array(1 << 40, 1 << 40), 4, 1),
            instruction("nibbles", "all-reduce", array(8, kind=21), 5, 77),
        ]
    )
    found = Program(program, "here").instructions
    assert found["r"] == Instruction("all-reduce", "communication", "bf16", 22, 22, Participants())
    assert (found["absurd"].in_bytes, found["absurd"].out_bytes) == (16, None)
    assert (found["nibbles"].dtype, found["nibbles"].in_bytes, found["nibbles"].out_bytes) == (
        None,
        None,
        None,
    )


NOTATIONS = {
    "listed before 2024": hlo_field(49, hlo_field(1, b"\x00\x02")) + hlo_field(49, hlo_field(1, b"\x01\x03")),
    "listed": groups((0, 2), (1, 3)),
    "iota in a list": hlo_field(
        87,
        hlo_field(
            2, hlo_field(1, 2) + hlo_field(2, 2) + hlo_field(3, b"\x02\x02") + hlo_field(4, b"\x01\x00")
        ),
    ),
    "iota": hlo_field(
        92, hlo_field(1, 2) + hlo_field(2, 2) + hlo_field(3, b"\x02\x02") + hlo_field(4, b"\x01\x00")
    ),
    # Axes of 2 and 2, grouped along the first, whose index 0 is left out.
    "mesh": hlo_field(93, hlo_field(1, hlo_field(1, hlo_field(2, 2)) * 2) + hlo_field(2, b"")),
    "mesh of listed devices": hlo_field(
        93,
        hlo_field(1, hlo_field(1, hlo_field(2, 2)) * 2 + hlo_field(2, b"\x00\x02\x01\x03"))
        + hlo_field(2, hlo_field(1, 1)),
    ),
    "mesh of tiled devices": hlo_field(
        93,
        hlo_field(
            1,
            hlo_field(1, hlo_field(2, 2)) * 2
            + hlo_field(3, hlo_field(1, b"\x02\x02") + hlo_field(2, b"\x01\x00")),
        )
        + hlo_field(2, hlo_field(1, 1)),
    ),
    "part of an axis": hlo_field(
        93,
        hlo_field(1, hlo_field(1, hlo_field(2, 4)))
        + hlo_field(2, hlo_field(2, hlo_field(1, 1) + hlo_field(2, 2))),
    ),
}


@pytest.mark.parametrize("fields", NOTATIONS.values(), ids=NOTATIONS)
def test_replica_groups_of_a_program_in_all_its_notations(fields):
    body = hlo_field(2, instruction("r", "all-reduce", array(4)) + fields)
    content = hlo_field(1, hlo_field(3, body))
    found = Program(content, "here").instructions["r"].participants
    assert found is not None
    assert found.groups == ((0, 2), (1, 3))


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        hlo_field(92, hlo_field(1, 2) + hlo_field(2, 2) + hlo_field(3, b"\x02\x03")),
        hlo_field(93, hlo_field(1, hlo_field(1, hlo_field(2, 2))) + hlo_field(2, hlo_field(1, 7))),
        hlo_field(93, hlo_field(1, hlo_field(1, hlo_field(2, 1 << 40))) + hlo_field(2, b"")),
        hlo_field(93, hlo_field(2, b"")),
    ],
)
def test_replica_groups_that_cannot_be_are_unknown(fields):
    body = hlo_field(2, instruction("r", "all-reduce", array(4)) + fields)
    found = Program(hlo_field(1, hlo_field(3, body)), "here").instructions["r"].participants
    assert found is not None
    assert found.groups is None

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
from cclbench.formats.xplane.origins import Origin


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
    assert found["r"] == Instruction(
        "all-reduce",
        "communication",
        "bf16",
        22,
        22,
        Participants(),
        Origin("all-reduce", shapes="[[8],[3]]", dtypes='["bf16","bf16"]'),
    )
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


def dot(name: str, at: int, path: str = "", *, frame: int = 0) -> bytes:
    """a[2,3,5] times b[2,5,7] per entry of the first dimension, of operands 1 and 2."""
    dimensions = message((1, b"\x02"), (2, b"\x01"), (3, b"\x00"), (4, b"\x00"))
    metadata = message((2, path), (15, frame))
    return instruction(name, "dot", array(2, 3, 7), at, 1, 2) + message((7, metadata), (30, dimensions))


OPERANDS = [
    instruction("a", "parameter", array(2, 3, 5), 1),
    instruction("b", "parameter", array(2, 5, 7), 2),
]
PRODUCT = {
    "shapes": "[[2,3,5],[2,5,7]]",
    "dtypes": '["f32","f32"]',
    "values": '["","","[2]","[1]","[0]","[0]","f32"]',
}


def test_a_product_states_its_op_operands_and_dimensions() -> None:
    found = Program(hlo([*OPERANDS, dot("d", 3, "jit(f)/jvp(M)/dot_general")]), "here").instructions
    assert found["d"].origin == Origin("jit(f)/jvp(M)/dot_general", **PRODUCT)


def test_a_product_is_one_whatever_it_was_merged_with() -> None:
    """XLA merges a product with a transpose and keeps the latter's metadata, or wraps it in a fusion."""
    fusion = instruction("alone", "fusion", array(2, 3, 7), 90, 1, 2, calls=1)
    more = instruction("both", "fusion", array(2, 3, 7), 91, 1, 2, calls=2)
    found = Program(
        hlo(
            [*OPERANDS, dot("inner", 3)],
            [*OPERANDS, dot("sum", 3), instruction("e", "exponential", array(2, 3, 7), 4, 3)],
            [*OPERANDS, fusion, more, dot("turned", 3, "jit(f)/transpose(jvp(M))/transpose")],
        ),
        "here",
    ).instructions
    assert found["turned"].origin == Origin("jit(f)/transpose(jvp(M))/dot_general", **PRODUCT)
    assert found["alone"].origin == Origin("dot_general", **PRODUCT)
    both = found["both"].origin
    assert both is not None
    assert (both.framework_op, both.values) == ("fusion", None)
    assert found["inner"].origin is None


def test_a_line_of_python_stands_in_the_metadata_or_in_the_module_s_table() -> None:
    direct = message((7, message((2, "add"), (3, "train.py"), (4, 7))))
    frames = message(
        *((1, file) for file in ("a.py", "b.py")),
        (2, "loss"),
        (3, message((1, 2), (2, 1), (3, 31))),
        (4, message((1, 1))),
    )
    computation = [
        instruction("direct", "add", array(1), 1) + direct,
        dot("framed", 3, "jit(f)/dot_general", frame=1),
        dot("lost", 4, "jit(f)/dot_general", frame=9),
    ]
    module = message((3, message((5, 1), *((2, i) for i in computation))), (17, frames))
    found = Program(message((1, module)), "here").instructions
    sites = {name: one.origin and one.origin.call_site for name, one in found.items()}
    assert sites == {"direct": "train.py(7)", "framed": "b.py(31): loss", "lost": None}

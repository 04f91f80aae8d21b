# SPDX-License-Identifier: Apache-2.0
"""HLO text of one instruction: shapes, bytes, memory spaces, participants in both notations."""

from __future__ import annotations

import pytest

from cclbench.formats.xplane import hlo

COPY = (
    "%copy-start.1 = (f32[5,1024]{1,0:T(8,128)S(5)}, f32[5,1024]{1,0:T(8,128)}, u32[]{:S(2)})"
    " copy-start(f32[5,1024]{1,0:T(8,128)} %fusion.2)"
)


def test_an_instruction_is_taken_apart():
    found = hlo.instruction(COPY)
    assert found is not None
    assert (found.name, found.opcode, found.first_operand) == ("copy-start.1", "copy-start", "fusion.2")
    assert found.results == (
        "f32[5,1024]{1,0:T(8,128)S(5)}",
        "f32[5,1024]{1,0:T(8,128)}",
        "u32[]{:S(2)}",
    )
    assert hlo.shapes(found.results[0]) == [hlo.Shape("f32", 5 * 1024 * 4, hlo.HOST_MEMORY)]


def test_operands_of_a_tuple_stay_together_and_attributes_are_apart():
    found = hlo.instruction(
        "ROOT %ar = (bf16[2,3]{1,0}, f32[4]{0}) all-reduce(bf16[2,3]{1,0} %a, /*index=1*/f32[4]{0} %b),"
        " channel_id=7, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add"
    )
    assert found is not None
    assert (found.opcode, len(found.operands), found.first_operand) == ("all-reduce", 2, "a")
    assert hlo.total_bytes(hlo.shapes(" ".join(found.operands))) == 2 * 3 * 2 + 4 * 4
    assert hlo.participants(found.attributes) == hlo.Participants(((0, 1), (2, 3)), (), True, True)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[]", 4),
        ("pred[7]", 7),
        ("bf16[3,5]{1,0:T(8,128)(2,1)}", 30),
        ("c128[2]", 32),
        ("f8e4m3fn[10]", 10),
        ("s4[3]{0:E(4)}", 2),
        ("s4[3]{0}", 3),
        ("f4e2m1fn[8]{0:T(8,128)E(4)}", 4),
        ("f32[0,9]", 0),
        ("token[]", 0),
        ("f32[<=10]", None),
        ("q7[3]", None),
        ("f32[4611686018427387904,4611686018427387904]", None),
        ("f32[99999999999999999999]", None),
        ("no array", None),
    ],
)
def test_bytes_of_a_shape(text: str, size: int | None):
    assert hlo.total_bytes(hlo.shapes(text)) == size


def test_bytes_of_a_tuple_are_unknown_where_one_part_is():
    assert hlo.total_bytes(hlo.shapes("(f32[4], f32[<=4])")) is None


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}, to_apply=%f", ((0, 1), (2, 3))),
        ("replica_groups={}", ()),
        ("replica_groups={{5}}", ((5,),)),
        ("replica_groups=[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        # arange(8) as 2 x 4, transposed to 4 x 2: columns become groups.
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        # arange(8) as 2 x 2 x 2, axes (0,2,1): within each half, even then odd.
        ("replica_groups=[2,4]<=[2,2,2]T(0,2,1)", ((0, 2, 1, 3), (4, 6, 5, 7))),
        ("replica_groups=[4,2]<=[9]", None),
        ("replica_groups=[4,2]<=[2,4]T(1,1)", None),
        ("replica_groups=[0,0]<=[0]", None),
        ("replica_groups=[1,99999999999]<=[99999999999]", None),
        ("replica_groups=[1,2]<=[8]", None),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=mesh['a'=2,'b'=4] {'b','a'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        ("replica_groups=mesh['a'=2,'b'=4] {}", tuple((i,) for i in range(8))),
        # As JAX 0.10 prints a product over axes c and a of a mesh a, b, c of 2 devices each.
        (
            "replica_groups=mesh['x'=1,'y'=4,'z'=2], device_ids=([4,2]T(1,0)) {'y'}, dimensions={0}",
            ((0, 4, 1, 5), (2, 6, 3, 7)),
        ),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", ((0, 2), (1, 3))),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1) {'b'}", None),
        # Of an axis of 8 seen as [2, 2, 2] the middle one, of [4, 2] the last.
        ("replica_groups=mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("replica_groups=mesh['a'=8] {'a':(4)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("replica_groups=mesh['a'=8] {'a':(3)2}", None),
        ("replica_groups=mesh['a'=8] {'a':(0)2}", None),
        ("replica_groups=mesh['a'=8] {'a':(2)0}", None),
        ("replica_groups=mesh['a'=8] {'a','a'}", None),
        ("replica_groups=mesh['a'=0] {'a'}", None),
        ("replica_groups=mesh['a'=8] {'b'}", None),
        ("replica_groups=mesh['a'=999999999] {'a'}", None),
        ("channel_id=1", None),
    ],
)
def test_participants(text: str, groups: hlo.Groups | None):
    assert hlo.participants(text).groups == groups


def test_pairs_of_a_permute():
    assert hlo.participants("source_target_pairs={{0,1},{1,0}}").pairs == ((0, 1), (1, 0))
    assert hlo.participants("source_target_pairs={}").pairs == ()


@pytest.mark.parametrize(
    "text",
    ["", "jit_f(1)", "%x = ", "%x = f32[2]", "%x = (f32[2] add(", "%x = f32[2] add(f32[2] %a", "((((" * 9999],
)
def test_what_is_no_instruction_is_none(text: str):
    assert hlo.instruction(text) is None

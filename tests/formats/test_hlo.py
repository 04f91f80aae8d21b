# SPDX-License-Identifier: Apache-2.0
"""HLO text of one instruction: shapes, bytes, memory spaces, participants in both notations."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.formats.xplane import hlo

COPY = (
    "%copy-start.1 = (f32[5,1024]{1,0:T(8,128)S(5)}, f32[5,1024]{1,0:T(8,128)}, u32[]{:S(2)})"
    " copy-start(f32[5,1024]{1,0:T(8,128)} %fusion.2)"
)


def test_instructions_are_taken_apart():
    found = hlo.parse_instruction(COPY)
    assert (found.name, found.opcode, found.first_operand) == ("copy-start.1", "copy-start", "fusion.2")
    pair = ("f32[5,1024]{1,0:T(8,128)S(5)}", "f32[5,1024]{1,0:T(8,128)}")
    assert found.results == (*pair, "u32[]{:S(2)}")
    assert hlo.parse_shapes(found.results[0]) == [hlo.Shape("f32", 5 * 1024 * 4, hlo.HOST_MEMORY)]
    found = hlo.parse_instruction(
        "ROOT %ar = (bf16[2,3]{1,0}, f32[4]{0}) all-reduce(bf16[2,3]{1,0} %a, /*index=1*/f32[4]{0} %b),"
        " channel_id=7, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add"
    )
    assert (found.opcode, len(found.operands), found.first_operand) == ("all-reduce", 2, "a")
    assert hlo.total_bytes(hlo.parse_shapes(" ".join(found.operands))) == 2 * 3 * 2 + 4 * 4
    assert hlo.parse_participants(found.attributes) == hlo.Participants(((0, 1), (2, 3)), (), True, True)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("f32[]", 4), ("pred[7]", 7), ("bf16[3,5]{1,0:T(8,128)(2,1)}", 30), ("c128[2]", 32)),
        *(("f8e4m3fn[10]", 10), ("s4[3]{0:E(4)}", 2), ("s4[3]{0}", 3), ("f4e2m1fn[8]{0:T(8,128)E(4)}", 4)),
        *(("f32[0,9]", 0), ("token[]", 0), ("f32[<=10]", None), ("(f32[4], f32[<=4])", None)),
        *(("q7[3]", None), ("f32[4611686018427387904,4611686018427387904]", None)),
        *(("f32[99999999999999999999]", None), ("no array", None)),
    ],
)
def test_bytes_of_a_shape(text: str, size: int | None):
    assert hlo.total_bytes(hlo.parse_shapes(text)) == size


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        *(("replica_groups={{0,1},{2,3}}, to_apply=%f", ((0, 1), (2, 3))), ("replica_groups={}", ())),
        *(("replica_groups={{5}}", ((5,),)), ("replica_groups=[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7)))),
        # arange(8) as 2 x 4, transposed to 4 x 2: columns become groups.
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        # arange(8) as 2 x 2 x 2, axes (0,2,1): within each half, even then odd.
        ("replica_groups=[2,4]<=[2,2,2]T(0,2,1)", ((0, 2, 1, 3), (4, 6, 5, 7))),
        *(
            (f"replica_groups={text}", None)
            for text in (
                *("[4,2]<=[9]", "[4,2]<=[2,4]T(1,1)", "[0,0]<=[0]", "[1,99999999999]<=[99999999999]"),
                *("[1,2]<=[8]", "mesh['a'=2,'b'=2], device_ids=(0,2,1) {'b'}", "mesh['a'=8] {'a':(3)2}"),
                *("mesh['a'=8] {'a':(0)2}", "mesh['a'=8] {'a':(2)0}", "mesh['a'=8] {'a','a'}"),
                *("mesh['a'=0] {'a'}", "mesh['a'=8] {'b'}", "mesh['a'=999999999] {'a'}"),
            )
        ),
        ("replica_groups=mesh['a'=2,'b'=4] {'b','a'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        # As JAX 0.10 prints a product over axes c and a of a mesh a, b, c of 2 devices each.
        (
            "replica_groups=mesh['x'=1,'y'=4,'z'=2], device_ids=([4,2]T(1,0)) {'y'}, dimensions={0}",
            ((0, 4, 1, 5), (2, 6, 3, 7)),
        ),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", ((0, 2), (1, 3))),
        # Of an axis of 8 seen as [2, 2, 2] the middle one, of [4, 2] the last.
        ("replica_groups=mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("channel_id=1", None),
    ],
)
def test_participants(text: str, groups: hlo.Groups | None):
    assert hlo.parse_participants(text).groups == groups


@pytest.mark.parametrize(
    "text",
    [
        *("", "jit_f(1)", "%x = ", "%x = f32[2]", "%x = (f32[2] add(", "%x = f32[2] add(f32[2] %a"),
        *("((((" * 9999, "add(x) = f32[2]"),
    ],
)
def test_what_is_no_instruction_is_none(text: str):
    assert hlo.parse_instruction(text) is None


def test_the_name_of_the_first_operand_without_its_type():
    for operands, name in {
        "f32[2]{0} %a.1, f32[2] %b": "a.1",
        "(f32[2], u32[]) %pair": "pair",
        **dict.fromkeys(("", "f32[2] 5, f32[2] %b")),
    }.items():
        assert hlo.parse_instruction(f"%x = f32[2] add({operands})").first_operand == name


def test_arrays_have_element_types_sizes_and_memories():
    found = hlo.parse_arrays("f32[2,3]{1,0} %a, s8[] %b, u4[<=5] %c, bf16[7]")
    assert found == [("f32", (2, 3)), ("s8", ()), ("bf16", (7,))]
    assert hlo.parse_arrays(f"f32[{'9' * 18}], f32[{'9' * 19}]") == [("f32", (int("9" * 18),))]
    assert hlo.Shape("f32", 4).space == 0
    shapes = hlo.parse_shapes("f32[]{}, f32[2]{0:T(8)S(1)}, f32[2]{0:S(12)}")
    assert [shape.space for shape in shapes] == [0, 1, 12]


@pytest.mark.parametrize(
    ("dtype", "lengths", "bits", "size"),
    [
        *(("f32", (2, 3), None, 24), ("f32", (3,), 4, 2), ("s1", (9,), 1, 2), ("s1", (8,), 1, 1)),
        *(("u2", (3,), None, 3), ("token", (9,), None, 0), ("opaque", (9,), 8, 0)),
        *(("s8", ((1 << 62) - 1,), None, (1 << 62) - 1), ("s8", (1 << 62,), None, None)),
        *(("s8", (-1,), None, None), ("s8", (0,), None, 0), ("q9", (2,), None, None), ("q9", (2,), 8, 2)),
    ],
)
def test_bytes_of_an_array(dtype: str, lengths: tuple[int, ...], bits: int | None, size: int | None):
    assert hlo.array_bytes(dtype, lengths, bits) == size


def test_what_is_no_shape_of_devices_is_none():
    """Numbers of axes below 1, too many, or an order that is none of theirs."""
    for tiles, order in (
        *(((1,) * 33, ()), ((), ()), ((0,), ()), ((-1, -1), ()), ((-2, -3, 1), ()), ((2, 2), (0,))),
        *(((2, 2), (0, 2)), ((2, 2), (0, 0)), (((1 << 20) + 1,), ())),
    ):
        assert hlo.iota_tiles(tiles, order) is None
    assert hlo.iota_tiles((1,) * 32, ()).tolist() == [0]
    assert hlo.MOST_DEVICES == len(hlo.iota_tiles((1 << 10, 1 << 10), ())) == 1 << 20
    for count, shape in ((6, ()), (6, (-2, -3)), (6, (-1, 6)), (0, (0, 5)), (0, (5, 0))):
        assert hlo.rows_of(np.arange(count), shape) is None
    assert hlo.rows_of(None, (1,)) is None
    assert hlo.mesh_groups([2, 3], np.array([5, 4, 3, 2, 1, 0]), [(1, None)]) == ((5, 4, 3), (2, 1, 0))
    assert hlo.mesh_groups([2, 3], np.array([0, 1, 2]), [(1, None)]) is None


@pytest.mark.parametrize(
    ("sizes", "within", "groups"),
    [
        *(([2, 3], [(1, None)], ((0, 1, 2), (3, 4, 5))), ([2, 3], [(0, None)], ((0, 3), (1, 4), (2, 5)))),
        *(([2, 3], [(2, None)], None), ([2, 3], [(-1, None)], None)),
        ([2, 3], [], ((0,), (1,), (2,), (3,), (4,), (5,))),
        # Of 12 seen as [2, 3, 2]: the middle, the first, the last, both ends.
        ([12], [(0, (2, 3))], ((0, 2, 4), (1, 3, 5), (6, 8, 10), (7, 9, 11))),
        ([12], [(0, (1, 2))], ((0, 6), (1, 7), (2, 8), (3, 9), (4, 10), (5, 11))),
        ([4], [(0, (2, 2))], ((0, 1), (2, 3))),
        ([8], [(0, (4, 2)), (0, (1, 2))], ((0, 4, 1, 5), (2, 6, 3, 7))),
        ([2, 4], [(1, (1, 2)), (0, None)], ((0, 4, 2, 6), (1, 5, 3, 7))),
        ([2, 4], [(1, (1, 4))], ((0, 1, 2, 3), (4, 5, 6, 7))),
        *(([2, 4], [(1, (1, 1))], tuple((i,) for i in range(8))), ([4], [(0, (2, 4))], None)),
        *(([4], [(0, (3, 1))], None), ([4], [(0, (-1, 2))], None), ([8], [(0, (1, 4)), (0, (2, 2))], None)),
        *(([1] * 32, [(0, None)], ((0,),)), ([1] * 33, [(0, None)], None)),
    ],
)
def test_groups_along_axes_of_a_mesh(sizes, within, groups):
    assert hlo.mesh_groups(sizes, None, within) == groups


def test_who_sends_and_how_long_numbers_are():
    found = hlo.parse_participants("channel_id=3, source_target_pairs={{0,1},{2, 3}}, x=1")
    assert found == hlo.Participants(None, ((0, 1), (2, 3)), True, False)
    assert hlo.parse_participants("source_target_pairs={}").pairs == ()
    assert hlo.parse_participants("use_global_device_ids=true").has_global_ids
    assert not hlo.parse_participants("use_global_device_ids=false").has_global_ids
    assert hlo.parse_participants(f"replica_groups={{{{{'1' * 25},2}}}}").groups == ((int("1" * 19), 2),)
    assert hlo.parse_shapes(f"s4[4]{{0:E({'4' * 9})}}")[0].bytes == 4 * 444 // 8
    assert hlo.parse_shapes(f"s4[4]{{0:S({'1' * 20})}}")[0].space == int("1" * 9)

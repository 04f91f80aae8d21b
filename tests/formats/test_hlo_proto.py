# SPDX-License-Identifier: Apache-2.0
"""Compiled programs: what an instruction does, its bytes, and the ranks of a collective."""

from __future__ import annotations

import pytest
from helpers.xplane_files import Plane, groups, varint
from helpers.xplane_host_files import array, hlo, instruction, message

from cclbench.formats.xplane.hlo import Participants
from cclbench.formats.xplane.hlo_proto import HloProgram, Instruction, plane_programs
from cclbench.formats.xplane.origins import InstructionOrigin


def instructions(*computations: list[bytes]) -> dict[str, Instruction]:
    """By name, of a program of these computations."""
    return HloProgram(hlo(*computations), "here").instructions


@pytest.mark.parametrize(
    ("opcodes", "category"),
    [
        *(("parameter dot reduce", "gemm"), ("convolution add", "convolution"), ("custom-call dot", "gemm")),
        *(("custom-call add", None), ("gather reduce", "embedding"), ("multiply reduce", "reduction")),
        *(("parameter transpose copy", "copy"), ("broadcast tanh", "elementwise")),
    ],
)
def test_a_fusion_is_what_is_in_it(opcodes: str, category: str | None) -> None:
    inside = [instruction(f"i{at}", opcode, array(1), at) for at, opcode in enumerate(opcodes.split())]
    assert instructions(inside, [instruction("f", "fusion", array(1), 90, calls=1)])["f"].category == category


def test_bytes_are_those_of_all_operands_and_results() -> None:
    pair = message((2, 13), (4, array(8, kind=16)), (4, array(3, kind=16)))
    given = [
        instruction(n, "parameter", array(size, kind=16), i) for n, size, i in (("a", 8, 1), ("b", 3, 2))
    ]
    reduced = [("r", pair, 3, 1, 2), ("absurd", array(1 << 40, 1 << 40), 4, 1)]
    reduced.append(("nibbles", array(8, kind=21), 5, 77))
    found = instructions([*given, *(instruction(name, "all-reduce", *told) for name, *told in reduced)])
    origin = InstructionOrigin("all-reduce", shapes="[[8],[3]]", dtypes='["bf16","bf16"]')
    assert found["r"] == Instruction("all-reduce", "communication", "bf16", 22, 22, Participants(), origin)
    assert (found["absurd"].in_bytes, found["absurd"].out_bytes) == (16, None)
    nibbles = found["nibbles"]
    assert (nibbles.dtype, nibbles.in_bytes, nibbles.out_bytes) == (None, None, None)


IOTA = message((1, 2), (2, 2), (3, b"\x02\x02"), (4, b"\x01\x00"))
AXES = message((1, message((2, 2))), (1, message((2, 2))))
FIRST_AXIS = (2, message((1, 1)))
TILED = message((3, message((1, b"\x02\x02"), (2, b"\x01\x00"))))
LISTED, PART_OF_AXIS = message((2, b"\x00\x02\x01\x03")), (2, message((2, message((1, 1), (2, 2)))))
KNOWN = ((0, 2), (1, 3))
NOTATIONS = {
    "listed before 2024": (message(*((49, message((1, ids))) for ids in (b"\x00\x02", b"\x01\x03"))), KNOWN),
    "listed": (groups(*KNOWN), KNOWN),
    "iota in a list": (message((87, message((2, IOTA)))), KNOWN),
    "iota": (message((92, IOTA)), KNOWN),
    # Axes of 2 and 2, grouped along the first, whose index 0 is left out.
    "mesh": (message((93, message((1, AXES), (2, b"")))), KNOWN),
    "mesh of listed devices": (message((93, message((1, AXES + LISTED), FIRST_AXIS))), KNOWN),
    "mesh of tiled devices": (message((93, message((1, AXES + TILED), FIRST_AXIS))), KNOWN),
    "part of an axis": (message((93, message((1, message((1, message((2, 4))))), PART_OF_AXIS))), KNOWN),
    "nothing": (b"", None),
    "iota of other devices": (message((92, message((1, 2), (2, 2), (3, b"\x02\x03")))), None),
    "axis beyond": (message((93, message((1, message((1, message((2, 2))))), (2, message((1, 7)))))), None),
    "absurd mesh": (message((93, message((1, message((1, message((2, 1 << 40))))), (2, b"")))), None),
    "no mesh": (message((93, message((2, b"")))), None),
}


@pytest.mark.parametrize(("fields", "known"), NOTATIONS.values(), ids=NOTATIONS)
def test_replica_groups_of_a_program_in_all_its_notations(fields, known):
    assert instructions([instruction("r", "all-reduce", array(4)) + fields])["r"].participants.groups == known


def dot(name: str, at: int, path: str = "", *, frame: int = 0) -> bytes:
    """a[2,3,5] times b[2,5,7] per entry of the first dimension, of operands 1 and 2."""
    dimensions = message((1, b"\x02"), (2, b"\x01"), (3, b"\x00"), (4, b"\x00"))
    metadata = message((2, path), (15, frame))
    return instruction(name, "dot", array(2, 3, 7), at, 1, 2) + message((7, metadata), (30, dimensions))


OPERANDS = [
    instruction("a", "parameter", array(2, 3, 5), 1),
    instruction("b", "parameter", array(2, 5, 7), 2) + message((9, 1)),
]
PRODUCT = {"shapes": "[[2,3,5],[2,5,7]]", "dtypes": '["f32","f32"]'}
PRODUCT |= {"values": '["","","[2]","[1]","[0]","[0]","f32"]'}


def fused(flops: int) -> str:
    """Attributes of the product in a fusion with so many other FLOPs; 400 bytes are read, 168 written."""
    return PRODUCT["values"][:-1] + f',"fused","{flops}","400","168"]'


def test_a_product_states_its_op_operands_and_line() -> None:
    found = instructions([*OPERANDS, dot("d", 3, "jit(f)/jvp(M)/dot_general")])
    assert found["d"].origin == InstructionOrigin("jit(f)/jvp(M)/dot_general", **PRODUCT)
    told = message((7, message((2, "add"), (3, "train.py"), (4, 7))))
    assert instructions([instruction("x", "add", array(1), 1) + told])["x"].origin.call_site == "train.py(7)"


def test_a_product_is_one_whatever_it_was_merged_with() -> None:
    """XLA merges a product with a transpose and keeps the latter's metadata, or wraps it in a fusion."""
    fusion = instruction("alone", "fusion", array(2, 3, 7), 90, 1, 2, calls=1)
    more = instruction("both", "fusion", array(2, 3, 7), 91, 1, 2, calls=2)
    found = instructions(
        [*OPERANDS, dot("inner", 3)],
        [*OPERANDS, dot("sum", 3), instruction("e", "exponential", array(2, 3, 7), 4, 3)],
        [*OPERANDS, fusion, more, dot("turned", 3, "jit(f)/transpose(jvp(M))/transpose")],
    )
    assert found["turned"].origin == InstructionOrigin("jit(f)/transpose(jvp(M))/dot_general", **PRODUCT)
    alone = InstructionOrigin("dot_general", **PRODUCT | {"values": fused(0)})
    both = InstructionOrigin("dot_general", **PRODUCT | {"values": fused(42)})
    assert (found["alone"].origin, found["both"].origin) == (alone, both)
    assert found["inner"].origin is None


def placed(*columns: list[int]) -> HloProgram:
    """A program of a device assignment, by computation."""
    each = (message((3, message((1, b"".join(map(varint, ids)))))) for ids in columns)
    return HloProgram(message((1, message((15, b"".join(each))))), "here")


@pytest.mark.parametrize(
    ("columns", "devices"),
    [
        ([[4, 5, 6], [7, 8, 9]], [[4, 7], [5, 8], [6, 9]]),
        *(([[0]], [[0]]), ([[(1 << 31) - 1]], [[(1 << 31) - 1]]), ([[1 << 31]], None), ([[0], [-1]], None)),
        *(([[3], [3]], None), ([[3, 4], [5]], None), ([[]], None), ([], None)),
    ],
)
def test_devices_of_a_program_by_replica_and_partition(columns, devices):
    found = placed(*columns).device_ids
    assert (None if found is None else found.tolist()) == devices


def test_a_program_runs_on_as_many_devices_as_are_believed(monkeypatch):
    monkeypatch.setattr("cclbench.formats.xplane.hlo.MOST_DEVICES", 4)
    assert placed([0, 1], [2, 3]).device_ids.tolist() == [[0, 2], [1, 3]]
    assert placed([0, 1, 2, 3, 4]).device_ids is None


@pytest.mark.parametrize(
    ("number", "dtype", "size"),
    [
        *(zip(range(1, 5), ("pred", "s8", "s16", "s32"), (1, 1, 2, 4), strict=True)),
        *((5, "s64", 8), (6, "u8", 1), (7, "u16", 2), (8, "u32", 4), (9, "u64", 8), (10, "f16", 2)),
        *((11, "f32", 4), (12, "f64", 8), (15, "c64", 8), (16, "bf16", 2), (18, "c128", 16)),
        *((19, "f8e5m2", 1), (20, "f8e4m3fn", 1), (23, "f8e4m3b11fnuz", 1), (24, "f8e5m2fnuz", 1)),
        *((25, "f8e4m3fnuz", 1), *((n, None, None) for n in (0, 14, 17, 21, 26))),
    ],
)
def test_element_types_by_number(number: int, dtype: str | None, size: int | None) -> None:
    found = instructions([instruction("x", "add", array(3, kind=number))])["x"]
    assert (found.dtype, found.out_bytes) == (dtype, size and 3 * size)


@pytest.mark.parametrize(
    ("dims", "size"),
    [
        *(((), 1), ((0, 9), 0), (((1 << 56) - 1,), (1 << 56) - 1), ((1 << 56,), None)),
        *(((-1,), None), ((-1, -1), None)),
    ],
)
def test_bytes_of_absurd_arrays_are_unknown(dims: tuple[int, ...], size: int | None) -> None:
    assert instructions([instruction("x", "add", array(*dims, kind=2))])["x"].out_bytes == size


def test_types_and_bytes_where_operands_differ_or_are_missing() -> None:
    nested = message((2, 13), (4, message((2, 13), (4, array(2)))), (4, array(3)))
    sums = (("mixed", 3, 2), ("same", 4, 1), ("lost", 5, 77))
    given = [instruction("a", "parameter", array(2), 1), instruction("b", "parameter", array(2, kind=16), 2)]
    made = [instruction(name, "add", array(2), at, 1, other) for name, at, other in sums]
    found = instructions([*given, *made, instruction("deep", "tuple", nested, 6)])
    known = {"a": ("f32", 0, 8), "b": ("bf16", 0, 4), "mixed": (None, 12, 8), "same": ("f32", 16, 8)}
    known |= {"lost": ("f32", None, 8), "deep": ("f32", 0, 20)}
    assert {name: (i.dtype, i.in_bytes, i.out_bytes) for name, i in found.items()} == known


@pytest.mark.parametrize(
    ("opcode", "category"),
    [
        *(("dot", "gemm"), ("convolution", "convolution"), ("custom-call", None), ("scatter", "embedding")),
        *(("sort", "reduction"), ("reduce-window", "reduction"), ("bitcast-convert", "copy")),
        *(("dynamic-slice", "copy"), ("add", "elementwise"), ("all-reduce-start", "communication")),
        *(("collective-permute-done", "communication"), ("recv", "communication")),
        *(("send-done", "communication"), ("fusion", "copy")),
    ],
)
def test_what_an_instruction_does_by_its_opcode(opcode: str, category: str | None) -> None:
    found = instructions([instruction("x", opcode, array(1))])["x"]
    assert found.category == category
    assert (found.participants is not None) is (category == "communication")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        *((b"", Participants()), (message((26, 1)), Participants(has_channel=True))),
        (message((26, 0), (71, 1)), Participants(has_global_ids=True)),
        (message((87, b"")), Participants(groups=())),
        (message((52, message((1, 3), (2, 5))), (52, message((2, 1)))), Participants(pairs=((3, 5), (0, 1)))),
    ],
)
def test_who_takes_part_beside_the_groups(fields: bytes, found: Participants) -> None:
    made = instructions([instruction("x", "collective-permute", array(1)) + fields])
    assert made["x"].participants == found


def test_programs_of_a_plane_by_the_id_that_they_state_or_their_own() -> None:
    plane = Plane("/host:metadata")
    plane.described("a", **{"Hlo Proto": hlo([instruction("x", "dot", array(1))]), "program_id": -1})
    plane.described("b", hlo_proto=hlo([instruction("y", "dot", array(1))]))
    plane.described("c", **{"Hlo Proto": "text"})
    plane.described("d", program_id=9)
    found = plane_programs(plane.message, "here")
    assert {number: list(program.instructions) for number, program in found.items()} == {
        (1 << 64) - 1: ["x"], 2: ["y"]
    }  # fmt: skip


def test_a_fusion_of_two_products_or_of_none_is_no_product() -> None:
    def values(*inside: bytes) -> str | None:
        fusion = instruction("f", "fusion", array(2, 3, 7), 90, 1, 2, calls=1)
        return instructions([*OPERANDS, *inside], [*OPERANDS, fusion])["f"].origin.values

    assert values(dot("d", 3)) == fused(0)
    assert values(dot("d", 3), dot("e", 4)) == '["","","hlo","several products run as one fusion"]'
    # the second operand alone is its result
    assert values() == '["","","hlo","0","280","280"]'
    assert values(dot("d", 3), instruction("t", "transpose", array(7, 3, 2), 4, 3)) == fused(0)
    assert values(dot("d", 3), instruction("t", "tanh", array(7, 3, 2), 4, 3)) == fused(42)


@pytest.mark.parametrize(
    ("path", "framework_op"),
    [
        *(("jit(f)/BatchMatMulV2", "jit(f)/BatchMatMulV2"), ("jit(f)/Einsum", "jit(f)/Einsum")),
        *(("jit(f)/add", "jit(f)/dot_general"), ("add", "dot_general"), ("", "dot_general")),
    ],
)
def test_a_product_s_path_ends_with_one(path: str, framework_op: str) -> None:
    assert instructions([*OPERANDS, dot("d", 3, path)])["d"].origin.framework_op == framework_op


@pytest.mark.parametrize(
    ("frame", "site"), [(0, None), (1, "a.py(5)"), (2, "b.py(6): g"), (3, None), (4, None), (5, None)]
)
def test_frames_of_a_module_are_counted_from_1(frame: int, site: str | None) -> None:
    """Of three locations and four frames the third states no file; the fourth, no location."""
    frames = message(
        *((1, file) for file in ("a.py", "b.py")),
        *((2, function) for function in ("f", "g")),
        *(
            (3, message((1, file), (2, of), (3, line)))
            for file, of, line in ((1, 3, 5), (2, 2, 6), (3, 1, 7))
        ),
        *((4, message((1, at))) for at in (1, 2, 3, 4)),
    )
    module = message((3, message((5, 1), (2, dot("d", 3, "x/dot_general", frame=frame)))), (17, frames))
    assert HloProgram(message((1, module)), "here").instructions["d"].origin.call_site == site


EXTENTS = [message((1, 3), (3, 1)), message((1, 3), (2, 2), (5, 2), (6, 1))]
WINDOW = message((15, message(*((1, extent) for extent in EXTENTS))))
NUMBERS = message((16, message((3, 3), (4, 0), (6, b"\x01\x02"), (11, b"\x01\x02"), (12, b"\x01\x02"))))
"""Batch and output feature first, features last: b01f, o01i, b01f."""
TAIL = '"[1,2]","[0,1,2]","[1,2]","[3,3]","[1,2]","[1,0]","[1,1]","[1,2]"]'


@pytest.mark.parametrize(
    ("opcode", "target", "computed"),
    [
        *(("convolution", "", "output"), ("custom-call", "__cudnn$convForward", "output")),
        ("custom-call", "__cudnn$convBiasActivationForward", "output"),
        ("custom-call", "__cudnn$convBackwardInput", "input"),
        ("custom-call", "__cudnn$convBackwardFilter", "kernel"),
    ],
)
def test_a_convolution_states_its_dimensions_and_window(opcode: str, target: str, computed: str) -> None:
    result = array(2, 8, 8, 4)
    shape = message((2, 13), (4, result), (4, array(99, kind=6))) if target else result
    one = instruction("c", opcode, shape, 3, 1, 2) + message((28, target)) + WINDOW + NUMBERS
    given = ("x", array(2, 8, 8, 5), 1), ("k", array(4, 3, 3, 5), 2)
    operands = [instruction(name, "parameter", shape, at) for name, shape, at in given]
    origin = instructions([*operands, one])["c"].origin
    assert origin.framework_op == "conv_general_dilated"
    assert origin.values == f'["","","{computed}","[2,8,8,4]","f32",{TAIL}'


def custom_call(target: str, config: str, shape: bytes, *operands: bytes) -> InstructionOrigin:
    """Origin of a custom call with these operands."""
    given = [instruction(f"o{i}", "parameter", one, i) for i, one in enumerate(operands, 1)]
    ids = range(1, len(operands) + 1)
    one = instruction("c", "custom-call", shape, 90, *ids) + message((28, target), (43, config))
    return instructions([*given, one])["c"].origin


@pytest.mark.parametrize(
    ("target", "operator"),
    [
        *(("lapack_sgetrf_ffi", "lu"), ("cusolver_getrf_ffi", "lu"), ("hipsolver_geqrf_ffi", "geqrf")),
        *((f"{name}_ffi", "householder_product") for name in ("lapack_zungqr", "cusolver_orgqr")),
        *(("lapack_dtrsm_ffi", "triangular_solve"), ("__cusolver$cholesky", "cholesky")),
        *(("lapack_ssyevd_ffi", "eigh"), ("cusolver_gesvdj_ffi", "svd")),
        ("lapack_sgehrd_ffi", "custom-call"),
    ],
)
def test_routines_of_linear_algebra_are_operators(target: str, operator: str) -> None:
    result = message((2, 13), (4, array(3, 4)), (4, array(3)))
    assert custom_call(target, "{}", result, array(3, 4)).framework_op == operator


def test_a_grouped_product_states_its_dimensions() -> None:
    """XLA's field 90: dimensions of the product, then those of the rows and of the groups."""
    dimensions = message((90, message((1, message((1, b"\1"), (2, b"\1"))), (2, b"\0"), (3, b"\0"))))
    one = instruction("r", "ragged-dot", array(6, 4), 9, 1, 2, 3) + dimensions + message((51, message()))
    given = [(array(6, 3), 1), (array(2, 3, 4), 2), (array(2, kind=4), 3)]
    operands = [instruction(f"o{i}", "parameter", shape, i) for shape, i in given]
    origin = instructions([*operands, one])["r"].origin
    assert origin.framework_op == "ragged_dot_general"
    assert origin.values == '["","","","[1]","[1]","[]","[]","[0]","[6,4]","f32","DEFAULT"]'


ATTENTION = (
    '{"cudnn_fmha_backend_config":{"mask_type":"CAUSAL","sliding_window_length":0,"max_seg_per_batch":%s,'
    '"intermediate_tensor_shape":{"dimensions":["2","3","4","5"]}}}'
)


@pytest.mark.parametrize(
    ("target", "segments", "operator", "mask"),
    [
        ("__cudnn$fmhaSoftmax", 1, "dot_product_attention_fwd", "CAUSAL"),
        ("__cudnn$fmhaSoftmaxBackward", 1, "dot_product_attention_bwd", "CAUSAL"),
        ("__cudnn$fmhaSoftmax", 2, "dot_product_attention_fwd", "PACKED"),
    ],
)
def test_attention_states_its_mask_and_sizes(target: str, segments: int, operator: str, mask: str) -> None:
    """The result of 24 floats is written, its workspace of 64 bytes is not counted."""
    result = message((2, 13), (4, array(2, 4, 3)), (4, array(64, kind=6)))
    origin = custom_call(target, ATTENTION % segments, result, array(2, 4, 3, 8))
    assert (origin.framework_op, origin.values) == (operator, f'["","{mask}","0","[2,3,4,5]","96"]')


def test_solutions_factors_and_products_by_libraries() -> None:
    square, both = array(4, 4), message((2, 13), (4, array(4, 4)), (4, array(9, kind=2)))
    solution = custom_call("__cublas$triangularSolve", '{"left_side":true}', both, square, square)
    assert (solution.framework_op, solution.values) == ("triangular_solve", '["","","[4,4]"]')
    factor = custom_call("cusolver_potrf_ffi", "{lower = true}", both, square)
    assert (factor.framework_op, factor.values) == ("cholesky", '["","[4,4]"]')
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
        '"rhs_contracting_dimensions":["0"]},"precision_config":{"algorithm":"%s","operand_precision":["%s"]}}}'
    )
    for stated, precision in (
        (("ALG_UNSET", "DEFAULT"), ',"DEFAULT"'),
        (("ALG_UNSET", "HIGHEST"), ""),
        (("ALG_DOT_BF16_BF16_F32", "DEFAULT"), ',"DOT_BF16_BF16_F32"'),
    ):
        product = custom_call("__cublas$gemm", config % stated, both, square, square)
        assert product.values == f'["","","[1]","[0]","[]","[]","f32"{precision}]'
    for target in ("te_gemm_ffi", "te_gemm_v2_ffi"):
        engine = custom_call(target, "{transpose = false}", both, square, array(1), square, array(0))
        assert (engine.framework_op, engine.values) == ("te_gemm", '["","","","","[4,4]","f32"]')
    other = custom_call("my_library", "", both, square)
    assert other.framework_op == "custom-call"
    assert other.values == '["","hlo","the call of my_library has no cost model"]'


@pytest.mark.parametrize(
    ("fields", "precision"),
    [
        (message((51, message((1, b"\x00\x00")))), ',"DEFAULT"'),
        (message((51, message((1, b"\x02\x02")))), ""),
        *((message((51, message((2, 9)))), ',"DOT_TF32_TF32_F32"'), (message((51, message((2, 99)))), "")),
    ],
)
def test_a_product_states_the_precision_that_it_may_have(fields: bytes, precision: str) -> None:
    origin = instructions([*OPERANDS, dot("d", 3) + fields])["d"].origin
    assert origin.values == PRODUCT["values"][:-1] + precision + "]"


def test_a_damaged_computation_is_a_reason() -> None:
    """A fusion whose parameter has no operand."""
    inside = [instruction("p", "parameter", array(4), 1) + message((9, 7))]
    fusion = instruction("f", "fusion", array(4), 90, 2, calls=1)
    found = instructions(inside, [instruction("a", "parameter", array(4), 2), fusion])
    assert found["f"].origin.values == '["","hlo","its program is malformed"]'

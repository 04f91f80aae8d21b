# SPDX-License-Identifier: Apache-2.0
"""What an op of a TPU is: its name, role, category, operations, bytes and direction."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.xplane_files import hlo_field

from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.ops import TpuOp, parse_op, transfer_op


def made(text: str, display: str = "", **stats: Any) -> TpuOp:
    return parse_op(text, display, stats, DeviceMember(0), "here")


def ran(opcode: str, name: str = "x", **stats: Any) -> TpuOp:
    """An op of one operand and one result, f32[4]."""
    return made(f"%{name} = f32[4]{{0}} {opcode}(f32[4]{{0}} %a)", **stats)


def test_texts_that_are_no_instruction_and_slices() -> None:
    assert made("Y" * 300, "shown", program_id="7") == TpuOp("shown", "work", 7)
    assert made("Y" * 300) == TpuOp("Y" * 200, "work")
    far, near = "f32[8]{0:S(5)}", "f32[4]{0:S(1)}"
    found = made(f"%s = (({far}), {near}, u32[]{{:S(2)}}) slice-start({far} %a, s32[] %b)")
    assert (found.bytes, found.copy_direction, found.role) == (16, "h2d", "issue")
    found = made(f"%s = (({near}), {far}, u32[]) slice-start({near} %a)")
    assert (found.bytes, found.copy_direction) == (32, "d2h")


@pytest.mark.parametrize(
    ("opcode", "role", "kind"),
    [
        ("fusion", "work", "kernel"),
        *((opcode, "container", "kernel") for opcode in ("while", "conditional", "call")),
        *((opcode, "issue", "sync") for opcode in ("copy-start", "all-gather-start", "send", "recv")),
        *(("send-done", "wait", "sync"), ("copy-done", "wait", "sync")),
    ],
)
def test_roles_follow_from_opcodes(opcode: str, role: str, kind: str) -> None:
    found = ran(opcode)
    assert (found.role, found.row_kind) == (role, kind)
    assert found.waits_for == ("a" if role == "wait" else None)


@pytest.mark.parametrize(
    ("opcode", "name", "category", "shown"),
    [
        ("all-reduce", "all-reduce.1", "all-reduce", "all-reduce.1"),
        ("all-reduce", "psum.3", "all-reduce", "all-reduce.psum.3"),
        ("all-reduce", "psum.3", "other", "all-reduce.psum.3"),
        ("fusion", "fusion.7", "all-reduce-scatter fusion", "all-reduce-scatter.fusion.7"),
        ("fusion", "all-reduce.7", "all-reduce-scatter fusion", "all-reduce.7"),
        ("fusion", "all-reduce_add.5", "loop fusion", "fusion.all-reduce_add.5"),
        ("fusion", "fusion.7", "loop fusion", "fusion.7"),
        ("custom-call", "all-reduce.9", "custom-call", "all-reduce.9"),
        ("custom-call", "attention", "all-reduce", "attention"),
    ],
)
def test_names_are_prefixed_where_they_mislead(opcode: str, name: str, category: str, shown: str) -> None:
    assert ran(opcode, name, hlo_category=category).name == shown


@pytest.mark.parametrize(
    ("opcode", "stated", "category"),
    [
        ("all-reduce", "loop fusion", "communication"),
        *(("copy-start", "other", "copy"), ("dynamic-slice-start", None, "copy")),
        *(("fusion", "all-gather fusion", "communication"), ("fusion", "loop fusion", "elementwise")),
        *(("fusion", "non-fusion elementwise", "elementwise"), ("fusion", "convolution fusion", "gemm")),
        *(("fusion", named, "reduction") for named in ("reduce", "reduce-window")),
        *(("fusion", named, "copy") for named in ("data formatting", "dynamic-update-slice", "slice")),
        *(("custom-call", "custom-call", None), ("fusion", None, None)),
    ],
)
def test_categories(opcode: str, stated: str | None, category: str | None) -> None:
    stats = {} if stated is None else {"hlo_category": stated}
    assert ran(opcode, **stats).category == category


def test_a_convolution_is_one_by_its_framework_s_op() -> None:
    convolution = {"hlo_category": "convolution", "tf_op": "jit(f)/conv_general_dilated:"}
    assert ran("fusion", **convolution).category == "convolution"
    assert ran("fusion", hlo_category="data formatting", tf_op="conv_general").category == "copy"


@pytest.mark.parametrize(
    ("opcode", "stats", "flops"),
    [
        ("fusion", {"model_flops": 10, "flops": 20}, 10.0),
        *(("fusion", {"flops": "20"}, 20.0), ("fusion", {"model_flops": 0, "flops": 20}, 0.0)),
        *(
            ("fusion", {"flops": 1}, 1.0),
            ("custom-call", {"flops": 0}, None),
            ("custom-call", {"flops": 1}, 1.0),
        ),
        *(("custom-call", {"flops": -1}, None), ("fusion", {"flops": "1" * 20}, float("1" * 20))),
        *(("fusion", {"flops": none}, None) for none in (-1, "many", "2" * 20)),
        ("fusion", {}, None),
    ],
)
def test_operations(opcode: str, stats: dict[str, Any], flops: float | None) -> None:
    assert ran(opcode, **stats).flops == flops


def access(space: int, size: int) -> bytes:
    """An entry of the memory accesses: 2 the space, of which 1 is HBM, 3 the bytes."""
    return hlo_field(1, hlo_field(1, 1) + hlo_field(2, space) + hlo_field(3, size))


@pytest.mark.parametrize(
    ("stats", "size"),
    [
        *(({"bytes_accessed": 0}, 0), ({"bytes_accessed": "48"}, 48), ({}, None)),
        *(({"bytes_accessed": (1 << 62) - 1}, (1 << 62) - 1), ({"bytes_accessed": 1 << 62}, None)),
        *(({"bytes_accessed": -1}, None), ({"memory_access_breakdown": b"", "bytes_accessed": 9}, 0)),
        ({"memory_access_breakdown": access(1, 5) + access(3, 64) + access(1, 6) + access(0, 7)}, 11),
        ({"memory_access_breakdown": hlo_field(1, hlo_field(2, 1)) + access(2, 8)}, 0),
        ({"memory_access_breakdown": access(1, (1 << 62) - 1)}, (1 << 62) - 1),
        ({"memory_access_breakdown": access(1, (1 << 62) - 1) + access(1, 1)}, None),
        ({"memory_access_breakdown": "text", "bytes_accessed": 9}, 9),
    ],
)
def test_traffic_of_the_device_s_memory(stats: dict[str, Any], size: int | None) -> None:
    assert ran("fusion", **stats).hbm_bytes == size


@pytest.mark.parametrize("text", ["%c = u32[] copy-start()", "%c = (f32[4], f32[4]) slice-start(token %x)"])
def test_a_transfer_of_unknown_ends_has_no_size(text: str) -> None:
    found = made(text)
    assert (found.bytes, found.copy_direction, found.category) == (None, None, "copy")
    # what moves no data beside the core has neither
    found = ran("all-gather-start", hlo_category="all-gather-start")
    assert (found.bytes, found.copy_direction) == (None, None)


@pytest.mark.parametrize(
    ("issued", "awaited", "size"), [(3, 4, 7), (3, None, 3), (None, 4, 4), (None, None, None), (0, 0, 0)]
)
def test_traffic_is_of_the_issue_and_the_wait(
    issued: int | None, awaited: int | None, size: int | None
) -> None:
    start, done = (TpuOp("x", role, hbm_bytes=n) for role, n in (("issue", issued), ("wait", awaited)))
    assert transfer_op(start, done).hbm_bytes == size
    assert transfer_op(start, None).hbm_bytes == issued
    assert transfer_op(start, done).role == "transfer"


def test_what_runs_beside_the_core_is_a_copy_where_it_moves_data_alone() -> None:
    assert transfer_op(ran("copy-start"), None).row_kind == "copy"
    assert transfer_op(ran("all-gather-start"), None).row_kind == "kernel"
    assert transfer_op(ran("custom-start"), None).row_kind == "kernel"
    assert ran("fusion", hlo_category="copy").row_kind == "kernel"

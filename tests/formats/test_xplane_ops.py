# SPDX-License-Identifier: Apache-2.0
"""Ops of devices: what each is, when it ran by the host's clock, which kernels are one execution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.xplane_files import hlo_field

from cclbench.formats.xplane.clock import DeviceClock, on_host
from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.executions import StreamExecution, find_executions, row_origins
from cclbench.formats.xplane.ops import TpuOp, parse_op, transfer_op
from cclbench.formats.xplane.origins import InstructionOrigin


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
        *(("fusion", {"model_flops": 10, "flops": 20}, 10.0), ("fusion", {"flops": "20"}, 20.0)),
        *(("fusion", {"model_flops": 0, "flops": 20}, 0.0), ("fusion", {"flops": 1}, 1.0)),
        *(("custom-call", {"flops": 0}, None), ("custom-call", {"flops": 1}, 1.0)),
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
def test_traffic_is_of_issue_and_wait(issued: int | None, awaited: int | None, size: int | None) -> None:
    start, done = (TpuOp("x", role, hbm_bytes=n) for role, n in (("issue", issued), ("wait", awaited)))
    assert transfer_op(start, done).hbm_bytes == size
    assert transfer_op(start, None).hbm_bytes == issued
    assert transfer_op(start, done).role == "transfer"


def test_what_runs_beside_the_core_is_a_copy_where_it_moves_data_alone() -> None:
    assert transfer_op(ran("copy-start"), None).row_kind == "copy"
    assert transfer_op(ran("all-gather-start"), None).row_kind == "kernel"
    assert transfer_op(ran("custom-start"), None).row_kind == "kernel"
    assert ran("fusion", hlo_category="copy").row_kind == "kernel"


def ps(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_few_ops_tell_how_clocks_differ() -> None:
    assert on_host(ps(100), ps(650), ps(0, 100, 7)).tolist() == [550, 650, 557]
    own, shown = ps(0, 10_000_000), ps(500, 10_001_500)
    assert on_host(own, shown, ps(0, 5_000_000, 10_000_000)).tolist() == [500, 5_001_000, 10_001_500]
    # next to 2⁶⁰ ps, some 13 days, a float64 tells every 256th apart
    own = (1 << 60) + 7 + 1_000_000 * np.arange(5)
    shown = 1_001 + 1_000_000 * np.arange(5)
    assert on_host(own, shown, own + 3).tolist() == (shown + 3).tolist()


@pytest.mark.parametrize(
    ("late", "apart"),
    [
        # In every other stretch one op or two are shown 0 late, all else 1000 or more: half and half.
        *(([1000, 1000, 0, 0], 500), ([1000, 1000, 0, 3000], 500), ([1000, 3000, 3000, 0], 500)),
        ([1000, 3000, 0, 0], 500),
    ],
)
def test_of_64_stretches_of_time_the_least_difference_counts(late: list[int], apart: int) -> None:
    own = 1_000_000 + np.arange(128)
    shown = own + np.array(late * 32)
    assert (on_host(own, shown, own) - own).tolist() == [apart] * 128
    backwards = slice(None, None, -1)
    assert (on_host(own[backwards], shown[backwards], own) - own).tolist() == [apart] * 128


@pytest.mark.parametrize("skew", [1e-4, -1e-4, 1.9e-4, -1.9e-4])
def test_clocks_of_different_speeds(skew: float) -> None:
    own = 5_000_000 + 10_000_000 * np.arange(9)
    shown = own + 700 + np.rint(skew * (own - own[0])).astype(np.int64)
    shown[4] += 90_000_000  # one of nine is shown much too late
    instants = ps(0, 5_000_000, 45_000_000, 105_000_000)
    expected = instants + 700 + np.rint(skew * (instants - 5_000_000)).astype(np.int64)
    assert on_host(own, shown, instants).tolist() == expected.tolist()


@pytest.mark.parametrize(("skew", "taken"), [(1.999e-4, True), (2e-4, False), (-2e-4, False), (3e-4, False)])
def test_speeds_differ_by_less_than_two_in_ten_thousand(skew: float, taken: bool) -> None:
    own = 10_000_000 * np.arange(3)
    shown = own + np.rint(skew * own).astype(np.int64)
    middle = round(skew * own[1])
    assert on_host(own, shown, own[2:]).tolist() == [own[2] + (2 * middle if taken else middle)]


class TestClock:
    """Three ops shown at 10, 20 and 30 for 5 each, which began 1 earlier, 3 later and 2 later."""

    CLOCK = DeviceClock(ps(20, 10, 30), ps(25, 15, 35), ps(23, 9, 32), ps(29, 14, 40))

    def test_begins_and_ends_move_with_the_ops(self) -> None:
        shown = ps(0, 10, 11, 20, 21, 30, 31, 99)
        assert self.CLOCK.move_begins(shown).tolist() == [-1, 9, 14, 23, 23, 32, 33, 101]
        assert self.CLOCK.move_ends(shown).tolist() == [-1, 9, 10, 19, 25, 34, 36, 104]

    def test_errors_and_ops_of_one_instant(self) -> None:
        assert self.CLOCK.largest_error_ns == 3
        assert DeviceClock(ps(0, 10), ps(5, 15), ps(2, 3), ps(5, 99)).largest_error_ns == 7
        clock = DeviceClock(ps(0, 10, 10), ps(5, 12, 11), ps(0, 19, 15), ps(5, 21, 18))
        assert clock.move_begins(ps(1, 10)).tolist() == [6, 15]
        # The latest end as shown is 12, as it is 21.
        assert clock.move_ends(ps(11, 12)).tolist() == [20, 21]


ORIGIN = InstructionOrigin("conv_general_dilated", shapes="[[4]]", values='["","x"]')
OPCODES = {"conv": "custom-call", "sort": "fusion", "add": "fusion"}
MADE = {name: SimpleNamespace(opcode=opcode, origin=ORIGIN) for name, opcode in OPCODES.items()}
PROGRAMS: Any = {7: SimpleNamespace(instructions=MADE)}
WHY = '["","hlo","the profile does not state which kernels are one execution of it"]'


def launched(*kernels: str) -> list[StreamExecution]:
    """`conv k1 3`: the kernel k1 of conv in annotation 3; launched in this order."""
    runs = []
    for number, text in enumerate(kernels, 1):
        op, name, scope, *_ = [*text.split(), "0"]
        runs.append(StreamExecution(name, number, "", "", "", op, 7, scope=int(scope)))
    return runs


def executions(*kernels: str) -> list[int | str | None]:
    """Each kernel's number, ? where it is uncertain, None where it is one by itself."""
    runs = launched(*kernels)
    found = find_executions(runs, PROGRAMS, [1] * len(runs))
    return ["?" if i in found.uncertain else number for i, number in enumerate(found.numbers)]


@pytest.mark.parametrize(
    ("kernels", "numbers"),
    [
        # two executions, by their annotations alone
        (["conv memset 1", "conv k 1", "conv memset 2", "conv k 2"], [1, 1, 3, 3]),
        (["conv k 1", "conv k 2", "conv k 3"], [None, None, None]),
        # groups of a convolution within one annotation
        (["conv slice 1", "conv k 1", "conv slice 1", "conv k 1"], [1, 1, 1, 1]),
        # a sort has an annotation for each kernel; in a loop it comes again
        (["sort a 1", "sort b 2", "sort c 3", "add x 4", "sort a 5", "sort b 6", "sort c 7"],
         [1, 1, 1, None, 5, 5, 5]),
        (["sort a 1", "sort b 2", "sort a 3", "sort b 4"], [1, 1, 3, 3]),
        # one after another that is no repetition of the same
        (["sort a 1", "sort b 2", "sort a 3"], ["?", "?", "?"]),
    ],
)  # fmt: skip
def test_by_the_annotations_around_the_launches(kernels: list[str], numbers: list[Any]) -> None:
    assert executions(*kernels) == numbers


@pytest.mark.parametrize(
    ("kernels", "numbers"),
    [
        (["conv im2col", "conv k", "add x", "conv im2col", "conv k"], [1, 1, None, 4, 4]),
        # another execution, or another group of the same
        (["conv im2col", "conv k", "conv im2col", "conv k"], ["?", "?", "?", "?"]),
        (["conv k", "conv k"], ["?", "?"]),
        # a kernel that was not recorded, or one of two threads that launched in turns
        (["conv im2col", "conv k", "add x", "conv k"], [1, 1, None, "?"]),
        # kernels that XLA generates do not repeat within an execution
        *((["add x", "add x"], [None, None]), (["sort a", "sort b", "sort a", "sort b"], [1, 1, 3, 3])),
    ],
)
def test_without_annotations_by_the_order_of_launches(kernels: list[str], numbers: list[Any]) -> None:
    assert executions(*kernels) == numbers


def test_what_is_certain_without_an_order() -> None:
    runs = [run._replace(node=1, correlation=5) for run in launched("conv a 1", "conv b 1")]
    assert find_executions(runs, PROGRAMS, [1, 1]) == ([None, None], set())
    runs = [run._replace(correlation=None) for run in launched("sort a", "sort b", "add x")]
    assert find_executions(runs, PROGRAMS, [1, 1, 1]) == ([None] * 3, {0, 1})
    assert find_executions(launched("sort a", "sort b"), PROGRAMS, [2, 2]).uncertain == {0, 1}


def test_what_is_uncertain_has_a_reason_in_place_of_its_attributes() -> None:
    runs = launched("conv k", "conv k", "other k")
    origins = row_origins(runs, PROGRAMS, find_executions(runs, PROGRAMS, [1, 1, 1]))
    assert origins == [InstructionOrigin("conv_general_dilated", shapes="[[4]]", values=WHY)] * 2 + [None]

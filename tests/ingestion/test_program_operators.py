# SPDX-License-Identifier: Apache-2.0
"""Executions of a compiled program's instructions as calls of operators."""

from __future__ import annotations

from pathlib import Path

from helpers.xplane_files import Plane, array, environment, hlo_field, instruction, programs, space, write

import cclbench

ONE = hlo_field(36, b"\x01\x01")
PROGRAM = programs(
    [[0]],
    instruction("p", "parameter", array(4), 1),
    instruction("a", "add", array(4), 2, ONE),
    instruction("b", "multiply", array(4), 3, ONE),
)


def kernel(op: str, name: str, at: int, length: int, number: int, scope: int) -> tuple[str, int, int, dict]:
    told = {"program_id": 7, "hlo_op": op, "correlation_id": number, "scope_range_id": scope}
    return name, at, length, told


def test_kernels_of_an_execution_are_one_call_with_the_union_of_their_times(tmp_path: Path) -> None:
    """b runs as two kernels that overlap by 5 ns in two streams, and again; a as one."""
    first = [
        kernel("a", "k1", 0, 10, 1, 1),
        kernel("b", "k2", 20, 10, 2, 2),
        kernel("a", "k1", 50, 10, 4, 3),
        kernel("b", "k2", 70, 10, 5, 4),
        kernel("b", "k3", 85, 5, 6, 4),
    ]
    second = [kernel("b", "k3", 25, 15, 3, 2)]
    plane = Plane("/device:GPU:0", device_vendor="Nvidia")
    plane.line("Stream #7(Kernel)", first).line("Stream #8(Kernel)", second, track=2)
    run = cclbench.ingest(write(tmp_path, space(plane, PROGRAM, environment())), store=tmp_path / "store")
    begin = min(run.operators().column("start_ns").to_pylist())
    rows = run.sql(
        "SELECT name, start_ns, end_ns, kernels, device_ns FROM operators ORDER BY start_ns"
    ).table.to_pylist()
    assert [(*row.values(),) for row in rows] == [
        ("add", begin, begin + 10, 1, 10),
        ("multiply", begin + 20, begin + 40, 2, 20),
        ("add", begin + 50, begin + 60, 1, 10),
        ("multiply", begin + 70, begin + 90, 2, 15),
    ]
    works = run.sql("SELECT name, kernels, dur_ns, flops FROM operator_work ORDER BY ALL").table.to_pylist()
    expected = [("add", 1, 10, 4.0), ("add", 1, 10, 4.0), ("multiply", 2, 15, 4.0), ("multiply", 2, 20, 4.0)]
    assert [(*row.values(),) for row in works] == expected

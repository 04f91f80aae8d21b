# SPDX-License-Identifier: Apache-2.0
"""Which kernels of a GPU's profile are one execution of an instruction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cclbench.formats.xplane.executions import StreamExecution, find_executions, row_origins
from cclbench.formats.xplane.origins import InstructionOrigin

ORIGIN = InstructionOrigin("conv_general_dilated", shapes="[[4]]", values='["","x"]')
OPCODES = {"conv": "custom-call", "sort": "fusion", "add": "fusion"}
PROGRAMS: Any = {
    7: SimpleNamespace(
        instructions={name: SimpleNamespace(opcode=opcode, origin=ORIGIN) for name, opcode in OPCODES.items()}
    )
}
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
        (["add x", "add x"], [None, None]),
        (["sort a", "sort b", "sort a", "sort b"], [1, 1, 3, 3]),
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

# SPDX-License-Identifier: Apache-2.0
"""Compute, copies and communication as libraries and profilers name their kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from cclbench.classify import CollectiveName, collective_name, kernel_category
from cclbench.ground.schema import CATEGORIES


@pytest.mark.parametrize(
    "name",
    [
        *("", "x", "kernel", "my_secret_sauce<int>(int)", "void f()", "((((", "nn.Module: Linear_0"),
        "model.py(3): softmax",
    ],
)
def test_the_unknown_stays_unclassified(name: str) -> None:
    assert kernel_category(name) is None


TABLE = Path(__file__).with_name("kernel_names.yaml")
LISTED = [
    (name, expected, f"{repository}/{path}")
    for repository, files in yaml.safe_load(TABLE.read_text()).items()
    for path, lists in files.items()
    for expected, names in lists.items()
    for name in names
]
PRINTED = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text())["meant"]
MEANT = [(name, expected, "names.yaml") for expected, names in PRINTED.items() for name in names]


@pytest.mark.parametrize(("name", "expected", "source"), LISTED + MEANT)
def test_a_kernel_is_what_its_source_says(name: str, expected: str, source: str) -> None:
    library, _, kind = expected.partition("/")
    if kind:
        assert collective_name(name) == CollectiveName(None if kind == "-" else kind, library), source
        assert kernel_category(name) == "communication"
    else:
        assert collective_name(name) is None, source
        assert kernel_category(name) == (None if expected == "unknown" else expected), source


def test_the_table_covers_libraries_and_lists_each_name_once() -> None:
    libraries = {expected.partition("/")[0] for _, expected, _ in LISTED if "/" in expected}
    assert libraries == {
        "custom", "deepep", "flux", "mori", "mscclpp", "msccl", "nccl", "nixl", "nvshmem", "oneccl", "pplx",
        "uccl",
    }  # fmt: skip
    assert {e for _, e, _ in LISTED if "/" not in e} <= {*CATEGORIES, "unknown"}
    assert [name for name, times in Counter(row[0] for row in LISTED + MEANT).items() if times > 1] == []
    assert len(LISTED) >= 120

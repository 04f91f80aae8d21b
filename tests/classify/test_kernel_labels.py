# SPDX-License-Identifier: Apache-2.0
"""Short names of kernels keep what tells two instances apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.classify.kernel_labels import kernel_label, shorten_name

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text())


@pytest.mark.parametrize(("name", "label"), NAMES["label"].items())
def test_labels(name: str, label: str) -> None:
    assert kernel_label(name) == label


def test_kernels_that_libraries_name_differently_have_different_labels() -> None:
    """Of all names with template arguments in the collection; parameters alone tell none of them apart."""
    collected = yaml.safe_load((Path(__file__).parent / "kernel_names.yaml").read_text())
    names = {
        name for files in collected.values() for kinds in files.values() for k in kinds.values() for name in k
    }
    labels: dict[str, set[str]] = {}
    for name in names:
        labels.setdefault(kernel_label(name), set()).add(name.partition("(")[0].removeprefix("void "))
    shared = {label: heads for label, heads in labels.items() if len(heads) > 1 and "<" in label}
    assert not shared


@given(st.text(alphabet="ab<>(){},:# 1*_", max_size=60))
def test_any_text_has_a_label(name: str) -> None:
    assert isinstance(kernel_label(name), str)


@pytest.mark.parametrize(("name", "told"), NAMES["short"].items())
def test_a_short_name_keeps_sizes_types_and_layout(name: str, told: tuple[int, str]) -> None:
    most, short = told
    assert shorten_name(name, most) == short


@given(st.text(alphabet="ab1<>(){},:# *_", max_size=80), st.integers(8, 60))
def test_a_short_name_fits(name: str, most: int) -> None:
    assert len(shorten_name(name, most)) <= max(most, 0)

# SPDX-License-Identifier: Apache-2.0
"""What names of kernels of products tell of their arithmetic."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import yaml

from cclbench.classify import kernel_category
from cclbench.classify.arithmetic import kernel_arithmetic

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text())


@pytest.mark.parametrize(("name", "told"), NAMES["arithmetic"].items())
def test_what_a_name_tells(name: str, told: list[object]) -> None:
    assert list(kernel_arithmetic(name)) == told


@pytest.mark.parametrize(
    ("folder", "least"),
    [("kineto/ddp_a100", 0.8), ("kineto/resnet50_2021", 0.6), ("kineto/resnet_mi300x", 0.5)],
)
def test_most_names_of_real_products_tell_arithmetic(test_data: Path, folder: str, least: float) -> None:
    path = sorted((test_data / folder).glob("*.gz"))[0]
    text = gzip.decompress(path.read_bytes()).decode()
    pattern = r'"cat": *"[kK]ernel",\s*"name": *"((?:[^"\\]|\\.)*)"'
    names = set(re.findall(pattern, text))
    products = [name for name in names if kernel_category(name) in ("gemm", "convolution")]
    known = [name for name in products if kernel_arithmetic(name).tensor_cores is not None]
    assert len(products) > 10
    assert len(known) >= least * len(products)

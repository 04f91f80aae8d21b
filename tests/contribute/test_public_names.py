# SPDX-License-Identifier: Apache-2.0
"""Of a trace's texts only public names are published; secrets of kinds that no rule names in all readers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from cclbench.classify import kernel_category
from cclbench.contribute.redaction.public_names import PublicNames

NAMES = PublicNames(b"salt" * 8, kept=("MyModel*",))
PUBLIC = (
    "aten::_to_copy",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ProfilerStep#12",
    "triton_poi_fused_add_mul_0",
    "jit(train_step)/transpose(jvp())/dot_general",
    "torch/nn/modules/linear.py(12): forward",
    "[[32, 128], []]",
    "MyModel7B_0",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_stays(name: str) -> None:
    assert NAMES.publish(name) == name


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("acme_flash_attention_fwd_v9q", "_flash_attention_fwd"),
        ("/home/ada/acme/train.py(12): step", ".py(12): step"),
        ("/opt/ada/lib/python3.11/site-packages/torch/nn/acmex.py", ""),
        ("the acme prompt about horses forward", ""),
        ("10.20.30.40", ""),
        ("4111 1111 1111 1111", ""),
        ("415-555-0132", ""),
        ("acmé", ""),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(the acme prompt)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(",
        ),
        ("\u202eacme", ""),
        ("\x1b", ""),
    ],
)
def test_of_any_other_text_public_words_stay_around_one_token(text: str, stays: str) -> None:
    new = NAMES.publish(text)
    assert stays in new
    assert not any(part in new for part in ("acm", "ada", "20.30", "1111", "0132"))
    assert NAMES.publish(new) == new == PublicNames(b"salt" * 8).publish(text)
    assert PublicNames(b"other" * 6).publish(text) != new


def test_a_replaced_kernel_has_its_category() -> None:
    assert kernel_category("xyzconv2d") == "convolution"
    new = NAMES.publish("acmeconv2dfwd")
    assert (kernel_category(new), "acme" in new) == (kernel_category("acmeconv2dfwd"), False)


def test_a_table_keeps_its_figures_and_no_word() -> None:
    assert NAMES.publish_line("8589934592 2147483648 float sum 12345.5") == (
        "8589934592 2147483648 float sum 12345.5"
    )
    assert "9876543210" not in NAMES.publish_line("# acme 9876543210")


def test_no_kind_of_secret_survives_in_any_reader(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every registered reader has files in the exam, which fails for one without."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.syspath_prepend(str(repository / "scripts" / "campaign"))
    module = importlib.import_module("unlisted_secrets")
    templates = module.kinds()
    assert len(templates) >= 158
    few = dict(list(templates.items())[::56])
    counts, survivors = module.exam(few, seed=5, most=1)
    assert survivors == []
    assert counts["published"] > 100

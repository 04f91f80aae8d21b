# SPDX-License-Identifier: Apache-2.0
"""Of a trace's texts only public names are published; secrets of kinds that no rule names in all readers."""

from __future__ import annotations

import importlib
import pickle
import re
import sys
from pathlib import Path

import pytest

from cclbench.classify import kernel_category
from cclbench.contribute.redaction.public_names import PublicNames
from cclbench.formats import READERS

NAMES = PublicNames(b"salt" * 8, kept=("MyModel*",))
PUBLIC = (
    "aten::_to_copy",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ProfilerStep#12",
    "execute_context_12(4096)_generation_64(64)",
    "triton_poi_fused_add_mul_0",
    "jit(train_step)/transpose(jvp())/dot_general",
    "torch/nn/modules/linear.py(12): forward",
    "aten::mm, op_id = 12345, sizes = [[32, 16384], []]",
    "bf16[16384,4096]{1,0} fusion.1234",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "NVIDIA A100-PG509-200",
    "MyModel7B_0",
    "_ZN2at6native12_GLOBAL__N_113renorm_kernelIddKiEEvPT_PT1_T0_S8_lllPKl.kd",
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_15neg_kernel_cudaERNS_18"
    "TensorIteratorBaseEENKUlvE0_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_",
    "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE",
)


def test_names_that_have_published_a_text_can_be_sent_to_other_processes() -> None:
    """They publish the card's texts before processes publish those of the traces, with the same salt."""
    text = "acme_model_v9q"
    new = NAMES.publish(text)
    sent = pickle.loads(pickle.dumps(NAMES))  # noqa: S301 - its own bytes
    assert sent.publish(text) == new != text


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
        *((secret, "") for secret in ("10.20.30.40", "4111 1111 1111 1111", "415-555-0132", "AB CD 1111")),
        *(
            (secret, "")
            for secret in (
                *("ABC-1111", "KA-01-AB-1111", "6a 11 11 7a", "B-T8 111", "0x11, 0x11, 0x11", "%70%11%11%ab"),
                *("11111", "Cijk_A1B1C1111_MT64x64x32", "sm11111", "bs1111", "4711"),
            )
        ),
        *((secret, "") for secret in ("B-T8 111", "0x11, 0x11, 0x11")),
        *((f"gemm {secret}", "") for secret in ("(52.11, 13.11)", "ABC-1111", "11:11:fe", "A1B2C3")),
        ("acmé", ""),
        *(
            (f"_Z{secret}", "")
            for secret in (
                *("ZxjxBtmfI", "xjxBtmfI", "4gemmPfxjxBtmfI", "4gemmPf4711", "4acmePf", "4gemmPfE", "4gem"),
                "N2at6native45_GLOBAL__N__0f1a8107_4_acme_cu_49f7391c_22222224gemmEv",
            )
        ),
        *(
            (text, "")
            for text in ("jit_acme(123)", "cudaAcme_v3020", "hcom_acme__1_0", "s8acme[12]", "f(acme_v3020)")
        ),
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
    assert not any(part in new for part in ("acm", "ada", "20.30", "11", "0132"))
    assert NAMES.publish(new) == new == PublicNames(b"salt" * 8).publish(text)
    assert PublicNames(b"other" * 6).publish(text) != new


def test_a_replaced_kernel_has_its_category() -> None:
    assert kernel_category("xyzconv2d") == "convolution"
    new = NAMES.publish("acmeconv2dfwd")
    assert (kernel_category(new), "acme" in new) == (kernel_category("acmeconv2dfwd"), False)


def test_numbers_of_a_line_stay_where_its_reader_reads_them() -> None:
    figures = re.compile(r"^\d+ \d+ float sum [\d.]+$|\bPid \d+")
    assert NAMES.publish_line("8589934592 2147483648 float sum 12345.5", figures) == (
        "8589934592 2147483648 float sum 12345.5"
    )
    new = NAMES.publish_line("# Pid 50292 size 9876543210 4711 acme", figures)
    assert new.startswith("# Pid 50292 size x")
    assert not any(text in new for text in ("9876543210", "4711", "acme"))
    for line in ("6a 86 69 7a 17 81", "%70%31%de%a0", "tel 030 4711 4712", "8589934592 float sum"):
        assert not re.search(r"\d", NAMES.publish_line(line, figures).replace("redacted", ""))


def test_of_a_sweep_numbers_stay_where_its_reader_reads_them() -> None:
    figures = READERS.get("nccl_tests").figures
    row = "  1073741824  268435456  {}  sum  -1  5000.0  214.75  322.12   0  4000.0  268.44  402.65    N/A"
    for dtype in ("float", "bfloat16", "fp8_e4m3"):
        assert NAMES.publish_line(row.format(dtype), figures) == row.format(dtype)
    for secret in ("float_8952831397154175261", "float4711", "int_4711"):
        assert secret not in NAMES.publish_line(row.format(secret), figures)
    for line in ("# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 354.589 "):
        assert NAMES.publish_line(line, figures) == line
        secret = line.replace("354.589", "0").replace("0 OK", "0").replace(" 0", " 52.882551, 13.134458")
        assert "52.882551" not in NAMES.publish_line(secret, figures)
    any_word = re.compile(r"\w+ \d+")
    assert NAMES.publish_line("tile128 12", any_word) == "tile128 12"
    assert "8952831" not in NAMES.publish_line("tile8952831 12", any_word)


@pytest.mark.parametrize(
    ("text", "field", "is_figure"),
    [
        ("[[1, 3], [2]]", "shape", True),
        ("[1, 3] 442617846765", "shape", False),
        ("4426 [1, 3]", "shape", False),
        ("125.72 W", "power.draw [W]", True),
        ("2024-01-15T10:11:12.5", "time", True),
        ("[32, 16384]", "shape", True),
        ("N/A", "time", True),
        ("12345678", "serial", False),
        ("12345678 acme", "time", False),
        ("TAN 758234", "time", False),
        ("2024/01/15 10:11:12.123", "time", True),
        ("+49 30 7918 5811", "time", False),
        ("1" * 21, "time", False),
    ],
)
def test_a_figure_is_a_number_of_a_field_that_is_read(text: str, field: str, is_figure: bool) -> None:
    figures = re.compile(r"time|shape|power\.draw \[W\]")
    assert NAMES.is_figure(text, field, figures) is is_figure
    assert NAMES.publish_cell(text, field, figures) == text or not is_figure
    assert not NAMES.is_figure(text, field, None)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("rank0_trace.json.gz", "rank0_trace.json.gz"),
        ("node17_20260317_rank_3.json", r"node17_x\w{14}_rank_3.json"),
        ("AB-CD-1111_rank0.json", r"x\w{14}-x\w{14}-x\w{14}_rank0.json"),
        ("415-555-0132_step_12.json", r"x\w{14}-x\w{14}-x\w{14}_step_12.json"),
    ],
)
def test_a_file_s_name_keeps_public_words_and_the_numbers_it_is_read_by(name: str, published: str) -> None:
    assert re.fullmatch(published, NAMES.publish_file_name(name))


def test_no_kind_of_secret_survives_in_any_reader(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every registered reader has files in the exam, which fails for one without."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.syspath_prepend(str(repository / "scripts" / "campaign"))
    module = importlib.import_module("unlisted_secrets")
    templates = module.kinds()
    assert len(templates) >= 158
    few = dict(list(templates.items())[::56])
    exam = module.Exam(few, seed=5)
    exam.run(most=1)
    assert exam.survivors == []
    assert exam.counts["published without it"] > 100

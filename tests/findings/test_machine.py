# SPDX-License-Identifier: Apache-2.0
"""The machine's findings, advice and hangs."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_results import Row, a_rank, by_rank, case, listed, row
from helpers.machine_trace import BF16, Op, product, write_trace

import cclbench
from cclbench.findings.advice import PRESUPPOSED, fitting_actions
from cclbench.findings.finding import FINDINGS, Finding
from cclbench.present.headline import busy_with

SGEMM = "ampere_sgemm_128x128_tn"
HGEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
TFLOP = 2 * 4096**3 / 1e12


def run(folder: Path, *ops: Op, **options: object) -> cclbench.Run:
    write_trace(folder / "traces", ops, **options)  # type: ignore[arg-type]
    return cclbench.run(folder / "traces", store=folder / "store")


def found(folder: Path, *ops: Op, **options: object) -> dict[str, Finding]:
    return {one.name: one for one in run(folder, *ops, **options).findings}


def test_a_device_busy_with_sgemm_is_told_of_tensor_cores(tmp_path: Path) -> None:
    """8 ms of a step: 0.51 ms at 271 TFLOP/s (bf16); 7.05 ms are arithmetic, 1.10 at 80 % of 156 (TF32)."""
    one = found(tmp_path, product(4096, SGEMM, 8_000))["tensor_cores"]
    assert "take 8.00 ms of a step (mostly ampere_sgemm_128x128_tn)" in one.claim
    assert "312 TFLOP/s in bf16" in one.claim
    least, most = one.gain_s or (0, 0)
    assert most == pytest.approx(8e-3 - TFLOP / 271, rel=0.01)
    assert least == pytest.approx(TFLOP / 19.5 - TFLOP / (0.8 * 156), rel=0.01)
    assert [("TF32" in text, "bf16" in text) for text in one.try_[:2]] == [(True, False), (False, True)]


def test_a_v100_is_told_of_fp16_alone(tmp_path: Path) -> None:
    one = found(tmp_path, product(4096, "volta_sgemm_128x128_tn", 9_000), device="v100")["tensor_cores"]
    assert "125 TFLOP/s in fp16" in one.claim
    assert not any("bf16" in text or "TF32" in text for text in one.try_)
    assert any("fp16" in text for text in one.try_)


def test_without_shapes_the_peaks_bound_the_gain(tmp_path: Path) -> None:
    """8 ms at 19.5 TFLOP/s and below: 1.25 ms at 80 % of 156 (TF32), 0.58 ms at 271 (bf16)."""
    one = found(tmp_path, Op("aten::mm", SGEMM, 8_000))["tensor_cores"]
    assert one.gain_s == pytest.approx((8e-3 * (1 - 19.5 / 124.8), 8e-3 * (1 - 19.5 / 271)), rel=0.01)


def test_a_job_in_bf16_is_not_told_to_use_it(tmp_path: Path) -> None:
    """4096³ at 137 TFLOP/s of 312: 1 ms, of which 0.51 to 0.56 are needed."""
    names = found(tmp_path, product(4096, HGEMM, 1_000, BF16))
    assert "tensor_cores" not in names
    one = names["low_gemm_efficiency"]
    assert one.gain_s == pytest.approx((1e-3 - TFLOP / (0.9 * 271), 1e-3 - TFLOP / 271), rel=0.01)
    assert not any("bf16" in text or "TF32" in text or "fp8" in text for text in one.try_)


def test_products_are_held_against_the_fastest_that_was_measured(tmp_path: Path) -> None:
    """Of 271 TFLOP/s that an A100's fastest product reaches 73 % are low and 81 % are usual; its peak is 312.

    In fp16 none was measured: 60 % of the peak are what is usual, too.
    """
    for name, us, precision, is_low in (
        ("low", 695, "bf16", True),
        ("usual", 626, "bf16", False),
        ("unmeasured", 734, "fp16", False),
    ):
        kernel = HGEMM.replace("bf16", precision)
        types = BF16 if precision == "bf16" else ["c10::Half", "c10::Half"]
        folder = tmp_path / name
        folder.mkdir()
        assert ("low_gemm_efficiency" in found(folder, product(4096, kernel, us, types))) is is_low, name


def test_attention_far_below_the_roofline(tmp_path: Path) -> None:
    """32 heads of 128 over 4096 tokens: 4·32·4096²·128 = 275 GFLOP, 1.01 ms at 271 TFLOP/s; it takes 5."""
    shape = [1, 32, 4096, 128]
    kernel = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>()"
    called = "aten::_scaled_dot_product_flash_attention"
    ops = [Op(called, kernel, 5_000, [shape] * 3, BF16, values=["0.", "False"])]
    one = found(tmp_path, *ops)["low_attention_efficiency"]
    assert one.claim.startswith("Kernels of attention reach 17.6 % of the roofline")
    flops = 4 * shape[1] * shape[2] ** 2 * shape[3]
    assert (one.gain_s or (0, 0))[1] == pytest.approx(5e-3 - flops / 271e12, rel=0.01)
    assert any("FlashAttention" in text for text in one.try_)


def test_products_that_load_element_by_element(tmp_path: Path) -> None:
    name = "cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align{0}"
    kernel = "void cutlass::Kernel<" + name + ">(" + name + "::Params)"
    one = found(tmp_path, product(4096, kernel.format(1), 3_000), product(4096, kernel.format(4), 3_000))
    assert one["misaligned_products"].lost_s == pytest.approx(3e-3)
    # 137.4 GFLOP at 156 TFLOP/s take 0.88 ms
    assert (one["misaligned_products"].gain_s or (0, 0))[1] == pytest.approx(3e-3 - TFLOP / 156, rel=0.01)


def test_where_nothing_is_found_it_is_said_how_much_is_explained(tmp_path: Path) -> None:
    """0.5 of 10 ms are a product near the roofline; of what takes the rest nothing is known."""
    near = product(4096, HGEMM, 500, BF16)
    made = run(tmp_path, near, Op("mine::op", "my_kernel", 9_500))
    assert [one for one in made.findings if one.lost_s] == []
    said = busy_with(made.figures)
    assert "Of all kernels' time: other 95.0 %, gemm 5.0 %" in said
    assert "FLOPs and bytes are known for 5.0 % of their time, which reaches 88.1 % of the roofline;" in said


def norm(us: float) -> list[Op]:
    """An RMSNorm of 4096 x 8192 in fp32, 134.2 MB, in six kernels that move it."""
    whole, column = [4096, 8192], [4096, 1]
    shapes = [[whole], [whole], [column], [column], [whole, column], [whole, [8192]]]
    names = ("pow", "mean", "add", "rsqrt", "mul", "mul")
    kernel = "void at::native::vectorized_elementwise_kernel<4, {}>()"
    return [Op(f"aten::{n}", kernel.format(n), us, s) for n, s in zip(names, shapes, strict=True)]


def test_a_norm_in_six_kernels_could_be_one(tmp_path: Path) -> None:
    """6 x 200 µs instead of 268.4 MB once: 131.6 µs at 2.039 TB/s, 164.5 at 80 % of that."""
    one = found(tmp_path, *norm(200))["unfused_norm"]
    assert one.lost_s == pytest.approx(1.2e-3)
    moved = 2 * 4096 * 8192 * 4 / 2.039e12
    assert one.gain_s == pytest.approx((1.2e-3 - moved / 0.8, 1.2e-3 - moved), rel=0.01)
    assert one.whatif == ["kernels[chain=norm].time=fused"]


def test_where_the_host_is_late_one_call_counts_as_well(tmp_path: Path) -> None:
    """Kernels of 0.2 µs wait for calls, one a µs: of six five are not made, 5 of 7 µs."""
    small = [op._replace(us=0.2, shapes=[[8, 8] for _ in op.shapes or []]) for op in norm(0.2)]
    one = found(tmp_path, *small, Op("mine::op", "my_kernel", 0.2))["unfused_norm"]
    least, most = one.gain_s or (0, 0)
    assert most == pytest.approx(5e-6)
    assert 3e-6 < least < most  # the first step's window begins with its first kernel, not with its calls


def test_attention_in_five_kernels_could_be_one(tmp_path: Path) -> None:
    """32 heads of 128 over 2048 tokens, 2 · 2 · 32 · 2048² · 128 = 68.7 GFLOP.

    Half of them, under a causal mask, take 0.13 ms at 271 TFLOP/s; all 0.56 at half of 90 % of that.
    """
    queries, keys, scores = [32, 2048, 128], [32, 128, 2048], [32, 2048, 2048]
    ops = [
        Op("aten::bmm", HGEMM, 1_000, [queries, keys], BF16),
        Op("aten::div", "div", 1_000, [scores], BF16),
        Op("aten::add", "add", 1_000, [scores, scores], BF16),
        Op("aten::_softmax", "softmax", 1_000, [scores], BF16, values=["-1", "False"]),
        Op("aten::bmm", HGEMM, 1_000, [scores, queries], BF16),
    ]
    one = found(tmp_path, *ops)["unfused_attention"]
    needed = 4 * 32 * 2048**2 * 128 / 271e12
    assert one.gain_s == pytest.approx((5e-3 - needed / 0.45, 5e-3 - needed / 2))
    assert any("scaled_dot_product_attention" in text for text in one.try_)


def test_a_chain_of_unknown_sizes_has_no_gain(tmp_path: Path) -> None:
    one = found(tmp_path, *[op._replace(shapes=None) for op in norm(200)])["unfused_norm"]
    assert (one.gain_s, one.lost_s) == (None, pytest.approx(1.2e-3))
    assert "is unknown" in (one.no_gain or "")


def test_an_optimizer_of_single_passes(tmp_path: Path) -> None:
    """Seven passes over 100 MB of parameters and moments: one moves 700 MB, 343 µs."""
    each = [25_000_000]
    passes = ("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_")
    operands = {"lerp_": 2, "addcmul_": 3, "addcdiv_": 3}
    ops = [Op(f"aten::{name}", name, 200, [each] * operands.get(name, 1)) for name in passes]
    one = found(tmp_path, *ops)["unfused_optimizer"]
    assert (one.gain_s or (0, 0))[1] == pytest.approx(1.4e-3 - 700e6 / 2.039e12, rel=0.01)
    assert any("fused=True" in text for text in one.try_)


A100, V100, MI300X = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X"


def products(*precisions: str) -> list[Row]:
    return [row("compute.product_time", 0.5, category="of_precision", stat=one) for one in precisions]


VOLTA = row("compute.product_time", 0.5, category="of_generation", stat="sm70")


def copies(*labels: str) -> list[Row]:
    return [row("time.exposed_copy", 0.1, category=label) for label in labels]


REFUTED: list[tuple[str, str | None, list[Row], str]] = [
    ("bf16 on a V100", V100, products("fp32"), "compute products in bf16"),
    ("TF32 on a V100", V100, products("fp32"), "let fp32 products use TF32"),
    ("bf16 where all kernels are Volta's", None, [*products("fp32"), VOLTA], "compute products in bf16"),
    ("fp8 on an A100", A100, products("bf16"), "compute products in fp8"),
    ("bf16 for a job in bf16", A100, products("bf16"), "compute products in bf16"),
    ("fp16 for a job in bf16", A100, products("bf16"), "autocast in fp16"),
    ("torch.compile, compiled", A100, [row("compute.compiled_share", 0.4)], "fuse with torch.compile"),
    ("pinned memory for d2d", A100, copies("d2d"), "copy from pinned memory"),
    ("pinned memory, pinned", A100, copies("h2d pinned"), "tensor.pin_memory()"),
    ("d2d where there is none", A100, copies("h2d pageable"), "copy less within the device"),
    ("the host where there is d2d alone", A100, copies("d2d"), "copies between it and the host"),
    ("NCCL's variables on AMD", MI300X, [], "NCCL_MAX_CTAS"),
    ("DDP for a serving engine", A100, [row("time.phase", 0.5, category="decode")], "DDP(bucket_cap_mb=...)"),
]

GRAPHS = "capture the step as a CUDA graph: torch.cuda.graph"
ON_HOST = {"works_on": "host", "device_name": None, "vendor": None, "producer": "PyTorch Profiler"}


def facts(name: str | None) -> dict[str, Any]:
    vendor = None if name is None else "amd" if "AMD" in name else "nvidia"
    return {"device_name": name, "vendor": vendor, "producer": "PyTorch Profiler"}


@pytest.mark.parametrize(
    ("device", "rows", "action"), [one[1:] for one in REFUTED], ids=[o[0] for o in REFUTED]
)
def test_what_the_run_refutes_is_not_advised(device: str | None, rows: list[Row], action: str) -> None:
    made = case(*rows, ranks=[a_rank(facts=facts(device))])
    assert fitting_actions([action], made) == []
    assert fitting_actions([action], case(ranks=[a_rank(facts=facts(None))])) == [action]  # nothing is known
    assert fitting_actions(["look at the timeline"], made) == ["look at the timeline"]


def test_advice_follows_the_kind_of_collective() -> None:
    actions = FINDINGS.get("exposed_communication").advice("pytorch")[:-3]
    for kinds, text in (
        *(("all_gather", "FSDP"), ("all_reduce", "DDP"), ("send", "sends and")),
        ("all_to_all", "dispatch and combine"),
    ):
        (one,) = fitting_actions(actions, case(ranks=[a_rank(facts=facts(None))]), {kinds})
        assert text in one
    unnamed = facts(MI300X) | {"vendor": None}  # the catalog knows the vendor
    assert fitting_actions(["set NCCL_MAX_CTAS"], case(ranks=[a_rank(facts=unnamed)])) == []


def test_each_condition_has_an_action_and_a_run_that_refutes_it() -> None:
    texts = [text for name in FINDINGS for text in chain(*FINDINGS.get(name).actions.values())]
    for pattern in PRESUPPOSED:
        assert any(re.search(pattern, text) for text in texts), pattern
        assert any(re.search(pattern, one) for one in (*(one[3] for one in REFUTED), GRAPHS)), pattern
    assert fitting_actions([GRAPHS], case(ranks=[a_rank(facts=ON_HOST)])) == []
    assert fitting_actions([GRAPHS], case(ranks=[a_rank(facts=facts(None))])) == [GRAPHS]
    assert fitting_actions([GRAPHS], case(ranks=[a_rank(facts=facts(None) | {"whole_graphs": 3})])) == []


def test_where_the_cpu_is_the_device_no_advice_is_for_another() -> None:
    ranks = [a_rank(one, facts=ON_HOST) for one in range(2)]
    rows = [row for row in EVERYTHING if row["metric"] != "time.exposed_copy"]
    rows += by_rank("time.idle_host_by", 0.2, 0.2, category="cold_start")
    rows += by_rank("time.idle_host_by", 0.2, 0.2, category="sync")
    told = {one.name: one for one in listed(*rows, ranks=ranks)}
    assert {"data_loading", "host_bound", "cold_start"} <= set(told)
    assert "synchronization" not in told  # the thread waits for transfers, never for a device
    for one in told.values():
        assert [text for text in one.try_ if re.search(r"(?i)cuda|nccl|gpu", text)] == []
        said = (one.claim, one.because, *one.try_) if one.host_causes else ()
        assert [text for text in said if re.search(r"(?i)\bdevice\b|kernel|launch", text)] == []


EVERYTHING = [
    *by_rank("time.step", 1.0, 1.0),
    *by_rank("time.exposed_copy", 0.2, 0.2),
    *by_rank("compute.time", 0.7, 0.7),
    *by_rank("compute.category_share", 0.5, 0.5, category="elementwise"),
    *by_rank("compute.above_roofline", 0.3, 0.3, category="gemm"),
    row("compute.gemm_efficiency", 0.3),
    *by_rank("time.idle_host_by", 0.3, 0.3, category="loader"),
    *by_rank("time.idle_host_by", 0.3, 0.3, category="python"),
    *by_rank("time.exposed_unmatched", 0.5, 0.5),
]


@pytest.mark.parametrize("framework", ["PyTorch Profiler", "JAX profiler", "XLA profiler", "Nsight Systems"])
@pytest.mark.parametrize(("device", "rows"), [one[1:3] for one in REFUTED], ids=[one[0] for one in REFUTED])
def test_no_finding_advises_what_the_run_refutes(framework: str, device: str | None, rows: list[Row]) -> None:
    ranks = [a_rank(one, facts=facts(device) | {"producer": framework}) for one in range(2)]
    made = case(*EVERYTHING, *rows, ranks=ranks)
    refuted = [pattern for pattern, fact in PRESUPPOSED.items() if fact(made) is False]
    told = [text for one in listed(*EVERYTHING, *rows, ranks=ranks) for text in one.try_]
    assert told
    assert [text for text in told for pattern in refuted if re.search(pattern, text)] == []
    own = {"PyTorch Profiler": "pytorch", "JAX profiler": "jax"}.get(framework)
    others = {
        text
        for name in FINDINGS
        for key, of in FINDINGS.get(name).actions.items()
        for text in of
        if key not in ("any", own)
    } - {text for name in FINDINGS for text in FINDINGS.get(name).advice(own)}
    assert not others & set(told)  # JAX's advice is not TensorFlow's

# SPDX-License-Identifier: Apache-2.0
"""What kernels take at the roofline and on tensor cores, worked out by hand for an A100 of 80 GB.

156 TFLOP/s in TF32, 19.5 in fp32, 312 in bf16, of which 271 were attained; 2.039 TB/s.  A product of 4096³
has 137.4 GFLOP and 201.3 MB.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.machine_trace import BF16, Op, product, write_trace

import cclbench
from cclbench.ground.errors import InputError

GFLOP = 2 * 4096**3 / 1e9
MB = 3 * 4096**2 * 4 / 1e6
SGEMM = product(4096, "ampere_sgemm_128x128_tn", 8_000)


def gains_us(folder: Path, ops: list[Op], *settings: str, device: str = "a100") -> tuple[float, float]:
    """What a step is shorter, at least and at most, µs."""
    write_trace(folder / "traces", ops, device=device)
    run = cclbench.ingest(folder / "traces", store=folder / "store")
    found = cclbench.whatif(run, *settings)
    only = found.single_outcome
    return tuple((found.unchanged.step_ns - ns) / 1e3 for ns in (only.high_ns, only.low_ns))  # type: ignore[return-value]


def test_a_product_of_fp32_on_tensor_cores(tmp_path: Path) -> None:
    """At most 271 TFLOP/s; at least what lies beyond its arithmetic, 7,048 µs, and that at 124.8 TFLOP/s."""
    least, most = gains_us(tmp_path, [SGEMM], "kernels.time=tensor_cores")
    assert most == pytest.approx(8_000 - GFLOP / 271e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(GFLOP / 19.5e3 * 1e6 - GFLOP / (0.8 * 156e3) * 1e6, rel=1e-3)


def test_a_v100_has_fp16_alone(tmp_path: Path) -> None:
    """125 TFLOP/s instead of 15.7: 1,099 to 1,374 µs instead of 8,754 and what lies beyond."""
    ops = [product(4096, "volta_sgemm_128x128_tn", 9_000)]
    least, most = gains_us(tmp_path, ops, "kernels.time=tensor_cores", device="v100")
    assert most == pytest.approx(9_000 - GFLOP / 125e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(GFLOP * 1e6 * (1 / 15.7e3 - 1 / 100e3), rel=1e-3)


def test_what_is_at_the_roofline(tmp_path: Path) -> None:
    """A product of bf16 of 1,000 µs takes 507 at 271 TFLOP/s, 564 at 0.9 of that; a copy-like one of 201 MB
    99 µs, 123 at 80 % of the bandwidth."""
    ops = [
        product(4096, "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 1_000, BF16),
        Op(
            "aten::add",
            "void at::native::vectorized_elementwise_kernel<4, add>()",
            400,
            [[4096, 4096], [4096, 4096]],
        ),
    ]
    least, most = gains_us(tmp_path, ops, "kernels[gemm].time=roofline")
    assert most == pytest.approx(1_000 - GFLOP / 271e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(1_000 - GFLOP / (0.9 * 271e3) * 1e6, rel=1e-3)
    least, most = gains_us(tmp_path / "2", ops, "kernels[elementwise].time=roofline")
    assert most == pytest.approx(400 - MB / 2.039, rel=1e-3)
    assert least == pytest.approx(400 - MB / 2.039 / 0.8, rel=1e-3)


def test_no_kernel_is_bounded_twice(tmp_path: Path) -> None:
    """What a product without tensor cores takes on them counts, not its roofline in fp32 as well."""
    settings = ("kernels[gemm].time=roofline", "kernels.time=tensor_cores")
    least, most = gains_us(tmp_path, [SGEMM], *settings)
    alone = gains_us(tmp_path / "2", [SGEMM], settings[1])
    assert (least, most) == alone


def test_a_kernel_gains_no_less_than_an_empty_one_takes(tmp_path: Path) -> None:
    """64³ take 0.02 µs at the roofline; that 3 µs become less than 2 is not counted on."""
    small = product(64, "ampere_bf16_s16816gemm_bf16_64x64_tn", 3, BF16)
    least, most = gains_us(tmp_path, [SGEMM] + [small] * 20, "kernels[name~bf16].time=roofline")
    assert least == pytest.approx(20 * 1, rel=0.01)
    assert most == pytest.approx(20 * (3 - 3 * 64 * 64 * 2 / 2.039e6), rel=0.01)


def test_without_shapes_no_roofline_is_known_and_peaks_bound_what_tensor_cores_gain(tmp_path: Path) -> None:
    op = Op("aten::mm", "ampere_sgemm_128x128_tn", 8_000)
    with pytest.raises(InputError, match="are unknown"):
        gains_us(tmp_path, [op], "kernels.time=roofline")
    least, most = gains_us(tmp_path / "2", [op], "kernels.time=tensor_cores")
    assert (least, most) == pytest.approx((8_000 * (1 - 19.5 / 124.8), 8_000 * (1 - 19.5 / 271)), rel=1e-3)


def test_what_is_on_tensor_cores_already_stays(tmp_path: Path) -> None:
    op = product(4096, "ampere_bf16_s16816gemm_bf16_128x64_tn", 800, BF16)
    assert gains_us(tmp_path, [op], "kernels.time=tensor_cores") == (0, 0)

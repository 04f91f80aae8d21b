# SPDX-License-Identifier: Apache-2.0
"""Kernels against the catalog's device: tensor cores, precision, alignment, roofline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.analyzers.products import MISALIGNED, OF_PRECISION, WITHOUT_TENSOR_CORES
from cclbench.findings.case import Case, sum_by_rank
from cclbench.findings.causes.compute import shortened_kernels
from cclbench.findings.finding import Finding, finding
from cclbench.ground.text import shorten_middle
from cclbench.ground.units import humanise
from cclbench.hardware.accelerator import USUAL_ATTENTION
from cclbench.record.metric_name import metric_name

_GEMM_EFFICIENCY: Final = metric_name("compute.gemm_efficiency")
_COMPUTE_TIME: Final = metric_name("compute.time")
_CATEGORY_SHARE: Final = metric_name("compute.category_share")
_TIME: Final = metric_name("compute.product_time")
_PRECISION: Final = metric_name("compute.precision_time")
_WORTH: Final = 0.05
"""Least share of the compute time for advice on another precision."""
_REACHED: Final = metric_name("compute.roofline_efficiency")
_ABOVE: Final = metric_name("compute.above_roofline")
_NAME: Final = 60
"""Most characters of a kernel's name in a claim."""
_ON_TENSOR_CORES: Final = 7 / 8
"""Most that fp64 products may save in TF32: the peaks of tensor cores differ by 7.4 (H100), 8 (A100)."""
_LOW: Final = 0.75
"""Matrix products are slow below this share of the fastest one that was measured on the device."""
_LOW_UNMEASURED: Final = 0.48
"""The same, of the peak, where none of that precision was measured: 60 % of what is practical."""
_FAR: Final = 0.5
"""A category's kernels are far from the roofline below this share of it."""
_FAR_ATTENTION: Final = _FAR * USUAL_ATTENTION
_OTHER_FAMILIES: Final = ("convolution", "normalization", "reduction", "embedding", "moe")
OPERATORS: Final = """SELECT name, shapes, count(*) AS calls, sum(device_ns) AS ns FROM operators
WHERE kernels > 0 GROUP BY ALL ORDER BY ns DESC LIMIT 20"""
_KERNELS: Final = """SELECT rank, name, kernels, total_ns AS ns FROM kernel_summary
WHERE category IN ('gemm', 'convolution') ORDER BY ns DESC LIMIT 20"""
_GAIN: Final = (
    "the time that their FLOPs and bytes need on the catalog's device, between its data sheet and practice;"
    " kernels whose FLOPs and bytes are unknown keep theirs"
)


@finding(
    "tensor_cores",
    title="single-precision matrix products do not use tensor cores",
    rule=f"{_TIME} {WITHOUT_TENSOR_CORES} in fp32, on a device with tensor cores for TF32 or 16-bit types",
    gain="fp32 products take their time on tensor cores, between TF32 and a 16-bit type; unknown where"
    " operator shapes are not recorded",
    actions={
        "pytorch": (
            "if precision allows, let fp32 products use TF32:"
            " torch.set_float32_matmul_precision('high') and torch.backends.cudnn.allow_tf32",
            "train and infer under torch.autocast in bf16",
            "train under torch.autocast in fp16 with a gradient scaler",
        ),
        "jax": (
            "if precision allows, jax.default_matmul_precision('tensorfloat32')",
            "compute in bf16: cast parameters and inputs before the products",
        ),
        "any": ("if precision allows, compute products in TF32", "compute products in bf16 or fp16"),
    },
)
def tensor_cores(case: Case) -> Iterator[Finding]:
    lost = case.ranks(_TIME, category=WITHOUT_TENSOR_CORES, stat="fp32")
    if not any(lost.values()):
        return
    device = case.machine.accelerator.value
    faster = [] if device is None else [w for w in ("tf32", "bf16", "fp16") if device.peak_flops_per_s.get(w)]
    if device is not None and not faster:
        return
    row = case.row(_TIME, category=WITHOUT_TENSOR_CORES, stat="fp32")
    kernel = shorten_middle((row.reason or "").partition(";")[0], _NAME) if row is not None else ""
    peaks = ""
    if device is not None and (fp32_peak := device.peak_flops_per_s.get("fp32")):
        rates = [
            f"{humanise(device.peak_flops_per_s[word] or 0.0, 'FLOP/s')} in {word}" for word in faster[:2]
        ]
        peaks = (
            f" The peak of {device.id} is {humanise(fp32_peak, 'FLOP/s')} without tensor cores,"
            f" {' and '.join(rates)} with them."
        )
    yield case.finding(
        "tensor_cores",
        f"Products in fp32 without tensor cores take {humanise(max(lost.values()), 's')} of a step"
        f" ({kernel}).{peaks}",
        lost=lost,
        whatif=["kernels.time=tensor_cores"],
        confidence="medium",
        because="by kernel names; the trace does not show whether less precision is acceptable",
        evidence=case.evidence(
            (_TIME, {"category": WITHOUT_TENSOR_CORES, "stat": "fp32"}), _TIME, _GEMM_EFFICIENCY
        ),
        query=_KERNELS,
    )


@finding(
    "double_precision",
    title="operators compute in double precision",
    rule=f"{_PRECISION} fp64 of at least 5 % of the compute time",
    gain="these operators take half the time, since vector registers and memory traffic hold twice as many"
    " elements; at most a quarter, where functions need longer series or operands do not fit a cache. Matrix"
    " products of an accelerator may take as long in fp32, or an eighth on tensor cores",
    actions={
        "pytorch": (
            "if precision allows, compute in single precision: model.float(), torch.set_default_dtype, and"
            " dtype= where NumPy's arrays (float64) become tensors",
            "keep double precision only where needed: sums, losses, solvers",
        ),
        "any": ("if precision allows, compute in single precision",),
    },
)
def double_precision(case: Case) -> Iterator[Finding]:
    double_times, compute = case.ranks(_PRECISION, category="fp64"), case.ranks(_COMPUTE_TIME)
    products = {} if case.on_host else case.ranks(_TIME, category=OF_PRECISION, stat="fp64")
    half, most = dict[int, float](), dict[int, float]()
    for rank, seconds in double_times.items():
        in_products = min(products.get(rank, 0.0), seconds)
        half[rank] = (seconds - in_products) / 2
        most[rank] = (seconds - in_products) * 0.75 + in_products * _ON_TENSOR_CORES
    narrower = (
        "single precision would take half of that or less."
        if case.on_host
        else "single precision moves half the bytes, and TF32 and 16-bit types use tensor cores."
    )
    if any(
        seconds >= _WORTH * compute.get(rank, seconds) for rank, seconds in double_times.items() if seconds
    ):
        yield case.finding(
            "double_precision",
            f"Operators in double precision take {humanise(max(double_times.values()), 's')} of a step:"
            f" {narrower}",
            lost=half,
            whatif=shortened_kernels(case, most),
            surely=shortened_kernels(case, half),
            confidence="medium",
            because="by operand types; the trace does not show whether less precision is acceptable",
            evidence=case.evidence((_PRECISION, {"category": "fp64"}), _PRECISION, _COMPUTE_TIME),
            query="SELECT name, dtypes, count(*) AS calls, sum(device_ns) AS ns FROM operators WHERE dtypes"
            " ILIKE '%double%' GROUP BY ALL ORDER BY ns DESC LIMIT 20",
        )


@finding(
    "misaligned_products",
    title="matrix products load their operands element by element",
    rule=f"{_TIME} {MISALIGNED}: kernels on tensor cores whose operands are aligned to one or two elements",
    gain=_GAIN,
    actions={
        "any": (
            "pad sizes and leading dimensions to multiples of 16 bytes (8 elements of 16 bits, 4 of 32),"
            " better 128",
            "look at `cclbench ops SOURCE --by shape` for odd sizes: vocabulary, features, experts",
        ),
    },
)
def misaligned_products(case: Case) -> Iterator[Finding]:
    rows = case.parts(_TIME)
    precisions = [row.stat for row in rows if row.category == MISALIGNED and row.stat]
    lost = sum_by_rank(case.ranks(_TIME, category=MISALIGNED, stat=precision) for precision in precisions)
    if any(lost.values()):
        yield case.finding(
            "misaligned_products",
            f"Matrix products with operands aligned to one or two elements take"
            f" {humanise(max(lost.values()), 's')} of a step: their kernels load element by element.",
            lost=lost,
            whatif=[r"kernels[name~align(1|2)\b].time=roofline"],
            confidence="medium",
            because="by kernel names (align1, align2)",
            evidence=case.evidence(
                *[(_TIME, {"category": MISALIGNED, "stat": precision}) for precision in precisions],
                _GEMM_EFFICIENCY,
            ),
            query=_KERNELS,
        )


def _below_roofline(case: Case, name: str, category: str, claim: str) -> Iterator[Finding]:
    """The finding on a category's time above its roofline, if it has any."""
    lost = case.ranks(_ABOVE, category=category)
    if not any(lost.values()):
        return
    row = case.row(_REACHED, category=category)
    coverage = (
        ""
        if row is None or row.coverage_time is None
        else f" of {humanise(row.coverage_time, '1')} of their time"
    )
    yield case.finding(
        name,
        claim,
        lost=lost,
        whatif=[f"kernels[{category}].time=roofline"],
        confidence="medium",
        because=f"FLOPs and bytes{coverage} by formula from recorded sizes; no kernel reaches its data sheet",
        evidence=case.evidence(
            *([_GEMM_EFFICIENCY] if category == "gemm" else []),
            (_REACHED, {"category": category}),
            (_ABOVE, {"category": category}),
            (_CATEGORY_SHARE, {"category": category}),
        ),
        query=OPERATORS,
    )


@finding(
    "low_gemm_efficiency",
    title="matrix products run far below the device's peak",
    rule="compute.gemm_efficiency and, where known, compute.roofline_efficiency of gemm below"
    f" {_LOW:.0%} of the fastest product of that precision that was measured on the device; where none was,"
    f" below {_LOW_UNMEASURED:.0%}",
    gain=_GAIN,
    actions={
        "pytorch": (
            "look at `cclbench ops SOURCE --by shape --sort gap`: pad odd sizes to multiples of 64"
            " (vocabulary, heads), batch small products",
            "torch.compile(mode='max-autotune')",
            "compute products in bf16",
            "compute products in fp8",
        ),
        "any": ("make sizes multiples of the tile, and products larger: a larger batch, fused projections",),
    },
)
def low_gemm_efficiency(case: Case) -> Iterator[Finding]:
    reached, roof = case.number(_GEMM_EFFICIENCY), case.number(_REACHED, category="gemm")
    if reached is None or reached <= 0:
        return
    low = _low_efficiency(case)
    if reached < low and (roof is None or roof < low):
        bound = "" if roof is None else f", {humanise(roof, '1')} of the roofline"
        claim = f"Matrix products reach {humanise(reached, '1')} of the device's dense peak{bound}."
        yield from _below_roofline(case, "low_gemm_efficiency", "gemm", claim)


def _low_efficiency(case: Case) -> float:
    """Share of the peak below which products are slow, by the precision of most of them."""
    device = case.machine.accelerator.value
    named = {row.stat: row.number for row in case.parts(_TIME) if row.category == OF_PRECISION}
    seconds = named or {row.category: row.number for row in case.parts(_PRECISION)}
    usual = max(seconds, key=lambda precision: seconds[precision], default=None)
    if device is None or usual is None:
        return _LOW_UNMEASURED
    peak, fastest = device.peak_flops_per_s.get(usual), device.attainable_flops_per_s.get(usual)
    return _LOW * fastest / peak if peak and fastest else _LOW_UNMEASURED


@finding(
    "low_attention_efficiency",
    title="attention kernels run far below the roofline",
    rule=f"{_REACHED} of attention below {_FAR_ATTENTION:.0%}: half of what fused kernels usually reach",
    gain=_GAIN,
    actions={
        "pytorch": (
            "use torch.nn.functional.scaled_dot_product_attention with a fused backend"
            " (torch.nn.attention.sdpa_kernel), or a FlashAttention built for the device's generation",
            "look at `cclbench ops SOURCE --by shape`: head dimensions of 64 or 128, packed sequences",
        ),
        "any": (
            "use a fused attention kernel built for the device's generation",
            "batch or pack short sequences",
        ),
    },
)
def low_attention_efficiency(case: Case) -> Iterator[Finding]:
    yield from _far_from_roofline(case, "low_attention_efficiency", "attention", _FAR_ATTENTION)


@finding(
    "below_roofline",
    title="a kernel category runs far below the roofline",
    rule=f"{_REACHED} of a category ({', '.join(_OTHER_FAMILIES)}) below 50 %",
    gain=_GAIN,
    actions={
        "pytorch": (
            "look at `cclbench ops SOURCE --by shape --sort gap` for the shapes that lose most",
            "fuse small kernels with torch.compile",
            "convolutions: channels_last and torch.backends.cudnn.benchmark",
        ),
        "any": (
            "look at `cclbench ops SOURCE --by shape --sort gap` for the shapes that lose most",
            "larger or fused kernels: small ones do not fill a device",
        ),
    },
)
def below_roofline(case: Case) -> Iterator[Finding]:
    for category in _OTHER_FAMILIES:
        yield from _far_from_roofline(case, "below_roofline", category)


def _far_from_roofline(case: Case, name: str, category: str, far: float = _FAR) -> Iterator[Finding]:
    roof = case.number(_REACHED, category=category)
    if roof is not None and 0 < roof < far:
        claim = f"Kernels of {category} reach {humanise(roof, '1')} of the roofline of their FLOPs and bytes."
        yield from _below_roofline(case, name, category, claim)

# SPDX-License-Identifier: Apache-2.0
"""Unfused chains of kernels: attention, norms, activations, rotary embeddings, the optimizer.

Where the CPU is the device, its operators stand for kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.causes.compute import shortened_kernels
from cclbench.findings.causes.machine import OPERATORS
from cclbench.findings.finding import Finding, finding
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_BOUND_SHARE: Final = metric_name("memory.bound_share")
_TIME: Final = metric_name("compute.unfused")
_GAIN: Final = (
    "each chain takes the roofline time of one kernel that reads its inputs and writes its outputs, and one"
    " launch; where the CPU is the device, a time in proportion to the bytes of such a kernel"
)

_CALLS: Final = """SELECT name, shapes, count(*) AS calls, sum(device_ns) AS ns FROM operators
WHERE device_ns > 0 GROUP BY ALL ORDER BY ns DESC LIMIT 20"""


def _unfused_chains(case: Case, kind: str, subject: str) -> Iterator[Finding]:
    """The finding on chains of a kind, if the run has any."""
    chain_times = case.ranks(_TIME, category=kind)
    if not any(chain_times.values()):
        return
    evidence = case.evidence((_TIME, {"category": kind}), _TIME, _BOUND_SHARE)
    caveat = "the trace does not show whether intermediate results are needed elsewhere"
    chain_time = humanise(max(chain_times.values()), "s")
    if not case.on_host:
        yield case.finding(
            f"unfused_{kind}",
            f"{subject} take {chain_time} of a step, and one kernel could do each.",
            lost=chain_times,
            whatif=[f"kernels[chain={kind}].time=fused"],
            confidence="medium",
            because=f"by the order of the launching calls; {caveat}",
            evidence=evidence,
            query=OPERATORS,
        )
        return
    fused = case.ranks(_TIME, category=kind, stat="fused")
    saved = {rank: seconds - fused.get(rank, seconds) for rank, seconds in chain_times.items()}
    has_savings = any(saved.values())
    yield case.finding(
        f"unfused_{kind}",
        f"{subject.replace('kernel', 'call')} take {chain_time} of a step, and one kernel could do each.",
        lost=saved if has_savings else chain_times,
        whatif=shortened_kernels(case, saved) if has_savings else (),
        no_gain=None if has_savings else "the bytes that calls move are unknown: record operator shapes",
        confidence="medium",
        because=f"by the order of the calls and the bytes that they move; {caveat}",
        evidence=evidence,
        query=_CALLS,
    )


@finding(
    "unfused_attention",
    title="attention runs as separate products, scale, mask and softmax",
    rule=f"{_TIME} attention",
    gain=_GAIN,
    actions={
        "pytorch": (
            "use torch.nn.functional.scaled_dot_product_attention, or attn_implementation='sdpa' or"
            " 'flash_attention_2' in transformers, which keep the scores on chip",
        ),
        "jax": ("use jax.nn.dot_product_attention with implementation='cudnn'",),
        "any": ("use a fused attention kernel, which keeps the scores on chip",),
    },
)
def unfused_attention(case: Case) -> Iterator[Finding]:
    yield from _unfused_chains(
        case, "attention", "Attention's products, scale, mask and softmax, each a kernel,"
    )


@finding(
    "unfused_norm",
    title="norms run as power, mean, root and products",
    rule=f"{_TIME} norm",
    gain=_GAIN,
    actions={
        "pytorch": (
            "compile the model, or its norms, with torch.compile",
            "use torch.nn.RMSNorm (torch.nn.functional.rms_norm), or kernels of Liger, Apex or Transformer"
            " Engine",
        ),
        "any": ("use a fused norm that includes the residual addition",),
    },
)
def unfused_norm(case: Case) -> Iterator[Finding]:
    yield from _unfused_chains(case, "norm", "Norms as power, mean, root and products, each a kernel,")


@finding(
    "unfused_activation",
    title="activations run as several kernels: gate and product, or GELU by its formula",
    rule=f"{_TIME} activation",
    gain=_GAIN,
    actions={
        "pytorch": (
            "compile the model, or its feed-forward layers, with torch.compile",
            "use torch.nn.functional.gelu or silu",
        ),
        "any": ("use a fused SwiGLU or GeGLU, such as Liger's or xFormers'",),
    },
)
def unfused_activation(case: Case) -> Iterator[Finding]:
    yield from _unfused_chains(
        case, "activation", "Activations as activation and product, or by their formula, each a kernel,"
    )


@finding(
    "unfused_rotary",
    title="rotary embeddings run as negation, concatenation, products and addition",
    rule=f"{_TIME} rotary",
    gain=_GAIN,
    actions={
        "pytorch": ("compile the model, or its attention, with torch.compile",),
        "any": ("use a fused rotary embedding, such as Liger's or FlashAttention's",),
    },
)
def unfused_rotary(case: Case) -> Iterator[Finding]:
    yield from _unfused_chains(case, "rotary", "Rotary embeddings in five kernels each")


@finding(
    "unfused_optimizer",
    title="the optimizer makes several passes over the parameters",
    rule=f"{_TIME} optimizer: one update per parameter, or lists of parameters in several passes",
    gain=_GAIN,
    actions={
        "pytorch": (
            "use the fused optimizer: torch.optim.AdamW(..., fused=True); foreach=True where there is none",
        ),
        "any": ("update all parameters in one pass: a fused optimizer",),
    },
)
def unfused_optimizer(case: Case) -> Iterator[Finding]:
    yield from _unfused_chains(case, "optimizer", "The optimizer's passes over parameters and moments")

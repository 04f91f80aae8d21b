# SPDX-License-Identifier: Apache-2.0
"""Chains of kernels that one could be: attention, norms, activations, rotary embeddings, the optimizer.

Where the CPU is the device the kernels are its operators.
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
    "each chain takes what one kernel takes at the roofline that reads what goes in and writes what comes"
    " out, and the thread that launches one call; where the CPU is the device, as much less time as such a"
    " kernel moves fewer bytes"
)

_CALLS: Final = """SELECT name, shapes, count(*) AS calls, sum(device_ns) AS ns FROM operators
WHERE device_ns > 0 GROUP BY ALL ORDER BY ns DESC LIMIT 20"""


def _unfused_chains(case: Case, kind: str, what: str) -> Iterator[Finding]:
    """What the kernels of chains of a kind take."""
    taken = case.ranks(_TIME, category=kind)
    if not any(taken.values()):
        return
    evidence = case.evidence((_TIME, {"category": kind}), _TIME, _BOUND_SHARE)
    between = "whether anything else needs what lies between is not in the trace"
    if not case.on_host:
        yield case.found(
            f"unfused_{kind}",
            f"{what} take {humanise(max(taken.values()), 's')} of a step, and one kernel could do each.",
            lost=taken,
            whatif=[f"kernels[chain={kind}].time=fused"],
            confidence="medium",
            because=f"by the order of the calls that launch kernels; {between}",
            evidence=evidence,
            query=OPERATORS,
        )
        return
    fused = case.ranks(_TIME, category=kind, stat="fused")
    saved = {rank: seconds - fused.get(rank, seconds) for rank, seconds in taken.items()}
    known = any(saved.values())
    yield case.found(
        f"unfused_{kind}",
        f"{what.replace('kernel', 'call')} take {humanise(max(taken.values()), 's')} of a step, and one"
        " kernel could do each.",
        lost=saved if known else taken,
        whatif=shortened_kernels(case, saved) if known else (),
        no_gain=None if known else "the bytes that calls move are not known: record operators' shapes",
        confidence="medium",
        because=f"by the order of the calls and the bytes that they move; {between}",
        evidence=evidence,
        query=_CALLS,
    )


@finding(
    "unfused_attention",
    title="attention runs as products, scale, mask and softmax of its own",
    rule=f"{_TIME} attention",
    gain=_GAIN,
    actions={
        "pytorch": (
            "use torch.nn.functional.scaled_dot_product_attention, or attn_implementation='sdpa' or"
            " 'flash_attention_2' in transformers: the scores then stay on chip",
        ),
        "jax": ("use jax.nn.dot_product_attention with implementation='cudnn'",),
        "any": ("use a fused attention kernel: the scores then stay on chip",),
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
        "any": ("use a fused norm, with the residual's addition in it",),
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
            "use torch.nn.functional.gelu or silu, and a fused SwiGLU or GeGLU, as Liger and xFormers have",
        ),
        "any": ("use a fused SwiGLU or GeGLU",),
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
        "pytorch": (
            "compile the model, or its attention, with torch.compile",
            "use a fused rotary embedding, as Liger and FlashAttention have",
        ),
        "any": ("use a fused rotary embedding",),
    },
)
def unfused_rotary(case: Case) -> Iterator[Finding]:
    yield from _unfused_chains(case, "rotary", "Rotary embeddings in five kernels each")


@finding(
    "unfused_optimizer",
    title="the optimizer updates in several passes over the parameters",
    rule=f"{_TIME} optimizer: an update of its own for each parameter, or by lists in several passes",
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

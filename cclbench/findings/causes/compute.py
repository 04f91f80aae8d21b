# SPDX-License-Identifier: Apache-2.0
"""Compute: kernels that move bytes, are slowed by communication or by time, or run twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.causes.balance import straggler_of
from cclbench.findings.finding import Finding, finding
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_COMPUTE_TIME: Final = metric_name("compute.time")
_CATEGORY_SHARE: Final = metric_name("compute.category_share")
_EXPOSED_COMM: Final = metric_name("time.exposed_comm")
_BOUND_SHARE: Final = metric_name("memory.bound_share")
_HBM_UTILIZATION: Final = metric_name("memory.hbm_utilization")
_ROOFLINE_EFFICIENCY: Final = metric_name("compute.roofline_efficiency")
_CONTENTION: Final = metric_name("compute.contention")
_ACHIEVED_FLOPS: Final = metric_name("compute.achieved_flops")
_OVERLAPPED: Final = metric_name("time.overlapped")
_DRIFT: Final = metric_name("compute.drift")
_RECOMPUTE_SHARE: Final = metric_name("compute.recompute_share")
_PEAK_ALLOCATED: Final = metric_name("memory.peak_allocated")
_PEAK_RESERVED: Final = metric_name("memory.peak_reserved")

_SLOWED: Final = 1.03
"""How much longer kernels take from which on that is no noise."""
_APART: Final = 0.95
"""Share of pairs of an early and a late step of which the late one has to be longer."""
_MEMORY_BOUND: Final = ("elementwise", "copy", "normalization", "reduction")
_LEAST_SHARE: Final = 0.15
"""Share of compute time in such kernels from which on fusing them is worth a look."""


def shortened_kernels(case: Case, lost: Mapping[int, float]) -> list[str]:
    """The setting that takes so many seconds a step off the time of all kernels."""
    compute = case.ranks(_COMPUTE_TIME)
    whole = sum(compute.get(rank, 0.0) for rank in lost)
    if not whole:
        return []
    factor = max(1 - sum(lost.values()) / whole, 0.0)
    return [f"kernels.time={f'x{factor:.3f}' if factor >= 0.001 else '0'}"]


@finding(
    "memory_bound",
    title="much of the compute time moves bytes and computes little",
    rule="elementwise, copying, normalising and reducing kernels take 15 % of the compute time and more",
    gain="not known: how many can be fused is not in a trace",
    actions={
        "pytorch": (
            "fuse them with torch.compile",
            "use fused norms, activations and attention: torch.nn.functional.rms_norm,"
            " scaled_dot_product_attention, kernels of Liger or Apex",
            "look for .contiguous(), casts and copies that a layout or precision chosen once would save",
        ),
        "any": (
            "fuse neighbouring kernels, so that what lies between stays on chip",
            "keep what is moved in lower precision",
        ),
    },
)
def memory_bound(case: Case) -> Iterator[Finding]:
    shares = [case.ranks(_CATEGORY_SHARE, category=name) for name in _MEMORY_BOUND]
    compute, exposed = case.ranks(_COMPUTE_TIME), case.ranks(_EXPOSED_COMM)
    lost = {}
    for rank, seconds in compute.items():
        # The shares are of the time in which any kernel runs, communication among them.
        kernels = seconds + exposed.get(rank, 0.0)
        lost[rank] = min(seconds, kernels * sum(of.get(rank, 0.0) for of in shares))
    share = max((own / compute[rank] for rank, own in lost.items() if compute[rank]), default=0.0)
    if share < _LEAST_SHARE:
        return
    parts = [(case.number(_CATEGORY_SHARE, category=name) or 0.0, name) for name in _MEMORY_BOUND]
    listed = ", ".join(
        f"{name} {humanise(part, '1')}" for part, name in sorted(parts, reverse=True)[:3] if part
    )
    yield case.found(
        "memory_bound",
        f"{humanise(share, '1')} of the compute time is in kernels that move bytes"
        f" and compute"
        f" little ({listed} of all kernel time).",
        lost=lost,
        no_gain="how many of these kernels can be fused away is not in the trace",
        confidence="low",
        because="by the kernels' kind; how many of them can be fused away is not in the trace",
        evidence=case.evidence(
            *[(_CATEGORY_SHARE, {"category": name}) for _, name in parts],
            _BOUND_SHARE,
            _HBM_UTILIZATION,
            _ROOFLINE_EFFICIENCY,
        ),
        query="SELECT rank, category, name, kernels, total_ns AS ns FROM kernel_summary"
        " WHERE category IN ('elementwise', 'copy', 'normalization', 'reduction') ORDER BY ns DESC LIMIT 20",
    )


@finding(
    "contention",
    title="kernels are slower beside communication",
    rule="compute.contention above 1.03, above 1 on every rank, and operators' shapes are recorded: without"
    " them the same kernel may do other work beside communication",
    gain="kernels are shorter by what overlapped ones take longer than alone",
    actions={
        "pytorch": (
            "give communication fewer SMs: NCCL_MAX_CTAS, NCCL_MIN_CTAS; or none: copy engines, NVLink SHARP",
        ),
        "any": ("let communication use fewer of the device's cores and less of its memory's bandwidth",),
    },
)
def contention(case: Case) -> Iterator[Finding]:
    row = case.row(_CONTENTION)
    if row is None or row.number < _SLOWED or "confounded" in (row.reason or ""):
        return
    if case.number(_ACHIEVED_FLOPS) is None or min(case.ranks(_CONTENTION).values(), default=0.0) < 1:
        return
    overlapped = case.ranks(_OVERLAPPED)
    lost = {rank: seconds * (1 - 1 / row.number) for rank, seconds in overlapped.items()}
    if any(lost.values()):
        yield case.found(
            "contention",
            f"Kernels take {humanise(row.number, 'ratio')} as long beside communication as alone.",
            lost=lost,
            whatif=shortened_kernels(case, lost),
            confidence="medium",
            because="the same kernels, grid and shapes are compared; what else differs beside"
            " communication is"
            " not known",
            evidence=case.evidence(_CONTENTION, _OVERLAPPED),
            query="SELECT name, rank, kernels, mean_ns, min_ns AS least_ns, max_ns AS most_ns"
            " FROM kernel_summary WHERE category != 'communication' AND kernels > 1"
            " ORDER BY most_ns - least_ns DESC LIMIT 20",
        )


@finding(
    "throttling",
    title="the same kernels become slower from step to step",
    rule="compute.drift above 1.03, last third of the steps against the first, and nearly every step of the"
    " last longer than every one of the first (stat later_longer, 95 %); of single ranks where one of them is"
    " balance.straggler_rank",
    gain="kernels run at the speed of their rank's fastest step",
    actions={
        "any": (
            "look at clocks, power limit and temperature over time (nvidia-smi dmon, rocm-smi), and at the"
            " room's cooling",
            "lock the clocks for measurements: nvidia-smi --lock-gpu-clocks",
        ),
    },
)
def throttling(case: Case) -> Iterator[Finding]:
    apart = case.ranks(_DRIFT, stat="later_longer")
    ratios = {rank: ratio for rank, ratio in case.ranks(_DRIFT).items() if apart[rank] >= _APART}
    worst = max(ratios, key=lambda rank: ratios[rank], default=None)
    if worst is None or ratios[worst] < _SLOWED:
        return
    compute = case.ranks(_COMPUTE_TIME)
    lost = {
        rank: compute.get(rank, 0.0) * (1 - 1 / ratio) for rank, ratio in ratios.items() if ratio > _SLOWED
    }
    alone, late = len(lost) < len(apart), straggler_of(case)
    if alone and (late is None or late.rank not in lost):
        return  # of many ranks one is slower in its last steps by chance
    where = f" on rank {worst}" if alone else f" on all {len(lost)} ranks" if len(lost) > 1 else ""
    yield case.found(
        "throttling",
        f"The same kernels take {ratios[worst] - 1:.0%} longer in the last third of the steps than in"
        f" the first"
        f"{where}.".replace("%", " %"),
        lost=lost,
        whatif=["kernels.time=fastest"],
        confidence="medium",
        because="kernels of one name and grid are compared; work that grows from step to step looks like it",
        ranks=sorted(lost) if alone else (),
        evidence=case.evidence(_DRIFT),
        query="SELECT rank, step, name, grid_x, count(*) AS kernels, avg(dur_ns) AS mean_ns FROM events"
        " WHERE kind = 'kernel' AND category != 'communication' GROUP BY ALL ORDER BY name, grid_x,"
        " rank, step",
    )


@finding(
    "recompute",
    title="the backward pass runs forward operators again",
    rule="compute.recompute_share above 0",
    gain="kernels are shorter by the recomputed ones, at the price of memory",
    actions={
        "any": (
            "checkpoint fewer layers, or selectively (attention alone), where memory allows it: see"
            " `cclbench memory SOURCE`",
            "keep activations in lower precision, or offload them",
        ),
    },
)
def recompute(case: Case) -> Iterator[Finding]:
    shares, compute = case.ranks(_RECOMPUTE_SHARE), case.ranks(_COMPUTE_TIME)
    lost = {rank: share * compute.get(rank, 0.0) for rank, share in shares.items()}
    if any(lost.values()):
        yield case.found(
            "recompute",
            f"The backward pass runs forward operators again (activation checkpointing):"
            f" {humanise(max(shares.values()), '1')} of the compute time.",
            lost=lost,
            whatif=shortened_kernels(case, lost),
            because="operators that autograd records anew within a node of the backward graph",
            evidence=case.evidence(_RECOMPUTE_SHARE, _PEAK_ALLOCATED, _PEAK_RESERVED),
            query="SELECT rank, name, module, count(*) AS calls, sum(device_ns) AS ns FROM operators"
            " WHERE recomputed GROUP BY ALL ORDER BY ns DESC LIMIT 20",
        )

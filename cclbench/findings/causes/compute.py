# SPDX-License-Identifier: Apache-2.0
"""Compute: memory-bound kernels, kernels slowed by communication or over time, recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.causes.balance import straggler_of
from cclbench.findings.finding import Finding, finding
from cclbench.findings.losses import largest_rank, parts_words
from cclbench.ground.units import humanise
from cclbench.operators.chains import NEIGHBOURS
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
"""Kernels that take at least this many times as long are slower by more than noise."""
_APART: Final = 0.95
"""Share of pairs of an early and a late step in which the late one has to be longer."""
_MEMORY_BOUND: Final = ("elementwise", "copy", "normalization", "reduction")
_LEAST_SHARE: Final = 0.15
"""Least share of compute time in such kernels to report."""


def shortened_kernels(case: Case, lost: Mapping[int, float]) -> list[str]:
    """The setting that shortens all kernels by these seconds a step."""
    compute = case.ranks(_COMPUTE_TIME)
    compute_s = sum(compute.get(rank, 0.0) for rank in lost)
    if not compute_s:
        return []
    factor = max(1 - sum(lost.values()) / compute_s, 0.0)
    return [f"kernels.time={f'x{factor:.3f}' if factor >= 0.001 else '0'}"]


@finding(
    "memory_bound",
    title="much of the compute time is in memory-bound kernels",
    rule="elementwise, copy, normalization and reduction kernels take at least 15 % of the compute time",
    gain="at most that neighbouring elementwise calls, copies and reductions on as many elements become one"
    " kernel; a trace does not show which of them depend on each other",
    actions={
        "pytorch": (
            "fuse them with torch.compile",
            "use fused norms, activations and attention: torch.nn.functional.rms_norm,"
            " scaled_dot_product_attention, kernels of Liger or Apex",
            "look for .contiguous(), casts and copies that a consistent layout or precision would avoid",
        ),
        "any": (
            "fuse neighbouring kernels, so that intermediate results stay on chip",
            "store tensors in lower precision",
        ),
    },
)
def memory_bound(case: Case) -> Iterator[Finding]:
    shares = [case.ranks(_CATEGORY_SHARE, category=name) for name in _MEMORY_BOUND]
    compute, exposed = case.ranks(_COMPUTE_TIME), case.ranks(_EXPOSED_COMM)
    lost = {}
    for rank, seconds in compute.items():
        # The shares are of the time in which any kernel runs, including communication.
        kernels = seconds + exposed.get(rank, 0.0)
        lost[rank] = min(seconds, kernels * sum(by_rank.get(rank, 0.0) for by_rank in shares))
    of_compute = {rank: rank_s / compute[rank] for rank, rank_s in lost.items() if compute[rank]}
    most = largest_rank(of_compute)
    if most is None or of_compute[most] < _LEAST_SHARE:
        return
    memory_bound_share = sum(by_rank.get(most, 0.0) for by_rank in shares)
    parts = [
        (of_compute[most] * by_rank.get(most, 0.0) / memory_bound_share, name)
        for by_rank, name in zip(shares, _MEMORY_BOUND, strict=True)
    ]
    where = f" on rank {most}" if len(compute) > 1 else ""
    yield case.finding(
        "memory_bound",
        f"{humanise(of_compute[most], '1')} of the compute time{where} is in memory-bound kernels"
        f"{parts_words(parts, '1')}.",
        lost=lost,
        whatif=() if case.on_host else [f"kernels[chain={NEIGHBOURS}].time=fused"],
        surely=[],
        no_gain="the trace does not show how many of these kernels can be fused",
        confidence="low",
        because="by kernel category; the trace does not show how many can be fused",
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
    title="kernels are slower while communication runs",
    rule="compute.contention above 1.03, or no limit of it, the excess above 0 on every rank, and operator"
    " shapes are recorded: without them the same kernel may do different work while communication runs",
    gain="overlapped kernels take the time they take alone; at least those that also run alone",
    actions={
        "pytorch": (
            "give communication fewer SMs: NCCL_MAX_CTAS, NCCL_MIN_CTAS; or none: copy engines, NVLink SHARP",
        ),
        "any": ("let communication use fewer of the device's cores and less of its memory bandwidth",),
    },
)
def contention(case: Case) -> Iterator[Finding]:
    excess, overlapped = case.ranks(_CONTENTION, stat="excess"), case.ranks(_OVERLAPPED)
    if case.number(_ACHIEVED_FLOPS) is None or min(excess.values(), default=0.0) <= 0:
        return
    if sum(excess.values()) > _SLOWED * sum(overlapped.get(rank, 0.0) for rank in excess):
        return  # communication cannot delay kernels by more than it overlaps them
    ratio = case.number(_CONTENTION)
    if ratio is not None and ratio < _SLOWED:
        return
    share = 1.0 if ratio is None else 1 - 1 / ratio
    lost = {rank: seconds * share for rank, seconds in overlapped.items()}
    slowed = (
        "stand still while communication runs"
        if ratio is None
        else f"take {humanise(ratio, 'ratio')} as long while communication runs as alone"
    )
    if any(lost.values()):
        yield case.finding(
            "contention",
            f"Kernels {slowed}.",
            lost=lost,
            whatif=shortened_kernels(case, lost),
            surely=shortened_kernels(case, {rank: min(excess.get(rank, 0.0), lost[rank]) for rank in lost}),
            confidence="medium",
            because="compares kernels of the same name, grid and shapes; other differences are unknown",
            evidence=case.evidence(_CONTENTION, _OVERLAPPED),
            query="SELECT name, rank, kernels, mean_ns, min_ns AS least_ns, max_ns AS most_ns"
            " FROM kernel_summary WHERE category != 'communication' AND kernels > 1"
            " ORDER BY most_ns - least_ns DESC LIMIT 20",
        )


@finding(
    "throttling",
    title="the same kernels get slower over the steps",
    rule="compute.drift above 1.03 (last third of the steps against the first), and in 95 % of the pairs of"
    " an early and a late step the late one is longer (stat later_longer); on single ranks only where"
    " balance.straggler_rank names one of them",
    gain="kernels run at the speed of their rank's fastest step",
    actions={
        "any": (
            "check clocks, power limit and temperature over time (nvidia-smi dmon, rocm-smi), and cooling",
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
    single_ranks, late = len(lost) < len(apart), straggler_of(case)
    if single_ranks and (late is None or late.rank not in lost):
        return  # among many ranks one is slower in its last steps by chance
    where = f" on rank {worst}" if single_ranks else f" on all {len(lost)} ranks" if len(lost) > 1 else ""
    yield case.finding(
        "throttling",
        f"The same kernels take {ratios[worst] - 1:.0%} longer in the last third of the steps than in"
        f" the first{where}.".replace("%", " %"),
        lost=lost,
        whatif=["kernels.time=fastest"],
        confidence="medium",
        because="compares kernels of the same name and grid; work that grows over the steps looks the same",
        ranks=sorted(lost) if single_ranks else (),
        evidence=case.evidence(_DRIFT),
        query="SELECT rank, step, name, grid_x, count(*) AS kernels, avg(dur_ns) AS mean_ns FROM events"
        " WHERE kind = 'kernel' AND category != 'communication' GROUP BY ALL ORDER BY name, grid_x,"
        " rank, step",
    )


@finding(
    "recompute",
    title="the backward pass recomputes forward operators",
    rule="compute.recompute_share above 0",
    gain="recomputed kernels and the host's calls for them take no time, at the cost of memory",
    actions={
        "any": (
            "checkpoint fewer layers, or only attention, where memory allows it: see"
            " `cclbench memory SOURCE`",
            "keep activations in lower precision, or offload them",
        ),
    },
)
def recompute(case: Case) -> Iterator[Finding]:
    shares, compute = case.ranks(_RECOMPUTE_SHARE), case.ranks(_COMPUTE_TIME)
    lost = {rank: share * compute.get(rank, 0.0) for rank, share in shares.items()}
    if any(lost.values()):
        yield case.finding(
            "recompute",
            f"The backward pass recomputes forward operators (activation checkpointing):"
            f" {humanise(max(shares.values()), '1')} of the compute time.",
            lost=lost,
            whatif=shortened_kernels(case, lost) if case.on_host else ["kernels[recomputed].time=0"],
            because="forward operators that autograd records again within the backward pass",
            evidence=case.evidence(_RECOMPUTE_SHARE, _PEAK_ALLOCATED, _PEAK_RESERVED),
            query="SELECT rank, name, module, count(*) AS calls, sum(device_ns) AS ns FROM operators"
            " WHERE recomputed GROUP BY ALL ORDER BY ns DESC LIMIT 20",
        )

# SPDX-License-Identifier: Apache-2.0
"""The capture itself: what it lacks for an analysis, and steps that are not representative."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.finding import Confidence, Finding, finding
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.record.step_means import middle_rank, step_means

_STEP: Final = metric_name("time.step")
_IDLE_HOST_BY: Final = metric_name("time.idle_host_by")
_IDLE_HOST: Final = metric_name("time.idle_host")
_EXPOSED_UNMATCHED: Final = metric_name("time.exposed_unmatched")
_ACHIEVED_FLOPS: Final = metric_name("compute.achieved_flops")
_BUSY: Final = metric_name("compute.busy")
_IDLE_UNKNOWN: Final = metric_name("time.idle_unknown")
_IDLE: Final = metric_name("time.idle")
_LOGGED_OVERHEAD: Final = metric_name("log.profiler_overhead")

_LONGER: Final = 1.3
"""First steps that take at least this many times the median of the others are warm-up."""
_LEAST_STEPS: Final = 3
_COSTLY: Final = 0.03
"""Least profiler overhead to report, as a share of an unprofiled step."""
_UNLINKED: Final = 0.1
"""Least share of the step, idle for an unknown reason, to report that launches are missing."""


@finding(
    "warm_up",
    title="the first steps take longer than the others",
    rule="at least three steps, and time.step of the first ones at least 1.3 times the median of the others",
    gain="none: only the mean changes; leave them out",
    actions={
        "any": (
            "leave them out (--steps N:), or capture after a warm-up:"
            " torch.profiler.schedule(wait=..., warmup=...)",
        ),
    },
)
def warm_up(case: Case) -> Iterator[Finding]:
    steps = list(case.results.steps(_STEP).items())
    if len(steps) < _LEAST_STEPS:
        return
    usual = median(seconds for _, seconds in steps[1:])
    slow_steps = [number for number, seconds in steps[: len(steps) // 2] if seconds >= _LONGER * usual]
    # Longer steps in the middle are not warm-up.
    slow_steps = [number for place, number in enumerate(slow_steps) if number == steps[place][0]]
    if slow_steps and usual:
        warm_up_s = dict(steps)[slow_steps[-1]]
        next_step = next(number for number, _ in steps if number > slow_steps[-1])
        yield case.finding(
            "warm_up",
            f"Step {slow_steps[-1]} takes {humanise(warm_up_s, 's')}, the others {humanise(usual, 's')}:"
            f" leave it out with --steps {next_step}:.",
            because="exact step times",
            evidence=case.evidence(_STEP, (_STEP, {"stat": "p50"}), (_STEP, {"stat": "max"})),
            query="SELECT rank, step, source, end_ns - start_ns AS ns FROM steps ORDER BY rank, start_ns",
        )


@finding(
    "before_capture",
    title="the capture begins while the device runs earlier work",
    rule="time.idle_host_by capture: the host waits for work launched before the capture, or nothing has run"
    " yet",
    gain="none: the capture does not contain what the host waits for",
    actions={"any": ("capture a few more steps, and look at later ones: --steps 1:",)},
)
def before_capture(case: Case) -> Iterator[Finding]:
    lost = case.ranks(_IDLE_HOST_BY, category="capture")
    if any(lost.values()):
        most = max(lost, key=lambda rank: lost[rank])
        yield case.finding(
            "before_capture",
            f"The device runs nothing that was captured for {humanise(lost[most], 's')}: what follows waits"
            " for work launched before the capture began.",
            lost=lost,
            host_causes=["capture"],
            no_gain="the device ran work launched before the capture",
            because="the host is in a wait that began before the first captured launch, or the first event"
            " of a stream begins long after its launch",
            evidence=case.evidence(_IDLE_HOST, (_IDLE_HOST_BY, {"category": "capture"})),
            query="SELECT rank, kind, name, start_ns, dur_ns FROM events WHERE kind IN ('launch', 'sync',"
            " 'kernel', 'copy', 'graph') ORDER BY start_ns LIMIT 20",
        )


@finding(
    "missing_ranks",
    title="ranks of the job have no trace",
    rule="fewer traces than the world size, and there are collectives",
    gain="none: wait and transfer cannot be separated",
    actions={"any": ("capture all ranks, or all of one replica, and put their files into one folder",)},
)
def missing_ranks(case: Case) -> Iterator[Finding]:
    ranks = case.record.ranks
    world = max((rank.facts.world_size or 0 for rank in ranks), default=0)
    unmatched = case.number(_EXPOSED_UNMATCHED)
    if 0 < len(ranks) < world and unmatched:
        yield case.finding(
            "missing_ranks",
            f"{len(ranks)} of {world} ranks have a trace: how much of {humanise(unmatched, 's')} exposed"
            " communication is waiting is unknown.",
            because="the traces state the world size",
            evidence=case.evidence(_EXPOSED_UNMATCHED),
        )


@finding(
    "open_step",
    title="the capture contains no complete step",
    rule="no step is followed by another, so the end of the step is unknown",
    gain="none: the step is taken to end with its last device event",
    actions={"any": ("capture at least two steps: torch.profiler.schedule(active=5)",)},
)
def open_step(case: Case) -> Iterator[Finding]:
    scope = case.results.scope
    if scope.open_steps and not scope.steps:
        yield case.finding(
            "open_step",
            "The capture contains a single step: where it ends and how steps vary is unknown.",
            because="the step annotations of the trace",
            evidence=case.evidence(_STEP),
        )


@finding(
    "no_steps",
    title="steps are not marked",
    rule="the figures cover the whole trace",
    gain="none: the time of a step is unknown",
    actions={
        "pytorch": ("call profiler.step() at the end of each step, or name your own: --step-annotation",),
        "any": ("annotate steps, and name the annotation with --step-annotation",),
    },
)
def no_steps(case: Case) -> Iterator[Finding]:
    if case.results.scope.windows == ["trace"] and case.record.ranks:
        yield case.finding(
            "no_steps",
            "The traces mark no steps: the figures cover the whole capture.",
            because="no known step annotation, no main module's calls, no repeated graph launches",
            evidence=case.evidence(_STEP),
        )


@finding(
    "no_shapes",
    title="operators are recorded without shapes",
    rule="kernels are linked to operators, but their FLOPs are unknown",
    gain="none: how far kernels are from the device's limits is unknown",
    actions={"pytorch": ("profile with record_shapes=True, with_stack=True for modules",)},
)
def no_shapes(case: Case) -> Iterator[Finding]:
    linked = any(rank.operators for rank in case.record.ranks)
    if linked and case.number(_ACHIEVED_FLOPS) is None and case.number(_BUSY):
        why = case.results.missing_reason(_ACHIEVED_FLOPS)
        yield case.finding(
            "no_shapes",
            f"How far kernels are from the device's limits is unknown: {why}.",
            because="the operators' recorded arguments",
        )


@finding(
    "unlinked_launches",
    title="launches are not recorded",
    rule="at least 10 % of the step is idle time without a recorded launch",
    gain="none: what the device waits for is unknown",
    actions={
        "pytorch": ("record the host as well: ProfilerActivity.CPU besides CUDA",),
        "any": ("trace runtime calls besides device activity (nsys --trace=cuda,nvtx)",),
    },
)
def unlinked_launches(case: Case) -> Iterator[Finding]:
    unknown, step = case.number(_IDLE_UNKNOWN), case.step_s
    if unknown and step and unknown / step >= _UNLINKED:
        yield case.finding(
            "unlinked_launches",
            f"The device is idle for {humanise(unknown, 's')} of a step, and no recorded launch explains it.",
            because="no launch is linked to the events that end those gaps",
            evidence=case.evidence(_IDLE_UNKNOWN, _IDLE),
        )


@finding(
    "profiler_overhead",
    title="the profiler makes steps longer",
    rule="profiled steps take at least 3 % longer than unprofiled ones on the median rank, where the capture"
    " timed both, as cclbench.torch.profile and cclbench.jax.profile do; else by the job's log, if it is"
    " beside the trace (log.profiler_overhead)",
    gain="none: the job gains it without the profiler; the run's times include it",
    actions={
        "pytorch": (
            "record less: cclbench.torch.profile(shapes=False); stacks, memory and execution_trace only"
            " where needed",
        ),
        "jax": ("record less: cclbench.jax.profile(stacks=False)",),
        "any": ("compare only runs with the same capture options",),
    },
)
def profiler_overhead(case: Case) -> Iterator[Finding]:
    ranks = step_means(case.record)
    if not ranks:
        yield from _overhead_by_log(case)
        return
    if (rank := middle_rank(ranks)).relative_overhead < _COSTLY:
        return
    confidence: Confidence = "low"
    because = "some unprofiled steps are as long as some profiled ones"
    if all(means.is_apart for means in ranks):
        confidence = "high"
        because = "on every rank each profiled step is longer than any unprofiled one"
    elif any(means.is_apart is None for means in ranks):
        confidence, because = "medium", "steps were timed together, not one by one"
    records = f", which records {', '.join(rank.records)}" if rank.records else ""
    yield case.finding(
        "profiler_overhead",
        f"Under the profiler{records}, a step takes {humanise(rank.relative_overhead, '1')} longer:"
        f" {humanise(rank.profiled_step_s, 's')} against {humanise(rank.unprofiled_step_s, 's')} without"
        f" it (means of {rank.profiled_steps} and {rank.unprofiled_steps} steps of rank {rank.rank}).",
        because=because,
        confidence=confidence,
    )


def _overhead_by_log(case: Case) -> Iterator[Finding]:
    overhead = case.row(_LOGGED_OVERHEAD)
    if overhead is None or overhead.value is None or overhead.value < _COSTLY:
        return
    logged = case.number(_LOGGED_OVERHEAD, stat="logged")
    confidence: Confidence = "low"
    because = "the log does not time a step that a profiler recorded: other causes are possible"
    if logged is not None and logged >= _COSTLY:
        confidence = "medium"
        because = f"the log's own times of profiled steps are at least {humanise(logged, '1')} longer"
    yield case.finding(
        "profiler_overhead",
        f"A traced step takes {humanise(overhead.value, '1')} longer than the job's steps without a profiler:"
        f" {overhead.reason}.",
        because=because,
        confidence=confidence,
        evidence=case.evidence(_LOGGED_OVERHEAD),
    )

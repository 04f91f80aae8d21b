# SPDX-License-Identifier: Apache-2.0
"""The capture: what it lacks for an answer, and what in it is no usual step."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.finding import Confidence, Finding, finding
from cclbench.findings.step_means import middle_rank, step_means
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_STEP: Final = metric_name("time.step")
_IDLE_HOST_BY: Final = metric_name("time.idle_host_by")
_IDLE_HOST: Final = metric_name("time.idle_host")
_EXPOSED_UNMATCHED: Final = metric_name("time.exposed_unmatched")
_ACHIEVED_FLOPS: Final = metric_name("compute.achieved_flops")
_BUSY: Final = metric_name("compute.busy")
_IDLE_UNKNOWN: Final = metric_name("time.idle_unknown")
_IDLE: Final = metric_name("time.idle")

_LONGER: Final = 1.3
"""How much longer than the others' median first steps take from which on they are warm-up."""
_LEAST_STEPS: Final = 3
_COSTLY: Final = 0.03
"""Share of an unprofiled step from which on what the profiler adds is told."""
_UNLINKED: Final = 0.1
"""Share of the step that is idle for an unknown reason from which on launches are missed."""


@finding(
    "warm_up",
    title="the first steps take longer than the others",
    rule="time.step of the first steps 1.3 times the median of all others and more, of three steps and more",
    gain="none: it is the mean that changes; leave them out",
    actions={
        "any": (
            "leave them out: --steps N: ; or capture after a warm-up, as"
            " torch.profiler.schedule(wait=..., warmup=...)"
            " does",
        ),
    },
)
def warm_up(case: Case) -> Iterator[Finding]:
    steps = list(case.results.steps(_STEP).items())
    if len(steps) < _LEAST_STEPS:
        return
    usual = median(seconds for _, seconds in steps[1:])
    first = [number for number, seconds in steps[: len(steps) // 2] if seconds >= _LONGER * usual]
    # Steps in the middle that take longer are no warm-up.
    first = [number for place, number in enumerate(first) if number == steps[place][0]]
    if first and usual:
        until = dict(steps)[first[-1]]
        after = next(number for number, _ in steps if number > first[-1])
        yield case.found(
            "warm_up",
            f"Step {first[-1]} takes {humanise(until, 's')}, the others {humanise(usual, 's')}: leave"
            f" it out with"
            f" --steps {after}:.",
            because="exact step times",
            evidence=case.evidence(_STEP, (_STEP, {"stat": "p50"}), (_STEP, {"stat": "max"})),
            query="SELECT rank, step, source, end_ns - start_ns AS ns FROM steps ORDER BY rank, start_ns",
        )


@finding(
    "before_capture",
    title="the capture begins while the device does earlier work",
    rule="time.idle_host_by capture: the host waits for what was launched before the capture, or nothing"
    " has run yet",
    gain="none: the capture does not hold what is waited for",
    actions={"any": ("capture a few steps more, and look at later ones: --steps 1:",)},
)
def before_capture(case: Case) -> Iterator[Finding]:
    lost = case.ranks(_IDLE_HOST_BY, category="capture")
    if any(lost.values()):
        most = max(lost, key=lambda rank: lost[rank])
        yield case.found(
            "before_capture",
            f"The device does nothing of the capture for {humanise(lost[most], 's')}: what follows waits for"
            " work that was launched before the capture began.",
            lost=lost,
            host_causes=["capture"],
            no_gain="what the device did meanwhile was launched before the capture",
            because="the host is in a wait that began before anything of the capture was launched, or the"
            " first row of a stream begins long after its launch",
            evidence=case.evidence(_IDLE_HOST, (_IDLE_HOST_BY, {"category": "capture"})),
            query="SELECT rank, kind, name, start_ns, dur_ns FROM events WHERE kind IN ('launch', 'sync',"
            " 'kernel', 'copy', 'graph') ORDER BY start_ns LIMIT 20",
        )


@finding(
    "missing_ranks",
    title="ranks of the job have no trace",
    rule="fewer traces than ranks of the world, and there are collectives",
    gain="none: waiting cannot be told from transfer",
    actions={"any": ("capture all ranks, or all of one replica, and put their files into one folder",)},
)
def missing_ranks(case: Case) -> Iterator[Finding]:
    ranks = case.record.ranks
    world = max((rank.facts.world_size or 0 for rank in ranks), default=0)
    unmatched = case.number(_EXPOSED_UNMATCHED)
    if 0 < len(ranks) < world and unmatched:
        yield case.found(
            "missing_ranks",
            f"{len(ranks)} of {world} ranks have a trace: of {humanise(unmatched, 's')} exposed communication"
            " nobody can tell how much is waiting.",
            because="the traces state the size of the world",
            evidence=case.evidence(_EXPOSED_UNMATCHED),
        )


@finding(
    "open_step",
    title="the capture holds no whole step",
    rule="no step is followed by another, so that nobody knows where it ends",
    gain="none: the step's end is that of its last device event",
    actions={"any": ("capture two steps and more: torch.profiler.schedule(active=5)",)},
)
def open_step(case: Case) -> Iterator[Finding]:
    scope = case.results.scope
    if scope.open_steps and not scope.steps:
        yield case.found(
            "open_step",
            "The capture holds one step, which none follows: where it ends, and how steps differ, is"
            " not known.",
            because="the step annotations of the trace",
            evidence=case.evidence(_STEP),
        )


@finding(
    "no_steps",
    title="nothing marks steps",
    rule="the figures are of the whole trace",
    gain="none: what a step takes is not known",
    actions={
        "pytorch": ("call profiler.step() at the end of each step, or name your own: --step-annotation",),
        "any": ("annotate steps; name their annotation with --step-annotation",),
    },
)
def no_steps(case: Case) -> Iterator[Finding]:
    if case.results.scope.windows == ["trace"] and case.record.ranks:
        yield case.found(
            "no_steps",
            "No step is marked in the traces: the figures are of all that was captured.",
            because="no annotation of a known form, no main module's runs, no launches of graphs that repeat",
            evidence=case.evidence(_STEP),
        )


@finding(
    "no_shapes",
    title="operators are recorded without shapes",
    rule="kernels are linked to operators, and no FLOPs follow",
    gain="none: how far kernels are from the device's limits is not known",
    actions={"pytorch": ("profile with record_shapes=True, with_stack=True for modules",)},
)
def no_shapes(case: Case) -> Iterator[Finding]:
    linked = any(rank.operators for rank in case.record.ranks)
    if linked and case.number(_ACHIEVED_FLOPS) is None and case.number(_BUSY):
        why = case.results.missing_reason(_ACHIEVED_FLOPS)
        yield case.found(
            "no_shapes",
            f"How far kernels are from the device's limits is not known: {why}.",
            because="the operators' recorded arguments",
        )


@finding(
    "unlinked_launches",
    title="launches are not recorded",
    rule="10 % of the step is idle, and nobody can tell whether the host is late",
    gain="none: who makes the device wait is not known",
    actions={
        "pytorch": ("record the host, too: ProfilerActivity.CPU beside CUDA",),
        "any": ("trace the runtime's calls beside the device (nsys --trace=cuda,nvtx)",),
    },
)
def unlinked_launches(case: Case) -> Iterator[Finding]:
    unknown, step = case.number(_IDLE_UNKNOWN), case.step_s
    if unknown and step and unknown / step >= _UNLINKED:
        yield case.found(
            "unlinked_launches",
            f"The device is idle for {humanise(unknown, 's')} of a step, and no launch is recorded"
            f" that tells why.",
            because="no launch record is linked to what ends those gaps",
            evidence=case.evidence(_IDLE_UNKNOWN, _IDLE),
        )


@finding(
    "profiler_overhead",
    title="the profiler makes steps longer",
    rule="steps under the profiler take 3 % longer and more than those before it, on the middle one of the"
    " ranks, where the capture timed both, as cclbench.torch.profile and cclbench.jax.profile do",
    gain="none: the job has it without the profiler; the run's times include it",
    actions={
        "pytorch": (
            "record less: cclbench.torch.profile(shapes=False), and stacks, memory and execution_trace only"
            " where they are asked for",
        ),
        "jax": ("record less: cclbench.jax.profile(stacks=False)",),
        "any": ("compare runs of the same capture options only",),
    },
)
def profiler_overhead(case: Case) -> Iterator[Finding]:
    ranks = step_means(case.record)
    if not ranks or (own := middle_rank(ranks)).relative_overhead < _COSTLY:
        return
    confidence: Confidence = "low"
    because = "some steps without the profiler are as long as some under it"
    if all(one.is_apart for one in ranks):
        confidence = "high"
        because = "on every rank each step under the profiler is longer than any without it"
    elif any(one.is_apart is None for one in ranks):
        confidence, because = "medium", "steps are timed together, not one by one"
    records = f", which records {', '.join(own.records)}" if own.records else ""
    yield case.found(
        "profiler_overhead",
        f"Under the profiler{records}, a step takes {humanise(own.relative_overhead, '1')} longer:"
        f" {humanise(own.profiled_step_s, 's')} against {humanise(own.unprofiled_step_s, 's')} without"
        f" it (means of {own.profiled_steps} and {own.unprofiled_steps} steps of rank {own.rank}).",
        because=because,
        confidence=confidence,
    )

# SPDX-License-Identifier: Apache-2.0
"""Healthy jobs, and what makes them slow: causes planted with a strength, alone or together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal

from helpers.synthetic.program import (
    Await,
    Collective,
    Compute,
    Copy,
    Layout,
    Link,
    Network,
    Op,
    Pause,
    Program,
    Straggler,
    Synchronise,
    Transfer,
)
from helpers.synthetic.simulation import simulate
from helpers.synthetic.truth import Truth

Prepare = Callable[["Job", Random], "Job"]
Worsen = Callable[["Job", Random, float], "Job"]

MIB: Final = 1 << 20
_ELEMENTWISE: Final = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
_LAUNCH_NS: Final = 2_000
"""What the simulated host takes for a launch."""


def chance(seed: object) -> Random:
    return Random(str(seed))  # noqa: S311


@dataclass(frozen=True, slots=True)
class Job:
    """What to simulate, and what is wrong with it."""

    layout: Layout
    program: Program
    network: Network
    seed: int
    planted: tuple[str, ...] = ()
    healed: Job | None = None
    """It without what is wrong, of one disease."""

    def simulate(self) -> Truth:
        return simulate(self.layout, self.program, self.network, self.seed)

    def step_ns(self) -> float:
        """The mean over its steps of the slowest rank's."""
        steps: dict[int, list[int]] = {}
        for rank in self.simulate().ranks.values():
            for step in rank.steps:
                steps.setdefault(step.step, []).append(step.window_ns)
        return sum(map(max, steps.values())) / len(steps)

    @property
    def compute_ns(self) -> int:
        """What a rank's own kernels take in a step, about."""
        return sum(op.ns for op in self.program.ops if isinstance(op, Compute))


def healthy(random: Random) -> Job:
    """A data-parallel job of 2 to 8 ranks that computes, and hides its gradients' reduction behind that."""
    layout = Layout(dp=random.choice((2, 4, 8)), gpus_per_host=random.choice((4, 8)))
    layers = random.randint(4, 8)
    kernels = [random.randint(150_000, 400_000) for _ in range(3)]
    ops: list[Op] = []
    for layer in range(layers):
        ops += [Compute(ns) for ns in kernels]
        ops.append(Collective("all_reduce", "dp", 2 * MIB, label=f"gradient {layer}"))
        if layer:
            ops.append(Await(f"gradient {layer - 1}"))
    ops += [Compute(ns) for ns in kernels]
    program = Program(tuple(ops), steps=random.randint(3, 5), jitter=10, synchronise=False, closing=True)
    return Job(layout, program, Network(Link(8_000, random.randint(20, 60))), random.randint(0, 1 << 30))


@dataclass(frozen=True, slots=True)
class Disease:
    """What is planted, and the finding that has to name it. `prepare` gives a job the form in which it can be
    ill, `worsen` makes it so: by a share of its compute time, about.  `heal` is that job without the disease,
    where that is not the prepared job; None where there is no such job."""

    finding: str
    worsen: Worsen
    prepare: Prepare = lambda job, _: job
    heal: Worsen | Literal["prepared"] | None = "prepared"
    order: int = 1
    """Of two diseases the one of lower order is planted first; two of order 0, or 2, do not go together."""


def _inserted(job: Job, *ops: Op, every: int = 1, random: Random) -> Job:
    """The job with those operations somewhere in its step, `every` times."""
    found = list(job.program.ops)
    places = sorted(random.sample(range(1, len(found)), min(every, len(found) - 1)), reverse=True)
    for place in places:
        found[place:place] = ops
    return replace(job, program=replace(job.program, ops=tuple(found)))


def _begun(job: Job, *ops: Op) -> Job:
    """The job with those operations first in its step."""
    return replace(job, program=replace(job.program, ops=(*ops, *job.program.ops)))


def _synchronised(job: Job, _: Random) -> Job:
    """The job whose host waits for the device after each step, so that it is not ahead in the next."""
    return replace(job, program=replace(job.program, synchronise=True))


def _blocking(job: Job, _: Random) -> Job:
    """The job with collectives that compute waits for at once."""
    ops = [op for op in job.program.ops if not isinstance(op, Await)]
    waited = tuple(replace(op, label=None) if isinstance(op, Collective) else op for op in ops)
    return replace(job, program=replace(job.program, ops=waited))


def _several(job: Job, _: Random) -> Job:
    """The job with so many ranks and steps that one rank's lateness is no chance."""
    layout = job.layout if job.layout.world >= 4 else replace(job.layout, dp=4)
    return replace(job, layout=layout, program=replace(job.program, steps=max(5, job.program.steps)))


def _all(*prepare: Prepare) -> Prepare:
    def prepared(job: Job, random: Random) -> Job:
        for one in prepare:
            job = one(job, random)
        return job

    return prepared


def _held(row: tuple[str, str] | None) -> Worsen:
    def worsen(job: Job, _: Random, strength: float) -> Job:
        return _begun(job, Pause(round(job.compute_ns * strength), row))

    return worsen


def _late_host(job: Job, random: Random, strength: float) -> Job:
    """One rank's host pauses when a step begins."""
    late = Straggler(random.randrange(job.layout.world), "launch", round(job.compute_ns * strength))
    return replace(job, program=replace(job.program, stragglers=(late,)))


def _more_work(job: Job, random: Random, strength: float) -> Job:
    """One rank has another kernel to run before each of its collectives."""
    calls = [place for place, op in enumerate(job.program.ops) if isinstance(op, Collective)]
    rank, each = random.randrange(job.layout.world), round(job.compute_ns * strength / len(calls))
    late = tuple(Straggler(rank, "compute", each, op=place, name="void more_work()") for place in calls)
    return replace(job, program=replace(job.program, stragglers=late))


def _two_families(job: Job, random: Random) -> Job:
    """The job with elementwise kernels, too: a device that is slow slows them as it slows products."""
    return _inserted(job, Compute(100_000, _ELEMENTWISE), every=4, random=random)


def _slow_device(job: Job, random: Random, strength: float) -> Job:
    rank = random.randrange(job.layout.world)
    return replace(job, program=replace(job.program, slow={rank: 1000 + round(1000 * strength)}))


def _ten_steps(job: Job, _: Random) -> Job:
    return replace(job, program=replace(job.program, steps=10))


def _throttling(job: Job, _: Random, strength: float) -> Job:
    return replace(job, program=replace(job.program, drift=2 * round(1000 * strength)))


def _item(*before: Op) -> Worsen:
    """The host pauses again and again, `before` that it does something else."""

    def worsen(job: Job, random: Random, strength: float) -> Job:
        times = 12
        each = min(round(job.compute_ns * strength / times), 150_000)
        return _inserted(job, *before, Pause(each), every=times, random=random)

    return worsen


def _short_kernels(job: Job, random: Random, strength: float) -> Job:
    number = round(job.compute_ns * strength / _LAUNCH_NS)
    return _begun(job, *[Compute(random.randint(300, 900)) for _ in range(number)])


def _one_kernel(job: Job, random: Random, strength: float) -> Job:
    """The short kernels as one."""
    ill = _short_kernels(job, random, strength)
    short = ill.program.ops[: len(ill.program.ops) - len(job.program.ops)]
    return _begun(job, Compute(sum(op.ns for op in short if isinstance(op, Compute))))


def _memory_bound(job: Job, random: Random, strength: float) -> Job:
    each = round(job.compute_ns * strength / 10)
    return _inserted(job, Compute(each, _ELEMENTWISE), every=10, random=random)


def _copies(job: Job, random: Random, strength: float) -> Job:
    each = round(job.compute_ns * strength / 4)
    return _inserted(job, Copy(each, 8 * MIB), every=4, random=random)


def _no_overlap(job: Job, random: Random, strength: float) -> Job:
    unit = 1024 * 2 * job.layout.world
    size = 1024 * job.compute_ns * strength / job.network.common.ns_per_kib
    payload = max(unit, int(size) // unit * unit)
    return _inserted(job, Collective("all_gather", "dp", payload), random=random)


def _small_messages(job: Job, random: Random, strength: float) -> Job:
    each = job.network.common.transfer_ns(16 * 1024)
    number = max(10, round(job.compute_ns * strength / each))
    return _inserted(job, *[Collective("all_gather", "dp", 16 * 1024)] * number, random=random)


def _one_message(job: Job, random: Random, _: float) -> Job:
    """What the small messages say in one."""
    return _inserted(job, Collective("all_gather", "dp", 16 * 1024), random=random)


def _pairs(job: Job, random: Random) -> Job:
    """Pairs of ranks reduce between their kernels."""
    job = _blocking(job, random)
    return replace(job, layout=Layout(dp=2, tp=4), network=Network(Link(4_000, 4)))


def _slow_link(job: Job, random: Random, strength: float) -> Job:
    """One pair's link is slow."""
    group = job.layout.group(random.randrange(job.layout.world), "dp")
    calls = [op for op in job.program.ops if isinstance(op, Collective)]
    kib = sum(op.nbytes for op in calls) // 1024
    common = job.network.common
    slow = Link(common.alpha_ns, common.ns_per_kib + max(8, round(job.compute_ns * strength / kib)))
    return replace(job, network=Network(common, {("all_reduce", group): slow}))


def _stages(job: Job, random: Random) -> Job:
    """A pipeline of one micro-batch: each stage waits for the others."""
    compute = [op for op in job.program.ops if isinstance(op, Compute)]
    half = len(compute) // 2
    ops: list[Op] = []
    for way, kernels in ((1, compute[:half]), (-1, compute[half:])):
        ops += [Transfer("recv", MIB, way), *kernels, Transfer("send", MIB, way)]
    return replace(job, layout=Layout(pp=random.choice((2, 4))), program=replace(job.program, ops=tuple(ops)))


def _experts(job: Job, _: Random) -> Job:
    """Experts' ranks exchange once a layer."""
    found = [op for op in job.program.ops if not isinstance(op, Await)]
    exchange = Collective("all_to_all", "ep", 128 * 1024)
    ops = tuple(exchange if isinstance(op, Collective) else op for op in found)
    program = replace(job.program, ops=ops)
    return replace(job, layout=Layout(ep=4), program=program, network=Network(Link(4_000, 4)))


def _busy_experts(job: Job, random: Random, strength: float) -> Job:
    """Which rank's experts have most to do changes from call to call."""
    calls = [place for place, op in enumerate(job.program.ops) if isinstance(op, Collective)]
    each = round(job.compute_ns * strength / len(calls))
    late = tuple(
        Straggler(random.randrange(job.layout.world), "compute", each, op=place, step=step)
        for place in calls
        for step in range(job.program.steps)
    )
    return replace(job, program=replace(job.program, stragglers=late))


def _even_experts(job: Job, _: Random, strength: float) -> Job:
    """All experts have as much to do."""
    calls = sum(isinstance(op, Collective) for op in job.program.ops)
    each = round(job.compute_ns * strength / calls / job.layout.world)
    ops: list[Op] = []
    for op in job.program.ops:
        ops += [Compute(each), op] if isinstance(op, Collective) else [op]
    return replace(job, program=replace(job.program, ops=tuple(ops)))


_LATE: Final = _all(_several, _blocking)
DISEASES: Final = {
    "data loader": Disease(
        "data_loading", _held(("user_annotation", "enumerate(DataLoader)#next")), _synchronised
    ),
    "cudaMalloc": Disease("device_allocation", _held(("cuda_runtime", "cudaMalloc")), _synchronised),
    "python": Disease("host_bound", _held(None), _synchronised),
    "slow operators": Disease("host_bound", _held(("cpu_op", "aten::linear")), _synchronised),
    "item": Disease("synchronization", _item(Synchronise()), heal=_item()),
    "short kernels": Disease("short_kernels", _short_kernels, _synchronised, _one_kernel),
    "late host": Disease("late_rank", _late_host, _all(_LATE, _synchronised), order=2),
    "more work": Disease("late_rank", _more_work, _LATE, order=2),
    "slow device": Disease("slow_device", _slow_device, _all(_several, _two_families)),
    "throttling": Disease("throttling", _throttling, _ten_steps),
    "elementwise": Disease("memory_bound", _memory_bound),
    "copies": Disease("exposed_copies", _copies),
    "no overlap": Disease("exposed_communication", _no_overlap),
    "small messages": Disease("small_messages", _small_messages, heal=_one_message),
    "slow link": Disease("slow_link", _slow_link, _pairs, order=0),
    "pipeline": Disease("pipeline_bubble", lambda job, *_: job, _stages, heal=None, order=0),
    "experts": Disease("expert_imbalance", _busy_experts, _experts, _even_experts, order=2),
}


def sick(random: Random, *causes: str) -> Job:
    """A healthy job made worse by those causes, each by a fifth to a half of its compute time."""
    job = healthy(random)
    ordered = sorted((DISEASES[cause] for cause in causes), key=lambda one: one.order)
    for one in ordered:
        job = one.prepare(job, random)
    drawn = random.randint(0, 1 << 30)
    strengths = [random.uniform(0.2, 0.5) for _ in ordered]
    healed = job
    for place, (one, strength) in enumerate(zip(ordered, strengths, strict=True)):
        if len(ordered) == 1 and one.heal != "prepared":
            again = chance(drawn)
            healed = None if one.heal is None else one.heal(job, again, strength)
        job = one.worsen(job, chance(drawn + place), strength)
    return replace(job, planted=tuple(one.finding for one in ordered), healed=healed)


def go_together(one: str, other: str) -> bool:
    """Whether both can be planted in one job."""
    orders = {DISEASES[one].order, DISEASES[other].order}
    structural = {"slow link", "pipeline", "experts"}
    return one != other and orders not in ({0}, {2}) and not (structural & {one, other})

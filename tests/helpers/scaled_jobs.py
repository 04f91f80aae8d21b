# SPDX-License-Identifier: Apache-2.0
"""The same training program at two sizes: traced at the small one, simulated as well at the large one.

What is true is not what cclbench's models say: transfers take the catalog's times, each kind and group size
its own factor; matrix products lose a little where they are cut; ranks differ in speed, and kernels by
chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import exp
from random import Random

from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.replay.answer import Replay
from cclbench.replay.outcome import Predicted
from cclbench.replay.regroup import even_ranks
from cclbench.replay.scenario import parse_scenario
from helpers import replay_jobs
from helpers import synthetic as sim
from helpers.synthetic.program import Op
from helpers.true_steps import _true_step

SYSTEM = "dgx-h100"
SMALL, LARGE = 8, 64
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """A program by its sizes: micro-batches, layers, kernels' times on one rank, bytes of activations and
    of a layer's gradients before they are cut; and what is true of the machine."""

    small: sim.Layout
    large: sim.Layout
    microbatches: int
    layers: int
    gemm_ns: int
    other_ns: int
    activation: int
    gradient: int
    sharded: bool
    lost: float
    """Of a matrix product's time, what each doubling of the cut adds."""
    noise: float
    """Spread of the network's factors, in log time."""
    jitter: int
    speed: float
    """Spread of ranks' speeds."""
    seed: int

    def program(self, layout: sim.Layout) -> sim.Program:
        """What each rank does: all micro-batches forth, all back, gradients beside the last of these."""
        cut = layout.tp / self.small.tp
        gemm = round(self.gemm_ns / layout.tp * (1 + self.lost * max(cut - 1, 0) ** 0.5))
        layers = self.layers // layout.pp
        ops: list[Op] = []
        for way in (1, -1):
            for turn in range(self.microbatches):
                if layout.pp > 1:
                    ops.append(sim.Transfer("recv", self.activation, way))
                for layer in range(layers):
                    ops += self._layer(layout, gemm * (1 if way == 1 else 2))
                    if way == -1 and turn == self.microbatches - 1 and layout.dp > 1:
                        ops.append(self._gradients(layout, layer))
                if layout.pp > 1:
                    ops.append(sim.Transfer("send", self.activation, way, f"send {way} {turn}"))
        if layout.dp > 1:
            ops += [sim.Await(f"gradients {layer}") for layer in range(layers)]
        optimizer = 400_000 * layers / self.layers / layout.tp / (layout.dp if self.sharded else 1)
        ops.append(sim.Compute(max(round(optimizer), 1_000), "multi_tensor_apply_kernel_adam"))
        random = Random(f"{self.seed}/{layout.world}")  # noqa: S311 - chance that repeats
        slow = {rank: 1000 + abs(round(random.gauss(0, 1000 * self.speed))) for rank in range(layout.world)}
        return sim.Program(tuple(ops), steps=3, jitter=self.jitter, slow=slow, closing=True)

    def _layer(self, layout: sim.Layout, gemm: int) -> list[Op]:
        ops: list[Op] = []
        for _ in range(2):
            ops += [sim.Compute(gemm), sim.Compute(self.other_ns, "layer_norm_kernel")]
            if layout.tp > 1:
                ops.append(sim.Collective("all_reduce", "tp", self.activation))
        if layout.ep > 1:
            ops += [sim.Collective("all_to_all", "ep", self.activation), sim.Compute(gemm)]
            ops.append(sim.Collective("all_to_all", "ep", self.activation))
        return ops

    def _gradients(self, layout: sim.Layout, layer: int) -> Op:
        kind = "reduce_scatter" if self.sharded else "all_reduce"
        return sim.Collective(kind, "dp", self.gradient // layout.tp, f"gradients {layer}")

    @property
    def network(self) -> sim.Network:
        return PricedNetwork(noise=self.noise, seed=self.seed)

    @property
    def settings(self) -> list[str]:
        names = ("dp", "tp", "pp", "ep")
        pairs = [(name, getattr(self.small, name), getattr(self.large, name)) for name in names]
        return [f"parallelism.{name}={new}" for name, old, new in pairs if old != new]


@dataclass(frozen=True)
class PricedNetwork(sim.Network):
    """Transfers as the catalog's machine is modelled, times a factor of their own; `places` are those of
    ranks that do not stand where their number says."""

    noise: float = 0.0
    seed: int = 0
    places: dict[int, int] = field(default_factory=dict)
    known: dict[tuple[str, tuple[int, ...]], sim.Link] = field(default_factory=dict)

    def link(self, kind: str, dimension: str, group: tuple[int, ...]) -> sim.Link:  # noqa: ARG002
        members = tuple(self.places.get(rank, rank) for rank in group[: 2 if kind == "send_recv" else None])
        key = kind, members
        if key not in self.known:
            shape = (kind, len(members), len({rank // 8 for rank in members}))
            chance = Random(f"{self.seed}/{shape}").gauss(0, 1)  # noqa: S311 - chance that repeats
            common = Random(f"{self.seed}/{kind}/{shape[2] > 1}").gauss(0, 1)  # noqa: S311
            factor = exp(self.noise * (common + chance / 2))
            self.known[key] = _Priced(0, 0, kind, members, factor)
        return self.known[key]


@dataclass(frozen=True)
class _Priced(sim.Link):
    """A link on which a transfer takes the model's time, times a factor."""

    kind: str = ""
    members: tuple[int, ...] = ()
    factor: float = 1.0
    times: dict[int, int] = field(default_factory=dict)

    def transfer_ns(self, nbytes: int) -> int:
        if nbytes not in self.times:
            even, (more, _, _) = even_ranks(self.kind, self.members, catalog.system(SYSTEM))
            found = price_collective(self.kind, nbytes, even, catalog.system(SYSTEM))
            assert not isinstance(found, NoPrice), found
            self.times[nbytes] = round(float(found.time_s[0]) * 1e9 * self.factor * more)
        return self.times[nbytes]


LAYOUTS = [
    (sim.Layout(dp=8), sim.Layout(dp=64)),
    (sim.Layout(dp=2, tp=4), sim.Layout(dp=16, tp=4)),
    (sim.Layout(dp=4, tp=2), sim.Layout(dp=32, tp=2)),
    (sim.Layout(dp=4, tp=2), sim.Layout(dp=8, tp=8)),
    (sim.Layout(dp=2, tp=2, pp=2), sim.Layout(dp=16, tp=2, pp=2)),
    (sim.Layout(dp=4, pp=2), sim.Layout(dp=16, pp=4)),
    (sim.Layout(dp=2, tp=2, pp=2), sim.Layout(dp=4, tp=4, pp=4)),
    (sim.Layout(dp=4, ep=2), sim.Layout(dp=8, ep=8)),
    (sim.Layout(dp=2, ep=4), sim.Layout(dp=8, ep=8)),
]
"""Layouts of 8 and of 64 ranks, the same dimensions cut in both."""


def job(seed: int) -> Job:
    random = Random(seed)  # noqa: S311 - chance that repeats
    small, large = LAYOUTS[seed % len(LAYOUTS)]
    pipelined = large.pp > 1
    return Job(
        small,
        large,
        microbatches=random.choice((4, 8)) if pipelined else 1,
        layers=random.choice((4, 8)) if pipelined else random.choice((2, 4, 6)),
        gemm_ns=random.randint(200_000, 2_000_000),
        other_ns=random.randint(5_000, 40_000),
        activation=random.choice((4, 8, 16)) * _MIB,
        gradient=random.choice((32, 64, 128, 256)) * _MIB,
        sharded=random.random() < 0.5,
        lost=random.uniform(0, 0.05),
        noise=0.15,
        jitter=random.choice((0, 20, 50)),
        speed=random.choice((0.0, 0.005, 0.01)),
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class Scaled:
    """A job's steps, ns: true at both sizes, and predicted; that and with everything but the layout the
    same."""

    job: Job
    small_ns: float
    large_ns: float
    predicted: Predicted

    @property
    def error(self) -> float:
        """Predicted / true − 1; of bounds alone their middle."""
        step = self.predicted.step_ns or (self.predicted.low_ns + self.predicted.high_ns) / 2
        return step / self.large_ns - 1

    @property
    def held(self) -> bool:
        return self.predicted.low_ns <= self.large_ns <= self.predicted.high_ns


def scaled(one: Job) -> Scaled:
    """The job traced small, predicted large, and simulated large."""
    truth = sim.simulate(one.small, one.program(one.small), one.network, one.seed)
    other = sim.simulate(one.large, one.program(one.large), one.network, one.seed + 1)
    with traced(one, truth) as replay:
        predicted = replay.predict(parse_scenario(one.settings))
    return Scaled(one, _true_step(truth), _true_step(other), predicted)


@contextmanager
def traced(one: Job, truth: sim.Truth) -> Iterator[Replay]:
    """The replay of the small job's traces, with a card that states its layout."""
    stated = {"model": {"layers": one.layers}, "microbatches": one.microbatches}
    with replay_jobs.traced(truth, **stated) as replay:  # type: ignore[arg-type]
        yield replay


def smaller(one: Job) -> Job:
    """The same with fewer layers and micro-batches, for a test."""
    return replace(one, microbatches=min(one.microbatches, 4), layers=one.large.pp)

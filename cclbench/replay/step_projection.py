# SPDX-License-Identifier: Apache-2.0
"""The step of a training job in another layout, from one measured step and sizes, without a trace.

    step = span of the pipeline's schedule + exchange of gradients + optimizer + rest

Each uncertain assumption has an edge at either side; a case is a combination of edges. The time of a layer in
a case is what makes the measured layout take its measured time, so errors that both layouts share cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log2
from typing import Final, NamedTuple

import numpy as np

from cclbench.card import Card
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.system import System
from cclbench.replay.change import TimeBounds
from cclbench.replay.crowd import expected_maximum
from cclbench.replay.layout import Layout
from cclbench.replay.placed import SPREAD
from cclbench.replay.rescale import card_sizes
from cclbench.replay.schedules import Float64, Schedule
from cclbench.replay.stages import HEAVY_HEAD, LayerPipeline, head_layers

_SIZES: Final = (
    "model.layers",
    "model.parameters",
    "model.hidden",
    "model.vocabulary",
    "batch.sequence_length",
    "element",
)
_GRADIENT: Final = 4
"""Bytes of a gradient of a framework that accumulates in 32 bits, the upper bound."""
_STATE: Final = 30.0
"""Bytes that Adam moves for a parameter in mixed precision: reads the gradient, the 32-bit copy
and two moments, writes these three and the parameter."""
_UNFUSED: Final = 4.0
"""Passes over them by an optimizer whose operations are not fused, the upper bound."""
OUTSIDE: Final = (0.018, 0.024)
"""Rest of a step, as a share: loading, host, logging. Mean and maximum of jobs ST and AR of J. Lin et
al. 2025, where 2.4 % and 1.3 % of a step are neither pipeline nor exchange nor optimizer."""
JITTER: Final = 0.006
"""Span of a step's pipeline against that with each stage's mean times: 0.995 to 1.006 in these two jobs."""
_MOST_EXPOSED: Final = 0.9
"""Share of a step that an exposed exchange of gradients can have."""
_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class JobLayout:
    """A layout of a training job: degrees, samples of a micro-batch and of a step, and the schedule."""

    degrees: Layout
    micro_batch: int
    global_batch: int
    schedule: Schedule = "1f1b"
    turns: int = 1

    @property
    def microbatches(self) -> int:
        """Micro-batches of a step on a replica; `InputError` where they are not whole."""
        count, remainder = divmod(self.global_batch, self.micro_batch * self.degrees.batch_groups)
        if remainder or not count:
            raise InputError(
                f"{self.global_batch:,} samples of a step are no whole micro-batches of"
                f" {self.micro_batch} on {self.degrees.batch_groups:,} replicas ({self.degrees})"
            )
        return count

    def distance(self, other: JobLayout) -> float:
        """How far apart stages, ranks and micro-batches are, the sum of the logarithms of their ratios."""
        return sum(abs(log2(own / its)) for own, its in zip(self._extent, other._extent, strict=True))

    @property
    def _extent(self) -> tuple[int, int, int]:
        return self.degrees.degrees["pp"], self.degrees.world_size, self.microbatches


class _Cases(NamedTuple):
    """Assumptions by case, shape (cases,), the expected one last: work of the head in layers; times of a
    send, of the exchange of gradients, of the optimizer and of the rest, s.  `marks`: of weak classes."""

    head: Float64
    send_s: Float64
    exchange_s: Float64
    optimizer_s: Float64
    outside_s: Float64
    marks: tuple[str, ...]


def project_step(
    card: Card, system: System, measured: JobLayout, step_s: float, asked: JobLayout
) -> tuple[TimeBounds, tuple[str, ...]]:
    """The step of the asked layout, ns, and what its bounds include.

    `card` has the sizes of the model; `step_s` is the measured step of the layout `measured` on the same
    machine. Only data and pipeline parallelism, batches and the schedule may differ. With another micro-batch
    only bounds are known: a layer takes between as long as before and in proportion to samples.
    """
    if any(measured.degrees.degrees[name] != asked.degrees.degrees[name] for name in ("tp", "cp", "ep")):
        raise InputError(
            f"layers split otherwise ({asked.degrees}, measured {measured.degrees}) take times that one step"
            " does not show",
            hint="measure a step with the same tp, cp and ep, or trace one: cclbench whatif",
        )
    sizes = card_sizes(card, "the step of another layout", *_SIZES)
    old, new = (_case_assumptions(card, sizes, system, layout, step_s) for layout in (measured, asked))
    # the part of an exchange that is exposed is no longer than the step
    longest_s = np.maximum(old.exchange_s, step_s * _MOST_EXPOSED)
    share = step_s * _MOST_EXPOSED / longest_s
    old, new = (one._replace(exchange_s=one.exchange_s * share) for one in (old, new))
    layer_s = _solve_layer(measured, int(sizes["model.layers"]), old, step_s)
    feasible = layer_s > 0
    if not feasible.any():
        raise InputError(f"sends and the optimizer of {measured.degrees} take longer than {step_s:g} s")
    is_expected = feasible[-1] and share[-1] == 1
    growth = asked.micro_batch / measured.micro_batch
    steps = np.stack(
        [
            _step_s(asked, int(sizes["model.layers"]), new, layer_s * factor)[feasible]
            for factor in ({1.0, growth} if growth != 1 else {1.0})
        ]
    )
    late = expected_maximum(asked.degrees.world_size) - expected_maximum(measured.degrees.world_size)
    noise = (1 + JITTER) / (1 - JITTER)
    slower, faster = noise * (1 + SPREAD.high * max(late, 0.0)), (1 + SPREAD.high * min(late, 0.0)) / noise
    expected = None if growth != 1 or not is_expected else steps[0, -1] * (1 + SPREAD.expected * late) * 1e9
    bounds = TimeBounds(steps.min() * faster * 1e9, expected, steps.max() * slower * 1e9)
    return bounds, tuple(_notes(asked, new, growth))


def _case_assumptions(
    card: Card, sizes: dict[str, float], system: System, layout: JobLayout, step_s: float
) -> _Cases:
    """Both edges of each assumption in all combinations, then the expected case.

    The head takes no time, that of its FLOPs, or twice as long; a send has a micro-batch's activations, at
    the lower edge shared by the ranks that split layers; gradients are exchanged behind backward, or after
    it with 4 bytes each; the optimizer takes the time of its bytes, or none where replicas share it;
    the rest of a step is a share of the measured one, `step_s`, in any layout.
    """
    degrees, split = layout.degrees, layout.degrees.degrees
    head = head_layers(card) or 0.0
    held = sizes["model.parameters"] / (split["tp"] * split["pp"])
    activations = layout.micro_batch * sizes["batch.sequence_length"] * sizes["model.hidden"]
    activations *= sizes["element"] / split["cp"]
    send, exchange = TimeBounds(0.0, 0.0, 0.0), TimeBounds(0.0, 0.0, 0.0)
    if split["pp"] > 1:
        pair = (0, degrees.group_stride("pp"))
        whole = _price_s(system, "send_recv", pair, activations)
        send = whole._replace(low=_price_s(system, "send_recv", pair, activations / split["tp"]).low)
    if split["dp"] > 1:
        stride = degrees.group_stride("dp")
        members = tuple(range(0, split["dp"] * stride, stride))
        exchange = _price_s(system, "all_reduce", members, held * sizes["element"])
        exchange = exchange._replace(
            low=0.0, high=_price_s(system, "all_reduce", members, held * _GRADIENT).high
        )
    optimizer = _optimizer_s(system, held)
    edges = [
        (0.0, HEAVY_HEAD * head),
        (send.low, send.high),
        (exchange.low, exchange.high),
        (0.0, _UNFUSED * optimizer),
        (0.0, OUTSIDE[1] * step_s),
    ]
    expected = (head, send.expected or 0.0, exchange.expected or 0.0, optimizer, OUTSIDE[0] * step_s)
    cases = [*product(*edges), expected]
    heads, sends, exchanges, optimizers, outside = np.array(cases, np.float64).T
    marks = TimeBounds.total([send, exchange]).marks
    return _Cases(heads, sends, exchanges, optimizers, outside, marks)


def _optimizer_s(system: System, parameters: float) -> float:
    """Time of a fused Adam by the accelerator's memory bandwidth, s."""
    rate = catalog.accelerator(system.accelerator).hbm_bytes_per_s
    if rate is None:
        raise InputError("the catalog lacks the memory bandwidth", where=system.accelerator)
    return parameters * _STATE / rate


def _price_s(system: System, kind: str, ranks: tuple[int, ...], nbytes: float) -> TimeBounds:
    price = price_collective(kind, nbytes, ranks, system)
    if isinstance(price, NoPrice):
        raise InputError(
            f"{kind} of {len(ranks):,} ranks cannot be modelled: {price.reason}", where=system.id
        )
    return TimeBounds(float(price.low_s[0]), float(price.time_s[0]), float(price.high_s[0]), price.all_marks)


def _step_s(layout: JobLayout, layers: int, cases: _Cases, layer_s: Float64) -> Float64:
    """The step with that time of a layer, forward and backward of a micro-batch, shape (cases,)."""
    pipeline = LayerPipeline(
        layout.degrees.degrees["pp"], layout.microbatches, layers, layout.turns, layout.schedule
    )
    span = pipeline.span(pipeline.part_layers(cases.head) * layer_s, cases.send_s)
    return np.asarray(span + cases.exchange_s + cases.optimizer_s + cases.outside_s)


def _solve_layer(layout: JobLayout, layers: int, cases: _Cases, step_s: float) -> Float64:
    """Time of a layer that makes the step as long, shape (cases,); 0 where the rest alone is longer.

    The step is convex in it, so the chord from 0 meets the step at or before the solution.
    """
    without = _step_s(layout, layers, cases, np.zeros_like(cases.head))
    possible = without < step_s
    layer_s = np.full_like(cases.head, step_s / layout.microbatches / layers)
    for _ in range(_ROUNDS):
        slope = (_step_s(layout, layers, cases, layer_s) - without) / layer_s
        layer_s = np.where(possible, (step_s - without) / slope, layer_s)
    return np.where(possible, layer_s, 0.0)


def _notes(layout: JobLayout, cases: _Cases, growth: float) -> list[str]:
    """What the bounds include."""
    split = layout.degrees.degrees
    notes = [
        f"head: none, to twice the work of its FLOPs, those of {cases.head[-1]:.3g} layers",
        f"rest of a step: 0 to {cases.outside_s.max() * 1e3:.3g} ms in any layout",
        f"micro-batches vary: {JITTER:.1%} of the pipeline's time in each layout",
        f"optimizer: none, to {cases.optimizer_s.max() * 1e3:.3g} ms",
    ]
    if split["pp"] > 1:
        send_ms = f"{cases.send_s.min() * 1e3:.3g} to {cases.send_s.max() * 1e3:.3g} ms"
        notes += [
            f"{layout.schedule}: {layout.microbatches:,} micro-batches, layers split as evenly as possible",
            f"a send between stages: {send_ms}",
        ]
    if split["dp"] > 1:
        notes.append(f"gradients: hidden behind backward, or {cases.exchange_s.max() * 1e3:.3g} ms after it")
    notes.append(
        f"waiting for the slowest of more ranks: none, or by ranks that differ by {SPREAD.high:.0%} of a step"
    )
    if growth != 1:
        notes.append("another micro-batch: layers take as long as before, or in proportion to samples")
    return [*notes, *cases.marks]

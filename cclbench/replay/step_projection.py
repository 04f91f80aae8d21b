# SPDX-License-Identifier: Apache-2.0
"""The step of a training job in another layout, from one measured step and sizes, without a trace.

    step = span of the pipeline's schedule + exchange of gradients + optimizer + rest

Each uncertain assumption has an edge at either side; a case is a combination of edges. The time of a layer in
a case is what makes the measured layout take its measured time, so errors that both layouts share cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import log2
from typing import Final, NamedTuple

import numpy as np

from cclbench.card import Card
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, Prediction, price_collective
from cclbench.hardware.collectives.ratio import time_ratio
from cclbench.hardware.system import System
from cclbench.replay.change import TimeBounds
from cclbench.replay.crowd import expected_maximum
from cclbench.replay.key_values import key_value_elements, key_value_exchange
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
_ROUNDS: Final = 12
_ROUNDING: Final = 1e-9


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

    @property
    def rank_samples(self) -> float:
        """Samples of a micro-batch on a rank, a part of one where sequences are split."""
        return self.micro_batch / self.degrees.degrees["cp"]

    @property
    def stage_work(self) -> float:
        """Work of a stage on a micro-batch, in samples of the whole model."""
        return self.rank_samples / self.degrees.degrees["pp"]

    @property
    def step_work(self) -> float:
        """Work of a rank in a step, in samples of the whole model."""
        return self.stage_work * self.microbatches

    def distance(self, other: JobLayout) -> float:
        """How far apart stages, ranks and micro-batches are, the sum of the logarithms of their ratios."""
        return sum(
            abs(log2(size / other_size)) for size, other_size in zip(self._extent, other._extent, strict=True)
        )

    @property
    def _extent(self) -> tuple[int, int, int]:
        return self.degrees.degrees["pp"], self.degrees.world_size, self.microbatches


class _Cases(NamedTuple):
    """Assumptions by case, shape (cases,), the expected one last: work of the head in layers; times of a
    layer's exchange of keys and values, of a send, of the exchange of gradients, of the optimizer and of the
    rest, s.  `marks`: of weak classes."""

    head: Float64
    context_s: Float64
    send_s: Float64
    exchange_s: Float64
    optimizer_s: Float64
    outside_s: Float64
    marks: tuple[str, ...]


def project_step(
    card: Card, system: System, measured: JobLayout, step_s: float, target: JobLayout
) -> tuple[TimeBounds, tuple[str, ...]]:
    """The step of the target layout, ns, and what its bounds include.

    `card` has the sizes of the model; `step_s` is the measured step of the layout `measured` on the same
    machine. Data, pipeline and context parallelism, batches and the schedule may differ. With other tokens of
    a micro-batch on a rank only bounds are known: products at the peak are in proportion, and all else of
    a layer takes between as long as before and in proportion.
    """
    if any(measured.degrees.degrees[name] != target.degrees.degrees[name] for name in ("tp", "ep")):
        raise InputError(
            f"layers split otherwise ({target.degrees}, measured {measured.degrees}) take times that one step"
            " does not show",
            hint="measure a step with the same tp and ep, or trace one: cclbench whatif",
        )
    sizes = card_sizes(card, "the step of another layout", *_SIZES)
    parts = target.degrees.degrees["pp"] * target.turns
    if sizes["model.layers"] < parts:
        raise InputError(f"{sizes['model.layers']:.0f} layers are too few for {parts} parts")
    least_s = _least_compute_s(card, sizes, system, measured)
    if least_s >= step_s:
        raise InputError(
            f"{step_s:g} s are less than the products of a step take on {measured.degrees.world_size:,}"
            f" {system.accelerator} at their peak, {least_s:.3g} s",
            hint="check the step, and the card's sizes, batch, precision and parallelism",
        )
    old, new = _case_assumptions(card, sizes, system, (measured, target), step_s, step_s - least_s)
    layer_s = _solve_layer(measured, int(sizes["model.layers"]), old, step_s)
    # what is exposed of an exchange leaves the time that products take at the peak
    feasible = (layer_s > 0) & (old.exchange_s <= (step_s - least_s) * (1 + _ROUNDING))
    if not feasible.any():
        raise InputError(f"sends and the optimizer of {measured.degrees} take longer than {step_s:g} s")
    growth, layers = target.rank_samples / measured.rank_samples, int(sizes["model.layers"])
    # time that products take at the peak is in proportion to tokens, all else may be or not
    each_s = least_s * measured.degrees.degrees["pp"] / layers / measured.microbatches
    fixed_s = layer_s + np.minimum(each_s, layer_s) * (growth - 1)
    steps = np.stack([_step_s(target, layers, new, part)[feasible] for part in (layer_s * growth, fixed_s)])
    late = expected_maximum(target.degrees.world_size) - expected_maximum(measured.degrees.world_size)
    noise = (1 + JITTER) / (1 - JITTER)
    slower, faster = noise * (1 + SPREAD.high * max(late, 0.0)), (1 + SPREAD.high * min(late, 0.0)) / noise
    expected = None if growth != 1 or not feasible[-1] else steps[0, -1] * (1 + SPREAD.expected * late) * 1e9
    bounds = TimeBounds(steps.min() * faster * 1e9, expected, steps.max() * slower * 1e9)
    return bounds, tuple(_notes(target, new, growth))


def _case_assumptions(
    card: Card,
    sizes: dict[str, float],
    system: System,
    layouts: tuple[JobLayout, JobLayout],
    step_s: float,
    longest_s: float,
) -> tuple[_Cases, _Cases]:
    """Both edges of each assumption in all combinations, then the expected case, of both layouts.

    The head takes no time, that of its FLOPs, or twice as long; keys and values are exchanged behind
    attention, or before it; a send has a micro-batch's activations, at the lower edge shared by the ranks
    that split layers; gradients are exchanged behind backward, or after it with 4 bytes each, at most
    `longest_s`; the optimizer takes the time of its bytes, or none where replicas share it; the rest of a
    step is a share of the measured one, `step_s`, in any layout.
    """
    head = head_layers(card) or 0.0
    splits_sequences = any(layout.degrees.degrees["cp"] > 1 for layout in layouts)
    exchanges = _gradient_exchanges(sizes, system, layouts, step_s, longest_s)
    cases = []
    for layout, exchange in zip(layouts, exchanges, strict=True):
        split = layout.degrees.degrees
        tokens = layout.micro_batch * sizes["batch.sequence_length"]
        send = TimeBounds(0.0, 0.0, 0.0)
        if split["pp"] > 1:
            pair = (0, layout.degrees.group_stride("pp"))
            activations = tokens * sizes["model.hidden"] * sizes["element"] / split["cp"]
            full_send = _price_s(system, "send_recv", pair, activations)
            send = full_send._replace(low=_price_s(system, "send_recv", pair, activations / split["tp"]).low)
        keys = TimeBounds(0.0, 0.0, 0.0)
        if split["cp"] > 1:
            nbytes = tokens * key_value_elements(card) * sizes["element"] / split["tp"]
            ranks = layout.degrees.first_group("cp")
            keys = key_value_exchange(partial(_price_s, system), ranks, nbytes)
        optimizer = _optimizer_s(system, sizes["model.parameters"] / (split["tp"] * split["pp"]))
        edges = (
            (0.0, HEAVY_HEAD * head),
            (0.0, keys.high) if splits_sequences else (0.0,),
            (send.low, send.high),
            exchange.edges_s,
            (0.0, _UNFUSED * optimizer),
            (0.0, OUTSIDE[1] * step_s),
        )
        expected = (head, 0.0, send.expected or 0.0, exchange.expected_s, optimizer, OUTSIDE[0] * step_s)
        head_of, keys_s, send_s, exchange_s, optimizer_s, outside_s = np.array(
            [*product(*edges), expected], np.float64
        ).T
        marks = tuple(dict.fromkeys((*keys.marks, *send.marks, *exchange.marks)))
        cases.append(_Cases(head_of, keys_s, send_s, exchange_s, optimizer_s, outside_s, marks))
    old, new = cases
    return old, new


class _Exchange(NamedTuple):
    """Exposed times of an exchange of gradients, s: by case, and expected."""

    edges_s: tuple[float, ...]
    expected_s: float
    marks: tuple[str, ...] = ()


def _gradient_exchanges(
    sizes: dict[str, float],
    system: System,
    layouts: tuple[JobLayout, JobLayout],
    step_s: float,
    longest_s: float,
) -> list[_Exchange]:
    """Of both layouts, hidden or exposed.

    An exchange takes no longer than the measured step, of which `longest_s` can be exposed; the rest is
    hidden by work. That of other ranks or bytes has an error of its own, by the band of the ratio of both;
    work that shrinks hides less.
    """
    old, new = (_gradient_price(sizes, system, layout.degrees) for layout in layouts)
    if new is None:
        exposed_s = min(float(old.high_s[1]), longest_s) if old else 0.0
        expected_s = float(old.time_s[0]) if old else 0.0
        return [_Exchange((0.0, exposed_s), expected_s), _Exchange((0.0, 0.0), 0.0)]
    if old is None:
        target_exchange = _Exchange((0.0, float(new.high_s[1])), float(new.time_s[0]), new.all_marks)
        return [_Exchange((0.0, 0.0), 0.0), target_exchange]
    expected_s, ratio = float(old.time_s[0]), time_ratio(new, old)
    full_s = min(float(old.high_s[1]), step_s)
    exposed_s = min(full_s, longest_s)
    measured, target = layouts
    hides = min(1.0, target.stage_work / measured.stage_work, target.step_work / measured.step_work)
    hidden_s = hides * (full_s - exposed_s)
    low_s, high_s = full_s * float(ratio.low[1]), full_s * float(ratio.high[1])
    target_s = low_s - hidden_s, high_s - hidden_s, high_s - hides * full_s
    return [
        _Exchange((0.0, exposed_s, exposed_s, 0.0), expected_s),
        _Exchange(
            (0.0, *(max(exposed, 0.0) for exposed in target_s)),
            expected_s * float(ratio.expected[0]),
            new.all_marks,
        ),
    ]


def _gradient_price(sizes: dict[str, float], system: System, layout: Layout) -> Prediction | None:
    """An all-reduce of a rank's gradients, with an element's bytes each and with 4, among all ranks with the
    same parameters; None where there is one."""
    split = layout.degrees
    if split["dp"] * split["cp"] == 1:
        return None
    held = sizes["model.parameters"] / (split["tp"] * split["pp"])
    each = np.array([sizes["element"], _GRADIENT])
    return _collective_price(system, "all_reduce", layout.first_group("cp", "dp"), held * each)


def _least_compute_s(card: Card, sizes: dict[str, float], system: System, layout: JobLayout) -> float:
    """Time of a step's products at the accelerator's peak, s: 6 FLOPs for each token and active parameter
    outside the embedding (Kaplan et al. 2020, table 1), without attention."""
    peaks = catalog.accelerator(system.accelerator).peak_flops_per_s
    peak = peaks.get(card.workload.precision or "") or max(filter(None, peaks.values()), default=None)
    if peak is None:
        return 0.0
    embedding = sizes["model.vocabulary"] * sizes["model.hidden"]
    active = (card.workload.model.active_parameters or sizes["model.parameters"]) - embedding
    tokens = layout.global_batch * sizes["batch.sequence_length"]
    return 6 * max(active, 0.0) * tokens / layout.degrees.world_size / peak


def _optimizer_s(system: System, parameters: float) -> float:
    """Time of a fused Adam by the accelerator's memory bandwidth, s."""
    rate = catalog.accelerator(system.accelerator).hbm_bytes_per_s
    if rate is None:
        raise InputError("the catalog lacks the memory bandwidth", where=system.accelerator)
    return parameters * _STATE / rate


def _price_s(system: System, kind: str, ranks: tuple[int, ...], nbytes: float) -> TimeBounds:
    price = _collective_price(system, kind, ranks, np.array([nbytes]))
    return TimeBounds(float(price.low_s[0]), float(price.time_s[0]), float(price.high_s[0]), price.all_marks)


def _collective_price(system: System, kind: str, ranks: tuple[int, ...], nbytes: Float64) -> Prediction:
    price = price_collective(kind, nbytes, ranks, system)
    if isinstance(price, NoPrice):
        raise InputError(
            f"{kind} of {len(ranks):,} ranks cannot be modelled: {price.reason}", where=system.id
        )
    return price


def _step_s(layout: JobLayout, layers: int, cases: _Cases, layer_s: Float64) -> Float64:
    """The step with that time of a layer, forward and backward of a micro-batch, shape (cases,)."""
    pipeline = LayerPipeline(
        layout.degrees.degrees["pp"], layout.microbatches, layers, layout.turns, layout.schedule
    )
    parts_s = pipeline.part_layers(cases.head) * layer_s + pipeline.part_layers() * cases.context_s
    span = pipeline.span(parts_s, cases.send_s)
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
    if cases.context_s.any():
        notes.append(
            "keys and values: hidden behind attention, or a layer's exchange takes"
            f" {cases.context_s.max() * 1e3:.3g} ms"
        )
    if cases.exchange_s.any():
        notes.append(f"gradients: hidden behind backward, or {cases.exchange_s.max() * 1e3:.3g} ms after it")
    notes.append(
        f"waiting for the slowest of more ranks: none, or by ranks that differ by {SPREAD.high:.0%} of a step"
    )
    if growth != 1:
        notes.append(
            "other tokens of a micro-batch on a rank: products at the peak are in proportion, the rest of a"
            " layer is so, or as before"
        )
    return [*notes, *cases.marks]

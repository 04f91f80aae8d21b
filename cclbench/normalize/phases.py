# SPDX-License-Identifier: Apache-2.0
"""Phase of the host at an instant: forward, loss, backward, optimizer, data; prefill or decode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np

from cclbench.classify.python_rows import starts_backward
from cclbench.classify.serving_steps import serving_phase
from cclbench.ground.intervals import Index, Int64, Mask, begins
from cclbench.ground.schema import PHASES
from cclbench.normalize.operators import NO_RANGES, Ranges, join_ranges

# torch's `enumerate(DataLoader)#...`, TensorFlow's and JAX's input pipelines, the names training
# frameworks give to the ranges around them, and saving or loading a checkpoint; activation
# checkpointing is compute and is not among them.
LOADER: Final = (
    r"(?i)data_?loader|data_?loading|tf\.data|iterator_?getnext|batch[-_]generator"
    r"|(save|load)[-_ ]checkpoint|checkpoint[-_. ](save|load)"
)
_NODE: Final = r"autograd::engine::evaluate_function|torch::autograd::\w|\w+Backward\d*$"
"""Names of runs of a node of the backward graph: by the engine, in torch before 1.10 by the node."""
_AFTER_BACKWARD: Final = r"torch\.distributed\.ddp\.reducer::"
"""Calls that the engine makes after the graph is finished."""
_OPTIMIZER: Final = r"(?i)optimizer[.#_ -]|.*\boptimizer\b"
_BACKWARD: Final = r"(?i)(.*[.#_: -])?backward([-_ ](compute|pass|step))?\W*$"
_FORWARD: Final = r"nn\.Module: |(?i:(.*[.#_: -])?forward([-_ ](compute|pass|step))?\W*$)"
_LOSS: Final = (
    r"aten::(cross_entropy_loss|nll_loss|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy|kl_div"
    r"|ctc_loss|cosine_embedding_loss|margin_ranking_loss|triplet_margin_loss)(_nd|2d|_with_logits|_forward)?"
)
_LOSS_RANGE: Final = r"(?i)(.*[.#_: -])?loss(es|[-_ ]fn|[-_ ]func(tion)?)?\W*$|nn\.Module: \w*Loss_\d+"


def stated_phase(annotation: str) -> str | None:
    """The phase that an annotation in a training step names, also as a single word; None if it names none."""
    patterns = {"optimizer": _OPTIMIZER, "backward": _BACKWARD, "loss": _LOSS_RANGE, "forward": _FORWARD}
    return next((phase for phase, pattern in patterns.items() if re.match(pattern, annotation)), None)


def _is_serving_step(phase: str, name: str) -> bool:
    return serving_phase(name) == phase


def loads_data(name: str) -> bool:
    """Whether a range is of a data loader or a checkpoint."""
    return re.search(LOADER, name) is not None


_SERVING: Final = {phase: partial(_is_serving_step, phase) for phase in ("prefill", "decode", "mixed")}
_LATEST: Final = np.iinfo(np.int64).max


@cache
def _begins_like(pattern: str) -> Callable[[str], bool]:
    regex = re.compile(pattern)
    return lambda name: regex.match(name) is not None


class Vocabulary(list[str]):
    """Names by code; the result of each predicate is cached."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._answers: dict[Callable[[str], bool], Mask] = {}

    def names_where(self, holds: Callable[[str], bool]) -> Mask:
        """Names for which `holds` is true, shape (names,)."""
        if holds not in self._answers:
            self._answers[holds] = np.array([*map(holds, self)], np.bool_)
        return self._answers[holds]


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """Ranges, the code of each one's name, and the names."""

    ranges: Ranges
    name: Index
    names: Vocabulary

    def select_ranges(self, chosen: Mask) -> Named:
        """The `chosen` ranges."""
        return Named(self.ranges.select_ranges(chosen), self.name[chosen], self.names)

    def name_matches(self, pattern: str) -> Mask:
        """Which ranges have a name that begins with a match of the pattern, shape (ranges,)."""
        return self.name_is(_begins_like(pattern))

    def name_is(self, holds: Callable[[str], bool]) -> Mask:
        """Which ranges have a name for which `holds` is true, shape (ranges,)."""
        return np.asarray(self.names.names_where(holds)[self.name])


@dataclass(frozen=True, slots=True, eq=False)
class HostActivity:
    """Calls, annotations and modules of a rank's host."""

    calls: Named
    sequence: Int64
    """Autograd's number of each call, −1 for none, shape (calls,)."""
    backward_node: Mask
    """Which calls run a node of the backward graph, shape (calls,)."""
    marks: Sequence[Named]
    """Annotations and modules."""

    def marked_ranges(self, chosen: Callable[[Named], Mask]) -> Ranges:
        """The chosen marks' ranges."""
        return join_ranges(*(mark.ranges.select_ranges(chosen(mark)) for mark in self.marks))[0]


def runs_node(calls: Named) -> Mask:
    """Which calls run a node of the backward graph, by their names, shape (calls,)."""
    return calls.name_matches(_NODE)


def is_among(values: Int64, ordered: Int64) -> Mask:
    """Which values are in the sorted array `ordered`, shape of `values`."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values)


class Phases:
    """The phases of a rank's host, by thread and time.

    Backward is what autograd's engine runs, or a range of that name contains.  Forward is a module's run
    outside of it, and the time from the first to the last op that backward ops refer to, with no backward or
    optimizer in between; if they refer to none, the calls before a backward.  A rank that runs no backward
    or optimizer serves: each call has the phase of the engine's annotation around it, else forward.
    """

    def __init__(self, host: HostActivity) -> None:
        self._host = host
        of_engine = runs_node(host.calls) | host.calls.name_matches(_AFTER_BACKWARD)
        engine_threads = self._engine_threads(of_engine)
        self.numbers = np.unique(host.sequence[(host.sequence >= 0) & host.backward_node])
        """Autograd's numbers of nodes of the backward graph, sorted."""
        ranges = host.calls.ranges
        of_engine |= is_among(ranges.track, engine_threads)
        backward = host.marked_ranges(
            lambda mark: mark.name_matches(_BACKWARD) | mark.name_is(starts_backward)
        )
        self._found = {
            "data": host.marked_ranges(lambda mark: mark.name_is(loads_data)),
            "optimizer": host.marked_ranges(lambda mark: mark.name_matches(_OPTIMIZER)),
            "backward": join_ranges(ranges.select_ranges(of_engine), backward)[0],
        }
        self._begun = {phase: np.sort(self._found[phase].start_ns) for phase in ("backward", "optimizer")}
        if any(map(len, self._begun.values())):
            losses = ranges.select_ranges(host.calls.name_matches(f"(?:{_LOSS})$"))
            self._found["loss"], _ = join_ranges(
                losses, host.marked_ranges(lambda mark: mark.name_matches(_LOSS_RANGE))
            )
            forward = host.marked_ranges(lambda mark: mark.name_matches(_FORWARD))
            self._found["forward"], _ = join_ranges(self._forward_runs(), forward)
        else:
            for phase, serves in _SERVING.items():
                self._found[phase] = host.marked_ranges(lambda mark, serves=serves: mark.name_is(serves))  # type: ignore[misc]
            self._found["forward"] = ranges

    def phase_at(self, track: Int64, at: Int64) -> Index:
        """Index in `PHASES` of each thread's phase at each instant, shape of `at`."""
        phases = np.full(len(at), PHASES.index("other"), np.int32)
        for phase in ("forward", "loss", "mixed", "decode", "prefill", "backward", "optimizer", "data"):
            ranges = self._found.get(phase, NO_RANGES)
            phases[ranges.is_inside(track, at)] = PHASES.index(phase)
        return phases

    def _engine_threads(self, of_engine: Mask) -> Int64:
        """Threads that only autograd's engine uses, sorted.

        All calls of such a thread are the engine's, including those queued for the end of the graph.
        """
        ranges, sequence = self._host.calls.ranges, self._host.sequence
        outside = ~ranges.select_ranges(of_engine).is_inside(ranges.track, ranges.start_ns)
        others = ranges.track[outside & (sequence >= 0) & ~self._host.backward_node]
        return np.setdiff1d(ranges.track[of_engine], others)

    def _forward_runs(self) -> Ranges:
        """Ranges from the first to the last forward op with no begin of backward or optimizer in between."""
        ranges = self._host.calls.ranges
        elsewhere = ~self._host.backward_node
        for phase in ("optimizer", "backward", "data"):
            elsewhere &= ~self._found[phase].is_inside(ranges.track, ranges.start_ns)
        chosen = ranges.select_ranges(elsewhere & is_among(self._host.sequence, self.numbers))
        if not len(chosen.track):
            chosen = ranges.select_ranges(elsewhere & self._before_backward())
        run = np.searchsorted(np.sort(np.concatenate([*self._begun.values()])), chosen.start_ns)
        first = np.flatnonzero(begins(chosen.track, run))
        ends = np.maximum.reduceat(chosen.end_ns, first) if len(first) else chosen.end_ns
        return Ranges(chosen.track[first], chosen.start_ns[first], ends)

    def _before_backward(self) -> Mask:
        """Which calls are followed by the begin of a backward before that of an optimizer."""
        start = self._host.calls.ranges.start_ns
        backward, optimizer = (
            np.append(self._begun[phase], _LATEST)[np.searchsorted(self._begun[phase], start)]
            for phase in ("backward", "optimizer")
        )
        return np.asarray(backward < optimizer)

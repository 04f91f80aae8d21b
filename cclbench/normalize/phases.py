# SPDX-License-Identifier: Apache-2.0
"""What the host works for at an instant: forward, loss, backward, optimizer, data; prefill or decode.

A rank's time is taken in stretches, so that memory holds one of them: `Training` is what has to be known of
all, `Phases` are those of one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np

from cclbench.classify.serving_steps import serving_phase
from cclbench.disk_columns import DiskColumn
from cclbench.intervals import Index, Int64, Mask, begins
from cclbench.normalize.operators import NO_RANGES, Ranges, joined
from cclbench.schema import PHASES

# torch's `enumerate(DataLoader)#...`, TensorFlow's and JAX's input pipelines, the names training
# frameworks give to the ranges around them, and saving or loading a checkpoint; activation
# checkpointing is compute and is not among them.
LOADER: Final = (
    r"(?i)data_?loader|data_?loading|tf\.data|iterator_?getnext|batch[-_]generator"
    r"|(save|load)[-_ ]checkpoint|checkpoint[-_. ](save|load)"
)
_NODE: Final = r"autograd::engine::evaluate_function|torch::autograd::\w|\w+Backward\d*$"
"""Names of runs of a node of the backward graph: the engine's own, and in torch before 1.10 the node's."""
_AFTER_BACKWARD: Final = r"torch\.distributed\.ddp\.reducer::"
"""Calls that the engine makes once the graph is done."""
_STARTS_BACKWARD: Final = re.compile(
    r"(?:.*/)?torch/(?:_tensor|autograd/__init__)\.py\(\d+\): (?:backward|grad)"
)
_OPTIMIZER: Final = r"(?i)optimizer[.#_ -]|.*\boptimizer\b"
_BACKWARD: Final = r"(?i)(.*[.#_: -])?backward([-_ ](compute|pass|step))?\W*$"
_FORWARD: Final = r"nn\.Module: |(?i:(.*[.#_: -])?forward([-_ ](compute|pass|step))?\W*$)"
_LOSS: Final = (
    r"aten::(cross_entropy_loss|nll_loss|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy|kl_div"
    r"|ctc_loss|cosine_embedding_loss|margin_ranking_loss|triplet_margin_loss)(_nd|2d|_with_logits|_forward)?"
)
_LOSS_RANGE: Final = r"(?i)(.*[.#_: -])?loss(es|[-_ ]fn|[-_ ]func(tion)?)?\W*$|nn\.Module: \w*Loss_\d+"


def starts_backward(name: str) -> bool:
    """Whether a row of Python is the call that has autograd's engine run."""
    return _STARTS_BACKWARD.fullmatch(name) is not None


def phase_told(annotation: str) -> str | None:
    """The phase that an annotation of a training step names, a word by itself names it too; None for none."""
    patterns = {"optimizer": _OPTIMIZER, "backward": _BACKWARD, "loss": _LOSS_RANGE, "forward": _FORWARD}
    return next((phase for phase, pattern in patterns.items() if re.match(pattern, annotation)), None)


def _serves(phase: str, name: str) -> bool:
    return serving_phase(name) == phase


def _loads(name: str) -> bool:
    return re.search(LOADER, name) is not None


_SERVING: Final = {phase: partial(_serves, phase) for phase in ("prefill", "decode", "mixed")}
_LATEST: Final = np.iinfo(np.int64).max


@cache
def _begins_like(pattern: str) -> Callable[[str], bool]:
    found = re.compile(pattern)
    return lambda name: found.match(name) is not None


class Vocabulary(list[str]):
    """Names by number; what is asked of them is asked once."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._answers: dict[Callable[[str], bool], Mask] = {}

    def where(self, holds: Callable[[str], bool]) -> Mask:
        """Of which names that holds, shape (names,)."""
        if holds not in self._answers:
            self._answers[holds] = np.array([*map(holds, self)], np.bool_)
        return self._answers[holds]


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """Ranges, the number of each one's name, and the names."""

    ranges: Ranges
    name: Index
    names: Vocabulary

    def of(self, chosen: Mask) -> Named:
        """Some of the ranges."""
        return Named(self.ranges.of(chosen), self.name[chosen], self.names)

    def called(self, pattern: str) -> Mask:
        """Which of them have a name that begins like the pattern, shape (ranges,)."""
        return self.where(_begins_like(pattern))

    def where(self, holds: Callable[[str], bool]) -> Mask:
        """Which of them have a name of which that holds, shape (ranges,)."""
        return np.asarray(self.names.where(holds)[self.name])


@dataclass(frozen=True, slots=True, eq=False)
class HostStretch:
    """What a rank's host ran in a stretch of its time, and what began before and holds some of that."""

    since: int
    """When it begins, ns."""
    calls: Named
    sequence: Int64
    """Autograd's number of each call, −1 for none, shape (calls,)."""
    backward_node: Mask
    """Which calls run a node of the backward graph, shape (calls,)."""
    marks: Sequence[Named]
    """Annotations and modules."""

    def begins_in(self, ranges: Ranges) -> Mask:
        """Which of its ranges begin in it."""
        return np.asarray(ranges.start_ns >= self.since)

    def marked(self, chosen: Callable[[Named], Mask]) -> Ranges:
        """The chosen marks' ranges."""
        return joined(*(mark.ranges.of(chosen(mark)) for mark in self.marks))[0]


def runs_node(calls: Named) -> Mask:
    """Which calls run a node of the backward graph, by their names, shape (calls,)."""
    return calls.called(_NODE)


def _of_engine(one: HostStretch) -> Mask:
    """Which calls autograd's engine makes, by their names."""
    return runs_node(one.calls) | one.calls.called(_AFTER_BACKWARD)


class Training:
    """What has to be known of all of a rank's time to tell the phases of a stretch.

    Backward is what autograd's engine runs, or a range of that name holds.  Forward is a module's run outside
    of it, and lasts from the first to the last op that a backward op names as its own, with no backward or
    optimizer in between; where no op is named, it is what comes before a backward.  A rank that
    runs no backward serves: each call is of the phase of the engine's annotation around it, else forward.
    """

    def __init__(self, stretches: Callable[[], Iterable[HostStretch]]) -> None:
        """`stretches` gives those of the rank, in order of time, each time it is called."""
        self.engine_threads, self.numbers = _engine(stretches())
        self._begun = {phase: DiskColumn(np.int64) for phase in ("backward", "optimizer", "either")}
        for one in stretches():
            found = _found(one, self.engine_threads)
            begun = {phase: found[phase].start_ns for phase in ("backward", "optimizer")}
            begun = {phase: np.sort(starts[starts >= one.since]) for phase, starts in begun.items()}
            begun["either"] = np.sort(np.concatenate([*begun.values()]))
            for phase, starts in begun.items():
                self._begun[phase].append(starts)
        self.trains = len(self._begun["either"]) > 0
        """Whether the rank runs a backward or an optimizer."""
        self.forward = NO_RANGES
        """From the first to the last forward op of each run of them on a thread."""
        for forward in (self._named, self._before) if self.trains else ():
            if not len(self.forward.track):
                self.forward = self._runs(stretches(), forward)

    def _runs(self, stretches: Iterable[HostStretch], forward: Callable[[HostStretch], Mask]) -> Ranges:
        """From the first to the last of `forward` ops between which neither backward nor optimizer begins."""
        begun = self._begun["either"].values()
        pieces = [np.empty((4, 0), np.int64)]
        for one in stretches:
            found, ranges = _found(one, self.engine_threads), one.calls.ranges
            elsewhere = one.begins_in(ranges) & ~one.backward_node
            for phase in ("optimizer", "backward", "data"):
                elsewhere &= ~found[phase].holding(ranges.track, ranges.start_ns)
            chosen = ranges.of(elsewhere & forward(one))
            if len(chosen.track):
                run = np.searchsorted(begun, chosen.start_ns)
                first = np.flatnonzero(begins(chosen.track, run))
                last = np.maximum.reduceat(chosen.end_ns, first)
                pieces.append(np.array([chosen.track[first], run[first], chosen.start_ns[first], last]))
        track, run, start, end = np.concatenate(pieces, axis=1)
        order = np.lexsort((start, run, track))
        track, run, start, end = track[order], run[order], start[order], end[order]
        first = np.flatnonzero(begins(track, run))
        return Ranges(track[first], start[first], np.maximum.reduceat(end, first) if len(end) else end)

    def _named(self, one: HostStretch) -> Mask:
        """Which calls a backward op names as its own."""
        return among(one.sequence, self.numbers)

    def _before(self, one: HostStretch) -> Mask:
        """After which calls a backward begins, before an optimizer does."""
        until = {
            phase: np.append(at, _LATEST)[np.searchsorted(at, one.calls.ranges.start_ns)]
            for phase, at in ((phase, self._begun[phase].values()) for phase in ("backward", "optimizer"))
        }
        return np.asarray(until["backward"] < until["optimizer"])


def _engine(stretches: Iterable[HostStretch]) -> tuple[Int64, Int64]:
    """Threads on which autograd's engine alone runs, and the numbers of backward nodes, both sorted.

    All calls of such a thread are the engine's: it also runs what waits for the graph's end.
    """
    found: Mapping[str, list[Int64]] = defaultdict(lambda: [np.empty(0, np.int64)])
    for one in stretches:
        ranges, numbered = one.calls.ranges, one.sequence >= 0
        of_engine, own = _of_engine(one), one.begins_in(ranges)
        outside = own & ~ranges.of(of_engine).holding(ranges.track, ranges.start_ns)
        found["engine"].append(np.unique(ranges.track[of_engine]))
        found["others"].append(np.unique(ranges.track[outside & numbered & ~one.backward_node]))
        found["numbers"].append(np.unique(one.sequence[numbered & one.backward_node]))
    distinct = {what: np.unique(np.concatenate(values)) for what, values in found.items()}
    return np.setdiff1d(distinct["engine"], distinct["others"]), distinct["numbers"]


def _found(one: HostStretch, engine_threads: Int64) -> dict[str, Ranges]:
    """The ranges of a stretch that are of the phases which decide what is forward."""
    calls = one.calls
    of_engine = _of_engine(one) | among(calls.ranges.track, engine_threads)
    backward = one.marked(lambda mark: mark.called(_BACKWARD) | mark.where(starts_backward))
    return {
        "data": one.marked(lambda mark: mark.where(_loads)),
        "optimizer": one.marked(lambda mark: mark.called(_OPTIMIZER)),
        "backward": joined(calls.ranges.of(of_engine), backward)[0],
    }


def among(values: Int64, ordered: Int64) -> Mask:
    """Which values are in the ordered ones, shape of `values`."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values)


class Phases:
    """The phases of one stretch of a rank's host, by thread and time."""

    def __init__(self, one: HostStretch, training: Training) -> None:
        self._found = _found(one, training.engine_threads)
        calls = one.calls
        if training.trains:
            losses = calls.ranges.of(calls.called(f"(?:{_LOSS})$"))
            self._found["loss"], _ = joined(losses, one.marked(lambda mark: mark.called(_LOSS_RANGE)))
            forward = one.marked(lambda mark: mark.called(_FORWARD))
            self._found["forward"], _ = joined(training.forward, forward)
        else:
            for phase, serves in _SERVING.items():
                self._found[phase] = one.marked(lambda mark, serves=serves: mark.where(serves))  # type: ignore[misc]
            self._found["forward"] = calls.ranges

    def at(self, track: Int64, at: Int64) -> Index:
        """Index in `PHASES` of each thread's phase at each instant, shape of `at`."""
        found = np.full(len(at), PHASES.index("other"), np.int32)
        for phase in ("forward", "loss", "mixed", "decode", "prefill", "backward", "optimizer", "data"):
            ranges = self._found.get(phase, NO_RANGES)
            found[ranges.holding(track, at)] = PHASES.index(phase)
        return found

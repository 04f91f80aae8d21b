# SPDX-License-Identifier: Apache-2.0
"""What the host works for at an instant: forward, loss, backward, optimizer, data; prefill or decode."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from cclbench.classify.serving_steps import serving_phase
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


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """Ranges, the number of each one's name, and the names."""

    ranges: Ranges
    name: Index
    names: Sequence[str]

    def of(self, chosen: Mask) -> Named:
        """Some of the ranges."""
        return Named(self.ranges.of(chosen), self.name[chosen], self.names)

    def called(self, pattern: str) -> Mask:
        """Which of them have a name that begins like the pattern, shape (ranges,)."""
        return self.where(lambda name: re.match(pattern, name) is not None)

    def where(self, holds: Callable[[str], bool]) -> Mask:
        """Which of them have a name of which that holds, shape (ranges,)."""
        return np.array([*map(holds, self.names)], np.bool_)[self.name]


NO_NAMED = Named(NO_RANGES, np.empty(0, np.int32), [])


def runs_node(calls: Named) -> Mask:
    """Which calls run a node of the backward graph, by their names, shape (calls,)."""
    return calls.called(_NODE)


class Phases:
    """The phases of one rank's host, by thread and time.

    Backward is what autograd's engine runs, or a range of that name holds.  Forward is a module's run outside
    of it, and lasts from the first to the last op that a backward op names as its own, with no backward or
    optimizer in between; where no op is named, it is what comes before a backward.  A rank that
    runs no backward serves: each call is of the phase of the engine's annotation around it, else forward.
    """

    def __init__(self, calls: Named, sequence: Int64, backward_node: Mask, marks: Named) -> None:
        """`calls` of operators with autograd's `sequence` (−1: none); `marks` are annotations and modules."""
        self._found: dict[str, Ranges] = {}
        of_engine = runs_node(calls) | calls.called(_AFTER_BACKWARD)
        of_engine |= _of_engines_threads(calls, of_engine, sequence, backward_node)
        self._found["data"] = marks.ranges.of(marks.where(lambda name: re.search(LOADER, name) is not None))
        self._found["optimizer"] = marks.ranges.of(marks.called(_OPTIMIZER))
        named = marks.called(_BACKWARD) | marks.where(starts_backward)
        self._found["backward"], _ = joined(calls.ranges.of(of_engine), marks.ranges.of(named))
        if any(len(self._found[phase].track) for phase in ("backward", "optimizer")):
            losses = calls.ranges.of(calls.called(f"(?:{_LOSS})$"))
            self._found["loss"], _ = joined(losses, marks.ranges.of(marks.called(_LOSS_RANGE)))
            forward = self._forward(calls, sequence, backward_node)
            self._found["forward"], _ = joined(forward, marks.ranges.of(marks.called(_FORWARD)))
        else:
            for phase in ("prefill", "decode", "mixed"):
                self._found[phase] = marks.ranges.of(marks.where(partial(_serves, phase)))
            self._found["forward"] = calls.ranges

    def _forward(self, calls: Named, sequence: Int64, backward_node: Mask) -> Ranges:
        """From the first to the last forward op of each run of them on a thread."""
        track, start, end = calls.ranges.track, calls.ranges.start_ns, calls.ranges.end_ns
        elsewhere = ~backward_node
        for phase in ("optimizer", "backward", "data"):
            elsewhere &= ~self._found[phase].holding(track, start)
        named = elsewhere & np.isin(sequence, sequence[backward_node & (sequence >= 0)])
        begun = {phase: np.sort(self._found[phase].start_ns) for phase in ("backward", "optimizer")}
        if not named.any():
            following = {phase: np.append(at, np.iinfo(np.int64).max) for phase, at in begun.items()}
            until = {phase: at[np.searchsorted(at[:-1], start)] for phase, at in following.items()}
            named = elsewhere & (until["backward"] < until["optimizer"])
        if not named.any():
            return NO_RANGES
        thread, begin = track[named], start[named]
        run = np.searchsorted(np.sort(np.concatenate([*begun.values()])), begin)
        first = np.flatnonzero(begins(thread, run))
        return Ranges(thread[first], begin[first], np.maximum.reduceat(end[named], first))

    def at(self, track: Int64, at: Int64) -> Index:
        """Index in `PHASES` of each thread's phase at each instant, shape of `at`."""
        found = np.full(len(at), PHASES.index("other"), np.int32)
        for phase in ("forward", "loss", "mixed", "decode", "prefill", "backward", "optimizer", "data"):
            ranges = self._found.get(phase, NO_RANGES)
            found[ranges.holding(track, at)] = PHASES.index(phase)
        return found


def _of_engines_threads(calls: Named, of_engine: Mask, sequence: Int64, backward_node: Mask) -> Mask:
    """Which calls run on threads of autograd's engine alone: it also runs what waits for the graph's end."""
    track = calls.ranges.track
    outside = ~calls.ranges.of(of_engine).holding(track, calls.ranges.start_ns)
    forward = np.unique(track[outside & (sequence >= 0) & ~backward_node])
    return np.isin(track, np.setdiff1d(track[of_engine], forward))

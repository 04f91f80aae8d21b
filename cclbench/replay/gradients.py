# SPDX-License-Identifier: Apache-2.0
"""Gradients of a step on an accelerator: how large they are, and after which kernel each is ready.

PyTorch records a row `torch::autograd::AccumulateGrad` for each parameter's gradient, with its shape and
element type where shapes are recorded. Such a gradient is ready when the kernels end that were launched
before the row's end; of several micro-batches only the last exchanges them. Without such rows the parameters
that the optimizer updates, or the card's, are spread evenly over the time of backward's kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.classify.dtypes import element_bytes
from cclbench.ground.intervals import Int64, Mask
from cclbench.operators.call import NoModel, Tensor, parse_call
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject
from cclbench.replay.rescale import card_sizes, microbatch_count, missing_sizes
from cclbench.replay.tables import clocks_of

Float64 = npt.NDArray[np.float64]

_ROW: Final = "torch::autograd::AccumulateGrad"
_UPDATES: Final = (
    "aten::_fused_adam_",
    "aten::_fused_adamw_",
    "aten::_fused_sgd_",
    "aten::_foreach_addcdiv_",
    "aten::addcdiv_",
)
"""Calls of optimizers that update each parameter once in a step; their first operands are the parameters."""
_EVEN_PARTS: Final = 64
"""Number of gradients into which the card's parameters are divided."""


class StepGradients(NamedTuple):
    """Gradients of a rank's step in the order in which they become ready, shape (gradients,): bytes, and the
    node with whose end each is ready. `resume`: the first node launched after all of them, −1 for none."""

    rank: int
    step: int
    nbytes: Float64
    node: Int64
    resume: int


class KernelsByLaunch(NamedTuple):
    """A rank's kernels in windows, in order of launch: nodes, and when they were launched."""

    node: Int64
    launch_ns: Int64


def recorded_gradients(subject: ChangeSubject) -> list[StepGradients]:
    """Gradients of each rank and step, by their rows; empty where a size or a kernel is missing."""
    clock = clocks_of(subject.run)
    steps: list[StepGradients] = []
    for rank in subject.graph.windowed:
        ends, nbytes = _gradient_rows(subject, rank.rank)
        launched = launched_kernels(subject, rank.rank)
        if not len(ends) or np.isnan(nbytes).any() or not len(launched.node):
            return []
        steps += _by_step(subject, rank.rank, launched, clock(rank.rank).on_common_clock(ends), nbytes)
    return steps


def even_gradients(subject: ChangeSubject, total_bytes: float) -> list[StepGradients]:
    """Gradients of that many bytes, in equal parts over the time of backward; empty where it is unknown."""
    steps: list[StepGradients] = []
    for rank in subject.graph.windowed:
        launched = launched_kernels(subject, rank.rank)
        backward = in_phase(subject, rank.rank, launched, "backward")
        for step in _counted_steps(subject.step[launched.node]):
            at = np.flatnonzero(backward & (subject.step[launched.node] == step))
            if not len(at):
                return []
            done = np.cumsum(subject.graph.nodes.dur[launched.node[at]])
            shares = np.arange(1, _EVEN_PARTS + 1) / _EVEN_PARTS * done[-1]
            ready = at[np.minimum(np.searchsorted(done, shares), len(at) - 1)]
            nbytes = np.full(_EVEN_PARTS, total_bytes / _EVEN_PARTS)
            resume = _first_behind(subject, launched, int(at[-1]), launched.node[ready])
            steps.append(StepGradients(rank.rank, step, nbytes, launched.node[ready], resume))
    return steps


def updated_bytes(subject: ChangeSubject) -> float | None:
    """Bytes of a rank's parameters that the optimizer updates in a step, by recorded shapes; None without
    these or without steps. Lists of tensors have no recorded type: theirs is the card's precision."""
    run = subject.run
    lacking = missing_sizes(run.card, "element")
    stated = None if lacking else card_sizes(run.card, "gradients", "element")["element"]
    table = run.rank(run.ranks[0]).operators(("name", "step", "shapes", "dtypes"))
    table = table.filter(pc.is_in(table["name"].cast(pa.string()), pa.array(_UPDATES)))
    by_step: Counter[int] = Counter()
    for row in table.filter(table["step"].is_valid()).to_pylist():
        first = next(iter(parse_call(row["name"], row["shapes"], row["dtypes"]).arguments), None)
        for argument in first if isinstance(first, tuple) else (first,):
            if isinstance(argument, Tensor):
                size = element_bytes(argument.dtype) or stated
                if size is None:
                    return None
                by_step[row["step"]] += round(argument.elements * size)
    return float(max(by_step.values(), default=0)) or None


def _gradient_rows(subject: ChangeSubject, rank: int) -> tuple[Int64, Float64]:
    """End of each gradient's row, ns on the rank's clock, and its bytes, NaN where not recorded."""
    ends, nbytes = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
    sizes: dict[tuple[str | None, str | None], float] = {}
    for batch in subject.run.rank(rank).events(("op",), ("name", "start_ns", "dur_ns", "shapes", "dtypes")):
        names = batch["name"].dictionary.to_pylist()
        if _ROW not in names:
            continue
        rows = batch.take(np.flatnonzero(batch["name"].indices.to_numpy() == names.index(_ROW)))
        ends.append(rows["start_ns"].to_numpy() + rows["dur_ns"].to_numpy())
        words = zip(rows["shapes"].to_pylist(), rows["dtypes"].to_pylist(), strict=True)
        nbytes.append(np.array([sizes.get(word) or _first_bytes(sizes, word) for word in words], np.float64))
    return np.concatenate(ends), np.concatenate(nbytes)


def _first_bytes(
    sizes: dict[tuple[str | None, str | None], float], word: tuple[str | None, str | None]
) -> float:
    """Bytes of the first operand of a row with these shapes and types, NaN where not recorded."""
    tensors = parse_call(_ROW, *word).tensors
    try:
        sizes[word] = float(tensors[0].bytes) if tensors else np.nan
    except NoModel:
        sizes[word] = np.nan
    return sizes[word]


def launched_kernels(subject: ChangeSubject, rank: int) -> KernelsByLaunch:
    """The rank's kernels in windows."""
    nodes = subject.graph.nodes
    chosen = (nodes.rank == rank) & (nodes.kind == n.COMPUTE) & (nodes.feeder >= 0) & (subject.since >= 0)
    at = np.flatnonzero(chosen)
    launch_ns = nodes.start[nodes.feeder[at]]
    order = np.argsort(launch_ns, kind="stable")
    return KernelsByLaunch(at[order], launch_ns[order])


def in_phase(subject: ChangeSubject, rank: int, launched: KernelsByLaunch, phase: str) -> Mask:
    """Which of the rank's kernels belong to a phase, by their operators, shape (kernels,)."""
    starts = [np.empty(0, np.int64)]
    for batch in subject.run.rank(rank).events(("kernel",), ("phase", "start_ns")):
        chosen = pc.equal(batch["phase"], phase).fill_null(False)
        starts.append(batch["start_ns"].filter(chosen).to_numpy())
    of_phase = clocks_of(subject.run)(rank).on_common_clock(np.concatenate(starts))
    return np.isin(subject.graph.nodes.start[launched.node], of_phase)


def _by_step(
    subject: ChangeSubject, rank: int, launched: KernelsByLaunch, at: Int64, nbytes: Float64
) -> Iterator[StepGradients]:
    """The gradients of each step, by the times of their rows; of several micro-batches those of the last."""
    passes = microbatch_count(subject.run.card) or 1
    order = np.argsort(at, kind="stable")
    place = np.searchsorted(launched.launch_ns, at[order], side="right") - 1
    order, place = order[place >= 0], place[place >= 0]
    step = subject.step[launched.node[place]]
    for step_number in _counted_steps(step):
        rows = np.flatnonzero(step == step_number)
        if not len(rows) % passes:
            rows = rows[-(len(rows) // passes) :]
        node = launched.node[place[rows]]
        resume = _first_behind(subject, launched, int(place[rows[-1]]), node)
        yield StepGradients(rank, step_number, nbytes[order[rows]], node, resume)


def _counted_steps(step: Int64) -> list[int]:
    """The steps of kernels, without what lies between steps; −1 for a trace without steps."""
    return [int(step_number) for step_number in np.unique(step[step >= 0])] or [-1][: len(step)]


def _first_behind(subject: ChangeSubject, launched: KernelsByLaunch, last: int, ready: Int64) -> int:
    """The first kernel launched after `last` that begins when all of `ready` have ended; −1 without one."""
    nodes, behind = subject.graph.nodes, launched.node[last + 1 :]
    later = behind[nodes.start[behind] >= nodes.end[ready].max()]
    return int(later[0]) if len(later) else -1

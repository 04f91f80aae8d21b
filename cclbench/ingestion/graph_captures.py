# SPDX-License-Identifier: Apache-2.0
"""Operators of the kernels of CUDA and HIP graphs, from traces taken while the graphs were captured.

A capture records the operators, launches and modules in order, and runs nothing; a replay runs the kernels in
that order and records one launch.  `pair_kernels` states when the two are one graph, `_Choice` which capture
a replay belongs to if several fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.classify.serving_steps import batch_size
from cclbench.formats import Names
from cclbench.ground.intervals import Index, Int64
from cclbench.ground.schema import OPERATORS
from cclbench.ingestion.captured_launches import Capture
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.kernel_pairs import KernelPairs, Misfit, ReplayedKernels, pair_kernels
from cclbench.ingestion.launched import device_time
from cclbench.record.manifest import GraphJoins


@dataclass(frozen=True, slots=True, eq=False)
class GraphReplays:
    """Graph launches of a rank."""

    operator: Int64
    """Id of each device row's call, −1 if no capture states it, shape (rows,)."""
    module: Texts
    """Path of the module that each of these rows belongs to, shape (rows,)."""
    joins: GraphJoins
    calls: Iterator[pa.Table]
    """Rows of `schema.OPERATORS`, one table per replay."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphRows:
    """A rank's device rows, arrays of shape (rows,)."""

    launch: Int64
    """Index of each one's launch, −1 for none."""
    starts: Int64
    ends: Int64
    stream: Int64
    kernels: Texts
    """Kernel names, none for a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphLaunch:
    """A graph launch: its thread, time, step, phase and annotation."""

    track: int
    at: int
    step: int | None
    phase: str
    annotation: str | None


class _Joined(NamedTuple):
    """A launch joined with a capture: the capture's calls, the id of the first, and rows with their calls."""

    launch: GraphLaunch
    calls: pa.Table
    first_id: int
    rows: Int64
    call: Index


def join_captures(
    rank: int, captures: Sequence[Capture], rows: GraphRows, launches: dict[int, GraphLaunch], first_id: int
) -> GraphReplays:
    """Operators of the kernels of graph `launches`, by launch index; their ids start at `first_id`."""
    operator = np.full(len(rows.launch), -1, np.int64)
    module, modules = np.full(len(rows.launch), -1, np.int32), Names()
    order = np.lexsort((rows.starts, rows.stream, rows.launch))
    own_rows = {
        index: order[slice(*np.searchsorted(rows.launch, (index, index + 1), sorter=order))]
        for index in launches
    }
    choice = _Choice(captures, rows, own_rows)
    joined: list[_Joined] = []
    refused, without_row = Counter[str](), 0
    paths: dict[int, Index] = {}
    for index, chosen in sorted(choice.captures_of(launches).items()):
        if isinstance(chosen, str):
            refused[chosen] += 1
            continue
        number, pairs, in_order = chosen
        calls = captures[number].calls if in_order else _without_modules(captures[number].calls)
        call = np.append(captures[number].call, np.int32(-1))[pairs.launch]
        linked_rows, call = own_rows[index][call >= 0], call[call >= 0]
        operator[linked_rows] = first_id + call
        if in_order:
            if number not in paths:
                words = calls["module"].to_pylist()
                paths[number] = np.array([-1 if word is None else modules[word] for word in words], np.int32)
            module[linked_rows] = paths[number][call]
        joined.append(_Joined(launches[index], calls, first_id, linked_rows, call))
        first_id += len(calls)
        without_row += pairs.without_row
    length = rows.ends - rows.starts
    in_graphs, with_call = (
        np.concatenate([np.empty(0, np.int64), *parts])
        for parts in (own_rows.values(), (replay.rows for replay in joined))
    )
    joins = GraphJoins(
        launches=len(launches),
        joined=len(joined),
        rows=len(in_graphs),
        joined_rows=len(with_call),
        time_ns=int(length[in_graphs].sum()),
        joined_ns=int(length[with_call].sum()),
        launches_without_row=without_row,
        refused=dict(refused.most_common()),
    )
    tables = (_replay_calls(rank, replay, rows) for replay in joined)
    return GraphReplays(operator, Texts(module, list(modules)), joins, tables)


_Chosen = tuple[int, KernelPairs, bool]
"""A launch's capture, their pairs, and whether it is known to be this one of several of equal work."""


class _Choice:
    """The capture of each graph launch.

    Captures whose calls have the same names and arguments are of equal work, any of them is right, and the
    order of launches in a step decides which.  Of captures of different work that all fit, one without a loss
    goes first; then the batch size must decide.
    """

    def __init__(self, captures: Sequence[Capture], rows: GraphRows, own_rows: dict[int, Int64]) -> None:
        self._captures = captures
        codes = {word: code for code, word in enumerate(rows.kernels.words)}
        self._kernels = [_kernel_codes(capture, codes) for capture in captures]
        self._works = [
            (kernels.tobytes(), capture.work.tobytes())
            for kernels, capture in zip(self._kernels, captures, strict=True)
        ]
        firsts = {work: number for number, work in reversed(list(enumerate(self._works)))}
        self._first_of_work = sorted(firsts.values())
        numbers: dict[tuple[bytes, bytes], int] = {}
        self._replays: list[ReplayedKernels] = []
        self._replay: dict[int, int] = {}
        """Number of the launch's replay: most launches run the same kernels as others."""
        for index, launch_rows in own_rows.items():
            _, stream = np.unique(rows.stream[launch_rows], return_inverse=True)
            replay = ReplayedKernels(rows.kernels.codes[launch_rows].astype(np.int64), stream)
            self._replay[index] = numbers.setdefault(replay.key, len(numbers))
            self._replays += [replay] if len(numbers) > len(self._replays) else []
        self._pairs: dict[tuple[int, int], KernelPairs | Misfit] = {}
        self._fits: dict[tuple[int, int | None], tuple[int, ...] | str] = {}

    def captures_of(self, launches: dict[int, GraphLaunch]) -> dict[int, _Chosen | str]:
        """The capture of each launch, by launch index, or why it has none."""
        chosen: dict[int, _Chosen | str] = {}
        alike: dict[tuple[int, int | None, tuple[int, ...]], list[int]] = defaultdict(list)
        for index, launch in sorted(launches.items(), key=lambda item: item[1].at):
            key = self._replay[index], batch_size(launch.annotation or "")
            fitting = self._fits.get(key) or self._fits.setdefault(key, self._fitting(*key))
            if isinstance(fitting, str):
                chosen[index] = fitting
            else:
                alike[launch.track, launch.step, fitting].append(index)
        for (_, _, captures), indices in alike.items():
            in_order = len(indices) % len(captures) == 0
            for turn, index in enumerate(indices):
                capture = captures[turn % len(captures) if in_order else 0]
                pairs = self._pair(capture, self._replay[index])
                chosen[index] = pairs.why if isinstance(pairs, Misfit) else (capture, pairs, in_order)
        return chosen

    def _fitting(self, replay: int, requests: int | None) -> tuple[int, ...] | str:
        """Captures of equal work that a launch may have replayed, in order, or why there is none."""
        if not self._captures:
            return "the source has no trace of their capture"
        kernels = self._replays[replay].kernels.tobytes()
        equal = [number for number in self._first_of_work if self._works[number][0] == kernels]
        pairs = [(self._works[number], self._pair(number, replay)) for number in equal or self._first_of_work]
        works = {work: pair.loss for work, pair in pairs if isinstance(pair, KernelPairs)}
        if not works:
            nearest = max(
                (pair for _, pair in pairs if isinstance(pair, Misfit)), key=lambda misfit: misfit.common
            )
            return nearest.why
        works = {work: loss for work, loss in works.items() if loss == 0} or works
        fitting = [number for number, work in enumerate(self._works) if work in works]
        if requests is not None:
            # an engine pads a batch to the next size that it has a graph for
            sizes = {number: self._captures[number].batch for number in fitting}
            fitting = [number for number, size in sizes.items() if size is None or size >= requests]
            if not fitting:
                largest = max(size for size in sizes.values() if size is not None)
                return f"captured for at most {largest:,} requests, and the step has {requests:,}"
            least = min((size for n in fitting if (size := sizes[n]) is not None), default=None)
            fitting = [number for number in fitting if sizes[number] in (None, least)]
        number = len({self._works[capture] for capture in fitting})
        if number > 1:
            return f"{number} captures of different work have the same kernels, and no batch size tells which"
        by_place = {self._captures[capture].place.tobytes(): capture for capture in reversed(fitting)}
        return tuple(sorted(by_place.values()))

    def _pair(self, number: int, replay: int) -> KernelPairs | Misfit:
        key = number, replay
        if key not in self._pairs:
            self._pairs[key] = pair_kernels(
                self._captures[number], self._kernels[number], self._replays[replay]
            )
        return self._pairs[key]


def _kernel_codes(capture: Capture, codes: dict[str, int]) -> Int64:
    """Code of each launch's kernel by `codes`, which grow; −1 for a copy, −2 where the name is not stated."""
    word_codes = np.array(
        [*(codes.setdefault(word, len(codes)) for word in capture.kernels.words), -2], np.int64
    )
    return np.where(capture.copies, -1, word_codes[capture.kernels.codes])


def _without_modules(calls: pa.Table) -> pa.Table:
    """The calls of one of several captures of equal work, where order does not decide which."""
    at = OPERATORS.get_field_index("module")
    kind = OPERATORS.field("module")
    return calls.set_column(at, kind, pa.nulls(len(calls), pa.string()).dictionary_encode().cast(kind.type))


def _replay_calls(rank: int, joined: _Joined, rows: GraphRows) -> pa.Table:
    """The calls of one replay, at the time of its graph's launch."""
    launch, calls, first_id, replay_rows, call = joined
    length = len(calls)
    kernels, busy = device_time(call, rows.starts[replay_rows], rows.ends[replay_rows], length)
    phase = pa.DictionaryArray.from_arrays(np.zeros(length, np.int8), pa.array([launch.phase]))
    columns = {
        "rank": np.full(length, rank, np.int32),
        "operator": pc.add(calls["operator"], first_id),
        "parent": pc.add(calls["parent"], first_id),
        "track": np.full(length, launch.track),
        **dict.fromkeys(("start_ns", "end_ns"), np.full(length, launch.at)),
        "step": pa.array([launch.step] * length, pa.int32()),
        "phase": phase,
        "annotation": pa.array([launch.annotation] * length, pa.string()).dictionary_encode(),
        "kernels": kernels,
        "device_ns": busy,
    }
    return pa.table([columns.get(name, calls[name]) for name in OPERATORS.names], schema=OPERATORS)

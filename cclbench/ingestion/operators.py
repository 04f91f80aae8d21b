# SPDX-License-Identifier: Apache-2.0
"""A rank's operator calls: which launched what, in which phase and module, from which line of Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cclbench.classify.serving_steps import is_vllm_step, serving_phase
from cclbench.ingestion.part import ROW_GROUP
from cclbench.intervals import Int64, Mask, union_lengths
from cclbench.normalize.operators import Ids, Ranges, is_wrapper, joined, nearest
from cclbench.normalize.phases import (
    NO_NAMED,
    Named,
    Phases,
    runs_node,
    starts_backward,
)
from cclbench.schema import OPERATORS, PHASES

_CALL: Final = ("operator", "track", "start_ns", "dur_ns", "name", "shapes", "dtypes", "strides", "values")
_AUTOGRAD: Final = ("sequence", "forward_thread")
_MODULE: Final = "nn.Module: "
_DEEPEST: Final = 64
"""Modules within one another that a path names."""
_FRAMEWORK: Final = re.compile(
    r"(.*/)?(torch|jax|jaxlib)/|<|nn\.Module: |.*/lib/python[\d.]*/"
    r"|(threading|contextlib|functools|runpy|queue)\.py\("
)
"""Rows of Python that are not a line of the workload's own."""


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """Device rows by the host's instant that launched them, arrays of shape (rows,)."""

    track: Int64
    at: Int64
    """−1 where no launch is known."""
    starts: Int64
    ends: Int64
    operator: Int64
    """Id of the call that the trace states, −1 for none."""


class Host:
    """The calls of one rank that hold a launch, and of a rank without a device all calls, in order."""

    def __init__(self, folder: Path, launched: Launched | None) -> None:
        """`folder` holds the rank's events; `launched` is None where the host is the device."""
        at = None if launched is None else _by_thread(launched)
        self.launched = launched
        stated = np.empty(0, np.int64) if launched is None else np.unique(launched.operator)
        self.table = _calls(folder, at, stated)
        self.id, self.track, self.start_ns, self.end_ns = (
            self.table[name].to_numpy() for name in ("operator", "track", "start_ns", "end_ns")
        )
        self.ranges = Ranges(self.track, self.start_ns, self.end_ns)
        self._annotations = _named(folder, "annotation", at, lambda _: True)
        python = _named(folder, "python", at, _tells)
        self._modules = python.of(python.where(_is_module))
        self._sites = python.of(python.where(_is_site))
        marks = _both(self._annotations, python.of(~python.where(_is_site)))
        names = self.table["name"].chunk(0) if self.table.num_rows else None
        self.calls = Named(
            self.ranges,
            np.empty(0, np.int64) if names is None else names.indices.to_numpy().astype(np.int64),
            [] if names is None else names.dictionary.to_pylist(),
        )
        self._phases = Phases(self.calls, self.sequence, self.is_node, marks)

    @cached_property
    def parents(self) -> Int64:
        """Index of the call that made each one, −1 for none."""
        return self.ranges.parents()

    @cached_property
    def sequence(self) -> Int64:
        """Autograd's number of each call, −1 for none."""
        return np.asarray(self.table["sequence"].fill_null(-1).to_numpy())

    @cached_property
    def is_node(self) -> Mask:
        """Which calls run a node of the backward graph."""
        known: Mask = self.table["forward_thread"].is_valid().to_numpy()
        return known | runs_node(self.calls)

    @cached_property
    def _node(self) -> Int64:
        """Index of the node of the backward graph that each call runs for, −1 for none."""
        return nearest(self.parents, self.is_node & (self.sequence >= 0))

    @cached_property
    def _forward_call(self) -> Int64:
        """Index of the forward call that each backward call belongs to, −1 for none."""
        sequence, nodes = self.sequence, self._node
        forward = np.flatnonzero((sequence >= 0) & ~self.is_node & (nodes < 0))
        forward = forward[np.lexsort((self.start_ns[forward], sequence[forward]))]
        if not len(forward):
            return np.full(len(nodes), -1, np.int64)
        wanted = np.where(nodes >= 0, sequence[nodes], -1)
        last = np.searchsorted(sequence[forward], wanted, side="right") - 1
        same = (last >= 0) & (wanted >= 0) & (sequence[forward[last]] == wanted)
        return np.where(same, forward[last], -1)

    @cached_property
    def recomputed(self) -> Mask:
        """Which calls are forward ones that a node of the backward graph runs again."""
        numbered = nearest(self.parents, (self.sequence >= 0) | self.is_node)
        own = np.where(numbered >= 0, numbered, 0)
        if not len(own):
            return np.zeros(0, np.bool_)
        return np.asarray((numbered >= 0) & ~self.is_node[own] & (self._node[own] >= 0))

    @cached_property
    def _paths(self) -> tuple[Int64, list[str]]:
        """Path of each module's run, as a code, and the paths.

        A module is named by its class and number, so that one which runs again alone, in the backward pass,
        has the path of its first run.
        """
        names = [name.removeprefix(_MODULE) for name in self._modules.names]
        codes, first = dict[str, int](), dict[str, str]()
        found: list[str] = []
        for parent, name in zip(
            self._modules.ranges.parents().tolist(), self._modules.name.tolist(), strict=True
        ):
            own = names[name]
            if parent < 0:
                path = first.get(own, own)
            elif found[parent].count("/") < _DEEPEST:
                path = f"{found[parent]}/{own}"
                first.setdefault(own, path)
            else:
                path = found[parent]
            codes.setdefault(path, len(codes))
            found.append(path)
        return np.array([codes[path] for path in found], np.int64), list(codes)

    @cached_property
    def module(self) -> Int64:
        """Code of each call's module, −1 for none; of a backward call its forward call's."""
        own = self._module_at(self.track, self.start_ns)
        forward = self._forward_call
        lent = np.where(forward >= 0, own[forward], -1) if len(own) else own
        return np.where(own >= 0, own, lent)

    def _module_at(self, track: Int64, at: Int64) -> Int64:
        path, _ = self._paths
        index = self._modules.ranges.innermost(track, at)
        return np.append(path, -1)[index]

    def of_rows(self, operator: Int64) -> tuple[pa.Array, pa.Array]:
        """Phase and module of each device row, from what launched it and the `operator` that did."""
        launched = self.launched
        assert launched is not None  # noqa: S101 - a host that is the device has no device rows
        known = launched.at >= 0
        call = self.index_of(operator)
        phase = np.where(known, self._phases.at(launched.track, launched.at), PHASES.index("other"))
        # A launch that is not recorded was made while its operator ran.
        lost = ~known & (call >= 0)
        phase[lost] = self._phases.at(self.track[call[lost]], self.start_ns[call[lost]])
        module = np.append(self.module, -1)[call]
        alone = known & (module < 0)
        module[alone] = self._module_at(launched.track[alone], launched.at[alone])
        return _words(phase, PHASES, pa.int8()), _words(module, self._paths[1], pa.int32())

    def phases_at(self, track: Int64, at: Int64) -> Int64:
        """Index in `PHASES` of each thread's phase at each instant."""
        return self._phases.at(track, at)

    def annotations_at(self, track: Int64, at: Int64) -> pa.Array:
        """The annotation of a serving engine's step around each instant of a thread, null for none.

        An engine that names its steps in both ways nests them: then vLLM's tell more.
        """
        steps = self._annotations.where(is_vllm_step)
        if not steps.any():
            steps = self._annotations.where(lambda name: serving_phase(name) is not None)
        own = self._annotations.of(steps)
        return _words(np.append(own.name, -1)[own.ranges.innermost(track, at)], own.names, pa.int32())

    def operator_of_rows(self) -> Int64:
        """Id of the innermost call around each device row's launch, −1 for none."""
        assert self.launched is not None  # noqa: S101
        at = np.where(self.launched.at >= 0, self.launched.at, np.iinfo(np.int64).min)
        return np.append(self.id, -1)[self.ranges.innermost(self.launched.track, at)]

    def index_of(self, operator: Int64) -> Int64:
        """Index of the call of each id, −1 for none."""
        return self._ids.index_of(operator)

    @cached_property
    def _ids(self) -> Ids:
        return Ids(self.id)

    def operators(self, rank: int, operator: Int64, step: Int64) -> pa.Table:
        """Rows of `schema.OPERATORS`; `operator` is each device row's, `step` the number of each call's."""
        kernels, busy = self._device_time(operator)
        forward = self._forward_call
        site = self._sites.ranges.innermost(self.track, self.start_ns)
        if len(site):
            site = np.where((site < 0) & (forward >= 0), site[forward], site)
        site_name = np.append(self._sites.name, -1)[site]
        columns = {name: self.table[name] for name in (*_CALL[4:], "operator", "track", "start_ns", "end_ns")}
        columns |= {
            "rank": np.full(len(self.id), rank, np.int32),
            "parent": pa.array(np.append(self.id, 0)[self.parents], mask=self.parents < 0),
            "sequence": self.table["sequence"],
            "step": pa.array(step.astype(np.int32), mask=step < 0),
            "phase": _words(self._phases.at(self.track, self.start_ns), PHASES, pa.int8()),
            "module": _words(self.module, self._paths[1], pa.int32()),
            "call_site": _words(site_name, self._sites.names, pa.int32()),
            "annotation": self.annotations_at(self.track, self.start_ns),
            "recomputed": self.recomputed,
            "kernels": kernels,
            "device_ns": busy,
        }
        return pa.table([columns[name] for name in OPERATORS.names], schema=OPERATORS)

    def _device_time(self, operator: Int64) -> tuple[Int64, Int64]:
        """How many device rows each call launched itself, and their union, ns."""
        if self.launched is None:
            of_calls = np.bincount(
                self.parents[self.parents >= 0],
                (self.end_ns - self.start_ns)[self.parents >= 0].astype(np.float64),
                minlength=len(self.id),
            )
            own = np.maximum(self.end_ns - self.start_ns - of_calls.astype(np.int64), 0)
            return np.zeros(len(own), np.int64), np.where(self.calls.where(is_wrapper), 0, own)
        call = self.index_of(operator)
        rows = np.flatnonzero(call >= 0)
        return device_time(call[rows], self.launched.starts[rows], self.launched.ends[rows], len(self.id))


def device_time(call: Int64, starts: Int64, ends: Int64, calls: int) -> tuple[Int64, Int64]:
    """How many device rows each call launched, and their union, ns; `call` is each row's, of so many."""
    return np.bincount(call, minlength=calls), union_lengths(call, starts, ends, calls)


def _is_module(name: str) -> bool:
    return name.startswith(_MODULE)


def _is_site(name: str) -> bool:
    """Whether a row of Python is a line of the workload's own."""
    return _FRAMEWORK.match(name) is None


def _tells(name: str) -> bool:
    """Whether a row of Python tells a module, a line of the workload or the call of backward."""
    return _is_module(name) or _is_site(name) or starts_backward(name)


def _by_thread(launched: Launched) -> dict[int, Int64]:
    """The instants of each thread's launches, sorted."""
    known = launched.at >= 0
    track, at = launched.track[known], launched.at[known]
    return {int(thread): np.sort(at[track == thread]) for thread in np.unique(track)}


def _holding(track: Int64, start: Int64, end: Int64, launched: Mapping[int, Int64]) -> Mask:
    """Which ranges hold a launch of their thread, shape (ranges,)."""
    holds = np.zeros(len(start), np.bool_)
    for thread, at in launched.items():
        own = track == thread
        holds[own] = np.searchsorted(at, start[own]) < np.searchsorted(at, end[own])
    return holds


def _calls(folder: Path, launched: Mapping[int, Int64] | None, stated: Int64) -> pa.Table:
    """The operators' calls that launched something, in order: all that a rank without a device makes."""
    empty = pa.table({name: pa.array([], _kind(name)) for name in (*_CALL, *_AUTOGRAD)})
    tables, seen = [empty], 0
    for path in sorted(folder.glob("op-[0-9][0-9][0-9].parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=[*_CALL, *_AUTOGRAD]):
                rows = pa.table(batch.columns, names=batch.schema.names)
                # Calls without an id are numbered downwards.
                own = pa.array(-1 - np.arange(seen, seen + len(rows)))
                rows = rows.set_column(0, "operator", pc.coalesce(rows["operator"], own))
                seen += len(rows)
                if launched is not None:
                    number, track, start, duration = (rows[name].to_numpy() for name in _CALL[:4])
                    kept = _holding(track, start, start + duration, launched) | np.isin(number, stated)
                    rows = rows.filter(pa.array(kept))
                tables.append(rows)
    found = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    end = pc.add(found["start_ns"], found["dur_ns"])
    found = found.set_column(found.schema.get_field_index("dur_ns"), "end_ns", end)
    track, start, until, number = (
        found[name].to_numpy() for name in ("track", "start_ns", "end_ns", "operator")
    )
    return found.take(Ranges.order(track, start, until, number))


def _kind(column: str) -> pa.DataType:
    return pa.int64() if column not in OPERATORS.names or column == "dur_ns" else OPERATORS.field(column).type


def _named(
    folder: Path, kind: str, launched: Mapping[int, Int64] | None, wanted: Callable[[str], bool]
) -> Named:
    """The host's rows of a kind whose name is wanted, those that hold a launch, in order."""
    names: dict[str, int] = {}
    found = [np.empty((4, 0), np.int64)]
    for path in sorted(folder.glob(f"{kind}-[0-9][0-9][0-9].parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=["track", "start_ns", "dur_ns", "name"]):
                words = batch["name"].dictionary.to_pylist()
                own = np.array([wanted(word) for word in words], np.bool_)[batch["name"].indices.to_numpy()]
                rows = batch.filter(pa.array(own))
                track, start, duration = (rows[name].to_numpy() for name in ("track", "start_ns", "dur_ns"))
                code = np.array([names.setdefault(word, len(names)) for word in words], np.int64)
                edges = np.array([track, start, start + duration, code[rows["name"].indices.to_numpy()]])
                if launched is not None:
                    edges = edges[:, _holding(edges[0], edges[1], edges[2], launched)]
                found.append(edges)
    track, start, end, name = np.concatenate(found, axis=1)
    order = Ranges.order(track, start, end, np.arange(len(track)))
    if not len(order):
        return NO_NAMED
    return Named(Ranges(track[order], start[order], end[order]), name[order], list(names))


def _both(one: Named, other: Named) -> Named:
    """The ranges of both, in order."""
    ranges, order = joined(one.ranges, other.ranges)
    name = np.concatenate([one.name, other.name + len(one.names)])
    return Named(ranges, name[order], [*one.names, *other.names])


def _words(codes: Int64, words: Any, kind: pa.DataType) -> pa.Array:
    indices = pa.array(codes.astype(np.int64), mask=codes < 0).cast(kind)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(words), pa.string()))

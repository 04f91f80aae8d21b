# SPDX-License-Identifier: Apache-2.0
"""A rank's operator calls: which launched what, in which phase and module, from which line of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.classify.serving_steps import is_vllm_step, serving_phase
from cclbench.ingestion import host_rows
from cclbench.ingestion.part import ROW_GROUP
from cclbench.intervals import Index, Int64, Mask, union_lengths
from cclbench.normalize.operators import Ids, is_wrapper, nearest
from cclbench.normalize.phases import Phases, runs_node, starts_backward
from cclbench.schema import OPERATORS, PHASES

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
        found = host_rows.calls(folder, at, stated[stated >= 0])
        self.id, self.calls, self.sequence = found.id, found.named, found.sequence
        self.ranges = found.named.ranges
        self.track, self.start_ns, self.end_ns = self.ranges.track, self.ranges.start_ns, self.ranges.end_ns
        self._arguments = found.arguments
        self._annotations = host_rows.named(folder, "annotation", at, lambda _: True)
        python = host_rows.named(folder, "python", at, _tells)
        self._modules = python.of(python.where(_is_module))
        self._sites = python.of(python.where(_is_site))
        marks = host_rows.both(self._annotations, python.of(~python.where(_is_site)))
        self.is_node = found.in_backward | runs_node(self.calls)
        self._phases = Phases(self.calls, self.sequence, self.is_node, marks)

    @cached_property
    def parents(self) -> Index:
        """Index of the call that made each one, −1 for none."""
        return self.ranges.parents()

    @cached_property
    def _node(self) -> Index:
        """Index of the node of the backward graph that each call runs for, −1 for none."""
        return nearest(self.parents, self.is_node & (self.sequence >= 0))

    @cached_property
    def _forward_call(self) -> Index:
        """Index of the forward call that each backward call belongs to, −1 for none."""
        sequence, nodes = self.sequence, self._node
        forward = np.flatnonzero((sequence >= 0) & ~self.is_node & (nodes < 0))
        forward = forward[np.lexsort((self.start_ns[forward], sequence[forward]))]
        if not len(forward):
            return np.full(len(nodes), -1, np.int32)
        wanted = np.where(nodes >= 0, sequence[nodes], -1)
        last = np.searchsorted(sequence[forward], wanted, side="right") - 1
        same = (last >= 0) & (wanted >= 0) & (sequence[forward[last]] == wanted)
        return np.where(same, forward[last], -1).astype(np.int32)

    @cached_property
    def recomputed(self) -> Mask:
        """Which calls are forward ones that a node of the backward graph runs again."""
        numbered = nearest(self.parents, (self.sequence >= 0) | self.is_node)
        own = np.where(numbered >= 0, numbered, 0)
        if not len(own):
            return np.zeros(0, np.bool_)
        return np.asarray((numbered >= 0) & ~self.is_node[own] & (self._node[own] >= 0))

    @cached_property
    def _paths(self) -> tuple[Index, list[str]]:
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
        return np.array([codes[path] for path in found], np.int32), list(codes)

    @cached_property
    def module(self) -> Index:
        """Code of each call's module, −1 for none; of a backward call its forward call's."""
        own = self._module_at(self.track, self.start_ns)
        forward = self._forward_call
        lent = np.where(forward >= 0, own[forward], -1) if len(own) else own
        return np.where(own >= 0, own, lent)

    def _module_at(self, track: Int64, at: Int64) -> Index:
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

    def phases_at(self, track: Int64, at: Int64) -> Index:
        """Index in `PHASES` of each thread's phase at each instant."""
        return self._phases.at(track, at)

    def annotations_at(self, track: Int64, at: Int64) -> pa.Array:
        """The annotation of a serving engine's step around each instant of a thread, null for none."""
        return _words(*self._annotations_at(track, at), pa.int32())

    def _annotations_at(self, track: Int64, at: Int64) -> tuple[Index, Sequence[str]]:
        """The code of that annotation at each instant, −1 for none, and the annotations.

        An engine that names its steps in both ways nests them: then vLLM's tell more.
        """
        steps = self._annotations.where(is_vllm_step)
        if not steps.any():
            steps = self._annotations.where(lambda name: serving_phase(name) is not None)
        own = self._annotations.of(steps)
        return np.append(own.name, -1)[own.ranges.innermost(track, at)], own.names

    def operator_of_rows(self) -> Int64:
        """Id of the innermost call around each device row's launch, −1 for none."""
        assert self.launched is not None  # noqa: S101
        at = np.where(self.launched.at >= 0, self.launched.at, np.iinfo(np.int64).min)
        return np.append(self.id, -1)[self.ranges.innermost(self.launched.track, at)]

    def index_of(self, operator: Int64) -> Index:
        """Index of the call of each id, −1 for none."""
        return self._ids.index_of(operator)

    @cached_property
    def _ids(self) -> Ids:
        return Ids(self.id)

    def operators(self, rank: int, operator: Int64, step: Index) -> Iterator[pa.Table]:
        """Rows of `schema.OPERATORS`, a row group at a time.

        `operator` is each device row's, `step` the number of each call's.
        """
        kernels, busy = self._device_time(operator)
        forward = self._forward_call
        site = self._sites.ranges.innermost(self.track, self.start_ns)
        if len(site):
            site = np.where((site < 0) & (forward >= 0), site[forward], site)
        texts = {
            "name": (self.calls.name, self.calls.names),
            "phase": (self._phases.at(self.track, self.start_ns), PHASES),
            "module": (self.module, self._paths[1]),
            "call_site": (np.append(self._sites.name, -1)[site], self._sites.names),
            "annotation": self._annotations_at(self.track, self.start_ns),
            **{column: (own.codes, own.words) for column, own in self._arguments.items()},
        }
        for first in range(0, len(self.id), ROW_GROUP):
            here = slice(first, first + ROW_GROUP)
            columns = {
                "rank": np.full(len(self.id[here]), rank, np.int32),
                "operator": self.id[here],
                "parent": _known(self.id[self.parents[here]], self.parents[here]),
                "track": self.track[here],
                "start_ns": self.start_ns[here],
                "end_ns": self.end_ns[here],
                "sequence": _known(self.sequence[here], self.sequence[here]),
                "step": _known(step[here], step[here]),
                "recomputed": self.recomputed[here],
                "kernels": kernels[here],
                "device_ns": busy[here],
            }
            columns |= {
                name: _used(codes[here], words, OPERATORS.field(name).type)
                for name, (codes, words) in texts.items()
            }
            yield pa.table([columns[name] for name in OPERATORS.names], schema=OPERATORS)

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


def device_time(call: Index, starts: Int64, ends: Int64, calls: int) -> tuple[Int64, Int64]:
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


def _known(values: npt.NDArray[Any], told: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Those values, null where `told` is negative."""
    return pa.array(values, mask=told < 0)


def _words(codes: npt.NDArray[np.integer[Any]], words: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Texts by code, −1 for null; `kind` is of the indices."""
    return pa.DictionaryArray.from_arrays(_known(codes, codes).cast(kind), pa.array(list(words), pa.string()))


def _used(codes: Index, words: Sequence[str], kind: pa.DictionaryType) -> pa.Array:
    """Texts by code, with only those words that some code is of."""
    used = np.zeros(len(words) + 1, np.bool_)
    used[codes] = True
    number = np.append(np.cumsum(used[:-1]) - 1, -1)
    own = [words[code] for code in np.flatnonzero(used[:-1]).tolist()]
    return _words(number[codes], own, kind.index_type)

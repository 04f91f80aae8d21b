# SPDX-License-Identifier: Apache-2.0
"""A rank's operator calls: which launched what, in which phase and module, from which line of Python.

The rank's time is taken in stretches, in order: memory holds the host's rows of one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.classify.serving_steps import is_vllm_step, serving_phase
from cclbench.disk_columns import DiskColumn, disk_array, release
from cclbench.formats import Names
from cclbench.ingestion.host_rows import (
    ARGUMENTS,
    HostRows,
    Stretch,
    Texts,
    cuts,
    pieces,
    read_calls,
    read_named,
)
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import or_none
from cclbench.intervals import Index, Int64, begins, union_lengths
from cclbench.normalize.operators import Ids, is_wrapper, nearest
from cclbench.normalize.phases import HostStretch, Phases, Training, among, runs_node, starts_backward
from cclbench.normalize.steps import Marks
from cclbench.schema import OPERATORS, PHASES

_MODULE: Final = "nn.Module: "
_DEEPEST: Final = 64
"""Modules within one another that a path names."""
_FRAMEWORK: Final = re.compile(
    r"(.*/)?(torch|jax|jaxlib)/|<|nn\.Module: |.*/lib/python[\d.]*/"
    r"|(threading|contextlib|functools|runpy|queue)\.py\("
)
"""Rows of Python that are not a line of the workload's own."""
_OTHER: Final = PHASES.index("other")


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

    def release(self) -> None:
        """Let go of what was read."""
        release(self.track, self.at, self.starts, self.ends, self.operator)


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """What launched each device row, arrays of shape (rows,)."""

    operator: Int64
    """Id of its call, −1 for none."""
    phase: Texts
    module: Texts


class Host:
    """The calls of one rank that hold a launch, and of a rank without a device all calls, in order."""

    def __init__(self, folder: Path, launched: Launched | None) -> None:
        """`folder` holds the rank's events; `launched` is None where the host is the device."""
        self.launched = launched
        self._calls, self._annotations, self._python = _read(folder, launched)
        self.id: Int64 = self._calls.columns["id"]
        self._training = Training(self._host_stretches)
        self._place()

    def __len__(self) -> int:
        return len(self._calls)

    def _stretches(self) -> Iterator[tuple[int, Stretch, Stretch, Stretch]]:
        """The number of each stretch, its calls, annotations and rows of Python."""
        several = (self._calls, self._annotations, self._python)
        for number in range(self._calls.stretches):
            calls, ranges, python = (rows.stretch(number) for rows in several)
            yield number, calls, ranges, python
            for rows in several:
                rows.release()

    def _host_stretches(self) -> Iterator[HostStretch]:
        for number, calls, ranges, python in self._stretches():
            self._calls.go_on(calls, number, with_parents=True)
            self._annotations.go_on(ranges, number)
            self._python.go_on(python, number)
            yield _host_stretch(calls, ranges, python)

    def _place(self) -> None:
        """Find each call's parent, module and line, and the forward call that one of backward belongs to."""
        count = len(self)
        self.parents, self._site, self.module = (disk_array(count, np.int32) for _ in range(3))
        """Index of the call that made each one, of the line that did, and code of its module; −1 for none."""
        self.recomputed = disk_array(count, np.bool_)
        """Which calls are forward ones that a node of the backward graph runs again."""
        self._forward_number = disk_array(count, np.int64)
        """Autograd's number of the node that each call runs for, −1 for none."""
        self._path = disk_array(len(self._python), np.int32)
        self._paths = _Paths(self._python.names)
        forward = [np.empty((4, 0), np.int64)]
        for _, calls, ranges, python in self._stretches():
            one, own, place = _host_stretch(calls, ranges, python), calls.own, calls.at[calls.own]
            parents, numbered = calls.ranges.parents(), one.sequence >= 0
            self.parents[place] = np.append(calls.at, -1)[parents[own]]
            node = nearest(parents, one.backward_node & numbered)
            self._forward_number[place] = np.append(one.sequence, -1)[node][own]
            runs = nearest(parents, one.backward_node | numbered)
            again = (runs >= 0) & ~np.append(one.backward_node, True)[runs] & (node >= 0)
            self.recomputed[place] = again[own]
            self._name_modules(python)
            track, start = calls.ranges.track, calls.ranges.start_ns
            module = self._module_at(python, track[own], start[own])
            site = _innermost(python, _is_site, track[own], start[own])
            self.module[place], self._site[place] = module, site
            gives = numbered & ~one.backward_node & (node < 0) & among(one.sequence, self._training.numbers)
            gives = gives[own]
            forward.append(
                np.array([one.sequence[own][gives], start[own][gives], module[gives], site[gives]])
            )
            self._release()
        number, start, module, site = np.concatenate(forward, axis=1)
        order = np.lexsort((start, number))
        order = order[np.append(number[order][1:] != number[order][:-1], True)[: len(order)]]
        self._forward_calls = number[order], module[order].astype(np.int32), site[order].astype(np.int32)

    def _release(self) -> None:
        release(self.parents, self._site, self.module, self.recomputed, self._forward_number, self._path)

    def _name_modules(self, python: Stretch) -> None:
        """Find the paths of the modules whose runs begin in a stretch."""
        runs = python.named.where(_is_module)
        place, own = python.at[runs], python.own[runs]
        ranges = python.ranges.of(runs)
        around, names = ranges.parents(), python.named.name[runs]
        found = self._path[place]
        for run in np.flatnonzero(own)[np.argsort(ranges.start_ns[own], kind="stable")].tolist():
            parent = int(around[run])
            found[run] = self._paths.code(int(names[run]), None if parent < 0 else int(found[parent]))
        self._path[place[own]] = found[own]

    def _module_at(self, python: Stretch, track: Int64, at: Int64) -> Index:
        """Code of the module that runs on each thread at each instant, −1 for none."""
        runs = python.named.where(_is_module)
        index = python.ranges.of(runs).innermost(track, at)
        return np.append(self._path[python.at[runs]], -1)[index].astype(np.int32)

    @cached_property
    def _of_serving(self) -> Callable[[str], bool]:
        """Which annotations are steps of a serving engine.

        An engine that names its steps in both ways nests them: then vLLM's tell more.
        """
        vllm = self._annotations.names.where(is_vllm_step) & self._annotations.names_used
        return is_vllm_step if vllm.any() else _is_serving_step

    def at(self, track: Int64, at: Int64) -> tuple[Index, Texts]:
        """Each thread's phase at each instant, an index in `PHASES`, and its serving engine's step."""
        phase, step = np.empty(len(at), np.int32), np.empty(len(at), np.int32)
        own = self._calls.stretch_of(at)
        for number, calls, ranges, python in self._stretches():
            here = np.flatnonzero(own == number)
            phases = Phases(_host_stretch(calls, ranges, python), self._training)
            phase[here] = phases.at(track[here], at[here])
            step[here] = _innermost(ranges, self._of_serving, track[here], at[here])
        return phase, Texts(step, self._annotations.names)

    def link(self) -> Origins:
        """Give each device row the call that launched it, its phase and its module; the calls get theirs."""
        launched = self.launched
        rows = 0 if launched is None else len(launched.at)
        operator = disk_array(rows, np.int64)
        phase, module = disk_array(rows, np.int32), disk_array(rows, np.int32)
        self._phase, self._step = (disk_array(len(self), np.int32) for _ in range(2))
        numbers, modules, sites = self._forward_calls
        not_here: DiskColumn[np.int64] = DiskColumn(np.int64)
        for number, calls, ranges, python in self._stretches():
            own, place = calls.own, calls.at[calls.own]
            phases = Phases(_host_stretch(calls, ranges, python), self._training)
            track, start = calls.ranges.track[own], calls.ranges.start_ns[own]
            self._phase[place] = phases.at(track, start)
            self._step[place] = _innermost(ranges, self._of_serving, track, start)
            wanted = self._forward_number[place]
            forward = np.where(among(wanted, numbers), np.searchsorted(numbers, wanted), -1)
            for column, lent in ((self.module, modules), (self._site, sites)):
                found = column[place]
                column[place] = np.where(found >= 0, found, np.append(lent, -1)[forward])
            if launched is None:
                continue
            here = self._rows_of(number)
            thread, at, stated = launched.track[here], launched.at[here], launched.operator[here]
            known = at >= 0
            ids = calls.column("id")
            around = calls.ranges.innermost(thread, np.where(known, at, np.iinfo(np.int64).min))
            operator[here] = np.where(stated >= 0, stated, np.append(ids, -1)[around])
            call = np.where(stated >= 0, Ids(ids).index_of(stated), around)
            not_here.append(here[(stated >= 0) & (call < 0)])
            of_call = np.append(self._phase[calls.at], _OTHER)[call]
            phase[here] = np.where(known, phases.at(thread, at), of_call)
            of_call = np.append(self.module[calls.at], -1)[call]
            of_launch = np.where(known, self._module_at(python, thread, at), -1)
            module[here] = np.where(of_call >= 0, of_call, of_launch)
            release(operator, phase, module)
            launched.release()
            self._release()
        if launched is not None:
            self._link_elsewhere(not_here.values(), launched, phase, module)
        return Origins(operator, Texts(phase, PHASES), Texts(module, self._paths.words))

    def _link_elsewhere(self, rows: Int64, launched: Launched, phase: Index, module: Index) -> None:
        """Give phase and module to device rows whose stated call runs in another stretch of time."""
        call = self.index_of(launched.operator[rows])
        rows, call = rows[call >= 0], call[call >= 0]
        of_call = self.module[call]
        module[rows[of_call >= 0]] = of_call[of_call >= 0]
        # A launch that is not recorded was made while its operator ran.
        lost = launched.at[rows] < 0
        phase[rows[lost]] = self._phase[call[lost]]

    @cached_property
    def _rows_by_stretch(self) -> tuple[Index, Int64]:
        """The device rows in order of the stretch that launched them, and where each stretch's begin."""
        assert self.launched is not None  # noqa: S101 - a host that is the device has no device rows
        count = len(self.launched.at)
        stretch = np.empty(count, np.uint16)
        for here in pieces(count):
            at = self.launched.at[here]
            stretch[here] = self._calls.stretch_of(np.where(at >= 0, at, self.launched.starts[here]))
        order = disk_array(count, np.int32)
        order[:] = np.argsort(stretch, kind="stable")
        first = np.cumsum(np.bincount(stretch, minlength=self._calls.stretches))
        release(order)
        self.launched.release()
        return order, np.concatenate([[0], first])

    def _rows_of(self, stretch: int) -> Int64:
        order, first = self._rows_by_stretch
        return order[first[stretch] : first[stretch + 1]].astype(np.int64)

    def index_of(self, operator: Int64) -> Int64:
        """Index of the call of each id, −1 for none."""
        wanted = np.unique(operator)
        found = np.full(len(wanted), -1, np.int64)
        for here in reversed(list(pieces(len(self)))):
            ids = self.id[here]
            at = np.flatnonzero(among(ids, wanted))[::-1]
            found[np.searchsorted(wanted, ids[at])] = at + here.start
        return found[np.searchsorted(wanted, operator)]

    def operators(self, rank: int, operator: Int64, steps: Marks) -> Iterator[pa.Table]:
        """Rows of `schema.OPERATORS`, a row group at a time, once the device's rows are linked.

        `operator` is each device row's, `steps` are the host's.
        """
        kernels, busy = self._device_time(operator)
        calls = self._calls.columns
        texts = {
            "name": Texts(calls["name"], self._calls.names),
            "phase": Texts(self._phase, PHASES),
            "module": Texts(self.module, self._paths.words),
            "call_site": Texts(self._site, self._python.names),
            "annotation": Texts(self._step, self._annotations.names),
            **{column: Texts(calls[column], self._calls.words[column]) for column in ARGUMENTS},
        }
        for first in range(0, len(self), ROW_GROUP):
            here = slice(first, first + ROW_GROUP)
            start, sequence, parent = calls["start_ns"][here], calls["sequence"][here], self.parents[here]
            step = or_none(steps.numbers, steps.holding(start)).astype(np.int32)
            columns = {
                "rank": np.full(len(start), rank, np.int32),
                "operator": self.id[here],
                "parent": _known(self.id[parent], parent),
                "track": calls["track"][here],
                "start_ns": start,
                "end_ns": calls["end_ns"][here],
                "sequence": _known(sequence, sequence),
                "step": _known(step, step),
                "recomputed": self.recomputed[here],
                "kernels": kernels[here],
                "device_ns": busy[here],
            }
            columns |= {
                name: _used(one.codes[here], one.words, OPERATORS.field(name).type)
                for name, one in texts.items()
            }
            yield pa.table([columns[name] for name in OPERATORS.names], schema=OPERATORS)
            self._calls.release()
            self._release()
            release(kernels, busy, self._phase, self._step)

    def _device_time(self, operator: Int64) -> tuple[Int64, Int64]:
        """How many device rows each call launched itself, and their union, ns."""
        if self.launched is None:
            return disk_array(len(self), np.int64), self._own_time()
        kernels, busy = disk_array(len(self), np.int64), disk_array(len(self), np.int64)
        elsewhere: DiskColumn[np.int64] = DiskColumn(np.int64)
        last = int(self.id.max(initial=-1))
        starts, ends = self.launched.starts, self.launched.ends
        for number in range(self._calls.stretches):
            calls, rows = self._calls.stretch(number), self._rows_of(number)
            stated = operator[rows]
            call = Ids(calls.column("id")).index_of(stated)
            here = (call >= 0) & np.append(calls.own, False)[call]
            elsewhere.append(np.unique(stated[~here & (stated >= 0) & (stated <= last)]))
            own = rows[here]
            counts = device_time(call[here], starts[own], ends[own], len(calls.at))
            for column, values in zip((kernels, busy), counts, strict=True):
                column[calls.at[calls.own]] = values[calls.own]
            self._calls.release()
            self.launched.release()
            release(kernels, busy, operator)
        self._add_time(operator, np.unique(elsewhere.values()), kernels, busy)
        return kernels, busy

    def _add_time(self, operator: Int64, ids: Int64, kernels: Int64, busy: Int64) -> None:
        """Count the device rows of those calls, which were launched in several stretches of time."""
        assert self.launched is not None  # noqa: S101
        call = self.index_of(ids)
        ids, call = ids[call >= 0], call[call >= 0]
        if not len(ids):
            return
        count = len(operator)
        own = np.concatenate(
            [np.flatnonzero(among(operator[here], ids)) + here.start for here in pieces(count)]
        )
        kernels[call], busy[call] = device_time(
            np.searchsorted(ids, operator[own]), self.launched.starts[own], self.launched.ends[own], len(ids)
        )

    def _own_time(self) -> Int64:
        """The time of each call outside of the calls that it makes, 0 of what is around operators, ns."""
        inside, calls = disk_array(len(self), np.int64), self._calls.columns
        for here in pieces(len(self)):
            parent = self.parents[here]
            called = parent >= 0
            np.add.at(inside, parent[called], (calls["end_ns"][here] - calls["start_ns"][here])[called])
        wrapper = self._calls.names.where(is_wrapper)
        for here in pieces(len(self)):
            own = np.maximum(calls["end_ns"][here] - calls["start_ns"][here] - inside[here], 0)
            inside[here] = np.where(wrapper[calls["name"][here]], 0, own)
        return inside


def _read(folder: Path, launched: Launched | None) -> tuple[HostRows, HostRows, HostRows]:
    """The calls, annotations and rows of Python that hold a launch, cut at the same instants."""
    at = None if launched is None else _by_thread(launched)
    calls, last = read_calls(folder, at, _stated(launched))
    ranges = read_named(folder, "annotation", at, lambda _: True)
    python = read_named(folder, "python", at, _tells)
    several = (calls, ranges, python)
    found = cuts(*(read.columns["start_ns"].values() for read in several), *(at or {}).values())
    del at
    if launched is not None:
        launched.release()
    return HostRows(calls, found, last), HostRows(ranges, found), HostRows(python, found)


class _Paths:
    """Paths of modules within one another, by code.

    A module is named by its class and number, so that one which runs again alone, in the backward pass, has
    the path of its first run.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._codes, self._first = Names(), dict[int, int]()
        self.words: list[str] = []

    def code(self, name: int, parent: int | None) -> int:
        """The code of a module's run, by the number of its name and the code of the run around it."""
        own = self._names[name].removeprefix(_MODULE)
        if parent is None:
            return self._first[name] if name in self._first else self._coded(own)
        if self.words[parent].count("/") >= _DEEPEST:
            return parent
        code = self._coded(f"{self.words[parent]}/{own}")
        self._first.setdefault(name, code)
        return code

    def _coded(self, path: str) -> int:
        code = self._codes[path]
        if code == len(self.words):
            self.words.append(path)
        return code


def _host_stretch(calls: Stretch, ranges: Stretch, python: Stretch) -> HostStretch:
    named = calls.named
    node = calls.column("in_backward") | runs_node(named)
    marks = [ranges.named, python.named.of(~python.named.where(_is_site))]
    return HostStretch(calls.since, named, calls.column("sequence"), node, marks)


def _innermost(rows: Stretch, chosen: Callable[[str], bool], track: Int64, at: Int64) -> Index:
    """The number of the name of the innermost of those ranges around each instant, −1 for none."""
    own = rows.named.of(rows.named.where(chosen))
    return np.append(own.name, np.int32(-1))[own.ranges.innermost(track, at)]


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


def _is_serving_step(name: str) -> bool:
    return serving_phase(name) is not None


def _by_thread(launched: Launched) -> dict[int, Int64]:
    """The instants of each thread's launches, sorted."""
    found: defaultdict[int, list[Int64]] = defaultdict(list)
    for here in pieces(len(launched.at)):
        known = launched.at[here] >= 0
        track, at = launched.track[here][known], launched.at[here][known]
        order = np.argsort(track, kind="stable")
        first = np.flatnonzero(begins(track[order]))
        for own in np.split(order, first[1:]) if len(order) else ():
            found[int(track[own[0]])].append(at[own])
    return {thread: np.sort(np.concatenate(found.pop(thread))) for thread in sorted(found)}


def _stated(launched: Launched | None) -> Int64:
    """The ids of calls that device rows state, each once, sorted."""
    if launched is None:
        return np.empty(0, np.int64)
    ids = launched.operator[launched.operator >= 0]
    ids.sort()
    return ids[begins(ids)]


def _known(values: npt.NDArray[Any], told: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Those values, null where `told` is negative."""
    return pa.array(values, mask=told < 0)


def _used(codes: Index, words: Sequence[str], kind: pa.DictionaryType) -> pa.Array:
    """Texts by code, with only those words that some code is of."""
    used = np.zeros(len(words) + 1, np.bool_)
    used[codes] = True
    number = np.append(np.cumsum(used[:-1]) - 1, -1)
    own = [words[code] for code in np.flatnonzero(used[:-1]).tolist()]
    return Texts(number[codes], own).array(kind.index_type)

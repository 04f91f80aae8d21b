# SPDX-License-Identifier: Apache-2.0
"""Rows of one process of a Perfetto trace, by the categories and annotations of AMD's profilers.

Sources: generatePerfetto.cpp of rocprofiler-sdk, perfetto.cpp of its rocpd, and rocprofiler-sdk.cpp of
rocprof-sys (github.com/ROCm/rocm-systems).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from cclbench.formats import Names, Rows, Trace
from cclbench.formats.perfetto.packets import AGAIN
from cclbench.formats.perfetto.sequences import Slice, SliceStream
from cclbench.formats.perfetto.survey import slice_kind, survey_of
from cclbench.formats.rocprofv3.reading import BOOT_TIME, COPY_KINDS, MARKS, call_kind
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.errors import InputError
from cclbench.record.facts import TraceFacts

_STREAM: Final = re.compile(r"STREAM \[\W*(\d{1,18})\W*\]")
_GPU: Final = re.compile(r"GPU[- ](\d{1,4})")
_SIZES: Final = re.compile(
    r"[^(]{0,40}\((?:x=)?(\d{1,10}), ?(?:y=)?(\d{1,10}), ?(?:z=)?(\d{1,10})\)", re.ASCII
)
"""Sizes as rocpd and rocprof-sys write them, `128 (x=64, y=2, z=1)` and `(64,2,1)`."""
_MOST: Final = (1 << 63) - 1
_MOST_AGENTS: Final = 1024
_BATCH_ROWS: Final = 1 << 14
_LOST: Final = (
    "{:,} pieces of the trace were lost, with the slices in them: capture again with a larger"
    " --perfetto-buffer-size"
)
_NODES: Final = "states nodes of the machine ({}), not indices of GPUs: rocprofv3 --agent-index type-relative"


def read_process(path: Path, member: str) -> Trace:
    """One process's rows; `InputError` if the file is damaged."""
    if member not in survey_of(path).processes():
        raise InputError(f"has no process {member!r} with kernels", where=str(path))
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.batches = _SliceRows(path, member, trace).all_rows()
    return trace


class _SliceRows:
    def __init__(self, path: Path, member: str, trace: Trace) -> None:
        self.path, self.member, self.trace = path, member, trace
        self.survey = survey_of(path)
        self.names: dict[str, Names] = {}
        self.pending: dict[str, list[dict[str, Any]]] = {}
        self.agents = dict[str, None]()
        """GPUs as annotations of kernels name them."""
        self.own = True
        """Whether the process wrote all its rows, with the clocks of its machine; not if it was converted."""

    def all_rows(self) -> Iterator[Rows]:
        """Rows in batches of a kind, in the file's order; then the trace's facts and notes."""
        stream = SliceStream(self.path, details=True)
        left_out, members = self.trace.dropped, self.survey.processes()
        first = self.member == members[0]
        for trace_slice in stream.slices():
            process = self.survey.process_of(trace_slice)
            if process == self.member and (row := self._row(trace_slice)) is not None:
                self.own = self.own and str(trace_slice.producer) == self.member
                kind = row.pop("kind")
                rows = self.pending.setdefault(kind, [])
                rows.append(row)
                if len(rows) == _BATCH_ROWS:
                    yield self._batch(kind)
            elif process == self.member:
                left_out["slice of another category"] += 1
            elif first and process not in members:
                left_out["slice of a process without kernels"] += 1
        for kind in list(self.pending):
            yield self._batch(kind)
        if first:
            left_out.update(stream.left_out)
        self.trace.dropped = +left_out
        self._add_facts(stream)

    def _add_facts(self, stream: SliceStream) -> None:
        trace, place = self.trace, self.survey.processes().index(self.member)
        if stream.epoch_ns is None or not self.own:
            trace.notes.append(BOOT_TIME)
        elif not 0 < stream.epoch_ns <= LATEST_NS:
            raise impossible_value(f"date: the clock began at {stream.epoch_ns} ns", self.path, AGAIN)
        else:
            trace.base_ns = stream.epoch_ns
        if stream.losses:
            trace.notes.append(_LOST.format(stream.losses))
        nodes = [agent for agent in self.agents if not _GPU.fullmatch(agent)]
        if nodes:
            trace.notes.append(_NODES.format(", ".join(nodes[:3])))
        trace.facts = TraceFacts(
            process_id=int(self.member) or None,
            producer="rocprof",
            vendor="amd",
            device_count=len(self.agents) or None,
            local_rank=place,
        )

    def _row(self, trace_slice: Slice) -> dict[str, Any] | None:
        """The columns of a slice's row; None if it becomes none."""
        kind = slice_kind(trace_slice)
        if kind is None or (
            kind == "annotation" and trace_slice.name.startswith("roctx") and trace_slice.name not in MARKS
        ):
            return None
        if not 0 < trace_slice.begin <= trace_slice.end <= LATEST_NS:
            what = f"time: {trace_slice.name[:60]!r} from {trace_slice.begin} to {trace_slice.end} ns"
            raise impossible_value(what, self.path, AGAIN)
        row: dict[str, Any] = {"kind": kind, "name": trace_slice.name, "start_ns": trace_slice.begin}
        row["dur_ns"] = trace_slice.end - trace_slice.begin
        if kind != "annotation":
            call = self._stated(trace_slice, "corr_id")
            row["correlation"] = ((trace_slice.flow or 0) if call is None else call) & _MOST or None
        if kind == "kernel":
            return row | self._kernel(trace_slice)
        if kind == "copy":
            return row | self._copy(trace_slice)
        track, thread = self.survey.tracks.get(trace_slice.track), self._stated(trace_slice, "tid")
        if thread is None:
            thread = track.tid if track is not None and track.tid > 0 else -1
        return row | {"kind": call_kind(trace_slice.name) if kind == "call" else kind, "track": thread}

    def _kernel(self, trace_slice: Slice) -> dict[str, Any]:
        agent = str(trace_slice.details.get("agent", ""))
        if agent and len(self.agents) < _MOST_AGENTS:
            self.agents[agent] = None
        return {
            # rocprofv3 demangles the name of the kernel's descriptor.
            "name": trace_slice.name.removesuffix(".kd").removesuffix(" [clone .kd]"),
            "track": self._stream(trace_slice, "queue"),
            "device": _gpu(agent),
            **self._grid(trace_slice),
        }

    def _grid(self, trace_slice: Slice) -> dict[str, int | None]:
        """Work groups by axis and in all, from work items; null where they are not stated.

        rocprofv3 states products over the axes alone.  HIP launches whole groups, so that theirs is a
        multiple of the group's.
        """
        sizes = [trace_slice.details.get(name, 0) for name in ("grid_size", "workgroup_size")]
        groups: list[int | None] = [None, None, None]
        blocks, by_axis = None, [_SIZES.fullmatch(str(size)) for size in sizes]
        if by_axis[0] and by_axis[1]:
            axes = zip(map(int, by_axis[0].groups()), map(int, by_axis[1].groups()), strict=True)
            groups = [-(-items // group) or None if group else None for items, group in axes]
            blocks = prod(group or 0 for group in groups) or None
        elif isinstance(sizes[0], int) and isinstance(sizes[1], int) and sizes[1]:
            quotient, rest = divmod(sizes[0], sizes[1])
            blocks = quotient or None if not rest else None
        if blocks is not None and not 0 < blocks <= _MOST:
            raise impossible_value(f"grid of {blocks} blocks", self.path, AGAIN)
        return {"grid_x": groups[0], "grid_y": groups[1], "grid_z": groups[2], "blocks": blocks}

    def _copy(self, trace_slice: Slice) -> dict[str, Any]:
        name, way = COPY_KINDS.get(trace_slice.name.removeprefix("MEMORY_COPY_"), ("Memcpy", None))
        source, target = (str(trace_slice.details.get(f"{end}_agent", "")) for end in ("src", "dst"))
        ends = [_gpu(target), _gpu(source)]
        if source and target and source != target and (way == "d2d" or None not in ends):
            name, way = "Memcpy PtoP", "p2p"
        return {
            "name": name,
            "track": self._stream(trace_slice),
            "device": next((end for end in ends if end is not None), None),
            "bytes": self._stated(trace_slice, "copy_bytes"),
            "copy_direction": way,
        }

    def _stream(self, trace_slice: Slice, *others: str) -> int:
        """The HIP stream, by annotation or track, else another annotation; -1 if none is stated."""
        stream = self._stated(trace_slice, "stream_ID", "stream_id")
        if stream is None:
            track = self.survey.tracks.get(trace_slice.track)
            named = _STREAM.match(track.name) if track is not None else None
            stream = int(named[1]) if named else self._stated(trace_slice, *others)
        return -1 if stream is None else stream

    def _stated(self, trace_slice: Slice, *names: str) -> int | None:
        """The first of these annotations that the slice has."""
        name = next((name for name in names if name in trace_slice.details), None)
        if name is None:
            return None
        value = trace_slice.details[name]
        if not isinstance(value, int) or not 0 <= value <= _MOST:
            raise impossible_value(f"{name} of {trace_slice.name[:60]!r}: {value!r:.40}", self.path, AGAIN)
        return value

    def _batch(self, kind: str) -> Rows:
        rows, names = self.pending.pop(kind), self.names.setdefault(kind, Names())
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        codes = np.array([names[name] for name in columns.pop("name")], np.int32)
        for word in ("start_ns", "dur_ns", "track"):
            columns[word] = np.array(columns[word], np.int64)
        side = "device" if kind in ("kernel", "copy") else "host"
        return Rows(kind=kind, side=side, names=names, codes=codes, **columns)


def _gpu(agent: str) -> int | None:
    """The index of a GPU, as `--agent-index type-relative` names it; None for a node of the machine."""
    match = _GPU.fullmatch(agent)
    return int(match[1]) if match else None

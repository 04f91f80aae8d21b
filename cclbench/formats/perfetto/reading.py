# SPDX-License-Identifier: Apache-2.0
"""Rows of one process of a Perfetto trace, by the categories and annotations of AMD's profilers.

Sources: generatePerfetto.cpp of rocprofiler-sdk, perfetto.cpp of its rocpd, and rocprofiler-sdk.cpp of
rocprof-sys (github.com/ROCm/rocm-systems).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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


def read_process(path: Path, member: str, *, allow_truncated: bool) -> Trace:
    """One process's rows; `InputError` if the file is damaged."""
    if member not in survey_of(path).processes():
        raise InputError(f"has no process {member!r} with kernels", where=str(path))
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.batches = _ProcessRows(path, member, trace).all_rows(allow_truncated)
    return trace


class _ProcessRows:
    def __init__(self, path: Path, member: str, trace: Trace) -> None:
        self.path, self.member, self.trace = path, member, trace
        self.survey = survey_of(path)
        self.names: dict[str, Names] = {}
        self.pending: dict[str, list[dict[str, Any]]] = {}
        self.agents = dict[str, None]()
        """GPUs as annotations of kernels name them."""

    def all_rows(self, allow_truncated: bool) -> Iterator[Rows]:
        """Rows in batches of a kind, in the file's order; then the trace's facts and notes."""
        stream = SliceStream(self.path, details=True, allow_truncated=allow_truncated)
        left_out, members = self.trace.dropped, self.survey.processes()
        first = self.member == members[0]
        for found in stream.slices():
            process = self.survey.process_of(found)
            if process == self.member and (row := self._row(found)) is not None:
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
        trace.cut, trace.base_ns = stream.file.cut, stream.epoch_ns or 0
        if stream.epoch_ns is None:
            trace.notes.append(BOOT_TIME)
        elif not 0 < stream.epoch_ns <= LATEST_NS:
            raise impossible_value(f"date: the clock began at {stream.epoch_ns} ns", self.path, AGAIN)
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

    def _row(self, found: Slice) -> dict[str, Any] | None:
        """The columns of a slice's row; None if it becomes none."""
        kind, details = slice_kind(found), found.details
        if kind is None:
            return None
        if not 0 < found.begin <= found.end <= LATEST_NS:
            what = f"time: {found.name[:60]!r} from {found.begin} to {found.end} ns"
            raise impossible_value(what, self.path, AGAIN)
        correlation = self._number(found, "corr_id") if "corr_id" in details else found.flow
        row = {
            "name": found.name,
            "start_ns": found.begin,
            "dur_ns": found.end - found.begin,
            "correlation": None if correlation is None else correlation & _MOST or None,
        }
        if kind == "kernel":
            return row | self._kernel(found)
        if kind == "copy":
            return row | self._copy(found)
        if kind == "annotation":
            if found.name.startswith("roctx") and found.name not in MARKS:
                return None
            row["correlation"] = None
        return row | {
            "kind": call_kind(found.name) if kind == "call" else kind,
            "track": self._first(found, ("tid",), self._thread(found)),
        }

    def _thread(self, found: Slice) -> int:
        track = self.survey.tracks.get(found.track)
        return track.tid if track is not None and track.tid > 0 else -1

    def _kernel(self, found: Slice) -> dict[str, Any]:
        agent = str(found.details.get("agent", ""))
        if agent and len(self.agents) < _MOST_AGENTS:
            self.agents[agent] = None
        return {
            "kind": "kernel",
            # rocprofv3 demangles the name of the kernel's descriptor.
            "name": found.name.removesuffix(".kd").removesuffix(" [clone .kd]"),
            "track": self._stream(found, ("queue",)),
            "device": _gpu(agent),
            **self._grid(found),
        }

    def _grid(self, found: Slice) -> dict[str, int | None]:
        """Work groups by axis and in all, from work items; null where they are not stated.

        rocprofv3 states products over the axes alone.  HIP launches whole groups, so that theirs is a
        multiple of the group's.
        """
        grid, group = (found.details.get(f"{word}_size") for word in ("grid", "workgroup"))
        groups: list[int | None] = [None, None, None]
        blocks: int | None = None
        if isinstance(grid, str) and isinstance(group, str):
            sizes = [_SIZES.fullmatch(text) for text in (grid, group)]
            items, each = ([int(size) for size in match.groups()] if match else [] for match in sizes)
            if items and each and all((*items, *each)):
                whole = [-(-size // by) for size, by in zip(items, each, strict=True)]
                groups, blocks = [*whole], whole[0] * whole[1] * whole[2]
        elif grid and group:
            items_all, each_all = self._number(found, "grid_size"), self._number(found, "workgroup_size")
            blocks = items_all // each_all if items_all % each_all == 0 else None
        if blocks is not None and blocks > _MOST:
            raise impossible_value(f"grid of {blocks} blocks", self.path, AGAIN)
        return {"grid_x": groups[0], "grid_y": groups[1], "grid_z": groups[2], "blocks": blocks}

    def _copy(self, found: Slice) -> dict[str, Any]:
        name, way = COPY_KINDS.get(found.name.removeprefix("MEMORY_COPY_"), ("Memcpy", None))
        source, target = (str(found.details.get(f"{end}_agent", "")) for end in ("src", "dst"))
        ends = [_gpu(target), _gpu(source)]
        if source and target and source != target and (way == "d2d" or None not in ends):
            name, way = "Memcpy PtoP", "p2p"
        stated = "copy_bytes" in found.details
        return {
            "kind": "copy",
            "name": name,
            "track": self._stream(found, ()),
            "device": next((end for end in ends if end is not None), None),
            "bytes": self._number(found, "copy_bytes") if stated else None,
            "copy_direction": way,
        }

    def _stream(self, found: Slice, others: tuple[str, ...]) -> int:
        """The HIP stream, else the queue; -1 if none is stated."""
        track = self.survey.tracks.get(found.track)
        named = _STREAM.match(track.name) if track is not None else None
        return self._first(found, ("stream_ID", "stream_id"), int(named[1]) if named else None, others)

    def _first(
        self, found: Slice, names: tuple[str, ...], default: int | None, others: tuple[str, ...] = ()
    ) -> int:
        """The first annotation of those names that is stated, then the default, then the other names."""
        for name in names:
            if name in found.details:
                return self._number(found, name)
        if default is not None:
            return default
        return self._first(found, others, -1)

    def _number(self, found: Slice, name: str) -> int:
        value = found.details[name]
        if not isinstance(value, int) or not 0 <= value <= _MOST:
            raise impossible_value(f"{name} of {found.name[:60]!r}: {value!r:.40}", self.path, AGAIN)
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

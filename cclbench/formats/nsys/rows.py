# SPDX-License-Identifier: Apache-2.0
"""Rows of a member's tables: device work and CUDA calls; each name is looked up once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import Names, Rows
from cclbench.formats.nsys.capture import (
    CALLS,
    COPIES,
    GRAPHS,
    KERNELS,
    MEMSETS,
    OVERHEADS,
    SYNCS,
    CapturedProcesses,
)
from cclbench.formats.nsys.whole_graphs import GraphLaunches
from cclbench.formats.trace import LATEST_NS, check_devices, grid_columns, impossible_value
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask

Codes = npt.NDArray[np.int32]
Columns = dict[str, tuple[str, ...]]
"""Columns to read, by our name: the names that exports have used."""

_NO_STREAM: Final = (1 << 32) - 1
_BACKTRACE: Final = 67
"""`eventClass` of the range in which a call's backtrace was collected, a copy of the call's row."""
NO_NAME: Final = "(no name)"
_COPY_KINDS: Final = {
    1: ("HtoD", "h2d"),
    2: ("DtoH", "d2h"),
    3: ("HtoA", "h2d"),
    4: ("AtoH", "d2h"),
    5: ("AtoA", "d2d"),
    6: ("AtoD", "d2d"),
    7: ("DtoA", "d2d"),
    8: ("DtoD", "d2d"),
    9: ("HtoH", None),
    10: ("PtoP", "p2p"),
    11: ("unified HtoD", None),
    12: ("unified DtoH", None),
    13: ("unified DtoD", None),
}
"""CUPTI's kinds of copies; arrays are on the device, and unified memory moves by page faults, not copies."""
_MEMORIES: Final = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"),
)
"""Memory kinds of a copy's `srcKind` and `dstKind`, as Nsight Systems numbers them."""
_SYNC_KINDS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


class TableReader:
    """Reads a member's rows, table by table; counts others in `dropped`."""

    def __init__(self, capture: CapturedProcesses, member: str) -> None:
        self.capture, self.member = capture, member
        self.database = capture.database
        self.names: dict[str, Names] = defaultdict(Names)
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []
        self.launches: list[tuple[Int64, Int64]] = []
        """Thread and start of each kernel launch."""
        self.mpi_calls = 0
        self.graphs = GraphLaunches()
        self._codes: dict[tuple[str, int], int] = {}

    def all_rows(self) -> Iterator[Rows]:
        """Device work, then host calls."""
        yield from self._kernel_rows()
        yield from self._copy_rows()
        yield from self._enumeration_rows(MEMSETS, "memset", lambda _: "Memset (Device)")
        yield from self._enumeration_rows(
            SYNCS, "sync", lambda kind: _SYNC_KINDS.get(kind, "Sync"), "syncType"
        )
        yield from self._graph_rows()
        for table in CALLS:
            yield from self._call_rows(table)
        for table in OVERHEADS:
            for batch in self.member_batches(table, {"name": ("nameId",), "track": ("globalTid",)}):
                codes = self.name_codes("other", batch["name"])
                yield self.make_rows("other", "host", batch, codes)

    def member_batches(
        self,
        table: str,
        columns: Columns,
        where: str = "",
        *,
        texts: dict[str, str] | None = None,
        counted: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The member's rows with `start` and `end`; rows without a time are counted if `counted`."""
        if table not in self.database.tables:
            return
        if not self.database.has_columns(table, "start", "end"):
            raise InputError(f"table {table} has no start and end", where=str(self.database.path))
        sql = {
            name: self.database.first_column_sql(table, *names_in_exports)
            for name, names_in_exports in columns.items()
        }
        sql |= {"start": '"start"', "end": '"end"'} | (texts or {})
        mine = self.capture.process_condition(self.member, table)
        chosen = " AND ".join(f"({part})" for part in (mine, where) if part)
        for batch in self.database.read_batches(table, sql, chosen, text=tuple(texts or ())):
            # A missing end is null or, from CUPTI, 0.
            begun = pc.and_(batch["start"].is_valid(), batch["end"].is_valid())
            never = pc.and_(pc.equal(batch["end"], 0), pc.greater(batch["start"], 0))
            complete = pc.and_(begun, pc.invert(pc.fill_null(never, False)))
            rows = batch.filter(complete)
            if counted and len(rows) < len(batch):
                self.dropped["row without a time or duration"] += len(batch) - len(rows)
            if len(rows):
                yield rows

    def name_codes(self, kind: str, ids: pa.Array, name_of: Callable[[int], str] | None = None) -> Codes:
        """Codes in a kind's table of names, for ids of StringIds or for values that `name_of` names."""
        filled = np.asarray(ids.fill_null(-1), np.int64)
        unique, inverse = np.unique(filled, return_inverse=True)
        code_of = self._codes if name_of is None else {}
        unknown = [i for i in unique.tolist() if (kind, i) not in code_of]
        if unknown:
            strings = self.database.string_ids(unknown) if name_of is None else {}
            for i in unknown:
                name = strings.get(i, NO_NAME) if name_of is None else name_of(i)
                code_of[kind, i] = self.names[kind][name]
        return np.array([code_of[kind, i] for i in unique.tolist()], np.int32)[inverse]

    def recode_names(self, kind: str, names: list[str], codes: Codes) -> Codes:
        """Codes in a kind's table of names for codes into a list of names."""
        unique, inverse = np.unique(codes, return_inverse=True)
        return np.array([self.names[kind][names[code]] for code in unique.tolist()], np.int32)[inverse]

    def make_rows(self, kind: str, side: str, batch: pa.RecordBatch, codes: Codes, **columns: Any) -> Rows:
        """Rows of a batch, with epoch times."""
        columns |= (
            self._device_columns(batch) if side == "device" else {"track": thread_numbers(batch["track"])}
        )
        start, end = np.asarray(batch["start"], np.int64), np.asarray(batch["end"], np.int64)
        absurd = (np.abs(start) > LATEST_NS) | (np.abs(end) > LATEST_NS) | (end < start)
        if absurd.any():
            i = int(np.argmax(absurd))
            name = list(self.names[kind])[codes[i]][:60]
            raise impossible_value(f"time: {name!r} from {start[i]} to {end[i]} ns", self.database.path)
        return Rows(
            kind=kind,
            side=side,
            names=self.names[kind],
            codes=codes,
            start_ns=start + self.capture.base_ns,
            dur_ns=end - start,
            **columns,
        )

    def _device_columns(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Device, stream and correlation of device rows; CUPTI's correlation 0 means none."""
        check_devices(batch["device"], self.database.path)
        stream = np.asarray(batch["track"].fill_null(-1), np.int64)
        return {
            "device": batch["device"],
            "track": np.where(stream == _NO_STREAM, -1, stream),
            "correlation": pc.if_else(pc.equal(batch["correlation"], 0), None, batch["correlation"]),
        }

    def _kernel_rows(self) -> Iterator[Rows]:
        columns = _ON_DEVICE | {"name": ("demangledName", "shortName", "mangledName")}
        columns |= {axis: (f"grid{axis.upper()}",) for axis in "xyz"}
        nameless = 0
        for batch in self.member_batches(KERNELS, columns):
            codes = self.name_codes("kernel", batch["name"])
            nameless += int((codes == self.names["kernel"].get(NO_NAME, -1)).sum())
            sides = np.stack([np.asarray(batch[axis].fill_null(0), np.int64) for axis in "xyz"], axis=1)
            grids = grid_columns(sides, str(self.database.path))
            rows = self.make_rows("kernel", "device", batch, codes, **grids)
            self.graphs.add_kernels(rows)
            yield rows
        if nameless:
            self.notes.append(f"{nameless} kernels have no name: they count as compute")

    def _copy_rows(self) -> Iterator[Rows]:
        columns = _ON_DEVICE | {"bytes": ("bytes",), "name": ("copyKind",)}
        columns |= {"from_": ("srcKind",), "to": ("dstKind",)}
        unified = 0
        for batch in self.member_batches(COPIES, columns):
            kinds, source, target = (
                np.asarray(batch[c].fill_null(-1), np.int64) for c in ("name", "from_", "to")
            )
            unified += int(((kinds >= 11) & (kinds <= 13)).sum())
            ways = np.stack([kinds, source, target], axis=1)
            unique, inverse = np.unique(ways, axis=0, return_inverse=True)
            table = self.names["copy"]
            codes = np.array([table[_copy_name(*way)] for way in unique.tolist()], np.int32)[inverse]
            words = [_COPY_KINDS.get(kind, ("", None))[1] for kind in unique[:, 0].tolist()]
            direction = pa.array(words, pa.string()).take(pa.array(inverse))
            size = self._copy_sizes(batch)
            yield self.make_rows("copy", "device", batch, codes, bytes=size, copy_direction=direction)
        if unified:
            self.notes.append(
                f"{unified} copies are migrations of unified memory: they count as copies without a direction"
            )

    def _copy_sizes(self, batch: pa.RecordBatch) -> pa.Array:
        size = batch["bytes"]
        if len(size) > size.null_count and pc.min(size).as_py() < 0:
            raise impossible_value(f"size {pc.min(size).as_py()} B", self.database.path)
        return size

    def _enumeration_rows(
        self, table: str, kind: str, name_of: Callable[[int], str], *columns: str
    ) -> Iterator[Rows]:
        """Rows of a table whose names come from an enumeration."""
        for batch in self.member_batches(table, _ON_DEVICE | {"bytes": ("bytes",), "name": columns}):
            codes = self.name_codes(kind, batch["name"], name_of)
            size = {"bytes": self._copy_sizes(batch)} if kind == "memset" else {}
            yield self.make_rows(kind, "device", batch, codes, **size)

    def _graph_rows(self) -> Iterator[Rows]:
        """Launches of graphs traced as a whole, named by their executable graph.

        A launch whose kernels have rows is left out: it would count twice.
        """
        mine = self.capture.process_condition(self.member, GRAPHS)
        alone = self._without_kernels()
        if alone:
            recorded = " AND ".join(filter(None, (mine, f"NOT ({alone})")))
            self.dropped["CUDA graph launch whose kernels have rows"] += self.database.count_rows(
                GRAPHS, recorded
            )
        columns = _ON_DEVICE | {"name": ("graphExecId", "graphId")}
        for batch in self.member_batches(GRAPHS, columns, alone):
            begun = batch.filter(pc.not_equal(batch["start"], 0))  # CUPTI's 0 means unknown
            self.dropped["row without a time or duration"] += len(batch) - len(begun)
            if not len(begun):
                continue
            codes = self.name_codes("graph", begun["name"], _graph_name)
            rows = self.make_rows("graph", "device", begun, codes)
            self.graphs.add_launches(rows, np.asarray(begun["device"].fill_null(-1), np.int64))
            yield rows
        self.notes += self.graphs.launch_notes

    def _without_kernels(self) -> str:
        """SQL condition for graph launches without kernel rows; empty if no kernel can have one."""
        if not (
            self.database.has_columns(GRAPHS, "correlationId")
            and self.database.has_columns(KERNELS, "correlationId")
        ):
            return ""
        mine = self.capture.process_condition(self.member, KERNELS)
        condition = " AND ".join(filter(None, (mine, '"correlationId" != 0')))
        kernels = f'SELECT "correlationId" FROM "{KERNELS}" WHERE {condition}'  # noqa: S608 - own names
        return f'coalesce("correlationId", 0) NOT IN ({kernels})'

    def _call_rows(self, table: str) -> Iterator[Rows]:
        columns: Columns = {"name": ("nameId",), "track": ("globalTid",)}
        columns |= {"correlation": ("correlationId",), "class": ("eventClass",)}
        for batch in self.member_batches(table, columns):
            codes = self.name_codes("call", batch["name"])
            names = list(self.names["call"])
            kinds = np.array([_call_kind(name) for name in names], object)[codes]
            kinds[np.asarray(batch["class"].fill_null(0), np.int64) == _BACKTRACE] = "backtrace"
            for kind in ("launch", "sync", "other", "backtrace"):
                chosen: Mask = kinds == kind
                if chosen.any():
                    yield self._rows_of_call(kind, batch.filter(pa.array(chosen)), codes[chosen], names)

    def _rows_of_call(self, kind: str, batch: pa.RecordBatch, codes: Codes, names: list[str]) -> Rows:
        written = "other" if kind == "backtrace" else kind
        columns = {}
        if kind != "backtrace":
            columns["correlation"] = pc.if_else(pc.equal(batch["correlation"], 0), None, batch["correlation"])
        rows = self.make_rows(written, "host", batch, self.recode_names(written, names, codes), **columns)
        if kind == "launch":
            kernels = np.array(["Launch" in name for name in names], np.bool_)[codes]
            self.launches.append((rows.track[kernels], rows.start_ns[kernels]))
        return rows


_ON_DEVICE: Final[Columns] = {
    "device": ("deviceId",),
    "track": ("streamId",),
    "correlation": ("correlationId",),
}


def thread_numbers(ids: pa.Array) -> Int64:
    """Thread numbers: the lowest 24 bits of `globalTid`; −1 for null."""
    filled = np.asarray(ids.fill_null(-1), np.int64)
    return np.where(filled < 0, -1, filled & 0xFFFFFF)


def _copy_name(kind: int, src_kind: int, dst_kind: int) -> str:
    """`Memcpy HtoD (Pinned -> Device)`, as PyTorch's profiler writes it."""
    memory_kinds = range(len(_MEMORIES))
    known_memories = src_kind in memory_kinds and dst_kind in memory_kinds
    way = f" ({_MEMORIES[src_kind]} -> {_MEMORIES[dst_kind]})" if known_memories else ""
    return f"Memcpy {_COPY_KINDS.get(kind, ('of unknown kind', None))[0]}{way}"


def _graph_name(graph: int) -> str:
    return "CUDA graph" if graph < 0 else f"CUDA graph {graph}"


@lru_cache(maxsize=1 << 12)
def _call_kind(name: str) -> str:
    """Kind of a CUDA call's row: launch if it puts work on a device."""
    if "Launch" in name or "Memcpy" in name or "Memset" in name:
        return "launch"
    return "sync" if "Synchronize" in name else "other"

# SPDX-License-Identifier: Apache-2.0
"""One rank's rows as the replay needs them: NumPy arrays in order of start, on the run's common clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.host_calls import ALLOCATES, LOADS
from cclbench.normalize.matching import MAY_LEAVE
from cclbench.normalize.steps import choose_windows
from cclbench.record.manifest import ClockCorrection
from cclbench.record.rank import Rank
from cclbench.record.run import Run

Int32 = npt.NDArray[np.int32]
Bounds = tuple[tuple[int | None, int, int], ...]
"""Step, begin and end of windows."""

_WORK = ("kernel", "copy", "memset")
_COLUMNS = (
    *("track", "device", "name", "category", "start_ns", "dur_ns"),
    *("correlation", "step", "collective", "blocks", "copy_direction"),
)
_ARRAYS: Final[dict[str, Any]] = {
    **dict.fromkeys(("start", "end", "correlation", "step", "row", "blocks"), np.int64),
    **dict.fromkeys(("lane", "name", "category"), np.int32),
    "copy": np.bool_,
    "direction": np.int8,
}
DIRECTIONS: Final = ("h2d", "d2h", "d2d", "p2p")
UNSTATED: Final = -(1 << 62)
"""A time that no row states."""
STREAM_WAIT, EVENT_SYNC, STREAM_SYNC, CONTEXT_SYNC = range(4)
_SYNCS: Final = {
    "Stream Wait Event": STREAM_WAIT,
    "Event Sync": EVENT_SYNC,
    "Stream Sync": STREAM_SYNC,
    "Context Sync": CONTEXT_SYNC,
}
"""Synchronisation rows by CUPTI's kinds."""
_WRAPPER = re.compile(r"(?:torch::)?autograd::|[^:]*$|c10d::|_c10d_functional|gloo:")
"""Host rows that compute nothing themselves: autograd's nodes, ranges, calls of the library."""


@dataclass(frozen=True, slots=True, eq=False)
class RankRows:
    """Rows of one kind or several, in order of start; arrays of shape (rows,), −1 for unknown.

    `lane` numbers the (device, track) pairs in `lanes`; `name` and `category` are codes into `names`
    and `categories`; `row` is the collectives table's row; `blocks` a kernel's grid; `direction` a copy's,
    an index into `DIRECTIONS`; times in ns.
    """

    start: Int64
    end: Int64
    lane: Int32
    name: Int32
    category: Int32
    correlation: Int64
    step: Int64
    row: Int64
    blocks: Int64
    copy: Mask
    direction: npt.NDArray[np.int8]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    lanes: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.start)

    def take_rows(self, chosen: npt.NDArray[Any]) -> RankRows:
        """Some of the rows, in the order given."""
        arrays = {f: getattr(self, f)[chosen] for f in _ARRAYS}
        return RankRows(**arrays, names=self.names, categories=self.categories, lanes=self.lanes)

    def rows_named(self, *patterns: str) -> Mask:
        """Rows whose name holds any of the texts, shape (rows,)."""
        return self._where_name(lambda name: any(p in name for p in patterns))

    def rows_matching(self, pattern: str) -> Mask:
        """Rows in whose name the regular expression is found, shape (rows,)."""
        return self._where_name(lambda name: re.search(pattern, name) is not None)

    def _where_name(self, fits: Callable[[str], bool]) -> Mask:
        return np.array([*map(fits, self.names), False], np.bool_)[self.name]


@dataclass(frozen=True, slots=True, eq=False)
class RankCollectives:
    """A rank's rows of the collectives table, arrays of shape (calls,); −1 for unknown."""

    instance: Int64
    complete: Mask
    kind: tuple[str | None, ...]
    group: tuple[str | None, ...]
    size: Int64
    bytes: Int64
    may_leave: Mask
    """Whether the rank may leave before the others arrive."""


@dataclass(frozen=True, slots=True, eq=False)
class StatedSyncs:
    """Waits as the trace states them, in order of their calls' time; shape (waits,), −1 for unknown.

    `what` is STREAM_WAIT, ...; `call` the calling row's correlation, `stream` the one that waits or is waited
    for, `event_stream` and `recorded` where and when the awaited event was recorded, ns, or `UNSTATED`.
    """

    time: Int64
    what: Int64
    device: Int64
    stream: Int64
    call: Int64
    event_stream: Int64
    recorded: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Windowed:
    """What is still asked of a rank once the graph is built: its windows, and whether the CPU is its device.

    A window is step, begin and end; the open ones, which have no end of their own, come after the others.
    """

    rank: int
    on_host: bool
    policy: str
    windows: Bounds
    open_windows: Bounds


@dataclass(frozen=True, slots=True, eq=False)
class GraphInput:
    """What the graph is built from, of one rank: its device's work, launches, waits, collectives, windows.

    On a CPU-only rank `work` holds the transfers, and `host` its operators and annotations, which are
    the work itself; else `host` states when a thread was active at all.
    """

    rank: int
    on_host: bool
    work: RankRows
    launches: RankRows
    syncs: RankRows
    runtime: RankRows
    """Other calls of the runtime that allocate or free memory, or load code."""
    has_python: bool
    """Whether calls of Python are recorded."""
    host: RankRows
    computing: Mask
    """Which rows of `host` are operators at work, no waiting call and no wrapper."""
    annotation: Mask
    """Which rows of `host` are annotations."""
    calls: RankCollectives
    policy: str
    windows: Bounds
    marks: RankRows
    """The device's rows of waiting that no call made: of XLA's cores."""
    processors: int | None
    """Processors of the device (SMs, CUs); None if the trace does not state them."""
    stated: StatedSyncs | None = None
    """Waits that the trace states; None where it states none."""
    open_windows: Bounds = ()

    @property
    def windowed_rank(self) -> Windowed:
        """What outlives the building of the graph."""
        return Windowed(self.rank, self.on_host, self.policy, self.windows, self.open_windows)


def graph_inputs(run: Run, chosen: Sequence[int] | None = None) -> list[GraphInput]:
    """The run's ranks with work, or some of them; times count from the earliest row of all.

    `InputError` where a CUDA graph was traced whole: nobody knows what it is made of and waits for.
    """
    ranks, clock = run.ranks if chosen is None else sorted(set(chosen)), clocks_of(run)
    graphs = sum(entry.rows.get("graph", 0) for entry in run.record.ranks if entry.rank in ranks)
    if graphs:
        what = f"{graphs:,} CUDA graph launches were traced whole, whose kernels no replay knows"
        raise InputError(f"{what} (nsys: --cuda-graph-trace=node)")
    return [_graph_input(run.rank(r), r, clock(r)) for r in ranks]


def clocks_of(run: Run) -> Callable[[int], CommonClock]:
    """The clock of each of the run's ranks."""
    account = run.record.clocks
    clocks = {clock.rank: clock for clock in account.ranks if clock.applied}
    spans = [entry.span_ns for entry in run.record.ranks if entry.span_ns]
    origin = min((span[0] for span in spans), default=0)
    return lambda rank: CommonClock(clocks.get(rank), account.reference_ns, origin)


class CommonClock:
    """From a rank's own time to ns since the run's origin on the common clock."""

    def __init__(self, entry: ClockCorrection | None, reference: int, origin: int) -> None:
        self.offset = entry.offset_ns if entry else 0.0
        self.drift = entry.drift_ppm / 1e6 if entry else 0.0
        self.reference, self.origin = reference, origin

    def on_common_clock(self, at: Int64) -> Int64:
        """Those times of the rank on the common clock, ns since the origin."""
        shift = np.rint(self.offset + self.drift * (at - self.reference)).astype(np.int64)
        return np.asarray(at - shift - self.origin, np.int64)


def _graph_input(files: Rank, rank: int, clock: CommonClock) -> GraphInput:
    on_host = files.facts.works_on == "host"
    table = files.collectives()
    of_call = {key: i for i, key in enumerate(table["collective"].to_pylist())}
    host, annotation = _host_rows(files, clock, of_call)
    work = _read_rows(files, _WORK, clock, of_call)
    if on_host:
        work = host.take_rows(host.row >= 0)
        host, annotation = host.take_rows(host.row < 0), annotation[host.row < 0]
    computing = np.array([*(not _WRAPPER.match(n) for n in host.names), False], np.bool_)[host.name]
    policy, windows, open_windows = _rank_windows(files, clock)
    marks = _read_rows(files, ("sync",), clock, of_call, side="device")
    return GraphInput(
        rank=rank,
        on_host=on_host,
        work=work,
        launches=_read_rows(files, ("launch",), clock, of_call),
        syncs=_read_rows(files, ("sync",), clock, of_call, side="host"),
        runtime=_runtime_rows(files, clock, of_call),
        has_python=next(iter(files.events(("python",), ("start_ns",))), None) is not None,
        host=host,
        computing=computing & ~annotation,
        annotation=annotation,
        calls=_collective_parts(table),
        policy=policy,
        windows=windows,
        open_windows=open_windows,
        marks=marks.take_rows(np.flatnonzero(marks.correlation < 0)),
        processors=files.facts.sm_count,
        stated=_stated_syncs(files, clock),
    )


def _runtime_rows(files: Rank, clock: CommonClock, of_call: Mapping[int, int]) -> RankRows:
    """Calls of the runtime that allocate or free memory, or load code."""
    calls = _read_rows(files, ("other",), clock, of_call, side="host")
    return calls.take_rows(calls.rows_matching(f"^(?:{ALLOCATES.pattern}|{LOADS.pattern})"))


def _stated_syncs(files: Rank, clock: CommonClock) -> StatedSyncs | None:
    """The device's synchronisation rows, with the times of the calls that they name."""
    columns = ("name", "start_ns", "device", "track", "correlation", "event_stream", "event_record", "side")
    parts = []
    for batch in files.events(("sync",), columns):
        words = batch["name"].dictionary.to_pylist()
        what = np.array([_SYNCS.get(w, -1) for w in words], np.int64)[batch["name"].indices.to_numpy()]
        there = (what >= 0) & _is_on_side(batch, "device")
        numbers = (batch[c].fill_null(-1).to_numpy() for c in columns[1:-1])
        parts.append(np.stack([what, *numbers])[:, there].astype(np.int64))
    what, start, device, stream, call, event_stream, record = np.concatenate(
        [np.empty((7, 0), np.int64), *parts], axis=1
    )
    if not len(what):
        return None
    calls = np.unique(np.concatenate([call, record]))
    begun = np.full(len(calls), UNSTATED)
    for batch in files.events(("other", "sync"), ("correlation", "start_ns", "side")):
        correlation = batch["correlation"].fill_null(-1).to_numpy()
        at = np.minimum(np.searchsorted(calls, correlation), len(calls) - 1)
        hit = (calls[at] == correlation) & (correlation >= 0) & _is_on_side(batch, "host")
        begun[at[hit]] = clock.on_common_clock(batch["start_ns"].to_numpy()[hit])
    call_time, record_time = (begun[np.searchsorted(calls, correlations)] for correlations in (call, record))
    time = np.where(call_time != UNSTATED, call_time, clock.on_common_clock(start))
    order = np.argsort(time, kind="stable")
    sync_columns = (time, what, device, stream, call, event_stream, record_time)
    return StatedSyncs(*(column[order] for column in sync_columns))


def _host_rows(files: Rank, clock: CommonClock, of_call: Mapping[int, int]) -> tuple[RankRows, Mask]:
    """Operators and host annotations by start, the longest of a start first; and which are annotations."""
    ops = _read_rows(files, ("op",), clock, of_call)
    notes = _read_rows(files, ("annotation",), clock, of_call, side="host")
    both = join_rows([ops, notes])
    order = np.lexsort((-both.end, both.start))
    return both.take_rows(order), (np.arange(len(both)) >= len(ops))[order]


def _rank_windows(files: Rank, clock: CommonClock) -> tuple[str, Bounds, Bounds]:
    """The rank's windows by the first policy that it has, what `time.step` is about, and open ones."""
    windows = choose_windows(files.steps())
    if windows is None:
        return "none", (), ()

    def window_bounds(table: pa.Table) -> Bounds:
        starts, ends = (clock.on_common_clock(table[c].to_numpy()).tolist() for c in ("start_ns", "end_ns"))
        return tuple(zip(table["step"].to_pylist(), starts, ends, strict=True))

    _, closed, still_open = windows
    source = closed["source"][0].as_py()
    return "device" if source == "module" else source, window_bounds(closed), window_bounds(still_open)


def _collective_parts(table: pa.Table) -> RankCollectives:
    def number_column(name: str) -> Int64:
        return np.asarray(table[name].fill_null(-1).to_numpy(), np.int64)

    of_mpi = pc.equal(table["library"].cast(pa.string()), "mpi")
    early = pc.is_in(table["kind"].cast(pa.string()), pa.array(MAY_LEAVE))
    return RankCollectives(
        instance=number_column("instance"),
        complete=table["wait_ns"].is_valid().to_numpy(),
        kind=tuple(table["kind"].to_pylist()),
        group=tuple(table["group"].to_pylist()),
        size=number_column("group_size"),
        bytes=np.maximum(number_column("in_bytes"), number_column("out_bytes")),
        may_leave=np.asarray(pc.and_(of_mpi, early), np.bool_),
    )


def _read_rows(
    files: Rank, kinds: Sequence[str], clock: CommonClock, of_call: Mapping[int, int], side: str | None = None
) -> RankRows:
    parts = [
        _batch_rows(batch, kind, clock, of_call, side)
        for kind in kinds
        for batch in files.events((kind,), (*_COLUMNS, "side"))
    ]
    rows = join_rows(parts)
    return rows.take_rows(np.lexsort((rows.end, rows.start)))


def _batch_rows(
    batch: pa.RecordBatch, kind: str, clock: CommonClock, of_call: Mapping[int, int], side: str | None
) -> RankRows:
    if side is not None:
        batch = batch.filter(pa.array(_is_on_side(batch, side)))
    start = batch["start_ns"].to_numpy()
    keys = batch["collective"]
    row = np.full(len(batch), -1, np.int64)
    at = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    row[at] = [of_call.get(key, -1) for key in keys.take(pa.array(at)).to_pylist()]
    devices, device = np.unique(batch["device"].fill_null(-1).to_numpy(), return_inverse=True)
    tracks, track = np.unique(batch["track"].to_numpy(), return_inverse=True)
    pairs, lane = np.unique(device * len(tracks) + track, return_inverse=True)
    return RankRows(
        start=clock.on_common_clock(start),
        end=clock.on_common_clock(start + batch["dur_ns"].to_numpy()),
        lane=lane.astype(np.int32),
        name=batch["name"].indices.to_numpy(zero_copy_only=False).astype(np.int32),
        category=batch["category"].indices.to_numpy(zero_copy_only=False).astype(np.int32),
        correlation=batch["correlation"].fill_null(-1).to_numpy(),
        step=batch["step"].fill_null(-1).to_numpy().astype(np.int64),
        row=row,
        blocks=batch["blocks"].fill_null(-1).to_numpy(),
        copy=np.full(len(batch), kind in ("copy", "memset")),
        direction=pc.index_in(batch["copy_direction"].cast(pa.string()), pa.array(DIRECTIONS))
        .fill_null(-1)
        .to_numpy()
        .astype(np.int8),
        names=tuple(batch["name"].dictionary.to_pylist()),
        categories=tuple(batch["category"].dictionary.to_pylist()),
        lanes=tuple((int(devices[p // len(tracks)]), int(tracks[p % len(tracks)])) for p in pairs.tolist()),
    )


def _is_on_side(batch: pa.RecordBatch, side: str) -> Mask:
    words = batch["side"].dictionary.to_pylist()
    return np.asarray(batch["side"].indices.to_numpy() == (words.index(side) if side in words else -1))


def join_rows(parts: Sequence[RankRows]) -> RankRows:
    """Rows of several batches, with one vocabulary of names, categories and lanes."""
    names: dict[Any, int] = {}
    categories: dict[Any, int] = {}
    lanes: dict[Any, int] = {}
    columns: dict[str, list[Any]] = {f: [] for f in _ARRAYS}
    for p in parts:
        coded = {
            "name": recode_words(p.name, p.names, names),
            "category": recode_words(p.category, p.categories, categories),
            "lane": recode_words(p.lane, p.lanes, lanes),
        }
        for f, column in columns.items():
            column.append(coded[f] if f in coded else getattr(p, f))
    arrays = {f: np.concatenate([np.empty(0, kind), *columns[f]]).astype(kind) for f, kind in _ARRAYS.items()}
    return RankRows(**arrays, names=(*names,), categories=(*categories,), lanes=(*lanes,))


def recode_words(codes: Int32 | Int64, words: Sequence[Any], code_of_word: dict[Any, int]) -> Int32:
    """Codes into `words`, −1 for none, as codes of `code_of_word`, which grows."""
    table = np.array([*(code_of_word.setdefault(word, len(code_of_word)) for word in words), -1], np.int32)
    return np.asarray(table[codes], np.int32)

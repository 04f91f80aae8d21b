# SPDX-License-Identifier: Apache-2.0
"""One rank as a metric sees it: its windows, its sets of busy time, its rows, decoded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench import intervals
from cclbench.analyzers import exposed, idle
from cclbench.analyzers.arrivals import Arrivals, arrivals
from cclbench.analyzers.columns import is_category, spans
from cclbench.analyzers.exposed import Exposed
from cclbench.analyzers.host_ops import host_ops
from cclbench.analyzers.idle import Idle
from cclbench.analyzers.metric import NotApplicable
from cclbench.intervals import Int64, Intervals
from cclbench.schema import TraceFacts

if TYPE_CHECKING:
    from cclbench.card import Card

POLICIES = ("steps", "annotations", "trace")
SOURCES = {"steps": ("device", "module"), "annotations": ("annotation",), "trace": ("whole_trace",)}
"""By window policy, the sources of the rows of `schema.STEPS` that are its windows."""


class RankTables(Protocol):
    """Where a view gets its rows from: the store, or a test."""

    @property
    def facts(self) -> TraceFacts:
        """What the rank's trace says of itself."""
        ...

    def events(self, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Those columns of the events of those kinds, in bounded batches, in a fixed order."""
        ...

    def collectives(self) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`."""
        ...

    def steps(self) -> pa.Table:
        """The rank's rows of `schema.STEPS`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The stretches of time a metric is about; arrays of shape (windows,), in time order."""

    policy: str
    steps: tuple[int | None, ...]
    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def total(self) -> int:
        """ΣW in ns."""
        return int((self.ends - self.starts).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The exact partition of each window, int64 ns, shape (windows,): the five sum to `window`."""

    window: Int64
    compute_only: Int64
    overlapped: Int64
    exposed_comm: Int64
    exposed_copy: Int64
    idle: Int64


class RankView:
    """One rank's work in the chosen windows.

    C, K and M are unions over the rank's tracks: C kernels that are not communication, K communication
    kernels, M copies and memsets; on a CPU-only rank C is the union of its ops that are not
    communication calls, K the work of its communication threads, and M is empty.
    """

    def __init__(
        self,
        tables: RankTables,
        *,
        rank: int,
        window: str = "steps",
        steps: tuple[int | None, int | None] | None = None,
        card: Card | None = None,
    ) -> None:
        self.tables, self.rank, self.card = tables, rank, card
        self._window, self._steps = window, steps

    @property
    def facts(self) -> TraceFacts:
        """What the rank's trace says of itself."""
        return self.tables.facts

    @cached_property
    def windows(self) -> Windows:
        """The windows of the policy asked for, or of the next one that this trace can give.

        `steps` falls back to annotation windows where nothing links launches to kernels, and to the
        whole trace where nothing is annotated.
        """
        table = self.tables.steps()
        source = table["source"].cast(pa.string())
        for policy in POLICIES[POLICIES.index(self._window) :]:
            found = table.filter(pc.is_in(source, value_set=pa.array(SOURCES[policy])))
            if len(found):
                chosen = self._select(found, policy).sort_by("start_ns")
                return Windows(
                    policy,
                    tuple(chosen["step"].to_pylist()),
                    chosen["start_ns"].to_numpy(),
                    chosen["end_ns"].to_numpy(),
                )
        raise NotApplicable(self.no_work)

    def _select(self, found: pa.Table, policy: str) -> pa.Table:
        if self._steps is None:
            return found
        if policy == "trace":
            raise NotApplicable("the trace marks no steps for --steps to choose from")
        first, last = self._steps
        if first is not None:
            found = found.filter(pc.greater_equal(found["step"], first))
        if last is not None:
            found = found.filter(pc.less(found["step"], last))
        if not len(found):
            raise NotApplicable("no step of this rank lies in the range asked for with --steps")
        return found

    @property
    def no_work(self) -> str:
        """Why a rank without windows has none."""
        if self.facts.whole_graphs:
            return (
                f"{self.facts.whole_graphs} CUDA graph launches were traced whole: their kernels are unknown"
                " (nsys: --cuda-graph-trace=node)"
            )
        if self.facts.works_on is None:
            return "the trace holds host rows only, none of the accelerator's"
        return "the trace holds no work"

    @cached_property
    def on_host(self) -> bool:
        """Whether the CPU is the device: a first-class one, whose ops and gloo threads are the work."""
        return self.facts.works_on == "host"

    @cached_property
    def busy(self) -> tuple[Intervals, Intervals, Intervals]:
        """C, K and M, over the whole trace."""
        if self.facts.works_on is None:
            raise NotApplicable(self.no_work)
        return self._busy_host() if self.on_host else self._busy_device()

    def _busy_device(self) -> tuple[Intervals, Intervals, Intervals]:
        compute, communication = [], []
        for batch in self.tables.events(("kernel",), ("start_ns", "dur_ns", "category")):
            starts, ends = spans(batch)
            comm = is_category(batch, "communication")
            compute.append(intervals.union(starts[~comm], ends[~comm]))
            communication.append(intervals.union(starts[comm], ends[comm]))
        copies = [
            intervals.union(*spans(batch))
            for batch in self.tables.events(("copy", "memset"), ("start_ns", "dur_ns"))
        ]
        empty = intervals.EMPTY
        return (
            intervals.join(empty, *compute),
            intervals.join(empty, *communication),
            intervals.join(empty, *copies),
        )

    def _busy_host(self) -> tuple[Intervals, Intervals, Intervals]:
        """C and K of a CPU-only rank.

        K is what its transfers take: gloo's, XLA's and MPI's rows.  C is the union of its operators' time on
        all but gloo's threads, less the communication calls and transfers on the same thread.
        """
        for_communication: set[int] = set()
        by_track: dict[int, tuple[list[Intervals], list[Intervals]]] = {}
        transfers = [intervals.EMPTY]
        for ops in host_ops(self.tables):
            for_communication.update(np.unique(ops.track[ops.of_library]).tolist())
            transfers.append(intervals.union(ops.starts[ops.transfers], ops.ends[ops.transfers]))
            for track in np.unique(ops.track):
                here = ops.track == track
                work, other = by_track.setdefault(int(track), ([intervals.EMPTY], [intervals.EMPTY]))
                for rows, into in ((here & ops.works, work), (here & ops.calls, other)):
                    into.append(intervals.union(ops.starts[rows], ops.ends[rows]))
        compute = [
            intervals.subtract(intervals.join(*work), intervals.join(*calls))
            for track, (work, calls) in by_track.items()
            if track not in for_communication
        ]
        return intervals.join(intervals.EMPTY, *compute), intervals.join(*transfers), intervals.EMPTY

    @property
    def compute(self) -> Intervals:
        """C, over the whole trace."""
        return self.busy[0]

    @property
    def communication(self) -> Intervals:
        """K, over the whole trace."""
        return self.busy[1]

    @property
    def copies(self) -> Intervals:
        """M, over the whole trace."""
        return self.busy[2]

    @cached_property
    def parts(self) -> Parts:
        """The partition of every window into compute, overlap, exposed communication, copy and idle."""
        compute, communication, copies = self.busy
        kernels = intervals.join(compute, communication)
        c, k, ck = self.inside(compute), self.inside(communication), self.inside(kernels)
        ckm = self.inside(intervals.join(kernels, copies))
        window = self.windows.ends - self.windows.starts
        return Parts(
            window=window,
            compute_only=ck - k,
            overlapped=c + k - ck,
            exposed_comm=ck - c,
            exposed_copy=ckm - ck,
            idle=window - ckm,
        )

    @cached_property
    def idle(self) -> Idle:
        """The idle time of the device, by what it waited for."""
        self.needs_accelerator("nothing is launched to it, so its idle time has no launch to go by")
        w = self.windows
        return idle.split(self.tables, intervals.join(*self.busy), w.starts, w.ends)

    @cached_property
    def exposed(self) -> Exposed:
        """The exposed communication of each window, by what runs, waiting told apart from transfer."""
        alone = intervals.subtract(self.communication, self.compute)
        return exposed.split(self.all_collectives, alone, self.windows.starts, self.windows.ends)

    @cached_property
    def arrivals(self) -> tuple[Arrivals, dict[str, int]]:
        """The rank's arrivals at matched collectives, and how many of its collectives are left out why."""
        return arrivals(self)

    def inside(self, s: Intervals) -> Int64:
        """|X ∩ W| of each window, int64 ns, shape (windows,)."""
        return intervals.within(s, self.windows.starts, self.windows.ends)

    def window_of(self, at: Int64) -> Int64:
        """Index of the window that holds each instant, −1 for none, shape of `at`; windows are disjoint."""
        w = self.windows
        index = np.searchsorted(w.starts, at, side="right") - 1
        return np.where((index >= 0) & (at < w.ends[index]), index, -1)

    def begun(self, kinds: Sequence[str], *columns: str) -> Iterator[tuple[pa.RecordBatch, Int64]]:
        """The rows of those kinds that begin in a window, with each row's window, in bounded batches.

        A batch has `start_ns`, `dur_ns` and `columns`; the window is its index, shape (rows,).
        """
        for batch in self.tables.events(kinds, ("start_ns", "dur_ns", *columns)):
            window = self.window_of(batch["start_ns"].to_numpy())
            inside = window >= 0
            if inside.any():
                yield batch.filter(pa.array(inside)), window[inside]

    def kernels(self, *columns: str) -> Iterator[tuple[pa.RecordBatch, Int64]]:
        """The kernels that begin in a window, as `begun` gives them; not applicable where there are none."""
        self.needs_accelerator("it runs ops, no kernels")
        none = True
        for batch, window in self.begun(("kernel",), *columns):
            none = False
            yield batch, window
        if none:
            raise NotApplicable("the rank ran no kernels in the window")

    def needs_accelerator(self, otherwise: str) -> None:
        """Not applicable without accelerator rows; `otherwise` says why a CPU-only rank has no answer."""
        if self.facts.works_on is None:
            raise NotApplicable(self.no_work)
        if self.on_host:
            raise NotApplicable(f"the CPU is the device here: {otherwise}")

    @cached_property
    def all_collectives(self) -> pa.Table:
        """Collectives of this rank, in its windows or not, rows of `schema.COLLECTIVES`."""
        return self.tables.collectives()

    @cached_property
    def collectives(self) -> pa.Table:
        """Collectives of this rank that begin in a window, rows of `schema.COLLECTIVES`."""
        if self.facts.works_on is None:
            raise NotApplicable(self.no_work)
        table = self.all_collectives
        return table.filter(pa.array(self.window_of(table["start_ns"].to_numpy()) >= 0))

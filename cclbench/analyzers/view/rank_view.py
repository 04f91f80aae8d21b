# SPDX-License-Identifier: Apache-2.0
"""One rank as a metric sees it: its windows, its sets of busy time, its rows, decoded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import NotApplicable, Unknown
from cclbench.analyzers.view import exposed, idle
from cclbench.analyzers.view.arrivals import Arrivals, Matched, rank_arrivals
from cclbench.analyzers.view.blurred import AmbiguousKernels, ambiguous_kernels
from cclbench.analyzers.view.columns import event_table, is_category, row_spans
from cclbench.analyzers.view.exposed import Exposed
from cclbench.analyzers.view.first_calls import FirstCalls, first_calls
from cclbench.analyzers.view.host_ops import host_ops
from cclbench.analyzers.view.idle import Idle
from cclbench.analyzers.view.launches import LaunchCalls, LaunchedKernels, launch_calls, launched_kernels
from cclbench.analyzers.view.operators import rank_works
from cclbench.analyzers.view.whole_graphs import UnknownGraphs, whole_graphs
from cclbench.analyzers.view.works import Works
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask
from cclbench.machine import Machine, machine_of_ranks
from cclbench.normalize.steps import choose_windows
from cclbench.record.facts import TraceFacts

if TYPE_CHECKING:
    from cclbench.card import Card
    from cclbench.record.rank import Rank


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The stretches of time a metric is about; arrays of shape (windows,), in time order."""

    policy: str
    steps: tuple[int | None, ...]
    starts: Int64
    ends: Int64
    open: bool = False
    """Whether they are open: each ends with its last device event, since no step follows."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def total(self) -> int:
        """ΣW in ns."""
        return int((self.ends - self.starts).sum())


@dataclass(frozen=True, slots=True, eq=False)
class WindowParts:
    """The exact partition of each window, int64 ns, shape (windows,): the five sum to `window`."""

    window: Int64
    compute_only: Int64
    overlapped: Int64
    exposed_comm: Int64
    exposed_copy: Int64
    idle: Int64


class RankView:
    """One rank's work in the chosen windows.

    C, K and M are unions over the rank's tracks: C kernels that are not communication and CUDA graphs that
    were traced whole, K communication kernels, M copies and memsets; on a CPU-only rank C is the union of its
    ops that are not communication calls, K the work of its communication threads, and M is empty.
    """

    def __init__(
        self,
        tables: Rank,
        *,
        rank: int,
        window: str = "steps",
        steps: tuple[int | None, int | None] | None = None,
        card: Card | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.tables, self.rank, self.card = tables, rank, card
        self.machine = machine or machine_of_ranks(card, {rank: tables.facts}, {})
        """The run's machine; by this rank's trace alone where nothing else is given."""
        self._window, self._steps = window, steps

    @property
    def facts(self) -> TraceFacts:
        """What the rank's trace says of itself."""
        return self.tables.facts

    @property
    def windows(self) -> Windows:
        """The windows that figures are about: of the policy asked for, or of the next one the trace can give.

        `steps` falls back to annotation windows where nothing links launches to kernels, and to the
        whole trace where nothing is annotated.  An open window is among them only where no other is.
        """
        return self._chosen_windows[0]

    @property
    def open_windows(self) -> Windows:
        """Windows without an end of their own, left out of `windows`."""
        return self._chosen_windows[1]

    @property
    def annotated(self) -> Windows:
        """The steps as the host ran them, by their annotations; not applicable where the trace has none."""
        chosen = self._of_policy("annotations")[0]
        if chosen.policy != "annotations" or chosen.open:
            raise NotApplicable("the trace marks no steps that are whole")
        return chosen

    @cached_property
    def _chosen_windows(self) -> tuple[Windows, Windows]:
        return self._of_policy(self._window)

    def _of_policy(self, asked: str) -> tuple[Windows, Windows]:
        """The counted windows and the open ones of that policy, or of the next one the trace can give."""
        found = choose_windows(self.tables.steps(), asked)
        if found is None:
            raise Unknown(self.no_work)
        policy, *tables = found
        if self._steps is not None and policy == "trace":
            raise NotApplicable("the trace marks no steps for --steps to choose from")
        chosen = [self._in_range(table) for table in tables]
        if not any(map(len, chosen)):
            listed = ", ".join(str(n) for n in sorted(n for t in tables for n in t["step"].to_pylist())[:20])
            raise NotApplicable(f"no step of this rank lies in the range asked for with --steps: {listed}")
        if not len(chosen[0]):
            chosen.reverse()
        counted, still_open = (
            Windows(
                policy,
                tuple(table["step"].to_pylist()),
                table["start_ns"].to_numpy(),
                table["end_ns"].to_numpy(),
                bool(table["open"][0].as_py()) if len(table) else False,
            )
            for table in chosen
        )
        return counted, still_open

    def _in_range(self, table: pa.Table) -> pa.Table:
        first, last = self._steps or (None, None)
        if first is not None:
            table = table.filter(pc.greater_equal(table["step"], first))
        if last is not None:
            table = table.filter(pc.less(table["step"], last))
        return table

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
            raise Unknown(self.no_work)
        return self._busy_host() if self.on_host else self._busy_device()

    def _busy_device(self) -> tuple[Intervals, Intervals, Intervals]:
        kernels = event_table(self.tables, ("kernel", "graph"), ("start_ns", "dur_ns", "category"))
        starts, ends = row_spans(kernels)
        comm = is_category(kernels, "communication")
        copies = event_table(self.tables, ("copy", "memset"), ("start_ns", "dur_ns"))
        return (
            intervals.union(starts[~comm], ends[~comm]),
            intervals.union(starts[comm], ends[comm]),
            intervals.union(*row_spans(copies)),
        )

    def _busy_host(self) -> tuple[Intervals, Intervals, Intervals]:
        """C and K of a CPU-only rank.

        K is what its transfers take: gloo's, XLA's and MPI's rows.  C is the union of its operators' time on
        all but gloo's threads, less the communication calls and transfers on the same thread.
        """
        for_communication: set[int] = set()
        by_track: dict[int, tuple[list[Intervals], list[Intervals]]] = {}
        transfers = []
        for ops in host_ops(self.tables):
            for_communication.update(np.unique(ops.track[ops.of_library]).tolist())
            transfers.append(intervals.union(ops.starts[ops.transfers], ops.ends[ops.transfers]))
            for track in np.unique(ops.track):
                here = ops.track == track
                work, other = by_track.setdefault(int(track), ([], []))
                for rows, into in ((here & ops.works, work), (here & ops.calls, other)):
                    into.append(intervals.union(ops.starts[rows], ops.ends[rows]))
        compute = (
            intervals.subtract(intervals.join(*work), intervals.join(*calls))
            for track, (work, calls) in by_track.items()
            if track not in for_communication
        )
        return intervals.join(*compute), intervals.join(*transfers), intervals.EMPTY

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
    def parts(self) -> WindowParts:
        """The partition of every window into compute, overlap, exposed communication, copy and idle."""
        return self._partition_windows(self.windows)

    @cached_property
    def open_parts(self) -> WindowParts:
        """The same of `open_windows`."""
        return self._partition_windows(self.open_windows)

    def _partition_windows(self, windows: Windows) -> WindowParts:
        compute, communication, copies = self.busy
        kernels = intervals.join(compute, communication)
        sets = (compute, communication, kernels, intervals.join(kernels, copies))
        c, k, ck, ckm = (intervals.within(own, windows.starts, windows.ends) for own in sets)
        window = windows.ends - windows.starts
        return WindowParts(
            window=window,
            compute_only=ck - k,
            overlapped=c + k - ck,
            exposed_comm=ck - c,
            exposed_copy=ckm - ck,
            idle=window - ckm,
        )

    @cached_property
    def blurred(self) -> AmbiguousKernels | None:
        """What keeps compute and communication from being told apart; None where they are."""
        return None if self.on_host else ambiguous_kernels(self)

    @cached_property
    def whole_graphs(self) -> UnknownGraphs | None:
        """The CUDA graphs in the windows that were traced whole; None where there are none."""
        return whole_graphs(self)

    @cached_property
    def idle(self) -> Idle:
        """The idle time of the device, by what it waited for."""
        self.needs_accelerator("nothing is launched to it, so its idle time has no launch to go by")
        w = self.windows
        first, busy = self.first_calls.launches, intervals.join(*self.busy)
        return idle.split_idle(self.tables, self.launch_calls, first, busy, w.starts, w.ends)

    @cached_property
    def first_calls(self) -> FirstCalls:
        """Calls of the runtime that take long because they are the first, over the whole trace."""
        return first_calls(self)

    @cached_property
    def launch_calls(self) -> LaunchCalls:
        """The calls that put work on the device, over the whole trace."""
        return launch_calls(self.tables)

    @cached_property
    def launched(self) -> LaunchedKernels:
        """The kernels by the calls that launched them; not applicable where no launch tells."""
        self.needs_accelerator("nothing is launched to it")
        return launched_kernels(self)

    def operators(self, *columns: str) -> pa.Table:
        """Those columns of the calls of operators, in the windows or not: see `schema.OPERATORS`."""
        return self.tables.operators(columns)

    @cached_property
    def works(self) -> Works:
        """What called for the rank's work in its windows, and what that costs at least."""
        if self.facts.works_on is None:
            raise Unknown(self.no_work)
        return rank_works(self)

    @cached_property
    def exposed(self) -> Exposed:
        """The exposed communication of each window, by what runs, waiting told apart from transfer."""
        alone = intervals.subtract(self.communication, self.compute)
        return exposed.split_exposed(self.all_collectives, alone, self.windows.starts, self.windows.ends)

    @cached_property
    def arrivals(self) -> tuple[Arrivals, Matched]:
        """The rank's arrivals at matched collectives, and what of its collectives is left out."""
        return rank_arrivals(self)

    def inside(self, s: Intervals) -> Int64:
        """|X ∩ W| of each window, int64 ns, shape (windows,)."""
        return intervals.within(s, self.windows.starts, self.windows.ends)

    def window_of(self, at: Int64) -> Int64:
        """Index of the window that holds each instant, −1 for none, shape of `at`; windows are disjoint."""
        return intervals.innermost(self.windows.starts, self.windows.ends, at)

    def in_windows(self, at: Int64) -> Mask:
        """Whether a window holds each instant, shape of `at`."""
        return np.asarray(self.window_of(at) >= 0)

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
            raise Unknown(self.no_work)
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
            raise Unknown(self.no_work)
        table = self.all_collectives
        inside = np.flatnonzero(self.window_of(table["start_ns"].to_numpy()) >= 0)
        if len(inside) and inside[-1] - inside[0] < len(inside):  # side by side: they need not be copied
            return table.slice(inside[0], len(inside))
        return table.take(pa.array(inside))

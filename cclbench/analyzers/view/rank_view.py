# SPDX-License-Identifier: Apache-2.0
"""One rank as metrics see it: windows, sets of busy time, events, each computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Unknown
from cclbench.analyzers.view import exposed, idle
from cclbench.analyzers.view.arrivals import Arrivals, Matched, matched_rows, rank_arrivals
from cclbench.analyzers.view.blurred import AmbiguousKernels, ambiguous_kernels
from cclbench.analyzers.view.columns import event_table, has_word, row_spans
from cclbench.analyzers.view.exposed import Exposed
from cclbench.analyzers.view.first_calls import FirstCalls, first_calls
from cclbench.analyzers.view.host_ops import host_ops
from cclbench.analyzers.view.idle import Idle
from cclbench.analyzers.view.kernel_times import KernelTimes, kernel_times
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
    """The windows of a metric; arrays of shape (windows,), in order of time."""

    policy: str
    steps: tuple[int | None, ...]
    starts: Int64
    ends: Int64
    open: bool = False
    """Whether the windows are incomplete: each ends with its last device event, since no step follows."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def total(self) -> int:
        """ΣW, ns."""
        return int((self.ends - self.starts).sum())


@dataclass(frozen=True, slots=True, eq=False)
class WindowParts:
    """Exact partition of each window, int64 ns, shape (windows,); the five parts sum to `window`."""

    window: Int64
    compute_only: Int64
    overlapped: Int64
    exposed_comm: Int64
    exposed_copy: Int64
    idle: Int64


class RankView:
    """One rank's work in the chosen windows.

    C, K and M are unions over the rank's tracks: C compute kernels and CUDA graphs traced as a whole, K
    communication kernels, M copies and memsets; on a CPU-only rank C is the union of operators that are not
    communication calls, K the transfers of its communication threads, and M is empty.
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
        """The run's machine; by default, that of this rank's trace."""
        self._window, self._steps = window, steps

    @property
    def facts(self) -> TraceFacts:
        """Facts that the rank's trace states."""
        return self.tables.facts

    @property
    def windows(self) -> Windows:
        """The windows of the requested policy, or of the next one that the trace has.

        `steps` falls back to annotations where launches are not linked to kernels, and to the whole trace
        without annotations. Incomplete windows are used only if there are no others.
        """
        return self._chosen_windows[0]

    @property
    def open_windows(self) -> Windows:
        """Incomplete windows, which are not in `windows`."""
        return self._chosen_windows[1]

    @property
    def annotated(self) -> Windows:
        """The host's complete step annotations; `NotApplicable` without any."""
        chosen = self._windows_of_policy("annotations")[0]
        if chosen.policy != "annotations" or chosen.open:
            raise NotApplicable("the trace marks no complete steps")
        return chosen

    @cached_property
    def steps(self) -> pa.Table:
        """Windows of all policies, rows of `schema.STEPS`."""
        return self.tables.steps()

    @cached_property
    def _chosen_windows(self) -> tuple[Windows, Windows]:
        return self._windows_of_policy(self._window)

    def _windows_of_policy(self, requested: str) -> tuple[Windows, Windows]:
        """Complete and incomplete windows of the policy, or of the next one that the trace has."""
        choice = choose_windows(self.steps, requested)
        if choice is None:
            raise Unknown(self.no_work)
        policy, *tables = choice
        if self._steps is not None and policy == "trace":
            raise NotApplicable("the trace marks no steps to select with --steps")
        chosen = [self._in_range(table) for table in tables]
        if not any(map(len, chosen)):
            listed = ", ".join(str(n) for n in sorted(n for t in tables for n in t["step"].to_pylist())[:20])
            raise NotApplicable(f"--steps selects none of this rank's steps: {listed}")
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
            table = table.filter(pa.array(table["step"].to_numpy() >= first))
        if last is not None:
            table = table.filter(pa.array(table["step"].to_numpy() < last))
        return table

    @property
    def no_work(self) -> str:
        """Why the rank has no windows."""
        if self.facts.whole_graphs:
            return (
                f"{self.facts.whole_graphs} CUDA graphs were traced as a whole: their kernels are unknown"
                " (nsys: --cuda-graph-trace=node)"
            )
        if self.facts.works_on is None:
            return "the trace has only host events, none of the accelerator"
        return "the trace has no work"

    @cached_property
    def on_host(self) -> bool:
        """Whether the CPU is the device, with operators and gloo threads as its work."""
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
        comm = has_word(kernels, "category", "communication")
        copies = event_table(self.tables, ("copy", "memset"), ("start_ns", "dur_ns"))
        return (
            intervals.union(starts[~comm], ends[~comm]),
            intervals.union(starts[comm], ends[comm]),
            intervals.union(*row_spans(copies)),
        )

    def _busy_host(self) -> tuple[Intervals, Intervals, Intervals]:
        """C and K of a CPU-only rank.

        K is the union of transfers by gloo, XLA and MPI. C is the union of operators on all but gloo's
        threads, minus communication calls on the same thread, and transfers that hold it.
        """
        for_communication: set[int] = set()
        by_track: dict[int, tuple[list[Intervals], list[Intervals]]] = {}
        transfers = []
        for ops in host_ops(self.tables):
            for_communication.update(np.unique(ops.track[ops.of_library]).tolist())
            transfers.append(intervals.union(ops.starts[ops.transfers], ops.ends[ops.transfers]))
            for track in np.unique(ops.track):
                on_track = ops.track == track
                work, library_calls = by_track.setdefault(int(track), ([], []))
                for rows, into in ((on_track & ops.works, work), (on_track & ops.calls, library_calls)):
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
        """Partition of each window into compute, overlap, exposed communication, copy and idle."""
        return self._partition_windows(self.windows)

    @cached_property
    def open_parts(self) -> WindowParts:
        """The same for `open_windows`."""
        return self._partition_windows(self.open_windows)

    def _partition_windows(self, windows: Windows) -> WindowParts:
        compute, communication, copies = self.busy
        kernels = intervals.join(compute, communication)
        sets = (compute, communication, kernels, intervals.join(kernels, copies))
        c, k, ck, ckm = (intervals.within(busy_set, windows.starts, windows.ends) for busy_set in sets)
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
        """Kernels that may be compute or communication; None without any."""
        return None if self.on_host else ambiguous_kernels(self)

    @cached_property
    def whole_graphs(self) -> UnknownGraphs | None:
        """CUDA graphs in the windows that were traced as a whole; None without any."""
        return whole_graphs(self)

    @cached_property
    def idle(self) -> Idle:
        """Idle time of the device, by cause."""
        self.needs_accelerator("it has no launches, which idle time is attributed by")
        w = self.windows
        first, busy = self.first_calls.launches, intervals.join(*self.busy)
        return idle.split_idle(self.tables, self.launch_calls, first, busy, w.starts, w.ends)

    @cached_property
    def first_calls(self) -> FirstCalls:
        """First calls that take long, over the whole trace."""
        return first_calls(self)

    @cached_property
    def launch_calls(self) -> LaunchCalls:
        """Calls that launch device work, over the whole trace."""
        return launch_calls(self.tables)

    @cached_property
    def launched(self) -> LaunchedKernels:
        """Kernels by launch call; `NotApplicable` where no launch is linked."""
        self.needs_accelerator("it has no launches")
        return launched_kernels(self)

    def operators(self, *columns: str) -> pa.Table:
        """Columns of all operator calls, in or outside the windows: see `schema.OPERATORS`."""
        return self.tables.operators(columns)

    @cached_property
    def works(self) -> Works:
        """The rank's work in its windows by operator call, with its cost."""
        if self.facts.works_on is None:
            raise Unknown(self.no_work)
        return rank_works(self)

    @cached_property
    def kernel_times(self) -> KernelTimes:
        """Compute kernels that begin in the windows; `NotApplicable` without any."""
        return kernel_times(self)

    @cached_property
    def exposed(self) -> Exposed:
        """Exposed communication of each window by collective, split into wait and transfer."""
        alone = intervals.subtract(self.communication, self.compute)
        return exposed.split_exposed(self.all_collectives, alone, self.windows.starts, self.windows.ends)

    @cached_property
    def matched(self) -> Matched:
        """Which collectives in the windows are matched across ranks; `NotApplicable` without collectives."""
        if not len(self.collectives):
            raise NotApplicable("there are no collectives in the window")
        return matched_rows(self.collectives)

    @cached_property
    def arrivals(self) -> tuple[Arrivals, Matched]:
        """The rank's arrivals at matched collectives, and which collectives are left out."""
        return rank_arrivals(self)

    def inside(self, s: Intervals) -> Int64:
        """|s ∩ W| of each window, int64 ns, shape (windows,)."""
        return intervals.within(s, self.windows.starts, self.windows.ends)

    def window_of(self, at: Int64) -> Int64:
        """Index of the window that contains each time, −1 for none; shape of `at`. Windows are disjoint."""
        return intervals.innermost(self.windows.starts, self.windows.ends, at)

    def in_windows(self, at: Int64) -> Mask:
        """Whether a window contains each time; shape of `at`."""
        return np.asarray(self.window_of(at) >= 0)

    def begun(self, kinds: Sequence[str], *columns: str) -> Iterator[tuple[pa.RecordBatch, Int64]]:
        """Events of these kinds that begin in a window, in bounded batches, with each event's window.

        A batch has `start_ns`, `dur_ns` and `columns`; windows are indices, shape (rows,).
        """
        for batch in self.tables.events(kinds, ("start_ns", "dur_ns", *columns)):
            window = self.window_of(batch["start_ns"].to_numpy())
            inside = window >= 0
            if inside.any():
                yield batch.filter(pa.array(inside)), window[inside]

    def kernels(self, *columns: str) -> Iterator[tuple[pa.RecordBatch, Int64]]:
        """Kernels that begin in a window, like `begun`; `NotApplicable` without any."""
        self.needs_accelerator("it runs operators, not kernels")
        no_kernels = True
        for batch, window in self.begun(("kernel",), *columns):
            no_kernels = False
            yield batch, window
        if no_kernels:
            raise NotApplicable("the rank runs no kernels in the window")

    def needs_accelerator(self, otherwise: str) -> None:
        """Raise `NotApplicable` without an accelerator; `otherwise`: why a CPU-only rank has no value."""
        if self.facts.works_on is None:
            raise Unknown(self.no_work)
        if self.on_host:
            raise NotApplicable(f"the CPU is the device: {otherwise}")

    @cached_property
    def all_collectives(self) -> pa.Table:
        """All collectives of the rank, rows of `schema.COLLECTIVES`."""
        return self.tables.collectives()

    @cached_property
    def collectives(self) -> pa.Table:
        """Collectives of the rank that begin in a window, rows of `schema.COLLECTIVES`."""
        if self.facts.works_on is None:
            raise Unknown(self.no_work)
        table = self.all_collectives
        inside = np.flatnonzero(self.window_of(table["start_ns"].to_numpy()) >= 0)
        if len(inside) and inside[-1] - inside[0] < len(inside):  # contiguous: no copy
            return table.slice(inside[0], len(inside))
        return table.take(pa.array(inside))

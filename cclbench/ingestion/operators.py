# SPDX-License-Identifier: Apache-2.0
"""A rank's operator calls: which launched what, in which phase and module, from which line of Python.

The rank's time is taken in stretches, in order: memory holds the host's rows of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cclbench.disk_columns import DiskColumn, disk_array, pieces, release
from cclbench.ingestion.host import Host, Now, innermost, is_site
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.launched import Launched, RowsByStretch
from cclbench.ingestion.modules import Modules
from cclbench.intervals import Index, Int64
from cclbench.normalize.operators import Ids, nearest
from cclbench.normalize.phases import Phases, among
from cclbench.schema import PHASES

_OTHER: Final = PHASES.index("other")


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """What launched each device row, arrays of shape (rows,)."""

    operator: Int64
    """Id of its call, −1 for none."""
    phase: Texts
    module: Texts


class Operators:
    """The calls of one rank that hold a launch, and of a rank without a device all calls.

    Arrays of shape (calls,), in the order of `Ranges.order`; on disk where they are many.
    """

    def __init__(self, folder: Path, launched: Launched | None) -> None:
        """`folder` holds the rank's events; `launched` is None where the host is the device."""
        self.launched = launched
        self.host = Host(folder, launched)
        self.modules = Modules(self.host.python)
        self.rows = None if launched is None else RowsByStretch(launched, self.host.calls)
        self.id: Int64 = self.host.calls.columns["id"]
        codes = (disk_array(len(self), np.int32) for _ in range(5))
        self.parents, self.module, self.site, self.phase, self.step = codes
        """Index of the call that made each one; of its module, line, phase and serving step: −1 for none."""
        self.recomputed = disk_array(len(self), np.bool_)
        """Which calls are forward ones that a node of the backward graph runs again."""
        self._node_number = disk_array(len(self), np.int64)
        """Autograd's number of the node of the backward graph that each call runs for, −1 for none."""
        self._forward_calls = self._place()

    def __len__(self) -> int:
        return len(self.host.calls)

    def release(self) -> None:
        """Let go of what was read."""
        release(self.parents, self.module, self.site, self.phase, self.step, self.recomputed)
        release(self._node_number)
        self.modules.release()

    def _place(self) -> tuple[Int64, Index, Index]:
        """Find each call's parent, module and line; what calls of backward have from their forward calls.

        That are the numbers of forward calls, sorted, with the module and line of each one's last call.
        """
        forward = [np.empty((4, 0), np.int64)]
        for now in self.host.stretches():
            calls, ran, own = now.calls, now.ran, now.calls.own
            place = calls.at[own]
            parents, numbered = calls.ranges.parents(), ran.sequence >= 0
            self.parents[place] = np.append(calls.at, -1)[parents[own]]
            node = nearest(parents, ran.backward_node & numbered)
            self._node_number[place] = np.append(ran.sequence, -1)[node][own]
            runs = nearest(parents, ran.backward_node | numbered)
            again = (runs >= 0) & ~np.append(ran.backward_node, True)[runs] & (node >= 0)
            self.recomputed[place] = again[own]
            self.modules.add(now.python)
            track, start = calls.ranges.track[own], calls.ranges.start_ns[own]
            module = self.modules.at(now.python, track, start)
            site = innermost(now.python, is_site, track, start)
            self.module[place], self.site[place] = module, site
            gives = (numbered & ~ran.backward_node & (node < 0))[own]
            gives &= among(ran.sequence[own], self.host.training.numbers)
            forward.append(np.array([ran.sequence[own][gives], start[gives], module[gives], site[gives]]))
            self.release()
        number, start, module, site = np.concatenate(forward, axis=1)
        order = np.lexsort((start, number))
        last = order[np.flatnonzero(np.append(number[order][1:] != number[order][:-1], True)[: len(order)])]
        return number[last], module[last].astype(np.int32), site[last].astype(np.int32)

    def at(self, track: Int64, at: Int64) -> tuple[Index, Texts]:
        """Each thread's phase at each instant, an index in `PHASES`, and its serving engine's step."""
        phase, step = np.empty(len(at), np.int32), np.empty(len(at), np.int32)
        own = self.host.calls.stretch_of(at)
        for now in self.host.stretches():
            here = np.flatnonzero(own == now.number)
            phase[here] = self.host.phases(now).at(track[here], at[here])
            step[here] = self.host.step_at(now, track[here], at[here])
        return phase, Texts(step, self.host.annotations.names)

    def link(self) -> Origins:
        """Give each device row the call that launched it, its phase and its module; the calls get theirs."""
        rows = 0 if self.launched is None else len(self.launched)
        operator = disk_array(rows, np.int64)
        phase, module = disk_array(rows, np.int32), disk_array(rows, np.int32)
        not_here: DiskColumn[np.int64] = DiskColumn(np.int64)
        for now in self.host.stretches():
            phases = self.host.phases(now)
            self._describe(now, phases)
            if self.launched is not None and self.rows is not None:
                here = self.rows[now.number]
                operator[here], call = self._calls_of(now, self.launched, here)
                not_here.append(here[(self.launched.operator[here] >= 0) & (call < 0)])
                track, at = self.launched.track[here], self.launched.at[here]
                of_call = np.append(self.phase[now.calls.at], np.int32(_OTHER))[call]
                phase[here] = np.where(at >= 0, phases.at(track, at), of_call)
                of_call = np.append(self.module[now.calls.at], np.int32(-1))[call]
                of_launch = np.where(at >= 0, self.modules.at(now.python, track, at), -1)
                module[here] = np.where(of_call >= 0, of_call, of_launch)
                release(operator, phase, module)
                self.launched.release()
            self.release()
        if self.launched is not None:
            self._link_elsewhere(not_here.values(), self.launched, phase, module)
        return Origins(operator, Texts(phase, PHASES), Texts(module, self.modules.paths))

    def _describe(self, now: Now, phases: Phases) -> None:
        """Find phase and serving step of a stretch's calls, and what they have from their forward calls."""
        calls, place = now.calls, now.calls.at[now.calls.own]
        track, start = calls.ranges.track[calls.own], calls.ranges.start_ns[calls.own]
        self.phase[place] = phases.at(track, start)
        self.step[place] = self.host.step_at(now, track, start)
        numbers, modules, sites = self._forward_calls
        wanted = self._node_number[place]
        forward = np.where(among(wanted, numbers), np.searchsorted(numbers, wanted), -1)
        for column, lent in ((self.module, modules), (self.site, sites)):
            found = column[place]
            column[place] = np.where(found >= 0, found, np.append(lent, np.int32(-1))[forward])

    def _calls_of(self, now: Now, launched: Launched, rows: Int64) -> tuple[Int64, Index]:
        """Id of the call of each of those device rows, and its index in the stretch, −1 for none there."""
        at, stated, ids = launched.at[rows], launched.operator[rows], now.calls.column("id")
        around = now.calls.ranges.innermost(
            launched.track[rows], np.where(at >= 0, at, np.iinfo(np.int64).min)
        )
        call = np.where(stated >= 0, Ids(ids).index_of(stated), around)
        return np.where(stated >= 0, stated, np.append(ids, -1)[around]), call

    def _link_elsewhere(self, rows: Int64, launched: Launched, phase: Index, module: Index) -> None:
        """Give phase and module to device rows whose stated call runs in another stretch of time."""
        call = self.index_of(launched.operator[rows])
        rows, call = rows[call >= 0], call[call >= 0]
        of_call = self.module[call]
        module[rows[of_call >= 0]] = of_call[of_call >= 0]
        # A launch that is not recorded was made while its operator ran.
        lost = launched.at[rows] < 0
        phase[rows[lost]] = self.phase[call[lost]]

    def index_of(self, operator: Int64) -> Int64:
        """Index of the call of each id, of several of one id the first; −1 for none."""
        wanted = np.unique(operator)
        found = np.full(len(wanted), -1, np.int64)
        for here in reversed(list(pieces(len(self)))):
            ids = self.id[here]
            at = np.flatnonzero(among(ids, wanted))[::-1]
            found[np.searchsorted(wanted, ids[at])] = at + here.start
        return found[np.searchsorted(wanted, operator)]

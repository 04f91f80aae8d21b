# SPDX-License-Identifier: Apache-2.0
"""Operator calls of a rank: what each launched, and its phase, module and line of Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.classify.python_rows import is_site
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.schema import PHASES
from cclbench.ingestion.host import Host, innermost_names
from cclbench.ingestion.host_rows import EventTables, Texts
from cclbench.ingestion.launched import Launched
from cclbench.ingestion.modules import Modules
from cclbench.normalize.operators import Ids, nearest_flagged
from cclbench.normalize.phases import is_among

_OTHER: Final = PHASES.index("other")


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """Call, phase and module of each device row, arrays of shape (rows,)."""

    operator: Int64
    """Id of its call, −1 for none."""
    phase: Texts
    module: Texts


class Operators:
    """Calls of one rank that enclose a launch; all calls of a rank without a device.

    Arrays of shape (calls,), in the order of `Ranges.order_of`.
    """

    def __init__(self, events: EventTables, launched: Launched | None) -> None:
        """`events` are the rank's; `launched` is None if the host is the device."""
        self.launched = launched
        self.host = Host(events, launched)
        self.modules = Modules(self.host.python)
        calls = self.host.calls
        self.id: Int64 = calls.columns["id"]
        self._ids = Ids(self.id)
        track, start, sequence = (calls.columns[name] for name in ("track", "start_ns", "sequence"))
        self.parents: Index = calls.ranges.parent_indices()
        """Index of each call's parent, −1 for none."""
        numbered, backward_node = sequence >= 0, self.host.backward_node
        node = nearest_flagged(self.parents, backward_node & numbered)
        runs = nearest_flagged(self.parents, backward_node | numbered)
        self.recomputed: Mask = (runs >= 0) & ~np.append(backward_node, True)[runs] & (node >= 0)
        """Which are forward calls that a node of the backward graph runs again."""
        self.phase: Index = self.host.phases.phase_at(track, start)
        self.step: Index = self.host.step_at(track, start)
        """Name code of the annotation of each call's serving step, −1 for none."""
        self.module: Index = self.modules.module_codes_at(track, start)
        self.site: Index = innermost_names(self.host.python.named_ranges, is_site, track, start)
        """Name code of each call's line of Python, −1 for none."""
        # Calls under a node of the backward graph take module and line from the forward call with the same
        # sequence number, the last one if there are several.
        gives = numbered & ~backward_node & (node < 0) & is_among(sequence, self.host.phases.numbers)
        forward = np.flatnonzero(gives)
        forward = forward[np.lexsort((start[forward], sequence[forward]))]
        last = forward[np.append(np.diff(sequence[forward]) != 0, True)[: len(forward)]]
        of_node = np.append(sequence, -1)[node]
        lender = np.where(is_among(of_node, sequence[last]), np.searchsorted(sequence[last], of_node), -1)
        lender = np.append(last, -1)[lender]
        for codes in (self.module, self.site):
            lent = np.where(lender >= 0, codes[lender], -1)
            np.copyto(codes, lent, where=codes < 0)

    def __len__(self) -> int:
        return len(self.host.calls)

    def phases_at(self, track: Int64, at: Int64) -> tuple[Index, Texts]:
        """Phase of each thread at each instant, an index into `PHASES`, and its serving step."""
        step = Texts(self.host.step_at(track, at), self.host.annotations.words["name"])
        return self.host.phases.phase_at(track, at), step

    def link_rows(self) -> Origins:
        """Each device row's call (stated, else the one around the launch), phase and module."""
        launched = self.launched
        if launched is None:
            nothing = Texts(np.empty(0, np.int32), ())
            return Origins(np.empty(0, np.int64), nothing, nothing)
        at, stated = launched.at, launched.operator
        around = self.host.calls.ranges.innermost_at(
            launched.track, np.where(at >= 0, at, np.iinfo(np.int64).min)
        )
        call = np.where(stated >= 0, self.index_of(stated), around)
        operator = np.where(stated >= 0, stated, np.append(self.id, -1)[around])
        # An unrecorded launch took place while its operator ran.
        of_call = np.append(self.phase, np.int32(_OTHER))[call]
        phase = np.where(at >= 0, self.host.phases.phase_at(launched.track, at), of_call)
        of_call = np.append(self.module, np.int32(-1))[call]
        of_launch = np.where(at >= 0, self.modules.module_codes_at(launched.track, at), -1)
        module = np.where(of_call >= 0, of_call, of_launch)
        return Origins(operator, Texts(phase, PHASES), Texts(module, self.modules.paths))

    def index_of(self, operator: Int64) -> Index:
        """Index of the call with each id, the first if there are several; −1 for none."""
        return self._ids.index_of(operator)

# SPDX-License-Identifier: Apache-2.0
"""Which operator's call launched a device event: the innermost one on the launching thread then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cclbench import intervals
from cclbench.intervals import Int64


@dataclass(frozen=True, slots=True, eq=False)
class Operators:
    """Calls of operators, arrays of shape (calls,); the calls of a thread nest, as on its stack."""

    id: Int64
    track: Int64
    start_ns: Int64
    end_ns: Int64

    def innermost(self, track: Int64, at: Int64) -> Int64:
        """Id of the innermost call on each thread at each instant, −1 where none runs; shape of `at`."""
        found = np.full(len(at), -1, np.int64)
        # Ids count up: of calls that begin together the later one is the inner.
        by_id = np.argsort(self.id)
        order = by_id[np.argsort(self.start_ns[by_id], kind="stable")]
        order = order[self.end_ns[order] > self.start_ns[order]]
        for thread in np.unique(track):
            calls, here = order[self.track[order] == thread], track == thread
            call = intervals.innermost(self.start_ns[calls], self.end_ns[calls], at[here])
            found[here] = np.append(self.id[calls], -1)[call]
        return found

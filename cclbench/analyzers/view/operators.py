# SPDX-License-Identifier: Apache-2.0
"""A rank's work by operator call, with its cost; kernels without a call stand alone.

A device event belongs to the innermost call around its launch that has a cost model, else to the innermost
call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench import classify
from cclbench.analyzers.view.columns import vocabulary_places, word_codes
from cclbench.analyzers.view.device_works import device_works
from cclbench.analyzers.view.operator_calls import OperatorCalls, costs_of
from cclbench.analyzers.view.works import NO_ROWS, Works
from cclbench.ground.schema import CATEGORIES, PHASES
from cclbench.normalize.operators import is_wrapper

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_OTHER: Final = CATEGORIES.index("other")


def rank_works(rank: RankView) -> Works:
    """Work of a rank that begins in its windows."""
    return _on_host(rank) if rank.on_host else device_works(rank)


def _on_host(rank: RankView) -> Works:
    """Work of a CPU: the calls that begin in a window, with their self time outside other work."""
    calls = OperatorCalls(rank)
    table = rank.operators("start_ns", "device_ns", "phase", "module")
    starts, device_ns = table["start_ns"].to_numpy(), table["device_ns"].to_numpy()
    wrapper = np.array([is_wrapper(name or "") for name in calls.names], np.bool_)[calls.name]
    window = rank.window_of(starts[calls.owner]) if len(starts) else starts
    chosen = np.flatnonzero((device_ns > 0) & ~wrapper & (window >= 0))
    head, work = np.unique(calls.owner[chosen], return_inverse=True)
    time_ns = np.zeros(len(head), np.int64)
    np.add.at(time_ns, work, device_ns[chosen])
    kinds, kind = calls.numbered_kinds(head, np.zeros(len(head), np.int64), lambda _: ())
    words = [classify.kernel_category(name or "") for name in calls.names]
    category = np.array([CATEGORIES.index(word) if word else _OTHER for word in words], np.int64)[
        calls.name[head]
    ]
    module, modules = word_codes(table, "module")
    flops, size, written = costs_of(kinds)
    return Works(
        kinds=kinds,
        kind=kind,
        phase=vocabulary_places(table, "phase", PHASES, PHASES.index("other"))[head].astype(np.int32),
        module=module[head].astype(np.int32),
        modules=modules,
        program=np.zeros(len(head), np.int32),
        programs=[None],
        category=category.astype(np.int32),
        start_ns=starts[head],
        time_ns=time_ns,
        kernels=np.zeros(len(head), np.int32),
        computes=category != CATEGORIES.index("communication"),
        recomputed=calls.recomputed[head],
        operator=calls.operator[head],
        sequence=calls.sequence[head],
        flops=flops[kind],
        bytes=size[kind],
        written_bytes=written[kind],
        stated=np.zeros(len(head), np.bool_),
        rows=NO_ROWS,
    )

# SPDX-License-Identifier: Apache-2.0
"""Sweeps from a run's own collectives, to calibrate the hardware model without a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from cclbench.analyzers.modelled import PRICED
from cclbench.analyzers.view.arrivals import PAIRS
from cclbench.analyzers.view.collectives import collective_kinds, collective_payloads, group_sizes
from cclbench.analyzers.view.columns import word_codes
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.hardware.system import System

_LATER: Final = np.iinfo(np.int64).max


def own_sweeps(
    collectives: pa.Table,
    members: Mapping[str, tuple[int, ...]],
    system: System,
    library_version: str | None = None,
    *,
    source: str | msgspec.UnsetType = msgspec.UNSET,
) -> tuple[list[Sweep], dict[str, int]]:
    """Median transfer time by kind, group and size; and counts of unused collectives by reason.

    One time per instance: that of its last rank, which does not wait. `members`: ranks by group id; nodes
    have `system.per_node` consecutive ranks.
    """
    matched = collectives["instance"].is_valid().to_numpy() & collectives["transfer_ns"].is_valid().to_numpy()
    rows = collectives.filter(pa.array(matched))
    instance, wait = rows["instance"].to_numpy(), rows["wait_ns"].fill_null(_LATER).to_numpy()
    _, last = np.unique(instance[order := np.lexsort((wait, instance))], return_index=True)
    table = rows.take(pa.array(order[last]))

    group, names = word_codes(table, "group")
    by_node = [system.ranks_by_node(members.get(name or "", ())) for name in names]
    library, libraries = word_codes(table, "library")
    size, has_size = collective_payloads(table)
    unusable = {
        "sends and receives": np.isin(collective_kinds(table), PAIRS),
        "of libraries whose algorithms are not modelled": ~np.isin([w or "" for w in libraries], PRICED)[
            library
        ],
        "of unknown groups, or groups spread unevenly over nodes": np.array(
            [len(set(on_nodes)) != 1 for on_nodes in by_node], np.bool_
        )[group],
        "of unknown size": ~has_size,
    }
    left_out = {"not matched across ranks": int((~matched).sum())}
    usable = np.ones(len(table), np.bool_)
    for why, excluded in unusable.items():
        left_out[why] = int((usable & excluded).sum())
        usable &= ~excluded
    timings = pa.table(
        {
            "kind": pa.array([kind or None for kind in collective_kinds(table).tolist()], pa.string()),
            "group_size": group_sizes(table),
            "nodes": np.array([len(on_nodes) for on_nodes in by_node], np.int64)[group],
            "bytes": size,
            "dur_ns": table["transfer_ns"],
            "in_place": pa.nulls(len(table), pa.bool_()),
        }
    )
    sweeps, unused = sweeps_of(timings.filter(pa.array(usable)), library_version, source=source)
    return sweeps, {why: number for why, number in {**left_out, **unused}.items() if number}

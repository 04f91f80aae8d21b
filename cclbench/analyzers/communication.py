# SPDX-License-Identifier: Apache-2.0
"""Communication: time, number of calls, volume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Unknown, Value, metric
from cclbench.analyzers.view.collectives import (
    LARGE_SIDE,
    collective_durations,
    collective_payloads,
    group_sizes,
)
from cclbench.analyzers.view.columns import has_word
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import per_step, per_step_and_label, share_values
from cclbench.ground.schema import TOTAL

_INPUTS = ("events", "collectives", "steps")
_LOGGED: Final = (
    " Without traces, of all calls that NCCL logs or Flight Recorder dumps list, which mark no steps: per"
    f" rank, and as stat {TOTAL} over all ranks, by kind, process group and size (category, powers of 4)."
)


@metric(
    "comm.time",
    definition="Time in which communication runs on any stream, hidden or exposed.",
    formula="|K|",
    unit="s",
    better="lower",
)
def time(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.overlapped + rank.parts.exposed_comm, blurred=rank.blurred)


@metric(
    "comm.fraction",
    definition="Share of kernel time in which communication runs.",
    formula="|K| / |C∪K|",
    unit="1",
    better="lower",
)
def fraction(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    communication = p.overlapped + p.exposed_comm
    kernel_time = p.compute_only + communication
    yield from share_values(rank, communication, kernel_time, noun="kernel time", blurred=rank.blurred)


@metric(
    "comm.count",
    definition="Number of collectives and transfers that begin in the window, per step and rank; also by"
    " kind, process group and parallel dimension (category)." + _LOGGED,
    formula="n",
    unit="count",
    inputs=(*_INPUTS, "timings"),
)
def count(rank: RankView) -> Iterator[Value]:
    table = rank.collectives
    alone = int((group_sizes(table) == 1).sum())
    reason = f"{alone} are in groups of one rank, which move nothing" if alone else None
    yield from per_step_and_label(rank, table, np.ones(len(table), np.int64), reason=reason)


@metric(
    "comm.volume",
    definition="Payload of the collectives that begin in the window, per step and rank; also by kind, process"
    f" group and parallel dimension (category). {LARGE_SIDE} Where the trace states no payload and the card"
    " has only data parallelism, modelled from the number of parameters." + _LOGGED,
    formula="Σ S",
    unit="B",
    inputs=(*_INPUTS, "timings"),
    not_applicable="no collective in the window states its payload",
    version=2,
)
def volume(rank: RankView) -> Iterator[Value]:
    table = rank.collectives
    table = table.filter(pa.array(~has_word(table, "kind", "barrier")))
    size, has_size = collective_payloads(table)
    silent = int((~has_size).sum())
    coverage = Coverage.from_rows(has_size, collective_durations(table))
    if len(table) and silent == len(table):
        raise Unknown(f"none of the {silent} collectives in the window states its payload", coverage)
    yield from per_step_and_label(
        rank,
        table.filter(pa.array(has_size)),
        size[has_size],
        left_out={"of unknown bytes": silent} if silent else {},
        coverage=coverage,
    )

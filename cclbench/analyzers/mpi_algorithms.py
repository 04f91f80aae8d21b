# SPDX-License-Identifier: Apache-2.0
"""Algorithms that an MPI library takes for the collectives of a run, by its documented rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, metric
from cclbench.analyzers.view.collectives import (
    collective_durations,
    collective_kinds,
    collective_payloads,
    group_sizes,
)
from cclbench.analyzers.view.columns import has_word
from cclbench.analyzers.view.rank_view import RankView
from cclbench.machine import mpi_version

_NO_RULES: Final = (
    "needs MPI collectives, and a card with library mpi and version `Open MPI X.Y` (4.1 to 5.0), whose rules"
    " are known"
)


@metric(
    "comm.mpi_algorithm",
    definition="Collectives per step that Open MPI runs by each algorithm (category), by kind: what the fixed"
    " rules of its release take for the ranks and bytes of each. Only all_reduce, broadcast, all_gather,"
    " reduce_scatter and all_to_all have rules here. Rules that a user sets, and components that take a call"
    " before `tuned` does, are not known.",
    formula="n by kind and algorithm",
    unit="count",
    inputs=("collectives", "steps", "card: software.communication.version"),
    not_applicable=_NO_RULES,
)
def mpi_algorithm(rank: RankView) -> Iterator[Value]:
    """Number of collectives by kind and algorithm."""
    from cclbench.hardware.collectives.open_mpi import open_mpi_algorithm, reason_without_rules

    version = mpi_version(rank.card)
    calls = rank.collectives.filter(pa.array(has_word(rank.collectives, "library", "mpi")))
    if not len(calls):
        raise NotApplicable(_NO_RULES)
    if reason := reason_without_rules(version):
        raise NotApplicable(reason)
    size, has_size = collective_payloads(calls)
    ranks, kinds = group_sizes(calls), collective_kinds(calls)
    ruled = np.array([open_mpi_algorithm(kind, 2, 0) is not None for kind in kinds.tolist()], np.bool_)
    if not ruled.any():
        raise NotApplicable("no MPI collective in the window has rules that are known")
    usable = ruled & has_size & (ranks > 1)
    words, codes = np.unique(kinds, return_inverse=True)
    keys = np.stack([codes, ranks, size])[:, usable]
    unique, counts = np.unique(keys, axis=1, return_counts=True)
    calls_by_algorithm = Counter[tuple[str, str]]()
    for (kind, group_size, payload), count in zip(unique.T.tolist(), counts.tolist(), strict=True):
        name = str(words[kind])
        calls_by_algorithm[name, open_mpi_algorithm(name, int(group_size), float(payload)) or ""] += count
    windows = len(rank.windows)
    durations = collective_durations(calls)
    yield Value(
        value=int(usable.sum()) / windows,
        provenance="modelled",
        reason=f"by the fixed rules of {version}",
        coverage=Coverage.from_rows(usable[ruled], durations[ruled]),
    )
    for (kind_name, algorithm), count in sorted(calls_by_algorithm.items()):
        yield Value(value=count / windows, collective=kind_name, category=algorithm, provenance="modelled")

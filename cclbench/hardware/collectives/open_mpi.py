# SPDX-License-Identifier: Apache-2.0
"""Open MPI's choice of algorithms: fixed rules by ranks and bytes (`open_mpi.yaml`), each priced by formula.

Some algorithms are replaced where they do not apply (coll/base): recursive doubling of an all-gather among
ranks that are no power of two by Bruck's, neighbour exchange of an odd number of ranks by a ring.  A ring
without a segment size has one segment.  Butterfly and recursive halving of powers of two are the first half
of Rabenseifner's, recursive doubling of an all-gather is its second half.  Linear exchanges post all at
once.  A user may set other rules (`coll_tuned_use_dynamic_rules`), and other components may take a call
before `tuned` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.text import quoted
from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Floats, Traffic
from cclbench.hardware.collectives.p2p import PAIRS
from cclbench.hardware.collectives.ring import ring_bytes_per_s
from cclbench.hardware.collectives.transport import SIMPLE
from cclbench.hardware.shipped_table import read_shipped_table

OPEN_MPI_NOTE: Final = (
    "algorithms by Open MPI's fixed rules; the latencies of MPI are not known: NCCL's are used"
)
_OPEN_MPI: Final = re.compile(r"open[ _-]?mpi\b.*?(\d+)\.(\d+)", re.IGNORECASE)
_FIRST: Final = (4, 1)
_LAST: Final = (5, 0)
"""Releases that have these rules: from the first to the last."""
_FORMULAS: Final = {
    "ring": "ring",
    "segmented_ring": "ring",
    "rabenseifner": "halving_doubling",
    "recursive_halving": "halving_doubling",
    "butterfly": "halving_doubling",
    "recursive_doubling": "recursive_doubling",
    "bruck": "bruck",
    "binomial": "binomial",
    "neighbor_exchange": "neighbor_exchange",
    "pairwise": "pairwise",
    "linear": "p2p",
    "linear_sync": "p2p",
    "two_ranks": "p2p",
}
"""Formulas by Open MPI's names."""
_OF_ONE_RANK: Final = ("all_gather", "all_to_all")
"""Kinds whose rules count the bytes for one rank."""
ChosenFormulas = dict[str, tuple[str | None, npt.NDArray[np.bool_]]]
"""By Open MPI's name of an algorithm its formula, None if it has none, and the sizes that it is taken for."""
_Rules = dict[str, list[tuple[int | None, list[tuple[int | None, str]]]]]


@cache
def _rules() -> _Rules:
    return read_shipped_table("open_mpi.yaml", _Rules)


def has_open_mpi_rules(library_version: str | None) -> bool:
    """Whether a card's version, such as `Open MPI 4.1.4`, is of a release with these rules."""
    release = _OPEN_MPI.search(library_version or "")
    return release is not None and _FIRST <= (int(release[1]), int(release[2])) <= _LAST


def reason_without_rules(mpi_version: str | None) -> str | None:
    """Why the algorithms that MPI takes are not known; None if they are."""
    if has_open_mpi_rules(mpi_version):
        return None
    if mpi_version is None:
        return "not known because neither the traces nor a card state the MPI library and its version"
    return f"not known because the rules of {quoted(mpi_version)} are not: those of Open MPI 4.1 to 5.0 are"


def open_mpi_algorithm(kind: str, ranks: int, size: float) -> str | None:
    """Open MPI's name of the algorithm for `size` bytes of S; None for a kind without rules."""
    if (by_ranks := _rules().get(kind)) is None:
        return None
    counted = size / ranks if kind in _OF_ONE_RANK else size
    by_bytes = next(rules for below, rules in by_ranks if below is None or ranks < below)
    return next(name for below, name in by_bytes if below is None or counted < below)


def formula_of(kind: str, ranks: int, name: str) -> str | None:
    """The registered algorithm that an algorithm of Open MPI is priced by; None without any."""
    if kind == "all_gather" and name == "recursive_doubling":
        return "bruck" if ranks & (ranks - 1) else "halving_doubling"
    if (name == "neighbor_exchange" and ranks % 2) or (kind == "all_gather" and name == "two_ranks"):
        return "ring"
    return None if kind == "broadcast" and name == "linear" else _FORMULAS.get(name)


def chosen_formulas(kind: str, ranks: int, sizes: Floats) -> ChosenFormulas:
    """The algorithms that Open MPI takes for these sizes, shape (sizes,)."""
    if kind in PAIRS:
        return {"p2p": ("p2p", np.ones(len(sizes), np.bool_))}
    names = [open_mpi_algorithm(kind, ranks, size) or "an unknown algorithm" for size in sizes.tolist()]
    return {name: (formula_of(kind, ranks, name), np.array(names) == name) for name in dict.fromkeys(names)}


@algorithm("pairwise", chosen=chosen_never)
def pairwise(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """All-to-all in n − 1 exchanges of S/n, with the rank k before and k behind in the k-th.

    T = (n − 1) α + (n − 1)/n · S / B.  Over several nodes every exchange crosses the network for some rank.
    """
    if call.kind == "all_to_all":
        yield _rank_steps(call, "pairwise", call.group.ranks - 1)


@algorithm("neighbor_exchange", chosen=chosen_never)
def neighbor_exchange(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """All-gather in n/2 exchanges with either neighbour in turn, of S/n and then 2 S/n; n is even.

    T = n/2 · α + (n − 1)/n · S / B, B the rate of a ring.  (Chen et al. 2005.)
    """
    if call.kind == "all_gather" and not call.group.ranks % 2:
        yield _rank_steps(call, "neighbor_exchange", call.group.ranks / 2, ring_bytes_per_s(call.group))


def _rank_steps(
    call: CollectiveCall, name: str, steps: float, bytes_per_s: float | None = None
) -> CollectiveCost:
    """Steps in which a rank moves (n − 1)/n of S in all, over its own links unless a rate is given."""
    group, across = call.group, call.group.nodes > 1
    inside = group.pair_bytes_per_s if group.peers == "mesh" else group.up_bytes_per_s
    rate = bytes_per_s or (group.nic_bytes_per_s if across else inside)
    each_s, where = (call.net_s(SIMPLE), "over the network") if across else (call.up_s(SIMPLE), "in the node")
    return CollectiveCost(
        name,
        SIMPLE,
        (*call.start_steps(SIMPLE), CollectiveSteps(steps, each_s, f"steps {where}")),
        Traffic((group.ranks - 1) / group.ranks, rate * call.assumed.rate, "links of a rank"),
        rendezvous=call.rendezvous_steps(steps if across else 0, SIMPLE),
    )

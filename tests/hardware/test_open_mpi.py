# SPDX-License-Identifier: Apache-2.0
"""Open MPI's fixed rules, at their boundaries as its source has them, and the prices that follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from hardware.test_collectives import PLAIN, nodes, one_node

from cclbench.api import run
from cclbench.hardware.collectives import NoPrice, Prediction, algorithm_costs, price_group
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.open_mpi import formula_of, has_open_mpi_rules, open_mpi_algorithm
from cclbench.hardware.collectives.price import sizes_of
from cclbench.record.selection import Selection
from cclbench.results import full_results

MPI = "Open MPI 4.1.4"

# By hand from coll_tuned_decision_fixed.c of 4.1.4: kind, ranks, then sizes just below and at each boundary.
BOUNDARIES = {
    ("all_reduce", 3): [(7, "ring"), (8, "recursive_doubling"), (4096, "ring"), (8192, "recursive_doubling"),
                        (16384, "ring"), (65536, "segmented_ring"), (262144, "rabenseifner")],
    ("all_reduce", 4): [(15, "ring"), (16, "recursive_doubling"), (8191, "recursive_doubling"),
                        (8192, "rabenseifner")],
    ("all_reduce", 8): [(1, "recursive_doubling"), (8191, "recursive_doubling"), (8192, "rabenseifner")],
    ("all_reduce", 128): [(131071, "reduce_broadcast"), (131072, "recursive_doubling"),
                          (262144, "rabenseifner")],
    ("all_reduce", 4096): [(16383, "segmented_ring"), (16384, "recursive_doubling"), (32768, "rabenseifner")],
    ("broadcast", 4): [(63, "binary_tree"), (64, "binomial"), (128, "binary_tree"), (2048, "binomial"),
                       (8192, "linear"), (1048576, "chain")],
    # Bytes of one rank: S is 2, 4 and 40 times that.
    ("all_gather", 2): [(2, "two_ranks")],
    ("all_gather", 40): [(40 * 1023, "recursive_doubling"), (40 * 1024, "neighbor_exchange"),
                         (40 * 65536, "ring")],
    ("reduce_scatter", 4): [(7, "reduce_scatterv"), (8, "recursive_halving"), (262144, "ring")],
    ("all_to_all", 2): [(2, "pairwise"), (4, "two_ranks"), (8, "pairwise"), (65536, "linear_sync"),
                        (2 * 1048576, "pairwise")],
    ("all_to_all", 16): [(16 * 3, "linear_sync"), (16 * 4, "bruck"), (16 * 512, "linear_sync"),
                         (16 * 8192, "linear")],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "ranks"), BOUNDARIES)
def test_choice_at_each_boundary(kind: str, ranks: int) -> None:
    chosen = BOUNDARIES[kind, ranks]
    assert [open_mpi_algorithm(kind, ranks, size) for size, _ in chosen] == [name for _, name in chosen]


@pytest.mark.parametrize(
    ("version", "there"),
    [
        *((MPI, True), ("OpenMPI 5.0.9", True), ("open_mpi 4.1", True)),
        *(("Open MPI 4.0.7", False), ("Open MPI 6.0", False), ("Open MPI", False)),
        *(("MPICH 4.1.2", False), ("2.21.5", False), (None, False)),
    ],
)
def test_releases_with_these_rules(version: str | None, there: bool) -> None:
    assert has_open_mpi_rules(version) is there


@pytest.mark.parametrize(
    ("kind", "name", "powers", "others"),
    [
        ("all_reduce", "rabenseifner", "halving_doubling", "halving_doubling"),
        ("all_gather", "recursive_doubling", "halving_doubling", "bruck"),
        ("all_gather", "neighbor_exchange", "neighbor_exchange", "ring"),
        *(("broadcast", name, None, None) for name in ("linear", "chain", "knomial")),
    ],
)
def test_formulas_by_name(kind: str, name: str, powers: str | None, others: str | None) -> None:
    assert (formula_of(kind, 8, name), formula_of(kind, 7, name)) == (powers, others)


@pytest.mark.parametrize("group", [one_node(4), nodes(2, 2)])
def test_the_price_is_that_of_the_algorithm_chosen(group: Group) -> None:
    """Four ranks: recursive doubling below 8 KiB, from there Rabenseifner's, whichever is faster."""
    sizes = sizes_of("all_reduce", [1024, 8192])
    found = price_group("all_reduce", sizes, group, library_version=MPI)
    assert isinstance(found, Prediction)
    assert found.algorithm == ("recursive_doubling", "rabenseifner")
    assert found.protocol == ("Simple", "Simple")
    for at, name in enumerate(("recursive_doubling", "halving_doubling")):
        alone = price_group("all_reduce", sizes[[at]], group, algorithm=name)
        assert isinstance(alone, Prediction)
        assert found.time_s[at] == alone.time_s[0]
    assert (found.slowest_s >= found.time_s).all()
    assert "Open MPI's fixed rules" in (found.reason or "")
    sent = price_group("send", sizes, one_node(2), library_version=MPI)
    assert isinstance(sent, Prediction)
    assert sent.algorithm == ("p2p", "p2p")


@pytest.mark.parametrize(
    ("kind", "size", "ranks", "reason"),
    [
        ("broadcast", 1 << 20, 4, "Open MPI takes chain for broadcast: no formula is known"),
        ("all_reduce", 1024, 6, "Open MPI takes recursive_doubling for all_reduce: no formula for 6 ranks"),
        ("barrier", 0, 4, "Open MPI takes an unknown algorithm for barrier: no formula is known"),
    ],
)
def test_what_has_no_formula_is_named(kind: str, size: int, ranks: int, reason: str) -> None:
    found = price_group(kind, sizes_of(kind, size), one_node(ranks), library_version=MPI)
    assert found == NoPrice(reason)


def test_exchanges_between_pairs() -> None:
    """Of 8 ranks in a node at 100 GB/s: seven and four steps, Bruck's three of half of S each."""
    for kind, name, steps, share in (
        ("all_to_all", "pairwise", 7, 7 / 8),
        ("all_to_all", "bruck", 3, 3 / 2),
        ("all_gather", "neighbor_exchange", 4, 7 / 8),
    ):
        (cost,) = (
            one for one in algorithm_costs(kind, one_node(8), PLAIN, algorithm=name) if one.algorithm == name
        )
        assert cost.alpha_s == pytest.approx(8.4e-6 + steps * 3.4e-6)
        assert cost.traffic.share == pytest.approx(share)
    assert not [c for c in algorithm_costs("all_gather", one_node(7), PLAIN, algorithm="neighbor_exchange")
                if c.algorithm == "neighbor_exchange"]  # fmt: skip


def test_our_own_job_of_open_mpi(repository: Path, tmp_path: Path) -> None:
    """Two all-reduces a step among four ranks, of 1.08 MB in all: Rabenseifner's from 8 KiB on."""
    card = repository / "workload_cards/mpi-training-4-cpu.yaml"
    results = full_results(run(card, store=tmp_path), Selection())
    rows = [row for row in results if row.metric == "comm.mpi_algorithm" and row.rank is None]
    found = {(row.collective, row.category): row.value for row in rows if row.step is None}
    assert found == {(None, None): 2, ("all_reduce", "rabenseifner"): 2}

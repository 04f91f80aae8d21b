# SPDX-License-Identifier: Apache-2.0
"""Which rank a file is."""

from __future__ import annotations

import pytest

from cclbench.errors import InputError
from cclbench.normalize.ranks import distinct, rank_of
from cclbench.schema import TraceFacts

SILENT = TraceFacts()


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("iteration_10/rank3_trace.json.gz", 3),
        ("iteration_10/rank12_trace.json", 12),
        ("graph_capture_rank_0.1712195495519689047.pt.trace.json.gz", 0),
        ("dp0_pp0_tp1_dcp0_ep1_rank1.1762.pt.trace.json.gz", 1),
        ("sampled_rank-1.json.gz", 1),
        ("RANK=7.json", 7),
        ("rank_5/trace.json", 5),
        ("node1_local_rank0/global_rank8.json", 8),
        ("worker3_step_12.1694128201557.pt.trace.json.gz", 3),
        ("resnet50_num_workers_4_29dba6_worker0.pt.trace.json.gz", 0),
        ("1720000000.12-TP-3.trace.json.gz", 3),
        ("host-17_2048.1712195495519689047.pt.trace.json.gz", None),
        ("num_workers_4.json", None),
        ("frank3.json", None),
        ("trace.json", None),
        ("http-3.json", None),
    ],
)
def test_rank_in_a_file_name(name, rank):
    assert rank_of(name, SILENT, None) == (rank, None if rank is None else "file name")


def test_the_trace_speaks_first():
    assert rank_of("rank3.json", TraceFacts(rank=3, rank_source="distributedInfo"), 3) == (
        3,
        "distributedInfo",
    )


def test_the_card_speaks_where_nobody_does():
    assert rank_of("trace.json", SILENT, 6) == (6, "card")


@pytest.mark.parametrize(
    ("name", "facts", "card", "both"),
    [
        (
            "rank2.json",
            TraceFacts(rank=3, rank_source="distributedInfo"),
            None,
            ["rank 3", "rank 2", "file name"],
        ),
        ("rank2.json", SILENT, 4, ["rank 2", "rank 4", "card"]),
        ("t.json", TraceFacts(rank=1, rank_source="metadata"), 0, ["rank 1", "metadata", "rank 0", "card"]),
    ],
)
def test_contradiction_names_both(name, facts, card, both):
    with pytest.raises(InputError) as caught:
        rank_of(name, facts, card)
    assert all(part in str(caught.value) for part in [name, *both])


def test_weak_parts_of_a_name_contradict_nobody():
    facts = TraceFacts(rank=9, rank_source="distributedInfo")
    assert rank_of("worker1-TP-0.json", facts, None) == (9, "distributedInfo")


def test_lone_file_without_a_rank_is_rank_0_and_says_so():
    assert distinct({"t.json": (None, None)}) == {"t.json": (0, "nothing: taken as rank 0")}
    assert distinct({"t.json": (5, "card")}) == {"t.json": (5, "card")}


def test_several_files_need_their_ranks():
    with pytest.raises(InputError, match="1 of 2 files do not say their rank") as caught:
        distinct({"a.json": (0, "file name"), "b.json": (None, None)})
    assert caught.value.where == "b.json"


def test_two_files_of_one_rank():
    with pytest.raises(InputError, match=r"claims rank 1, and so does a\.json"):
        distinct({"a.json": (1, "file name"), "b.json": (1, "card")})

# SPDX-License-Identifier: Apache-2.0
"""Which rank a file is."""

from __future__ import annotations

import pytest

from cclbench.ground.errors import InputError
from cclbench.normalize.ranks import Member, distinct_ranks, groups_of, rank_of
from cclbench.record.facts import Communicator, ProcessGroup, TraceFacts

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
        ("worker1/worker3.json", 3),
        ("host-17_2048.1712195495519689047.pt.trace.json.gz", None),
        ("num_workers_4.json", None),
        ("frank3.json", None),
        ("trace.json", None),
        ("http-3.json", None),
    ],
)
def test_rank_in_a_file_name(name, rank):
    assert rank_of(Member(name, "", SILENT)) == (rank, None if rank is None else "file name")


def test_the_trace_speaks_first():
    assert rank_of(Member("rank3.json", "", TraceFacts(rank=3, rank_source="distributedInfo"), 3)) == (
        3,
        "distributedInfo",
    )


@pytest.mark.parametrize("facts", [TraceFacts(rank=7), TraceFacts(rank_source="NCCL")])
def test_a_rank_counts_with_its_source_alone(facts):
    assert rank_of(Member("rank3.json", "", facts)) == (3, "file name")


def test_rank_0_is_a_rank():
    members = [Member(f"rank{n}.json", "", SILENT) for n in (1, 0)]
    assert distinct_ranks(members) == [(1, "file name"), (0, "file name")]
    assert rank_of(Member("t.json", "", SILENT, 0)) == (0, "card")
    with pytest.raises(InputError, match=r"claims rank 0, and so does rank0\.json"):
        distinct_ranks([Member("rank0.json", "", SILENT), Member("b.json", "", SILENT, 0)])


def test_a_name_says_nothing_of_one_among_several():
    assert rank_of(Member("rank3.json", "", SILENT, alone=False)) == (None, None)
    assert rank_of(Member("worker3.json", "", SILENT, alone=False)) == (None, None)


def test_the_first_of_several_files_without_a_rank_is_named():
    members = [Member(f"{name}.json", "", SILENT) for name in ("rank1", "b", "c")]
    with pytest.raises(InputError, match="2 of 3 files do not say their rank") as caught:
        distinct_ranks(members)
    assert caught.value.where == "b.json"
    of_one = [
        Member("t.pb", name, TraceFacts(rank=rank, rank_source="x")) for name, rank in (("1", 4), ("2", None))
    ]
    with pytest.raises(InputError, match="1 of 2 ranks do not say their rank"):
        distinct_ranks(of_one)


def test_the_card_speaks_where_nobody_does():
    assert rank_of(Member("trace.json", "", SILENT, 6)) == (6, "card")


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
        rank_of(Member(name, "", facts, card))
    assert all(part in str(caught.value) for part in [name, *both])


def test_weak_parts_of_a_name_contradict_nobody():
    facts = TraceFacts(rank=9, rank_source="distributedInfo")
    assert rank_of(Member("worker1-TP-0.json", "", facts)) == (9, "distributedInfo")


def test_lone_file_without_a_rank_is_rank_0_and_says_so():
    assert distinct_ranks([Member("t.json", "", SILENT)]) == [(0, "nothing: taken as rank 0")]
    assert distinct_ranks([Member("t.json", "", SILENT, 5)]) == [(5, "card")]


def test_several_files_need_their_ranks():
    with pytest.raises(InputError, match="1 of 2 files do not say their rank") as caught:
        distinct_ranks([Member("rank0.json", "", SILENT), Member("b.json", "", SILENT)])
    assert caught.value.where == "b.json"


def test_two_files_of_one_rank():
    with pytest.raises(InputError, match=r"claims rank 1, and so does rank1\.json"):
        distinct_ranks([Member("rank1.json", "", SILENT), Member("b.json", "", SILENT, 1)])


def test_devices_of_one_file_are_ranks_in_their_order():
    """A file's name may say the rank of a lone process, not of one among several."""
    members = [
        Member("rank7.pb", name, TraceFacts(local_rank=local), alone=False)
        for name, local in (("TPU:2", 2), ("TPU:0", 0), ("TPU:1", 1))
    ]
    assert distinct_ranks(members) == [
        (2, "order of devices"),
        (0, "order of devices"),
        (1, "order of devices"),
    ]


def test_devices_of_several_hosts_follow_the_order_of_files():
    members = [
        Member(file, name, TraceFacts(local_rank=local), alone=False)
        for file, name, local in (("b.pb", "TPU:0", 0), ("a.pb", "TPU:1", 1), ("a.pb", "TPU:0", 0))
    ]
    source = "order of files and of their devices"
    assert distinct_ranks(members) == [(2, source), (1, source), (0, source)]


def test_a_stated_rank_goes_before_any_order():
    members = [
        Member("t.sqlite", "11", TraceFacts(rank=5, rank_source="NCCL", local_rank=0), alone=False),
        Member("t.sqlite", "12", TraceFacts(rank=4, rank_source="NCCL", local_rank=1), alone=False),
    ]
    assert distinct_ranks(members) == [(5, "NCCL"), (4, "NCCL")]


def test_two_members_of_one_file_cannot_be_one_rank():
    members = [
        Member("t.sqlite", name, TraceFacts(rank=5, rank_source="NCCL"), alone=False) for name in ("11", "12")
    ]
    with pytest.raises(InputError, match="claims rank 5, and so does '11' of the same file"):
        distinct_ranks(members)


def test_groups_follow_from_communicators_that_are_whole():
    """Of four: one whole, one whose second member has no trace, one told twice, one of two sizes."""
    told = {
        4: [
            Communicator("a", 1, 2),
            Communicator("b", 0, 2),
            Communicator("c", 0, 2),
            Communicator("d", 0, 2),
        ],
        6: [Communicator("a", 0, 2), Communicator("c", 0, 2), Communicator("d", 1, 3)],
    }
    assert groups_of(told) == (ProcessGroup(name="a", ranks=(4, 6)),)

# SPDX-License-Identifier: Apache-2.0
"""Which rank a file is, and which dimension a group of ranks is by its shape."""

from __future__ import annotations

import re

import pytest

from cclbench.ground.errors import InputError
from cclbench.normalize.dimensions import by_shape
from cclbench.normalize.ranks import Member, distinct_ranks, groups_of, rank_of
from cclbench.record.facts import Communicator, ProcessGroup, TraceFacts


def member(file="t.json", name="", card=None, alone=True, **facts):
    """A file's member; a rank that it states is the source's."""
    return Member(file, name, TraceFacts(**facts), card, alone=alone)


def stated(rank, source="distributedInfo", **more):
    return {"rank": rank, "rank_source": source, **more}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        *(("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34), ("iteration_10/rank3_trace.json.gz", 3)),
        ("iteration_10/rank12_trace.json", 12),
        ("graph_capture_rank_0.1712195495519689047.pt.trace.json.gz", 0),
        *(("dp0_pp0_tp1_dcp0_ep1_rank1.1762.pt.trace.json.gz", 1), ("sampled_rank-1.json.gz", 1)),
        *(("RANK=7.json", 7), ("rank_5/trace.json", 5), ("node1_local_rank0/global_rank8.json", 8)),
        ("worker3_step_12.1694128201557.pt.trace.json.gz", 3),
        ("resnet50_num_workers_4_29dba6_worker0.pt.trace.json.gz", 0),
        *(("1720000000.12-TP-3.trace.json.gz", 3), ("worker1/worker3.json", 3)),
        ("host-17_2048.1712195495519689047.pt.trace.json.gz", None),
        *((name, None) for name in ("num_workers_4.json", "frank3.json", "trace.json", "http-3.json")),
    ],
)
def test_rank_in_a_file_name(name, rank):
    assert rank_of(member(name)) == (rank, None if rank is None else "file name")


@pytest.mark.parametrize(
    ("one", "rank"),
    [
        # The trace speaks first; a rank counts with its source alone.
        (member("rank3.json", card=3, **stated(3)), (3, "distributedInfo")),
        *(
            (member("rank3.json", **facts), (3, "file name"))
            for facts in ({"rank": 7}, {"rank_source": "NCCL"})
        ),
        # A name says nothing of one among several; the card speaks where nobody does, of rank 0, too.
        *((member(f"{word}3.json", alone=False), (None, None)) for word in ("rank", "worker")),
        *((member("trace.json", card=card), (card, "card")) for card in (6, 0)),
        # Weak parts of a name contradict nobody.
        (member("worker1-TP-0.json", **stated(9)), (9, "distributedInfo")),
    ],
)
def test_who_says_the_rank(one, rank):
    assert rank_of(one) == rank


DEVICES, FILES = "order of devices", "order of files and of their devices"


def devices(*places, rank=None):
    """Members of files: (file, number of the device), or those that state rank 5 less their number."""
    return [
        member(file, f"TPU:{n}", alone=False, local_rank=n, **(stated(rank - n, "NCCL") if rank else {}))
        for file, n in places
    ]


@pytest.mark.parametrize(
    ("members", "ranks"),
    [
        ([member(f"rank{n}.json") for n in (1, 0)], [(1, "file name"), (0, "file name")]),
        # A lone file without a rank is rank 0, and says so.
        *(([member()], [(0, "nothing: taken as rank 0")]), ([member(card=5)], [(5, "card")])),
        # Devices of one file are ranks in their order, whatever its name says of a lone process; those of
        # several hosts follow the order of files.
        (devices(*(("rank7.pb", n) for n in (2, 0, 1))), [(2, DEVICES), (0, DEVICES), (1, DEVICES)]),
        (devices(("b.pb", 0), ("a.pb", 1), ("a.pb", 0)), [(2, FILES), (1, FILES), (0, FILES)]),
        # A stated rank goes before any order.
        (devices(("t.sqlite", 0), ("t.sqlite", 1), rank=5), [(5, "NCCL"), (4, "NCCL")]),
    ],
)
def test_ranks_of_a_job(members, ranks):
    assert distinct_ranks(members) == ranks


LACK = "do not say their rank"


@pytest.mark.parametrize(
    ("members", "why", "where"),
    [
        ([member("rank0.json"), member("b.json")], f"1 of 2 files {LACK}", "b.json"),
        # The first of several without a rank is named.
        ([member(f"{name}.json") for name in ("rank1", "b", "c")], f"2 of 3 files {LACK}", "b.json"),
        ([member("t.pb", **stated(4)), member("t.pb", "2", rank_source="x")], f"1 of 2 ranks {LACK}", None),
        ([member("rank0.json"), member("b.json", card=0)], "claims rank 0, and so does rank0.json", None),
        ([member("rank1.json"), member("b.json", card=1)], "claims rank 1, and so does rank1.json", None),
        (devices(("t.db", 0), ("t.db", 0), rank=5), "claims rank 5, and so does 'TPU:0' of the same", None),
    ],
)
def test_ranks_that_files_do_not_tell_or_share(members, why, where):
    with pytest.raises(InputError, match=re.escape(why)) as caught:
        distinct_ranks(members)
    assert where is None or caught.value.where == where


@pytest.mark.parametrize(
    ("one", "both"),
    [
        (member("rank2.json", **stated(3)), ["rank2.json", "rank 3", "rank 2", "file name"]),
        (member("rank2.json", card=4), ["rank2.json", "rank 2", "rank 4", "card"]),
        (member(card=0, **stated(1, "metadata")), ["t.json", "rank 1", "metadata", "rank 0", "card"]),
    ],
)
def test_contradiction_names_both(one, both):
    with pytest.raises(InputError) as caught:
        rank_of(one)
    assert all(part in str(caught.value) for part in both)


def test_groups_follow_from_communicators_that_are_whole():
    """Of four: one whole, one whose second member has no trace, one told twice, one of two sizes."""
    told = {4: [Communicator("a", 1, 2), *(Communicator(name, 0, 2) for name in "bcd")]}
    told |= {6: [Communicator("a", 0, 2), Communicator("c", 0, 2), Communicator("d", 1, 3)]}
    assert groups_of(told) == (ProcessGroup(name="a", ranks=(4, 6)),)


MESH = {"tp": 2, "dp_shard": 4, "pp": 2}


@pytest.mark.parametrize(
    ("ranks", "degrees", "dimension"),
    [
        *(((0, 1), MESH, "tp"), ((6, 7), MESH, "tp"), ((0, 2, 4, 6), MESH, "dp")),
        *(((9, 11, 13, 15), MESH, "dp"), ((0, 8), MESH, "pp"), (tuple(range(16)), MESH, None)),
        *(((0, 4), MESH, None), ((0, 1, 3), MESH, None), ((5,), MESH, None)),
        ((0, 2), {"tp": 2, "cp": 2, "dp_replicate": 4}, "cp"),
        ((0, 4, 8, 12), {"tp": 2, "cp": 2, "dp_replicate": 4}, "dp"),
        # sharded within replicated: either alone, and both together
        ((0, 1), {"dp_shard": 2, "dp_replicate": 2}, "dp"),
        ((0, 2), {"dp_shard": 2, "dp_replicate": 2}, "dp"),
        ((0, 1, 2, 3), {"dp_shard": 2, "dp_replicate": 2}, "dp"),
        # replicas of both stages together are no dimension
        (tuple(range(0, 32, 4)), {"tp": 2, "cp": 2, "dp_replicate": 4, "pp": 2}, None),
        # without shards the replicas are neighbours of one another beyond the tensor parallel ones
        ((0, 2, 4, 6), {"tp": 2, "dp_replicate": 4}, "dp"),
        ((0, 1, 2, 3), {"tp": 2, "dp_replicate": 4}, None),
        ((0, 1), {"tp": 2, "cp": 1, "dp_shard": 1}, "tp"),
        # all ranks are the tensor parallel ones
        ((0, 1, 2, 3), {"tp": 4}, "tp"),
    ],
)
def test_dimension_of_a_shape(ranks, degrees, dimension):
    assert by_shape(ranks, degrees) == dimension

# SPDX-License-Identifier: Apache-2.0
"""Which entry of what a trace tells is about which row, and what a row of `COLLECTIVES` then says."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.classify import CollectiveName, element_bytes, kind_of
from cclbench.formats import Payload, StatedPayloads
from cclbench.ground.schema import COLLECTIVES
from cclbench.normalize import collectives
from cclbench.normalize.collectives import CommunicationCalls, collectives_table, dimension_of
from cclbench.record.facts import ProcessGroup, TraceFacts

ALL_REDUCE = CollectiveName("all_reduce", "nccl")


def calls(*rows, names=(ALL_REDUCE,)):
    """Calls from dictionaries; what one leaves out is unknown."""
    unknown = dict.fromkeys(("row", "step", "launch_track", "launch_ns"), -1)
    blank = {**unknown, "start_ns": 0, "end_ns": 1, "track": 7, "name": 0}
    columns = {key: np.array([row.get(key, value) for row in rows], np.int64) for key, value in blank.items()}
    return CommunicationCalls(**columns, names=list(names))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("all_reduce", "allreduce allreduce_coalesced"),
        ("all_gather", "_allgather_base allgather_into_tensor_coalesced"),
        ("reduce_scatter", "_reduce_scatter_base reduce_scatter_tensor_coalesced"),
        ("all_to_all", "all_to_allv alltoall_base"),
        *((kind, kind) for kind in ("broadcast", "reduce", "gather", "scatter", "send", "recv", "barrier")),
        (None, "coalesced wait"),
    ],
)
def test_kind_of(kind, names):
    assert {kind_of(name) for name in names.split()} == {kind}
    assert kind_of("") is None


@pytest.mark.parametrize(
    ("size", "dtypes"),
    [
        (1, ["Float8_e4m3fn", "Float8_e5m2fnuz", "float8_e8m0fnu", "Byte", "Bool", "unsigned char"]),
        *((2, ["BFloat16", "c10::BFloat16", "c10::Half", "torch.bfloat16"]), (4, ["Float", "float", "int"])),
        (8, ["Long", "long int", "int64", "Double", "ComplexFloat", "c10::complex<float>"]),
        *((16, ["ComplexDouble"]), (None, ["Undefined", "", None])),
    ],
)
def test_element_bytes(size, dtypes):
    assert [element_bytes(dtype) for dtype in dtypes] == [size] * len(dtypes)


@pytest.mark.parametrize(
    ("dimension", "descriptions"),
    [
        ("tp", ["mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP"]),
        ("dp", ["mesh_dp", "mesh_dp_shard", "DATA_PARALLEL_GROUP", "mesh_fsdp"]),
        ("pp", ["PIPELINE_MODEL_PARALLEL_GROUP", "pp"]),
        *(("ep", ["EXPERT_MODEL_PARALLEL_GROUP"]), ("cp", ["CONTEXT_PARALLEL_GROUP"])),
        (None, ["DATA_PARALLEL_GROUP_WITH_CP", "mesh_dp_shard_cp", "EXPERT_TENSOR_PARALLEL_GROUP"]),
        (None, ["default_pg", "undefined", "", None]),
    ],
)
def test_dimension_of(dimension, descriptions):
    assert [dimension_of(one) for one in descriptions] == [dimension] * len(descriptions)


def told_of(*entries):
    """Payloads from (source, columns)."""
    told = StatedPayloads()
    for source, columns in entries:
        told.add_payload(Payload(source=source), **columns)
    return told


def span(start, end, **more):
    return {"track": 1, "start_ns": start, "end_ns": end, **more}


def launched(row, at, track=1):
    return {"row": row, "launch_track": track, "launch_ns": at}


KERNEL, HOST = ("kernel", {"row": 5}), ("host_op", span(0, 100))
NESTED = [("annotation", span(*one)) for one in ((0, 100), (10, 20), (30, 60), (40, 50), (200, 210))]
PLACES = [(9, 1), (10, 1), (19, 1), (20, 1), (15, 2), (-1, -1)]


OF_PLACES = [launched(i, *one) for i, one in enumerate(PLACES)]
OF_NESTED = [launched(i, at) for i, at in enumerate([5, 15, 25, 35, 45, 55, 70, 100, 205])]
OWNERS = {
    "own metadata first": ([HOST, KERNEL], [launched(5, 50)], [1]),
    "the first entry owns as any other": ([KERNEL, HOST], [launched(5, 50)], [0]),
    "a kernel without metadata beside ones with": (
        [KERNEL, ("kernel", {"row": 7})],
        *([{"row": row} for row in (7, 6, 5, 8)], [1, -1, 0, -1]),
    ),
    "host op before annotation": ([("annotation", span(20, 80)), HOST], [launched(0, 50)], [1]),
    "only the launching thread and time": ([("host_op", span(10, 20))], OF_PLACES, [-1, 0, 0, -1, -1, -1]),
    "innermost of nested ranges": (NESTED, OF_NESTED, [0, 1, 0, 2, 3, 2, 0, -1, 4]),
    # An XLA op has a place and no ordinal; kernel 0 at the same place is another row.
    "what a row states of itself is a row's that is no kernel": (
        [("hlo", {"track": 7, "start_ns": 0, "end_ns": 1})],
        *([{"row": -1}, {"row": 0}, {"row": -1, "start_ns": 1}], [0, -1, -1]),
    ),
    "an entry of one kernel is not about others of its time": (
        [("host_op", span(0, 100, row=0))],
        *([launched(0, 50), launched(1, 50)], [0, -1]),
    ),
    "a launch at 0 is known and one before is not": (
        [("host_op", span(-10, 100))],
        *([launched(0, 0), launched(1, -1)], [0, -1]),
    ),
    "nothing told": ([], [{"row": 3}], [-1]),
    "no calls": ([], [], []),
}


@pytest.mark.parametrize(("entries", "rows", "owners"), OWNERS.values(), ids=OWNERS)
def test_the_kernels_own_word_then_the_host_ops_then_the_annotations(entries, rows, owners):
    assert collectives.on_device(calls(*rows), told_of(*entries)).tolist() == owners


GLOO = tuple(CollectiveName(kind, "gloo") for kind in ("all_reduce", "all_gather", "send"))
DIFFER = "the group's annotated calls and its rows differ"
UNSTATED = "no annotation tells its process group"


def annotated(kind, ranks, **more):
    told = {"ranks": ranks, "group_size": len(ranks), "rows": 1} | more
    return Payload(source="annotation", collective=kind, **told)


def owners(told, *rows, names=GLOO, groups=()):
    """Whose each row is among the calls of the host, and what is refused."""
    facts = TraceFacts(groups=groups)
    owner, refused = collectives.on_host(calls(*rows, names=names), told, facts)
    return owner.tolist(), refused


def row(start, track=7, name=0):
    return {"start_ns": start, "end_ns": start + 5, "track": track, "name": name}


def own(told, start, elements, track=7, kind="all_reduce"):
    """What the row itself tells."""
    payload = Payload(source="annotation", collective=kind, in_elements=elements, dtype="float")
    told.add_payload(payload, track=track, start_ns=start, end_ns=start + 5)


class TestOnHost:
    """gloo's rows and the calls the workload has annotated."""

    def told(self, *calls):
        """Payloads of (kind, ranks, columns of the call, columns of the payload)."""
        told = StatedPayloads()
        for kind, ranks, columns, *more in calls:
            told.add_payload(annotated(kind, ranks, **(more[0] if more else {})), **columns)
        return told

    def reduces(self, *sizes, ranks=(0, 1), kind="all_reduce", **more):
        """Calls of a group in turn, of so many bytes each."""
        payloads = [{**more, "in_bytes": size} for size in sizes]
        return [(kind, ranks, {"start_ns": n, "seq": n}, own) for n, own in enumerate(payloads)]

    def test_calls_and_rows_of_two_groups_in_turn(self):
        threads = {"threads": (7, 8)}
        told = self.told(
            ("all_reduce", (0, 1), span(10, 11, seq=4), threads),
            ("all_gather", (0, 2), span(20, 21, seq=0), {"threads": (9,)}),
            ("all_reduce", (0, 1), span(30, 31, seq=5), threads),
        )
        assert owners(told, row(100, 8), row(50, 7), row(60, 9, name=1)) == ([2, 0, 1], {})

    def test_what_no_annotation_tells_is_no_call(self):
        """The framework's own row of the call speaks of the same group."""
        told = StatedPayloads()
        told.add_payload(Payload(source="host_op", collective="all_reduce", ranks=(0, 1)), track=1, end_ns=99)
        told.add_payload(annotated("all_reduce", (0, 1)), **span(10, 11, seq=0))
        assert owners(told, row(50)) == ([1], {})

    def test_reduce_scatter_of_several_tensors_runs_as_all_reduces(self):
        several = "reduce_scatter", (0, 1), {"seq": 0}, {"rows": 2}
        told = self.told(several, ("all_gather", (0, 1), {"start_ns": 5, "seq": 1}))
        assert owners(told, row(10), row(20), row(30, name=1))[0] == [0, 0, 1]
        # One alone runs as another kind.
        for call, ran, owner in (("reduce_scatter", 0, 0), ("reduce_scatter", 1, -1), ("all_gather", 0, -1)):
            assert owners(self.told((call, (0, 1), {"seq": 0})), row(10, name=ran))[0] == [owner]

    def test_the_first_transfer_that_begins_inside_its_annotation(self):
        told = self.told(("send", (0, 1), span(10, 40, seq=0)))
        assert owners(told, row(15, 1), row(20, 1, 2)) == ([-1, 0], {UNSTATED: 1})  # a row of another kind
        found, refused = owners(told, row(20, 1, 2), row(20, 2, 2), row(38, 1, 2))
        assert (found, refused) == ([0, -1, -1], {UNSTATED: 2})
        # A transfer may take all the time of its annotation; a request ends when the program waits for it.
        for start, end, owner in ((10, 40, 0), (9, 40, -1), (10, 4100, 0), (40, 41, -1)):
            one = {"start_ns": start, "end_ns": end, "track": 1, "name": 2}
            assert owners(told, one)[0] == [owner]

    def test_a_row_within_a_transfer_is_none_of_the_groups_calls(self):
        """Two rows on one thread: the send's own, and the group's one call."""
        call = "all_reduce", (0, 1), span(50, 51, seq=1), {"threads": (1,)}
        told = self.told(("send", (0, 1), span(10, 40, seq=0)), call)
        assert owners(told, row(20, 1, 2), row(60, 1)) == ([0, 1], {})

    def test_calls_that_begin_at_once_are_in_order_of_their_numbers(self):
        made = ("all_gather", 5, 9), ("all_reduce", 5, 8), ("all_reduce", 4, 10)
        of = [(kind, (0, 1), {"start_ns": at, "end_ns": 6, "seq": seq}) for kind, at, seq in made]
        told = self.told(*of)
        assert owners(told, row(10), row(20), row(30, name=1))[0] == [2, 1, 0]

    @pytest.mark.parametrize(("rows", "elements", "fits"), [(2, 50, True), (1, 50, False), (1, 100, True)])
    def test_of_several_rows_of_a_call_each_has_its_part_of_the_bytes(self, rows, elements, fits):
        told = self.told(*self.reduces(400, rows=rows))
        for n in range(rows):
            own(told, 10 * n, elements)
        found, refused = owners(told, *(row(10 * n) for n in range(rows)))
        assert (found == [0] * rows, not refused) == (fits, fits)

    def test_a_row_of_unknown_size_beside_an_entry_of_another(self):
        """Row 10 tells nothing of itself; what the last entry tells is about a row on another thread."""
        told = self.told(*self.reduces(400, threads=(7,)))
        own(told, 10, 99, track=8)
        assert owners(told, row(10), row(10, 8)) == ([0, 1], {UNSTATED: 1})

    @pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
    def test_the_last_two_of_four_that_changed_places(self, kind):
        """They follow two entries of another group; the first two calls are as they should be."""
        others = [("all_gather", (0, 2), {"seq": seq}, {"threads": (9,)}) for seq in (0, 1)]
        told = self.told(*others, *self.reduces(400, 800, 1200, 1600, kind=kind, threads=(7, 8)))
        for start, elements in ((10, 100), (20, 200), (30, 400), (31, 300)):
            own(told, start, elements, kind=kind)
        names = (CollectiveName(kind, "gloo"),)
        assert owners(told, row(10), row(20), row(30), row(31), names=names)[0] == [2, 3, 5, 4]

    def test_rows_change_places_only_where_both_then_fit(self):
        """The first row would fit the second call, and the second row fits neither."""
        told = self.told(*self.reduces(400, 800))
        own(told, 10, 200)
        own(told, 20, 300)
        assert owners(told, row(10), row(20)) == ([2, 3], {DIFFER: 2})

    @pytest.mark.parametrize("known", [True, False])
    def test_what_contradicts_its_calls_is_counted_unless_the_only_group_is_theirs(self, known):
        told = self.told(("all_reduce", (0, 1), {"seq": 0}, {"threads": (7,)}))
        groups = (ProcessGroup(name="0", ranks=(0, 1)),) if known else ()
        found, refused = owners(told, row(10), row(20), row(30, 8), groups=groups)
        assert (found, refused) == ([-1] * 3, {} if known else {DIFFER: 2, UNSTATED: 1})

    @pytest.mark.parametrize("rows", [[row(10)], [row(10), row(20), row(30)], [row(10), row(20, name=1)]])
    def test_contradiction_leaves_the_group_out(self, rows):
        told = self.told(*self.reduces(None, None))
        assert owners(told, *rows) == ([-1] * len(rows), {DIFFER: len(rows)})

    def test_absurd_number_of_rows_costs_nothing(self):
        found, refused = owners(self.told(("all_reduce", (0, 1), {"seq": 0}, {"rows": 1 << 62})), row(10))
        assert (found, sum(refused.values())) == ([-1], 1)

    def test_two_groups_without_threads_cannot_be_told_apart(self):
        told = self.told(*(("all_reduce", ranks, {"seq": 0}) for ranks in ((0, 1), (0, 2))))
        assert owners(told, row(10), row(20)) == ([-1, -1], {UNSTATED: 2})

    def test_rows_and_calls_of_known_and_unknown_size_in_one_group(self):
        """The first row and the third tell their sizes, the first call and the second do."""
        told = StatedPayloads()
        own(told, 10, 100)
        own(told, 30, 300)
        for kind, ranks, columns, more in self.reduces(400, 800, None):
            told.add_payload(annotated(kind, ranks, **more), **columns)
        assert owners(told, row(10), row(20), row(30))[0] == [2, 3, 4]

    def test_size_that_fits_no_call(self):
        """Of three calls of 400 B the row of 396 B, told first of all, contradicts its own."""
        told = StatedPayloads()
        own(told, 10, 99)
        for kind, ranks, columns, more in self.reduces(400, 400, 400):
            told.add_payload(annotated(kind, ranks, **more), **columns)
        assert owners(told, row(10), row(20), row(30)) == ([0, -1, -1], {DIFFER: 3})
        told = self.told(*self.reduces(400))
        own(told, 10, 99)
        # What the row tells of itself still holds.
        assert owners(told, row(10)) == ([1], {DIFFER: 1})

    def test_only_group_of_the_trace_is_theirs(self):
        alone = ProcessGroup(name="1", ranks=(3,))
        shared = ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2, 3))
        again = ProcessGroup(name="2", ranks=(3, 2, 1, 0))
        other = ProcessGroup(name="3", ranks=(2, 3))
        told = StatedPayloads()
        own(told, 10, 99)
        one = calls(row(10), row(30), names=GLOO)

        def made(*groups):
            facts = TraceFacts(groups=groups)
            return collectives_table(3, one, told, collectives.on_host(one, told, facts)[0], facts)[0]

        assert owners(told, row(10), row(30), groups=(alone, shared, again)) == ([0, -1], {})
        first, second = made(alone, shared, again).to_pylist()
        assert [first[key] for key in ("group", "group_size", "in_bytes", "out_bytes")] == [
            *("0-3", 4, 396, 396)
        ]
        assert (second["group"], second["in_bytes"], second["payload_source"]) == ("0-3", None, None)
        described = ProcessGroup(name="4", description="mesh_tp", ranks=(0, 1, 2, 3))
        for groups, dimension in (((described, shared), "tp"), ((shared, described), None)):
            assert made(*groups)["dimension"].to_pylist() == [dimension] * 2
        assert owners(told, row(10), row(30), groups=(alone, shared, other)) == ([0, -1], {UNSTATED: 2})
        assert made(alone, shared, other)["group"].null_count == 2


class TestTable:
    """Rows of `COLLECTIVES`."""

    def one(self, payload, *, name=ALL_REDUCE, facts=None, seq=None, step=6):
        told = StatedPayloads()
        told.add_payload(payload, row=0, seq=seq)
        call = calls({"row": 0, "start_ns": 10, "end_ns": 30, "step": step}, names=[name])
        made, _ = collectives_table(5, call, told, np.array([0]), facts or TraceFacts())
        assert made.schema.equals(COLLECTIVES)
        return made.to_pylist()[0]

    def test_all_that_new_metadata_tells(self):
        payload = Payload(
            source="kernel", collective="_allgather_base", in_elements=10, out_elements=20, dtype="BFloat16",
            group_name="4", group_description="mesh_dp", group_size=2, ranks=(5, 1),
        )  # fmt: skip
        known = {
            "collective": 5 << 32, "rank": 5, "kind": "all_gather", "library": "nccl", "group": "1,5",
            "group_size": 2, "dimension": "dp", "seq": 17, "in_bytes": 20, "out_bytes": 40,
            "dtype": "BFloat16", "payload_source": "kernel", "step": 6, "start_ns": 10, "end_ns": 30,
        }  # fmt: skip
        assert self.one(payload, seq=17) == dict.fromkeys(COLLECTIVES.names) | known

    def test_number_0_is_a_number_and_step_0_a_step(self):
        kernel = Payload(source="kernel")
        assert [self.one(kernel, seq=seq)["seq"] for seq in (0, None)] == [0, None]
        assert [self.one(kernel, step=step)["step"] for step in (0, -1)] == [0, None]

    def test_group_that_the_trace_lists_by_name(self):
        listed = ProcessGroup(name="4", description="mesh_tp", ranks=(0, 1))
        found = self.one(Payload(source="kernel", group_name="4"), facts=TraceFacts(groups=(listed,)))
        assert (found["group"], found["group_size"], found["dimension"]) == ("0-1", 2, "tp")

    @pytest.mark.parametrize(
        ("size", "ranks", "group"), [(1, (5,), "5"), *((2, own, None) for own in ((0, 1, 2), (0, 0), None))]
    )
    def test_ranks_that_contradict_the_size_are_no_group(self, size, ranks, group):
        found = self.one(Payload(source="kernel", collective="allreduce", group_size=size, ranks=ranks))
        assert (found["group"], found["group_size"]) == (group, size)

    @pytest.mark.parametrize(
        ("stated", "expected"),
        [
            # An unknown type gives no bytes; they may be stated; an output may be as large by definition.
            ({"in_elements": 10, "out_elements": 10, "dtype": "Mystery"}, (None, None, None)),
            ({"in_bytes": 100, "out_bytes": 25, "dtype": "float32"}, (100, 25, "annotation")),
            *(
                ({"collective": called, "in_elements": 8, "dtype": "float"}, (32, out, "annotation"))
                for called, out in (("all_reduce", 32), ("broadcast", 32), ("all_to_all", None))
            ),
        ],
    )
    def test_bytes_in_and_out(self, stated, expected):
        found = self.one(Payload(source="annotation", **stated))
        assert (found["in_bytes"], found["out_bytes"], found["payload_source"]) == expected

    def test_kernel_name_decides_where_the_call_does_not(self):
        name = CollectiveName("all_to_all", "nccl")
        assert self.one(Payload(source="kernel", collective="coalesced"), name=name)["kind"] == "all_to_all"
        sent = self.one(Payload(source="kernel", collective="send", src_rank=0, dst_rank=3), name=name)
        assert (sent["kind"], sent["src_rank"], sent["dst_rank"]) == ("send", 0, 3)

    def test_nothing_told_and_no_calls(self):
        call = calls({"row": 0}, {"row": 1}, names=[CollectiveName(None, "custom")])
        made = collectives_table(1, call, StatedPayloads(), np.array([-1, -1]), TraceFacts())[0].to_pylist()
        assert [row["collective"] for row in made] == [1 << 32, (1 << 32) + 1]
        assert all(row[key] is None for row in made for key in ("kind", "group", "in_bytes", "seq", "step"))
        made, _ = collectives_table(1, calls(names=()), StatedPayloads(), np.empty(0, np.int64), TraceFacts())
        assert (made.num_rows, made.schema.equals(COLLECTIVES)) == (0, True)

    def test_rows_of_several_names_and_payloads(self):
        """Calls 0 and 2 run alike and are told of alike; of call 1 nothing is told, and 3 is the group's."""
        told = StatedPayloads()
        told.add_payload(Payload(source="kernel", in_bytes=8, dtype="Mystery"), seq=3)
        told.add_payload(Payload(source="kernel", in_bytes=16, group_size=2, ranks=(5, 1)), seq=0)
        names = [ALL_REDUCE, CollectiveName("all_gather", "nccl"), CollectiveName("broadcast", "rccl")]
        rows = calls({"name": 1}, {"name": 2}, {"name": 1}, {"name": 2}, names=names)
        made, members = collectives_table(2, rows, told, np.array([0, -1, 0, 1]), TraceFacts())
        found = [(r["kind"], r["library"], r["in_bytes"], r["out_bytes"], r["seq"]) for r in made.to_pylist()]
        assert found == [
            *(("all_gather", "nccl", 8, None, 3), ("broadcast", "rccl", None, None, None)),
            *(("all_gather", "nccl", 8, None, 3), ("broadcast", "rccl", 16, 16, 0)),
        ]
        assert members == {"1,5": (1, 5)}

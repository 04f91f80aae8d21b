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
    blank = {
        "row": -1,
        "start_ns": 0,
        "end_ns": 1,
        "track": 7,
        "step": -1,
        "launch_track": -1,
        "launch_ns": -1,
    }
    whole = [{**blank, "name": 0, **row} for row in rows]
    columns = {key: np.array([row[key] for row in whole], np.int64) for key in [*blank, "name"]}
    return CommunicationCalls(**columns, names=list(names))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("alltoall_base", "all_to_all"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("send", "send"),
        ("recv", "recv"),
        ("barrier", "barrier"),
        ("coalesced", None),
        ("wait", None),
        ("", None),
    ],
)
def test_kind_of(name, kind):
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("Float8_e4m3fn", 1),
        ("Float8_e5m2fnuz", 1),
        ("float8_e8m0fnu", 1),
        ("Byte", 1),
        ("Bool", 1),
        ("unsigned char", 1),
        ("BFloat16", 2),
        ("c10::BFloat16", 2),
        ("c10::Half", 2),
        ("torch.bfloat16", 2),
        ("Float", 4),
        ("float", 4),
        ("int", 4),
        ("Long", 8),
        ("long int", 8),
        ("int64", 8),
        ("Double", 8),
        ("ComplexFloat", 8),
        ("c10::complex<float>", 8),
        ("ComplexDouble", 16),
        ("Undefined", None),
        ("", None),
        (None, None),
    ],
)
def test_element_bytes(dtype, size):
    assert element_bytes(dtype) == size


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("mesh_tp", "tp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("mesh_dp", "dp"),
        ("mesh_dp_shard", "dp"),
        ("DATA_PARALLEL_GROUP", "dp"),
        ("mesh_fsdp", "dp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("pp", "pp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", None),
        ("mesh_dp_shard_cp", None),
        ("EXPERT_TENSOR_PARALLEL_GROUP", None),
        ("default_pg", None),
        ("undefined", None),
        ("", None),
        (None, None),
    ],
)
def test_dimension_of(description, dimension):
    assert dimension_of(description) == dimension


class TestOnDevice:
    """The kernel's own word, then the host op's, then the annotation's."""

    def test_own_metadata_first(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="host_op"), track=1, start_ns=0, end_ns=100)
        told.add_payload(Payload(source="kernel"), row=5)
        found = collectives.on_device(calls({"row": 5, "launch_track": 1, "launch_ns": 50}), told)
        assert found.tolist() == [1]

    def test_a_kernel_without_metadata_beside_ones_with(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="kernel"), row=5)
        told.add_payload(Payload(source="kernel"), row=7)
        found = collectives.on_device(calls({"row": 7}, {"row": 6}, {"row": 5}, {"row": 8}), told)
        assert found.tolist() == [1, -1, 0, -1]

    def test_the_first_entry_owns_as_any_other(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="kernel"), row=5)
        told.add_payload(Payload(source="host_op"), track=1, start_ns=0, end_ns=100)
        found = collectives.on_device(calls({"row": 5, "launch_track": 1, "launch_ns": 50}), told)
        assert found.tolist() == [0]

    def test_host_op_before_annotation(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="annotation"), track=1, start_ns=20, end_ns=80)
        told.add_payload(Payload(source="host_op"), track=1, start_ns=0, end_ns=100)
        inside = {"launch_track": 1, "launch_ns": 50}
        assert collectives.on_device(calls({"row": 0, **inside}), told).tolist() == [1]

    def test_only_the_launching_thread_and_time(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="host_op"), track=1, start_ns=10, end_ns=20)
        places = [(1, 9), (1, 10), (1, 19), (1, 20), (2, 15), (-1, -1)]
        rows = [{"row": i, "launch_track": t, "launch_ns": at} for i, (t, at) in enumerate(places)]
        assert collectives.on_device(calls(*rows), told).tolist() == [-1, 0, 0, -1, -1, -1]

    def test_innermost_of_nested_ranges(self):
        told = StatedPayloads()
        for start, end in ((0, 100), (10, 20), (30, 60), (40, 50), (200, 210)):
            told.add_payload(Payload(source="annotation"), track=1, start_ns=start, end_ns=end)
        launched = [5, 15, 25, 35, 45, 55, 70, 100, 205]
        rows = [{"row": i, "launch_track": 1, "launch_ns": at} for i, at in enumerate(launched)]
        assert collectives.on_device(calls(*rows), told).tolist() == [0, 1, 0, 2, 3, 2, 0, -1, 4]

    def test_what_a_row_states_of_itself_is_a_rows_that_is_no_kernel(self):
        """An XLA op has a place and no ordinal; kernel 0 at the same place is another row."""
        told = StatedPayloads()
        told.add_payload(Payload(source="hlo"), track=7, start_ns=0, end_ns=1)
        found = collectives.on_device(calls({"row": -1}, {"row": 0}, {"row": -1, "start_ns": 1}), told)
        assert found.tolist() == [0, -1, -1]

    def test_an_entry_of_one_kernel_is_not_about_others_of_its_time(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="host_op"), row=0, track=1, start_ns=0, end_ns=100)
        rows = [{"row": i, "launch_track": 1, "launch_ns": 50} for i in (0, 1)]
        assert collectives.on_device(calls(*rows), told).tolist() == [0, -1]

    def test_a_launch_at_0_is_known_and_one_before_is_not(self):
        told = StatedPayloads()
        told.add_payload(Payload(source="host_op"), track=1, start_ns=-10, end_ns=100)
        rows = [{"row": i, "launch_track": 1, "launch_ns": at} for i, at in enumerate((0, -1))]
        assert collectives.on_device(calls(*rows), told).tolist() == [0, -1]

    def test_nothing_told_and_no_calls(self):
        assert collectives.on_device(calls({"row": 3}), StatedPayloads()).tolist() == [-1]
        assert collectives.on_device(calls(), StatedPayloads()).tolist() == []


GLOO = (
    CollectiveName("all_reduce", "gloo"),
    CollectiveName("all_gather", "gloo"),
    CollectiveName("send", "gloo"),
)


def annotated(kind, ranks, *, threads=(), rows=1, in_bytes=None):
    return Payload(
        source="annotation",
        collective=kind,
        ranks=ranks,
        group_size=len(ranks),
        threads=threads,
        rows=rows,
        in_bytes=in_bytes,
    )


def row(start, track=7, name=0):
    return {"start_ns": start, "end_ns": start + 5, "track": track, "name": name}


def own(told, start, elements, track=7, kind="all_reduce"):
    """What the row itself tells."""
    payload = Payload(source="annotation", collective=kind, in_elements=elements, dtype="float")
    told.add_payload(payload, track=track, start_ns=start, end_ns=start + 5)


class TestOnHost:
    """gloo's rows and the calls the workload has annotated."""

    def test_calls_and_rows_of_two_groups_in_turn(self):
        told = StatedPayloads()
        told.add_payload(
            annotated("all_reduce", (0, 1), threads=(7, 8)), track=1, start_ns=10, end_ns=11, seq=4
        )
        told.add_payload(
            annotated("all_gather", (0, 2), threads=(9,)), track=1, start_ns=20, end_ns=21, seq=0
        )
        told.add_payload(
            annotated("all_reduce", (0, 1), threads=(7, 8)), track=1, start_ns=30, end_ns=31, seq=5
        )
        rows = [row(100, 8), row(50, 7), row(60, 9, name=1)]
        owner, refused = collectives.on_host(calls(*rows, names=GLOO), told, TraceFacts())
        assert (owner.tolist(), refused) == ([2, 0, 1], {})

    def test_what_no_annotation_tells_is_no_call(self):
        """The framework's own row of the call speaks of the same group."""
        told = StatedPayloads()
        told.add_payload(Payload(source="host_op", collective="all_reduce", ranks=(0, 1)), track=1, end_ns=99)
        told.add_payload(annotated("all_reduce", (0, 1)), track=1, start_ns=10, end_ns=11, seq=0)
        owner, refused = collectives.on_host(calls(row(50), names=GLOO), told, TraceFacts())
        assert (owner.tolist(), refused) == ([1], {})

    def test_reduce_scatter_of_several_tensors_runs_as_all_reduces(self):
        told = StatedPayloads()
        told.add_payload(annotated("reduce_scatter", (0, 1), rows=2), seq=0)
        told.add_payload(annotated("all_gather", (0, 1)), start_ns=5, seq=1)
        owner, _ = collectives.on_host(
            calls(row(10), row(20), row(30, name=1), names=GLOO), told, TraceFacts()
        )
        assert owner.tolist() == [0, 0, 1]

    def test_transfers_lie_inside_their_annotation(self):
        told = StatedPayloads()
        told.add_payload(annotated("send", (0, 1)), track=1, start_ns=10, end_ns=40, seq=0)
        rows = [row(20, 1, 2), row(20, 2, 2), row(38, 1, 2)]
        owner, refused = collectives.on_host(calls(*rows, names=GLOO), told, TraceFacts())
        assert owner.tolist() == [0, -1, -1]
        assert refused == {"no annotation tells its process group": 2}

    @pytest.mark.parametrize(("start", "end", "owner"), [(10, 40, 0), (9, 40, -1), (10, 41, -1)])
    def test_a_transfer_may_take_all_the_time_of_its_annotation(self, start, end, owner):
        told = StatedPayloads()
        told.add_payload(annotated("recv", (0, 1)), track=1, start_ns=10, end_ns=40, seq=0)
        one = {"start_ns": start, "end_ns": end, "track": 1, "name": 2}
        assert collectives.on_host(calls(one, names=GLOO), told, TraceFacts())[0].tolist() == [owner]

    def test_a_row_within_a_transfer_is_none_of_the_groups_calls(self):
        """Two rows on one thread: the send's own, and the group's one call."""
        told = StatedPayloads()
        told.add_payload(annotated("send", (0, 1)), track=1, start_ns=10, end_ns=40, seq=0)
        told.add_payload(
            annotated("all_reduce", (0, 1), threads=(1,)), track=1, start_ns=50, end_ns=51, seq=1
        )
        owner, refused = collectives.on_host(calls(row(20, 1, 2), row(60, 1), names=GLOO), told, TraceFacts())
        assert (owner.tolist(), refused) == ([0, 1], {})

    def test_calls_that_begin_at_once_are_in_order_of_their_numbers(self):
        told = StatedPayloads()
        for kind, start, seq in (("all_gather", 5, 9), ("all_reduce", 5, 8), ("all_reduce", 4, 10)):
            told.add_payload(annotated(kind, (0, 1)), start_ns=start, end_ns=6, seq=seq)
        rows = calls(row(10), row(20), row(30, name=1), names=GLOO)
        assert collectives.on_host(rows, told, TraceFacts())[0].tolist() == [2, 1, 0]

    @pytest.mark.parametrize(
        ("called", "ran", "fits"),
        [("reduce_scatter", 0, True), ("reduce_scatter", 1, False), ("all_gather", 0, False)],
    )
    def test_a_reduce_scatter_alone_runs_as_another_kind(self, called, ran, fits):
        told = StatedPayloads()
        told.add_payload(annotated(called, (0, 1)), seq=0)
        owner, _ = collectives.on_host(calls(row(10, name=ran), names=GLOO), told, TraceFacts())
        assert owner.tolist() == [0 if fits else -1]

    @pytest.mark.parametrize(("rows", "elements", "fits"), [(2, 50, True), (1, 50, False), (1, 100, True)])
    def test_of_several_rows_of_a_call_each_has_its_part_of_the_bytes(self, rows, elements, fits):
        told = StatedPayloads()
        told.add_payload(annotated("all_reduce", (0, 1), rows=rows, in_bytes=400), seq=0)
        for n in range(rows):
            own(told, 10 * n, elements)
        made = calls(*(row(10 * n) for n in range(rows)), names=GLOO)
        owner, refused = collectives.on_host(made, told, TraceFacts())
        assert (owner.tolist() == [0] * rows, not refused) == (fits, fits)

    def test_a_row_of_unknown_size_beside_an_entry_of_another(self):
        """Row 10 tells nothing of itself; what the last entry tells is about a row on another thread."""
        told = StatedPayloads()
        told.add_payload(annotated("all_reduce", (0, 1), threads=(7,), in_bytes=400), seq=0)
        own(told, 10, 99, track=8)
        owner, refused = collectives.on_host(calls(row(10), row(10, 8), names=GLOO), told, TraceFacts())
        assert owner.tolist() == [0, 1]
        assert refused == {"no annotation tells its process group": 1}

    @pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
    def test_the_last_two_of_four_that_changed_places(self, kind):
        """They follow two entries of another group; the first two calls are as they should be."""
        told = StatedPayloads()
        for seq in (0, 1):
            told.add_payload(annotated("all_gather", (0, 2), threads=(9,)), seq=seq)
        for seq, elements in enumerate((100, 200, 300, 400)):
            payload = annotated(kind, (0, 1), threads=(7, 8), in_bytes=4 * elements)
            told.add_payload(payload, start_ns=seq, seq=seq)
        for start, elements in ((10, 100), (20, 200), (30, 400), (31, 300)):
            own(told, start, elements, kind=kind)
        names = (CollectiveName(kind, "gloo"),)
        rows = calls(row(10), row(20), row(30), row(31), names=names)
        assert collectives.on_host(rows, told, TraceFacts())[0].tolist() == [2, 3, 5, 4]

    def test_rows_change_places_only_where_both_then_fit(self):
        """The first row would fit the second call, and the second row fits neither."""
        told = StatedPayloads()
        for seq, elements in enumerate((100, 200)):
            told.add_payload(annotated("all_reduce", (0, 1), in_bytes=4 * elements), start_ns=seq, seq=seq)
        own(told, 10, 200)
        own(told, 20, 300)
        owner, refused = collectives.on_host(calls(row(10), row(20), names=GLOO), told, TraceFacts())
        assert owner.tolist() == [2, 3]
        assert refused == {"the group's annotated calls and its rows differ": 2}

    @pytest.mark.parametrize("known", [True, False])
    def test_what_contradicts_its_calls_is_counted_unless_the_only_group_is_theirs(self, known):
        told = StatedPayloads()
        told.add_payload(annotated("all_reduce", (0, 1), threads=(7,)), seq=0)
        rows = calls(row(10), row(20), row(30, 8), names=GLOO)
        group = ProcessGroup(name="0", ranks=(0, 1))
        owner, refused = collectives.on_host(rows, told, TraceFacts(groups=(group,) if known else ()))
        assert owner.tolist() == [-1] * 3
        assert refused == (
            {}
            if known
            else {
                "the group's annotated calls and its rows differ": 2,
                "no annotation tells its process group": 1,
            }
        )

    @pytest.mark.parametrize("rows", [[row(10)], [row(10), row(20), row(30)], [row(10), row(20, name=1)]])
    def test_contradiction_leaves_the_group_out(self, rows):
        told = StatedPayloads()
        for seq in (0, 1):
            told.add_payload(annotated("all_reduce", (0, 1)), start_ns=seq, seq=seq)
        owner, refused = collectives.on_host(calls(*rows, names=GLOO), told, TraceFacts())
        assert set(owner.tolist()) == {-1}
        assert refused == {"the group's annotated calls and its rows differ": len(rows)}

    def test_absurd_number_of_rows_costs_nothing(self):
        told = StatedPayloads()
        told.add_payload(annotated("all_reduce", (0, 1), rows=1 << 62), seq=0)
        owner, refused = collectives.on_host(calls(row(10), names=GLOO), told, TraceFacts())
        assert (owner.tolist(), sum(refused.values())) == ([-1], 1)

    def test_two_groups_without_threads_cannot_be_told_apart(self):
        told = StatedPayloads()
        told.add_payload(annotated("all_reduce", (0, 1)), seq=0)
        told.add_payload(annotated("all_reduce", (0, 2)), seq=0)
        owner, refused = collectives.on_host(calls(row(10), row(20), names=GLOO), told, TraceFacts())
        assert owner.tolist() == [-1, -1]
        assert refused == {"no annotation tells its process group": 2}

    def test_neighbours_that_changed_places_are_known_by_their_size(self):
        told = StatedPayloads()
        for seq, elements in enumerate((100, 200, 300)):
            payload = annotated("all_reduce", (0, 1), threads=(7, 8), in_bytes=4 * elements)
            told.add_payload(payload, start_ns=seq, seq=seq)
        own(told, 10, 200, track=8)
        own(told, 11, 100, track=7)
        own(told, 20, 300, track=7)
        owner, refused = collectives.on_host(
            calls(row(10, 8), row(11, 7), row(20, 7), names=GLOO), told, TraceFacts()
        )
        assert (owner.tolist(), refused) == ([1, 0, 2], {})

    def test_rows_and_calls_of_known_and_unknown_size_in_one_group(self):
        """The first row and the third tell their sizes, the first call and the second do."""
        told = StatedPayloads()
        own(told, 10, 100)
        own(told, 30, 300)
        for seq, nbytes in enumerate((400, 800, None)):
            told.add_payload(annotated("all_reduce", (0, 1), in_bytes=nbytes), start_ns=seq, seq=seq)
        rows = calls(row(10), row(20), row(30), names=GLOO)
        assert collectives.on_host(rows, told, TraceFacts())[0].tolist() == [2, 3, 4]

    def test_size_that_fits_no_call_of_the_first_entry(self):
        """Three calls of 400 B; the row of 396 B is told first of all, and contradicts its call."""
        told = StatedPayloads()
        own(told, 10, 99)
        for seq in range(3):
            told.add_payload(annotated("all_reduce", (0, 1), in_bytes=400), start_ns=seq, seq=seq)
        owner, refused = collectives.on_host(calls(row(10), row(20), row(30), names=GLOO), told, TraceFacts())
        assert owner.tolist() == [0, -1, -1]
        assert refused == {"the group's annotated calls and its rows differ": 3}

    def test_size_that_fits_no_call(self):
        told = StatedPayloads()
        told.add_payload(annotated("all_reduce", (0, 1), in_bytes=400), seq=0)
        own(told, 10, 99)
        owner, refused = collectives.on_host(calls(row(10), names=GLOO), told, TraceFacts())
        assert refused == {"the group's annotated calls and its rows differ": 1}
        assert owner.tolist() == [1], "what the row tells of itself still holds"

    def test_row_without_a_call_tells_its_own_size(self):
        told = StatedPayloads()
        own(told, 10, 99)
        owner, refused = collectives.on_host(calls(row(10), row(30), names=GLOO), told, TraceFacts())
        assert owner.tolist() == [0, -1]
        assert refused == {"no annotation tells its process group": 2}

    def test_only_group_of_the_trace_is_theirs(self):
        alone = ProcessGroup(name="1", ranks=(3,))
        shared = ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2, 3))
        again = ProcessGroup(name="2", ranks=(3, 2, 1, 0))
        other = ProcessGroup(name="3", ranks=(2, 3))
        told = StatedPayloads()
        own(told, 10, 99)
        one = calls(row(10), row(30), names=GLOO)
        facts = TraceFacts(groups=(alone, shared, again))
        owner, refused = collectives.on_host(one, told, facts)
        assert (owner.tolist(), refused) == ([0, -1], {})
        first, second = collectives_table(3, one, told, owner, facts)[0].to_pylist()
        assert (first["group"], first["group_size"], first["in_bytes"], first["out_bytes"]) == (
            "0-3",
            4,
            396,
            396,
        )
        assert (second["group"], second["in_bytes"], second["payload_source"]) == ("0-3", None, None)
        described = ProcessGroup(name="4", description="mesh_tp", ranks=(0, 1, 2, 3))
        for groups, dimension in (((described, shared), "tp"), ((shared, described), None)):
            made, _ = collectives_table(3, one, told, owner, TraceFacts(groups=groups))
            assert made["dimension"].to_pylist() == [dimension] * 2
        unsure = TraceFacts(groups=(alone, shared, other))
        owner, refused = collectives.on_host(one, told, unsure)
        assert refused == {"no annotation tells its process group": 2}
        assert collectives_table(3, one, told, owner, unsure)[0]["group"].null_count == 2


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
        found = self.one(
            Payload(
                source="kernel",
                collective="_allgather_base",
                in_elements=10,
                out_elements=20,
                dtype="BFloat16",
                group_name="4",
                group_description="mesh_dp",
                group_size=2,
                ranks=(5, 1),
            ),
            seq=17,
        )
        assert found == {
            "collective": 5 << 32,
            "instance": None,
            "rank": 5,
            "kind": "all_gather",
            "library": "nccl",
            "group": "1,5",
            "group_size": 2,
            "dimension": "dp",
            "seq": 17,
            "src_rank": None,
            "dst_rank": None,
            "in_bytes": 20,
            "out_bytes": 40,
            "dtype": "BFloat16",
            "payload_source": "kernel",
            "step": 6,
            "start_ns": 10,
            "end_ns": 30,
            "arrival_ns": None,
            "wait_ns": None,
            "transfer_ns": None,
            "least_wait_ns": None,
        }

    @pytest.mark.parametrize("seq", [0, None])
    def test_number_0_is_a_number(self, seq):
        assert self.one(Payload(source="kernel"), seq=seq)["seq"] == seq

    @pytest.mark.parametrize(("step", "told"), [(0, 0), (-1, None)])
    def test_step_0_is_a_step(self, step, told):
        assert self.one(Payload(source="kernel"), step=step)["step"] == told

    def test_group_that_the_trace_lists_by_name(self):
        listed = ProcessGroup(name="4", description="mesh_tp", ranks=(0, 1))
        found = self.one(Payload(source="kernel", group_name="4"), facts=TraceFacts(groups=(listed,)))
        assert (found["group"], found["group_size"], found["dimension"]) == ("0-1", 2, "tp")

    def test_group_of_one(self):
        found = self.one(Payload(source="kernel", collective="allreduce", group_size=1, ranks=(5,)))
        assert (found["group"], found["group_size"]) == ("5", 1)

    @pytest.mark.parametrize("ranks", [(0, 1, 2), (0, 0), None])
    def test_ranks_that_contradict_the_size_are_no_group(self, ranks):
        found = self.one(Payload(source="kernel", group_size=2, ranks=ranks))
        assert (found["group"], found["group_size"]) == (None, 2)

    def test_unknown_type_gives_no_bytes(self):
        found = self.one(Payload(source="kernel", in_elements=10, out_elements=10, dtype="Mystery"))
        assert (found["in_bytes"], found["out_bytes"], found["payload_source"]) == (None, None, None)

    def test_bytes_stated_outright(self):
        found = self.one(Payload(source="annotation", in_bytes=100, out_bytes=25, dtype="float32"))
        assert (found["in_bytes"], found["out_bytes"], found["payload_source"]) == (100, 25, "annotation")

    @pytest.mark.parametrize(("called", "out"), [("all_reduce", 32), ("broadcast", 32), ("all_to_all", None)])
    def test_output_of_the_same_size_by_definition(self, called, out):
        found = self.one(Payload(source="annotation", collective=called, in_elements=8, dtype="float"))
        assert (found["in_bytes"], found["out_bytes"]) == (32, out)

    def test_kernel_name_decides_where_the_call_does_not(self):
        name = CollectiveName("all_to_all", "nccl")
        assert self.one(Payload(source="kernel", collective="coalesced"), name=name)["kind"] == "all_to_all"
        sent = self.one(Payload(source="kernel", collective="send", src_rank=0, dst_rank=3), name=name)
        assert (sent["kind"], sent["src_rank"], sent["dst_rank"]) == ("send", 0, 3)

    def test_nothing_told(self):
        call = calls({"row": 0}, {"row": 1}, names=[CollectiveName(None, "custom")])
        made = collectives_table(1, call, StatedPayloads(), np.array([-1, -1]), TraceFacts())[0].to_pylist()
        assert [row["collective"] for row in made] == [1 << 32, (1 << 32) + 1]
        assert all(row[key] is None for row in made for key in ("kind", "group", "in_bytes", "seq", "step"))

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
            ("all_gather", "nccl", 8, None, 3),
            ("broadcast", "rccl", None, None, None),
            ("all_gather", "nccl", 8, None, 3),
            ("broadcast", "rccl", 16, 16, 0),
        ]
        assert members == {"1,5": (1, 5)}

    def test_no_calls(self):
        made, _ = collectives_table(1, calls(names=()), StatedPayloads(), np.empty(0, np.int64), TraceFacts())
        assert (made.num_rows, made.schema.equals(COLLECTIVES)) == (0, True)

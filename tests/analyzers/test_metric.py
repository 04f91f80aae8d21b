# SPDX-License-Identifier: Apache-2.0
"""What metrics are made of: coverage, values, columns, and what they see of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import a_rank, collective, comm, compute, event, launch, window
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers import metric as described
from cclbench.analyzers.aliases import ALIASES, Alias
from cclbench.analyzers.explained import INFERRED
from cclbench.analyzers.metric import (
    METRICS,
    Coverage,
    NotApplicable,
    Unknown,
    Value,
    max_over_ranks,
    mean_over_ranks,
    metric,
    no_value,
    resolve_metrics,
    run_metric,
    total_coverage,
    total_left_out,
)
from cclbench.analyzers.swept import own_sweeps
from cclbench.analyzers.view.columns import has_word, matching_rows, with_words, word_codes
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Intervals
from cclbench.ground.registry import Registry
from cclbench.ground.schema import COLLECTIVES
from cclbench.hardware import catalog

KINDS = {"allgather": ("all_gather",), "allreduce": ("all_reduce",), "alltoall": ("all_to_all",)}
KINDS |= {"peertopeer": ("send", "recv", "send_recv"), "reducescatter": ("reduce_scatter",)}
KINDS |= {"hockney": ("all_reduce",)}


def test_coverage_counts_rows_and_their_time_and_a_number_is_partial_by_it() -> None:
    used, durations = np.array([True, False, True]), np.array([5, 7, 11])
    assert Coverage.from_rows(used, durations) == Coverage(2, 3, 16, 23)
    # A number is partial by its coverage and what is no number stays so.
    assert Value(value=1.0, coverage=Coverage(1, 2)).status == "partial"
    assert Value(value=1.0, coverage=Coverage(2, 2), status="partial").status == "ok"
    assert Value(value=1.0, status="partial").status == "partial"
    assert no_value("cut", coverage=Coverage(2, 2)).status == "not_applicable"
    assert Value(value=None, status="failed", coverage=Coverage(1, 2)).status == "failed"


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Coverage(1, 2, 3, 4), Coverage(10, 20, 30, 40), Coverage(11, 22, 33, 44)),
        (Coverage(0, 1, 0, 4), Coverage(1, 1, 5, 5), Coverage(1, 2, 5, 9)),
        (Coverage(0, 0, 0, 0), Coverage(1, 1, 5, 5), Coverage(1, 1, 5, 5)),
        (Coverage(1, 2, 3, 4), Coverage(1, 1), Coverage(2, 3)),
        (Coverage(1, 2, 3, 4), Coverage(1, 1, 5, None), Coverage(2, 3)),
        (Coverage(1, 2, 3, 4), Coverage(1, 1, None, 5), Coverage(2, 3)),
    ],
)
def test_coverages_add_up_with_time_where_both_have(one: Coverage, other: Coverage, both: Coverage) -> None:
    assert one + other == other + one == both


@pytest.mark.parametrize(
    ("coverage", "whole", "by_count", "by_time"),
    [
        (Coverage(4, 4, 9, 9), True, 1, 1),
        (Coverage(1, 4, 0, 9), False, 0.25, 0),
        (Coverage(4, 4, 8, 10), False, 1, 0.8),
        (Coverage(3, 4, 9, 9), False, 0.75, 1),
        (Coverage(4, 4), True, 1, None),
        (Coverage(0, 0, 0, 0), True, 1, None),
    ],
)
def test_shares_of_coverage(coverage: Coverage, whole: bool, by_count: float, by_time: float | None) -> None:
    assert (coverage.is_complete, coverage.by_count, coverage.by_time) == (whole, by_count, by_time)


def test_words_are_the_reason_and_what_is_left_out_which_adds_up() -> None:
    left_out = {"of unknown bytes": 3, "in groups of one": 0, "cut": 1}
    assert Value(value=1.0, left_out=left_out).words == "left out: 3 of unknown bytes, 1 cut"
    assert Value(value=1.0, reason="rough", left_out={"cut": 2}).words == "rough; left out: 2 cut"
    assert Value(value=1.0, left_out={"cut": 0}).words is None
    # What values leave out and rest on adds up.
    values = [Value(value=1.0, left_out={"a": 1, "b": 2}, coverage=Coverage(1, 2))]
    values += [Value(value=1.0, left_out={"b": 5}), Value(value=1.0, coverage=Coverage(3, 4))]
    assert total_left_out(values) == {"a": 1, "b": 7}
    assert total_coverage(values) == Coverage(4, 6)
    assert total_coverage(values[1:2]) is None


def values_by_rank(*values: Value | Sequence[Value]) -> dict[int, Sequence[Value]]:
    return {rank: [own] if isinstance(own, Value) else own for rank, own in enumerate(values)}


def test_a_mean_over_ranks_weighs_each_by_its_weight() -> None:
    (whole,) = mean_over_ranks(values_by_rank(Value(value=2.0), Value(value=4.0, weight=3)))
    assert whole.value == (2 + 3 * 4) / 4
    (whole,) = mean_over_ranks(values_by_rank(Value(value=0.0), Value(value=4.0)))
    assert whole.value == 2
    assert not [*mean_over_ranks(values_by_rank(Value(value=2.0, weight=0)))]
    # The largest of the ranks may be zero or less.
    assert [v.value for v in max_over_ranks(values_by_rank(Value(value=0.0), Value(value=-2.0)))] == [0]
    assert [v.value for v in max_over_ranks(values_by_rank(Value(value=-3.0), Value(value=-2.0)))] == [-2]


def test_ranks_are_combined_by_what_their_values_are_about_steps_aside() -> None:
    about = {"group": "0-1", "collective": "send", "category": "dp", "stat": "max"}
    told = {"value": 1.0, "reason": "rough", "provenance": "derived", "unit": "1"}
    first = Value(**told, left_out={"cut": 1}, coverage=Coverage(1, 2))
    second = Value(value=3.0, reason="late", left_out={"cut": 2}, coverage=Coverage(3, 3))
    ranks = {
        1: [second, Value(value=7.0, **about), Value(value=99.0, step=1), no_value("cut", stat="p95")],
        0: [first, Value(value=5.0, **about), Value(value=88.0, step=1)],
        2: [Value(value=5.0, reason="rough")],
    }
    whole, part = mean_over_ranks(ranks)
    assert (whole.value, whole.reason, whole.provenance, whole.unit) == (3, "rough; late", "derived", "1")
    assert (whole.left_out, whole.coverage, whole.status) == ({"cut": 3}, Coverage(4, 5), "partial")
    assert (part.value, part.key) == (6, (None, "0-1", "send", "dp", "max"))


@pytest.mark.parametrize(
    ("name", "on_groups", "replayed"),
    [
        *(("comm.busbw", True, False), ("comm.wait", True, False)),
        *(("balance.straggler_slowdown", True, True), ("time.idle", False, False)),
    ],
)
def test_a_metric_says_what_it_rests_on(name: str, *, on_groups: bool, replayed: bool) -> None:
    one = METRICS.get(name)
    assert (one.rests_on_groups, one.is_replayed) == (on_groups, replayed)
    assert one.limits == (INFERRED if on_groups else None)


def test_a_metric_says_how_ranks_are_combined_and_what_else_asks_for_it() -> None:
    assert METRICS.get("memory.growth").combined == "Maximum over ranks."
    assert METRICS.get("comm.nic_bytes").combined == "A metric of the run: ranks are not combined."
    assert METRICS.get("comm.volume").topic == "comm"
    kinds = ("allgather", "allreduce", "alltoall", "reducescatter", "total")
    assert METRICS.get("comm.volume").aliases == tuple(f"collective_vol_{kind}_gb" for kind in kinds)


def test_what_a_metric_does_not_say_is_the_plain_case(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry[described.Metric]("metric", home="cclbench.ground.units", group="none")
    monkeypatch.setattr(registry, "_loaded", True)
    monkeypatch.setattr(described, "METRICS", registry)
    own = {"definition": "d", "formula": "f", "unit": "s"}
    metric("mine.ranks", **own)(lambda _: Value(value=1.0))
    run_metric("mine.run", **own, inputs=["card"], not_applicable="none")(lambda _: Value(value=1.0))
    of_ranks, of_run = registry.get("mine.ranks"), registry.get("mine.run")
    plain = [(one.version, one.better, one.rank_rows, one.inputs) for one in (of_ranks, of_run)]
    assert plain == [(1, None, True, ("events", "steps")), (1, None, False, ("card",))]
    assert of_ranks.not_applicable == "the rank has no work in the window"
    assert of_ranks.combine is mean_over_ranks
    asked = [(one.per_rank is None, one.per_run is None) for one in (of_ranks, of_run)]
    assert asked == [(False, True), (True, False)]
    assert registry.origin("mine.ranks") == __name__


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_an_alias_stands_for_a_metric_or_its_part_of_the_kinds_in_its_name(name: str) -> None:
    kinds = next((kinds for word, kinds in KINDS.items() if word in name), ())
    kinds = KINDS["allreduce"] if name == "bandwidth_utilization" else kinds
    alias = ALIASES[name]
    assert alias.collectives == kinds
    assert alias.metric in METRICS


def test_parts_of_metrics_come_beside_other_metrics_in_order_of_names() -> None:
    found = resolve_metrics(["time.step", "collective_vol_all*", "mfu", "balance.straggler_*"])
    stragglers = [f"balance.straggler_{part}" for part in ("delay", "rank", "slowdown")]
    assert [(one.name, alias and alias.collectives) for one, alias in found] == [
        *((name, None) for name in stragglers),
        *(("comm.volume", (kind,)) for kind in ("all_gather", "all_reduce", "all_to_all")),
        *(("compute.mfu", None), ("time.step", None)),
    ]
    assert resolve_metrics(["collective_vol_*"])[0][1] is None
    assert Alias("comm.volume").collectives == ()
    # A word of the field asks for all metrics that it may mean.
    bubbles, both = (resolve_metrics(asked) for asked in (["Bubble"], ["hfu", "mfu"]))
    assert [one.name for one, _ in bubbles] == ["overlap.bubble_ideal", "overlap.pipeline_bubble"]
    assert [one.name for one, _ in both] == ["compute.hfu", "compute.mfu"]
    # What is asked for twice, or as a whole and in part, is there once and whole.
    twice = (["mfu", "compute.mfu"], ["comm.busbw", "bandwidth_utilization_all*"])
    assert [[alias for _, alias in resolve_metrics(asked)] for asked in twice] == [[None], [None]]
    with pytest.raises(UsageError, match="or occupancy"):
        resolve_metrics(["ocupancy"])


WORDS = pa.dictionary(pa.int32(), pa.string())


def test_words_of_chunks_that_number_them_differently_and_of_plain_columns() -> None:
    """And a word that no row has, which the dictionary names nevertheless."""
    first = pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int32()), ["unused", "b"])
    chunks = pa.chunked_array([first, pa.array(["a", "b"], WORDS)])
    numbers, words = word_codes(pa.table({"category": chunks}), "category")
    assert [words[n] for n in numbers] == ["b", None, "a", "b"]
    assert words[-1] is None
    table = pa.table({"category": chunks})
    assert has_word(table, "category", "b").tolist() == [True, False, False, True]
    assert has_word(table, "category", "c", "a").tolist() == [False, False, True, False]
    assert matching_rows(table, "category", lambda word: word < "b").tolist() == [False, True, True, False]
    # A batch without words has rows of none.
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], WORDS)], ["category"])
    numbers, words = word_codes(batch, "category")
    assert (numbers.tolist(), words) == ([0, 0], [None])
    assert has_word(batch, "category", "a").tolist() == [False, False]
    # Plain columns have words too.
    table = pa.table({"source": pa.chunked_array([["b", None], ["a", "b"]]), "row": [0, 1, 2, 3]})
    assert with_words(table, "source", ("b", ""))["row"].to_pylist() == [0, 1, 3]
    numbers, words = word_codes(table, "row")
    assert [words[n] for n in numbers] == [0, 1, 2, 3]


MEMBERS = {"0-15": tuple(range(16)), "0-7": tuple(range(8)), "0-8": tuple(range(9))}


def part(
    instance: int | None, rank: int, wait: int | None, transfer: int | None, **more: Any
) -> dict[str, Any]:
    """A rank's part in an all-reduce of 4 KiB among 16."""
    given = {"kind": "all_reduce", "group": "0-15", "group_size": 16, "in_bytes": 4096, "out_bytes": 4096}
    times = {"start_ns": 0, "end_ns": 10, "wait_ns": wait, "transfer_ns": transfer}
    whole = {"collective": 0, "instance": instance, "rank": rank, "library": "nccl", **given, **times, **more}
    return dict.fromkeys(COLLECTIVES.names) | whole


def swept(*parts: dict[str, Any]) -> tuple[list[Any], dict[str, int]]:
    """Their sweeps on machines of eight."""
    return own_sweeps(
        pa.Table.from_pylist(list(parts), COLLECTIVES), MEMBERS, catalog.system("aws-p5"), "2.23.4"
    )


def test_the_last_rank_tells_and_the_median_counts() -> None:
    """Three of one size: 10, 20 and 90 µs by the ranks that came last; of another size one of 30 µs."""
    found, left_out = swept(
        part(1, 0, 0, 10_000), part(1, 1, 500, 11_000),
        part(2, 0, 700, 5_000), part(2, 1, 0, 20_000),
        part(3, 1, 0, 90_000),
        part(4, 0, 0, 30_000, in_bytes=8192, out_bytes=8192),
    )  # fmt: skip
    (sweep,) = found
    assert (sweep.kind, sweep.ranks, sweep.nodes, sweep.library_version) == ("all_reduce", 16, 2, "2.23.4")
    assert (sweep.bytes, sweep.seconds) == ((4096, 8192), (20e-6, 30e-6))
    assert left_out == {}
    # A rank whose waiting nobody knows is not taken for the last.
    (sweep,), _ = swept(part(1, 0, None, 99_000), part(1, 1, 5, 20_000), part(1, 2, 700, 30_000))
    assert sweep.seconds == (20e-6,)
    # No collectives, no sweeps.
    assert swept() == ([], {})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"instance": None}, "not matched across ranks"),
        ({"transfer_ns": None}, "not matched across ranks"),
        ({"kind": "send"}, "sends and receives"),
        ({"library": "gloo"}, "of libraries whose algorithms are not modelled"),
        ({"group": "0-8", "group_size": 9}, "of unknown groups, or groups spread unevenly over nodes"),
        ({"group": None}, "of unknown groups, or groups spread unevenly over nodes"),
        ({"kind": "all_gather", "out_bytes": None}, "of unknown size"),
        ({"kind": None}, "without collective, ranks, nodes, size or time"),
        ({"transfer_ns": 0}, "with zero bytes, zero time or a single rank"),
    ],
)
def test_what_is_in_no_sweep_is_counted(more: dict[str, Any], why: str) -> None:
    """Each for one reason, and the rest stays."""
    found, left_out = swept(part(1, 0, 0, 10_000), part(2, 0, 0, 99_000) | more)
    assert [sweep.seconds for sweep in found] == [(10e-6,)]
    assert left_out == {why: 1}


def test_what_fits_for_several_reasons_nowhere_is_counted_once() -> None:
    both = part(2, 0, 0, 99_000, kind="send", library="gloo", group=None)
    gloo = part(3, 0, 0, 99_000, library="gloo", group="0-8", group_size=9)
    _, left_out = swept(part(1, 0, 0, 10_000), both, gloo, part(None, 0, 0, 9_000), part(None, 1, 0, 9_000))
    expected = {"not matched across ranks": 2, "sends and receives": 1}
    expected |= {"of libraries whose algorithms are not modelled": 1}
    assert left_out == expected


STEPS = [window(10 * n, 10 * n + 10, n) for n in range(4)]
NO_HOST = "the trace has only host events, none of the accelerator"


def pieces(found: Intervals) -> list[tuple[int, int]]:
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, (0, 1, 2, 3)), ((None, None), (0, 1, 2, 3)), ((1, None), (1, 2, 3)), ((None, 1), (0,)),
        ((0, 3), (0, 1, 2)), ((3, 9), (3,)),
    ],
)  # fmt: skip
def test_steps_end_before_it(chosen: tuple[int | None, int | None] | None, expected: tuple[int, ...]) -> None:
    windows = a_rank([], STEPS, steps=chosen).windows
    assert windows.steps == expected
    assert (windows.starts.tolist(), windows.ends.tolist()) == (
        [10 * n for n in expected],
        [10 * n + 10 for n in expected],
    )
    assert (len(windows), windows.total, windows.open) == (len(expected), 10 * len(expected), False)


def test_an_empty_range_lists_twenty_steps_at_most() -> None:
    many = [window(10 * n, 10 * n + 10, n, still_open=n == 24) for n in range(25)]
    listed = ", ".join(str(n) for n in range(20))
    with pytest.raises(NotApplicable) as why:
        a_rank([], many, steps=(30, None)).windows  # noqa: B018
    assert str(why.value) == f"--steps selects none of this rank's steps: {listed}"
    with pytest.raises(NotApplicable, match="the trace marks no steps to select with --steps"):
        a_rank([], [window(0, 9, source="whole_trace")], steps=(0, None)).windows  # noqa: B018


def test_an_open_window_is_beside_the_others_and_counts_where_no_other_does() -> None:
    steps = [*STEPS, window(40, 45, 4, still_open=True)]
    rank, last = a_rank([], steps), a_rank([], steps, steps=(4, None))
    assert (rank.windows.steps, rank.windows.open) == ((0, 1, 2, 3), False)
    aside = rank.open_windows
    assert (aside.steps, aside.open, aside.policy) == ((4,), True, "steps")
    assert (last.windows.steps, last.windows.open, last.windows.total) == ((4,), True, 5)
    assert (last.open_windows.steps, last.open_windows.open) == ((), False)


def test_annotated_steps_are_those_of_the_host_that_have_an_end() -> None:
    marks = [window(0, 50, 1, "annotation"), window(50, 99, 2, "annotation")]
    rank = a_rank([], [window(20, 60, 1), *marks])
    assert (rank.windows.steps, rank.annotated.steps) == ((1,), (1, 2))
    alone = window(0, 50, 1, "annotation", still_open=True)
    for only in (alone, window(0, 9, source="whole_trace")):
        with pytest.raises(NotApplicable, match="the trace marks no complete steps"):
            a_rank([], [only]).annotated  # noqa: B018


GRAPHS = "7 CUDA graphs were traced as a whole: their kernels are unknown (nsys: --cuda-graph-trace=node)"


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"whole_graphs": 7}, GRAPHS), ({"works_on": None}, NO_HOST), ({}, "the trace has no work")],
)
def test_a_rank_without_windows_says_why(facts: dict[str, Any], words: str) -> None:
    rank = a_rank([], **facts)
    assert rank.no_work == words
    with pytest.raises(Unknown) as why:
        rank.windows  # noqa: B018
    assert str(why.value) == words


def test_busy_time_of_an_accelerator() -> None:
    rows = [compute(0, 10), comm(5, 20), compute(8, 12, category="other"), event("copy", 11, 13, track=3)]
    rows += [compute(30, 40), event("memset", 38, 45, track=4), comm(19, 25), event("sync", 0, 99)]
    rank = a_rank(rows, [window(0, 100)])
    assert pieces(rank.compute) == [(0, 12), (30, 40)]
    assert pieces(rank.communication) == [(5, 25)]
    assert pieces(rank.copies) == [(11, 13), (38, 45)]


def test_busy_time_of_a_cpu() -> None:
    """On gloo's thread 3 nothing computes, and on thread 1 nothing while it calls the library; a send and a
    receive of thread 1 are in flight until it waits for them, while it computes."""
    spans = [
        *((0, 30, 1, "mm"), (40, 50, 1, "add"), (5, 12, 2, "relu"), (70, 80, 3, "add_"),
          (92, 93, 3, "copy_")),
        (93, 98, 1, "mul"),
    ]  # fmt: skip
    rows = [event("op", start, end, track=track, name=f"aten::{name}") for start, end, track, name in spans]
    talk = [(10, 15, 1, "c10d::send", None), (60, 90, 3, "gloo:all_reduce", 0)]
    talk += [(14, 45, 1, "gloo:send", 1), (94, 95, 1, "c10d::recv_", None), (94, 97, 1, "gloo:recv", 2)]
    rows += [
        event("op", start, end, track=track, name=name, category="communication", collective=number)
        for start, end, track, name, number in talk
    ]
    rows.append(event("op", 91, 99, track=1, name="MulBackward0"))
    rank = a_rank(rows, [window(0, 100)], works_on="host")
    assert pieces(rank.compute) == [(0, 12), (15, 30), (40, 50), (93, 94), (95, 98)]
    assert pieces(rank.communication) == [(14, 45), (60, 90), (94, 97)]
    assert pieces(rank.copies) == []


def test_rows_that_begin_in_a_window() -> None:
    rows = [compute(5, 50), compute(10, 11), compute(20, 21), compute(25, 26), compute(39, 99)]
    found = list(a_rank(rows, [window(10, 20, 1), window(30, 40, 2)]).begun(("kernel",), "name"))
    began = [batch["start_ns"].to_pylist() for batch, _ in found]
    assert (began, [at.tolist() for _, at in found]) == ([[10], [39]], [[0], [1]])
    assert [batch.schema.names for batch, _ in found] == [["start_ns", "dur_ns", "name"]] * 2
    rank = a_rank([], [window(10, 20)], [collective("send", at, 99) for at in (9, 10, 19, 20)])
    assert rank.collectives["start_ns"].to_pylist() == [10, 19]
    assert len(rank.all_collectives) == 4


def test_without_kernels_or_an_accelerator_there_is_a_reason() -> None:
    outside = a_rank([compute(50, 60)], [window(0, 10)])
    with pytest.raises(NotApplicable, match="the rank runs no kernels in the window"):
        list(outside.kernels())
    cpu = a_rank([event("op", 0, 5)], [window(0, 10)], works_on="host")
    with pytest.raises(NotApplicable, match="the CPU is the device: it runs operators, not kernels") as why:
        list(cpu.kernels())
    assert not isinstance(why.value, Unknown)
    with pytest.raises(NotApplicable, match="the CPU is the device: it has no launches"):
        cpu.launched  # noqa: B018
    with pytest.raises(NotApplicable, match="it has no launches, which idle time is attributed by"):
        cpu.idle  # noqa: B018
    assert cpu.blurred is None


@pytest.mark.parametrize("what", ["busy", "works", "collectives", "launched", "idle"])
def test_a_trace_without_the_accelerators_rows_tells_of_no_work(what: str) -> None:
    rank = a_rank([event("op", 0, 5)], [window(0, 10)], [collective("send", 0, 5)], works_on=None)
    with pytest.raises(Unknown) as why:
        getattr(rank, what)
    assert str(why.value) == NO_HOST


END = 30

device_rows = st.lists(
    st.builds(
        lambda sort, start, length, track, device, correlation: {
            "kind": "kernel" if sort in ("gemm", "communication") else sort,
            "category": sort if sort in ("gemm", "communication") else "copy",
            "start_ns": start,
            "end_ns": start + length,
            "track": track,
            "device": device,
            "correlation": correlation,
        },
        st.sampled_from(["gemm", "communication", "copy", "memset"]),
        st.integers(0, END),
        st.integers(0, 5),
        st.integers(0, 2),
        st.sampled_from([None, 0]),
        st.sampled_from([None, 1, 2, 3, 4]),
    ),
    max_size=9,
)
launches = st.lists(st.builds(launch, st.integers(0, END), st.integers(1, 3)), max_size=4)
bounds = st.lists(st.integers(-3, END + 8), min_size=2, max_size=5, unique=True).map(sorted)


def _running(rows: list[dict], t: int) -> set[str]:
    return {row["category"] for row in rows if row["start_ns"] <= t < row["end_ns"]}


def _cause(rows: list[dict], calls: list[dict], t: int) -> str:
    """Of an idle instant, from the definition: look at the next device event, its launch, its stream."""
    ahead = [row for row in rows if row["start_ns"] > t and row["end_ns"] > row["start_ns"]]
    if not ahead:
        return "unknown"
    following = min(
        ahead, key=lambda row: (row["start_ns"], row["track"], row["device"] or 0, row["device"] is not None)
    )
    begun = [call["start_ns"] for call in calls if call["correlation"] == following["correlation"]]
    if following["correlation"] is None or not begun:
        return "unknown"
    stream = (following["track"], following["device"])
    earlier = [
        row["end_ns"]
        for row in rows
        if (row["track"], row["device"]) == stream
        and row["start_ns"] <= t
        and row["end_ns"] > row["start_ns"]
    ]
    return "device" if earlier and min(begun) <= max(earlier) else "host"


@given(device_rows, launches, bounds)
def test_parts_equal_a_count_of_nanoseconds(rows: list[dict], calls: list[dict], edges: list[int]) -> None:
    windows = [window(start, end, step) for step, (start, end) in enumerate(pairwise(edges))]
    rank = a_rank([*rows, *calls], windows)
    parts, idle = rank.parts, rank.idle
    split = {"host": idle.host, "device": idle.device, "unknown": idle.unknown}
    for n, w in enumerate(windows):
        expected = dict.fromkeys(["compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle"], 0)
        causes = dict.fromkeys(split, 0)
        for t in range(w["start_ns"], w["end_ns"]):
            on = _running(rows, t)
            if "gemm" in on:
                expected["overlapped" if "communication" in on else "compute_only"] += 1
            elif "communication" in on:
                expected["exposed_comm"] += 1
            elif "copy" in on:
                expected["exposed_copy"] += 1
            else:
                expected["idle"] += 1
                causes[_cause(rows, calls, t)] += 1
        assert {name: int(getattr(parts, name)[n]) for name in expected} == expected
        assert sum(expected.values()) == parts.window[n]
        assert {name: int(rank.inside(gaps)[n]) for name, gaps in split.items()} == causes

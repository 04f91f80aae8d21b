# SPDX-License-Identifier: Apache-2.0
"""What metrics are made of: coverage, values, columns, their combination over ranks, and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cclbench.analyzers import metric as described
from cclbench.analyzers.aliases import ALIASES, Alias
from cclbench.analyzers.explained import INFERRED
from cclbench.analyzers.metric import (
    METRICS,
    Coverage,
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
from cclbench.analyzers.view.columns import (
    has_values,
    has_word,
    matching_rows,
    row_spans,
    with_values,
    with_words,
    word_codes,
)
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import begins
from cclbench.ground.registry import Registry
from cclbench.ground.schema import COLLECTIVES
from cclbench.hardware import catalog

KINDS = {
    "allgather": ("all_gather",),
    "allreduce": ("all_reduce",),
    "alltoall": ("all_to_all",),
    "peertopeer": ("send", "recv", "send_recv"),
    "reducescatter": ("reduce_scatter",),
    "hockney": ("all_reduce",),
}


def test_coverage_counts_rows_and_their_time_and_a_number_is_partial_by_it() -> None:
    used, durations = np.array([True, False, True]), np.array([5, 7, 11])
    assert Coverage.of_rows(used, durations) == Coverage(2, 3, 16, 23)
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
def test_shares_of_a_coverage(
    coverage: Coverage, whole: bool, by_count: float, by_time: float | None
) -> None:
    assert (coverage.is_complete, coverage.by_count, coverage.by_time) == (whole, by_count, by_time)


def test_words_are_the_reason_and_what_is_left_out_which_adds_up() -> None:
    left_out = {"of unknown bytes": 3, "in groups of one": 0, "cut": 1}
    assert Value(value=1.0, left_out=left_out).words == "left out: 3 of unknown bytes, 1 cut"
    assert Value(value=1.0, reason="rough", left_out={"cut": 2}).words == "rough; left out: 2 cut"
    assert Value(value=1.0, left_out={"cut": 0}).words is None
    # What values leave out and rest on adds up.
    values = [
        Value(value=1.0, left_out={"a": 1, "b": 2}, coverage=Coverage(1, 2)),
        Value(value=1.0, left_out={"b": 5}),
        Value(value=1.0, coverage=Coverage(3, 4)),
    ]
    assert total_left_out(values) == {"a": 1, "b": 7}
    assert total_coverage(values) == Coverage(4, 6)
    assert total_coverage(values[1:2]) is None


def of_ranks(*values: Value | Sequence[Value]) -> dict[int, Sequence[Value]]:
    return {rank: [own] if isinstance(own, Value) else own for rank, own in enumerate(values)}


def test_a_mean_over_ranks_weighs_each_by_its_weight() -> None:
    (whole,) = mean_over_ranks(of_ranks(Value(value=2.0), Value(value=4.0, weight=3)))
    assert whole.value == (2 + 3 * 4) / 4
    (whole,) = mean_over_ranks(of_ranks(Value(value=0.0), Value(value=4.0)))
    assert whole.value == 2
    assert not [*mean_over_ranks(of_ranks(Value(value=2.0, weight=0)))]
    # The largest of the ranks may be zero or less.
    assert [v.value for v in max_over_ranks(of_ranks(Value(value=0.0), Value(value=-2.0)))] == [0]
    assert [v.value for v in max_over_ranks(of_ranks(Value(value=-3.0), Value(value=-2.0)))] == [-2]


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
    with pytest.raises(UsageError, match="or occupancy"):
        resolve_metrics(["ocupancy"])


WORDS = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([0], [True]),
        ([3, 3, 5, 3, 3], [True, False, True, True, False]),
        ([-1, -1, 0], [True, False, True]),
    ],
)
def test_where_values_begin_anew(values: list[int], expected: list[bool]) -> None:
    assert begins(np.array(values, np.int64)).tolist() == expected


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


def test_rows_with_values_in_all_of_the_columns_and_their_spans() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3, 4], "b": ["x", "y", None, "z"]})
    assert has_values(batch, "a").tolist() == [True, False, True, True]
    assert has_values(batch, "a", "b").tolist() == [True, False, False, True]
    assert has_values(batch).tolist() == [True] * 4
    assert with_values(pa.Table.from_batches([batch]), "a", "b")["a"].to_pylist() == [1, 4]
    # A span is from its start for its duration.
    batch = pa.RecordBatch.from_pydict({"start_ns": [5, 9], "dur_ns": [2, 0]})
    starts, ends = row_spans(batch)
    assert (starts.tolist(), ends.tolist()) == ([5, 9], [7, 9])


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
    assert left_out == {
        "not matched across ranks": 2,
        "sends and receives": 1,
        "of libraries whose algorithms are not modelled": 1,
    }

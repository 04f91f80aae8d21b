# SPDX-License-Identifier: Apache-2.0
"""Tables of operators read alone: their rows and payloads, what they say together, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.plain_rows import plain_rows

from cclbench.formats import DeviceStep, Part, Payload, Rows, Trace
from cclbench.formats.timeline import Timeline, reading, tables
from cclbench.formats.timeline.mapping import (
    Time,
    TimelineColumns,
    TimelineMapping,
    TimelineOperator,
    is_mapped,
    mapping_at,
)
from cclbench.formats.timeline.survey import Survey, survey_beside
from cclbench.formats.timeline.tables import table_batches, wanted_columns
from cclbench.ground.errors import InputError
from cclbench.record.facts import ProcessGroup

BARE = """\
version: 1
files: "*"
columns: {rank: r, operator: op, start: t, duration: d}
time: {unit: ns}
operators: {"*": {does: compute}}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a mapping and a table beside it, CSV of lines or Parquet of columns; its path."""

    def write(rows: str | dict[str, Any], mapping: str = BARE, name: str = "job.csv") -> Path:
        (tmp_path / "timeline.yaml").write_text(mapping)
        path = tmp_path / name
        if isinstance(rows, str):
            path.write_text(rows)
        else:
            pq.write_table(pa.table(rows), path)
        return path

    return write


def opened(path: Path, rank: int = 0) -> tuple[Trace, list[Rows]]:
    """A rank's trace, read to its end."""
    trace = Timeline().read(path, part=Part(str(rank)))
    return trace, [rows for rows in trace.batches if isinstance(rows, Rows)]


def listed(rows: Rows) -> list[tuple[str, int, int, int]]:
    columns = ("name", "start_ns", "dur_ns", "track")
    return [tuple(row[name] for name in columns) for row in plain_rows(rows)]


def mapped(**changes: Any) -> TimelineMapping:
    told: dict[str, Any] = {"version": 1, "files": "*", "time": Time(unit="ns"), "operators": {}}
    told["columns"] = TimelineColumns(rank="r", operator="op", start="t", duration="d")
    return TimelineMapping(**told | changes)


# Steps 7 and 9 of ranks 0 and 1, times as the tables tell them.
SPANS = {9: {0: (500, 560), 1: (510, 600)}, 7: {0: (100, 150), 1: (90, 140)}}


class TestSurvey:
    """What is known of a folder's ranks, steps and groups."""

    def test_steps_are_where_their_numbers_are(self) -> None:
        """60 ns of step 7, from 90 to 150, lie before step 9, which begins at 500."""
        survey = Survey(mapped(time=Time(unit="ns", origin="step")), spans=SPANS)
        assert survey.step_origins() == {7: -90, 9: 60 - 500}
        assert survey.rank_steps(1) == [
            DeviceStep(name="step 7", number=7, start_ns=0, end_ns=50, closed=True),
            DeviceStep(name="step 9", number=9, start_ns=60, end_ns=160, closed=True),
        ]
        survey = Survey(mapped(), spans={1: {0: (10, 15)}, 2: {0: (20, 25), 1: (0, 1)}, 5: {0: (50, 58)}})
        steps = [(s.number, s.start_ns, s.end_ns, s.closed) for s in survey.rank_steps(0)]
        assert steps == [(1, 10, 20, True), (2, 20, 25, True), (5, 50, 58, False)]
        assert [s.number for s in survey.rank_steps(1)] == [2]
        assert Survey(mapped()).rank_steps(0) == []

    @pytest.mark.parametrize(("ranks", "complete"), [(None, True), (2, True), (3, False)])
    def test_all_ranks_are_there_as_far_as_it_is_told(self, ranks: int | None, complete: bool) -> None:
        assert Survey(mapped(ranks=ranks), places={0: (), 1: ()}).is_complete is complete

    PLACES = {0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, 1)}  # noqa: RUF012 - not changed

    def placed(self, **changes: Any) -> Survey:
        operators: dict[str, Any] = {
            "sum": TimelineOperator(does="all_reduce", over=("dp",)),
            "all": TimelineOperator(does="all_reduce", over=("pp", "dp")),
            "some": TimelineOperator(does="all_reduce"),
            "next": TimelineOperator(does="send", peer={"pp": 1}),
            "across": TimelineOperator(does="recv", peer={"pp": -1, "dp": 1}),
        }
        told: dict[str, Any] = {"places": self.PLACES, "operators": operators}
        told |= {"runs": {"sum": {0, 1, 2, 3}, "all": {3, 1, 0}}, "groups": {"g": {5, 2, 3}}}
        return Survey(mapped(place={"dp": "x", "pp": "y"}), **told | changes)

    def test_groups_and_peers_are_those_of_the_column_or_of_the_places(self) -> None:
        survey = self.placed()
        for operator, rank, column, members in (
            *(("sum", 0, None, (0, 1)), ("sum", 3, None, (2, 3)), ("sum", 0, "g", (2, 3, 5))),
            ("all", 3, None, (0, 1, 3)),  # of those that run it
            *(("some", 0, None, None), ("some", 2, "g", (2, 3, 5))),
        ):
            assert survey.operator_members(operator, rank, column) == members
        assert (survey.ranks_along("dp", 2), survey.ranks_along("pp", 2)) == ((2, 3), (0, 2))
        assert [survey.peer_rank("next", rank) for rank in range(4)] == [2, 3, None, None]
        assert [survey.peer_rank("across", rank) for rank in range(4)] == [None, None, 1, None]
        assert survey.peer_rank("sum", 0) is None
        assert self.placed(places={0: (None, 0), 1: (0, 1)}).peer_rank("next", 0) is None
        survey.mapping = mapped(place={"dp": "x", "pp": "y"}, ranks=5)  # of which one is missing
        assert {survey.operator_members("sum", 0, None), survey.operator_members("some", 2, "g")} == {None}


def test_the_first_pattern_that_fits_says_what_an_operator_does() -> None:
    does = {"a*": "compute", "ab": "copy", "c": "ignore"}
    operators = {name: TimelineOperator(does=what) for name, what in does.items()}
    mapping = mapped(operators=operators)
    found = [mapping.operator_named(name) for name in ("ab", "c", "d")]
    assert found == [operators["a*"], operators["c"], None]


@pytest.mark.parametrize("key", ["columns:", "operators:", '"columns" :', "'operators'\t:"])
def test_a_mapping_is_known_by_its_keys(write: Write, key: str) -> None:
    path = write("r,op,t,d\n")
    assert is_mapped(path)
    assert not is_mapped(path.with_name("timeline.yaml"))
    path.with_name("timeline.yaml").write_text(f"x: 1\n{key} 5\n")
    with pytest.raises(InputError):
        is_mapped(path)
    path.with_name("timeline.yaml").write_text(f"x: 1\n  {key} 5\n")
    assert not is_mapped(path)
    path.with_name("timeline.yaml").write_text(BARE.replace('"*"', "other.csv", 1))
    assert not is_mapped(path)


@pytest.mark.parametrize(
    ("operators", "more", "said"),
    [
        ("a: {does: compute, over: [dp]}", "", "over: does not apply to compute"),
        ("a: {does: send, over: [dp]}", "", "over: does not apply to send"),
        ("a: {does: all_reduce, peer: {dp: 1}}", "", "peer: does not apply to all_reduce"),
        ("a: {does: ignore, category: gemm}", "", "category: is only for compute, and it does"),
        ("a: {does: all_reduce, over: [pp]}", "", "over: names pp, for which `place` has no column"),
        ("a: {does: all_reduce, over: [dp]}", ", group: g", "over: and columns.group both state it"),
        ("a: {does: send, peer: {dp: 1}}", ", peer: p", "peer: and columns.peer both state it"),
        ("a: {does: all_reduce, over: [dp]}", ", peer: p", None),
        ("a: {does: recv, peer: {dp: 1}}", ", group: g", None),
        ("a: {does: compute, category: gemm}", "", None),
    ],
)
def test_what_is_said_fits_the_operator(write: Write, operators: str, more: str, said: str | None) -> None:
    mapping = BARE.replace('"*": {does: compute}', operators).replace("d}", "d" + more + "}", 1)
    path = write("r,op,t,d,x\n", mapping + "place: {dp: x}\n")
    if said is None:
        assert is_mapped(path)
        return
    with pytest.raises(InputError, match=f"timeline.yaml:5.*operators.a.{said}"):
        is_mapped(path)


def test_rows_of_a_rank_in_the_files_order(write: Write) -> None:
    text = "op,t,d,r\nmm,5,2,0\nmm,9,1,1\ncopy,8,1,0\nadd,7,0,0\nskip,9,9,0\n"
    does = "{copy: {does: copy}, skip: {does: ignore}, '*': {does: compute}}"
    path = write(text, BARE.replace('{"*": {does: compute}}', does))
    assert Timeline().parts(path) == [Part("0"), Part("1")]
    trace, (kernels, copies) = opened(path)
    assert (kernels.kind, kernels.side, kernels.bytes) == ("kernel", "device", None)
    assert listed(kernels) == [("mm", 5, 2, 0), ("add", 7, 0, 0)]
    assert (copies.kind, listed(copies), copies.bytes) == ("copy", [("copy", 8, 1, 2)], None)
    assert trace.dropped == {"rows of operators that the mapping ignores": 1}
    assert (trace.facts.rank, trace.facts.rank_source, trace.facts.world_size) == (0, "column r", None)
    assert (trace.facts.groups, trace.notes, trace.device_steps) == ((), [], [])
    assert opened(path, 1)[0].dropped == {}


def test_streams_are_those_of_the_table_or_one_for_each_operator_that_does_not_compute(write: Write) -> None:
    mapping = BARE.replace('{"*"', '{a: {does: all_reduce}, b: {does: broadcast}, "*"')
    _, (rows,) = opened(write("r,op,t,d\n0,b,1,1\n0,mm,2,1\n0,a,3,1\n", mapping))
    assert [track for *_, track in listed(rows)] == [2, 0, 1]
    more = mapping.replace("duration: d}", "duration: d, stream: s}")
    _, (rows,) = opened(write("r,op,t,d,s\n0,b,1,1,7\n0,mm,2,1,\n0,a,3,1,\n", more))
    assert [track for *_, track in listed(rows)] == [7, 0, 1]


WHOLE = """\
version: 1
files: "*"
columns: {rank: r, operator: op, start: t, duration: d, step: k, sequence: n, bytes: b, group: g, peer: p}
time: {unit: ns}
operators:
  {mm: {does: compute, category: gemm}, sum: {does: all_reduce}, give: {does: send}, take: {does: recv}}
"""
STEPPED = WHOLE.replace(", sequence: n, bytes: b, group: g, peer: p", "")


def told(trace: Trace) -> list[tuple[Payload, int, int]]:
    payloads = list(trace.stated_payloads.payloads)
    columns = (trace.stated_payloads.code, trace.stated_payloads.row, trace.stated_payloads.seq)
    return [(payloads[c], r, s) for c, r, s in zip(*columns, strict=True)]


@pytest.mark.parametrize("rows_a_batch", [100, 2])
def test_payloads_are_of_kernels(write: Write, monkeypatch: pytest.MonkeyPatch, rows_a_batch: int) -> None:
    """Operators by name are give, mm, sum and take: sum is the third of four, and step 8 the second."""
    monkeypatch.setattr(tables, "_ROWS_A_BATCH", rows_a_batch)
    rows: dict[str, Any] = {"r": [0, 0, 0, 0, 0, 1], "op": ["mm", "sum", "give", "sum", "take", "sum"]}
    rows |= {"t": [0, 10, 20, 30, 40, 12], "d": [5, 5, 5, 5, 5, 5], "k": [7, 7, 7, 8, 8, 7]}
    rows |= {"n": [None, 5, None, 6, 0, 5], "b": [None, 64, None, 0, 32, 64]}
    rows |= {"g": [None, "dp", None, None, None, "dp"], "p": [None, None, 1, None, 3, None]}
    trace, found = opened(write(rows, WHOLE, "job.parquet"))
    assert [row for batch in found for row in listed(batch)][1] == ("sum", 10, 5, 3)
    names, codes = list(found[-1].names), found[-1].name_categories or {}
    categories = {names[code]: category for code, category in codes.items()}
    assert (categories["mm"], categories["sum"]) == ("gemm", "communication")
    common = {"source": "kernel", "library": "custom"}
    one = Payload(**common, collective="all_reduce", in_bytes=64, group_name="dp", group_size=2, ranks=(0, 1))
    given = Payload(**common, collective="send", group_name="give", src_rank=0, dst_rank=1)
    second = Payload(**common, collective="all_reduce", in_bytes=0, group_name="sum")
    taken = Payload(**common, collective="recv", in_bytes=32, group_name="take", src_rank=3, dst_rank=0)
    assert sorted(told(trace), key=lambda one: one[1]) == [
        *((one, 1, (2 << 24) + 5), (given, 2, -1), (second, 3, (6 << 24) + 6), (taken, 4, 7 << 24))
    ]


def test_places_give_groups_and_peers_their_names(write: Write) -> None:
    does = "{sum: {does: all_reduce, over: [dp, pp]}, give: {does: send, peer: {pp: 1}}}"
    mapping = BARE.replace('{"*": {does: compute}}', does)
    text = "r,op,t,d,x,y\n0,sum,0,1,0,0\n0,give,2,1,0,0\n1,sum,0,1,1,0\n2,sum,0,1,0,1\n3,sum,0,1,1,1\n"
    trace, _ = opened(write(text, mapping + "place: {dp: x, pp: y}\nranks: 4\n"))
    assert trace.facts.groups == (
        ProcessGroup(name="dp: 0", description="dp", ranks=(0, 1)),
        ProcessGroup(name="pp: 0", description="pp", ranks=(0, 2)),
    )
    assert trace.facts.world_size == 4
    (one, _, _), (other, _, _) = sorted(told(trace), key=lambda row: row[1])
    assert (one.group_name, one.group_description, one.group_size) == ("sum", "dp_pp", 4)
    assert one.ranks == (0, 1, 2, 3)
    assert (other.group_description, other.group_size, other.ranks) == ("pp", None, None)
    assert (other.src_rank, other.dst_rank) == (0, 2)


def test_missing_ranks_and_bounded_numbers(write: Write) -> None:
    trace, _ = opened(write("r,op,t,d,x\n0,a,0,1,0\n1,a,0,1,1\n", BARE + "place: {dp: x}\nranks: 4\n"))
    assert trace.notes == ["tables of 2 of 4 ranks: process groups by place are unknown"]
    assert trace.facts.groups == ()
    rows = f"3,sum,0,1,{(1 << 24) - 1},\n4,sum,0,1,{1 << 24},\n"
    path = write(f"r,op,t,d,n,k\n{rows}", WHOLE.replace(", bytes: b, group: g, peer: p", ""))
    assert told(opened(path, 3)[0])[0][2] == (1 << 24) - 1
    with pytest.raises(InputError, match=r"^rank 4: has a sequence number of 2\^24 or more$"):
        opened(path, 4)


def test_rows_without_a_step_have_no_time_from_its_begin(write: Write) -> None:
    mapping = STEPPED.replace("unit: ns", "unit: ns, from: step")
    trace, (rows,) = opened(write("r,op,t,d,k\n0,mm,5,1,2\n0,mm,7,2,2\n0,mm,1,1,4\n", mapping))
    assert [start for _, start, *_ in listed(rows)] == [0, 2, 4]
    assert [(s.start_ns, s.end_ns) for s in trace.device_steps] == [(0, 4), (4, 5)]
    path = write("r,op,t,d,k\n0,mm,5,1,2\n0,mm,5,1,\n", mapping)
    with pytest.raises(InputError, match=r"^rank 0: rows have no step, to which times are relative$"):
        opened(path)


@pytest.mark.parametrize(("begin", "elsewhere"), [(9, 0), (10, 1), (11, 1)])
def test_rows_that_begin_in_another_step_are_counted(write: Write, begin: int, elsewhere: int) -> None:
    """Step 1 begins at 10, with its own first row; one of no step is nowhere else."""
    path = write(f"r,op,t,d,k\n0,mm,0,5,0\n0,mm,{begin},1,0\n0,mm,10,5,1\n0,mm,3,1,\n", STEPPED)
    notes = opened(path)[0].notes
    assert notes == ["1 rows begin during another step than their own, and count there"] * elsewhere


def test_a_table_is_not_rewritten(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x.csv: needs the timeline.yaml next to it, which a data point"):
        Timeline().rewrite(tmp_path / "x.csv", None, None)  # type: ignore[arg-type]


def test_bounds_of_ranks_and_operators(write: Write) -> None:
    """Ranks have twenty bits."""

    def surveyed(ranks: list[int], operators: int = 1) -> Survey:
        rows = [f"{rank},a{n},0,1\n" for rank in ranks for n in range(operators)]
        return survey_beside(write("r,op,t,d\n" + "".join(rows)))

    most = (1 << 20) - 1
    for rank in (most + 1, -1):
        with pytest.raises(InputError, match=f"job.csv: has the rank {rank}; ranks are from 0 to 1,048,575$"):
            surveyed([0, rank])
    with pytest.raises(InputError, match=r"job.csv: has more than 4,096 operators$"):
        surveyed([0], 4097)
    assert surveyed([0, most]).files == {"job.csv": {0, most}}
    assert len(surveyed([0], 4096).operators) == 4096


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["b0"], "b0; add it below operators, with"),
        ([f"b{n}" for n in reversed(range(5))], "b0, b1, b2, b3, b4; add"),
        ([f"b{n}" for n in reversed(range(6))], "b0, b1, b2, b3, b4, ...; add"),
        (["b" * 70], "b" * 60 + ";"),
    ],
)
def test_operators_of_which_nothing_is_said_are_named(write: Write, names: list[str], said: str) -> None:
    text = "r,op,t,d\n0,a,0,1\n" + "".join(f"0,{name},0,1\n" for name in names)
    with pytest.raises(InputError, match=f"timeline.yaml: has no entry for {said}"):
        survey_beside(write(text, BARE.replace('"*": {does', "a: {does")))


def test_a_rank_stands_in_one_place_and_alone(write: Write) -> None:
    mapping = BARE + "place: {dp: x}\n"
    with pytest.raises(InputError, match=r"job.csv: rank 0 has two places, \(4,\) and \(5,\); places: dp"):
        survey_beside(write("r,op,t,d,x\n0,a,0,1,4\n0,b,0,1,5\n", mapping))
    with pytest.raises(InputError, match=r"ranks 1 and 3 have the same place, \(4,\); name the columns"):
        survey_beside(write("r,op,t,d,x\n3,a,0,1,4\n1,a,0,1,4\n0,a,0,1,5\n", mapping))


def test_spans_reach_from_the_first_begin_to_the_last_end(write: Write) -> None:
    """Of all tables and operators; a negative duration ends where it begins."""
    path = write("r,op,t,d,k\n0,mm,5,2,1\n0,sum,3,1,1\n0,mm,20,-9,2\n1,mm,1,1,1\n", STEPPED)
    path.with_name("more.csv").write_text("r,op,t,d,k\n0,mm,6,4,1\n0,mm,9,0,\n")
    survey = survey_beside(path)
    assert survey.spans == {1: {0: (3, 10), 1: (1, 2)}, 2: {0: (20, 20)}}
    assert survey.files == {"job.csv": {0, 1}, "more.csv": {0}}
    assert survey.runs == {"mm": {0, 1}, "sum": {0}}
    assert list(survey.operators) == ["mm", "sum"]


class TestTables:
    """Values of tables as they are read."""

    @pytest.mark.parametrize(
        ("unit", "begin", "expected"),
        [
            *(("s", "1.0000000015", 1_000_000_002), ("s", "1.0000000025", 1_000_000_002)),
            *(("ms", "-2.5000005", -2_500_000), ("us", "1.0015", 1002), ("us", "1.0025", 1002)),
            *(("ns", "7.5", 8), ("s", 1.5, 1_500_000_000), ("ms", 1.5, 1_500_000), ("us", 1.5, 1500)),
            *(("ns", 2.5, 2), ("ns", -3.5, -4)),
        ],
    )
    def test_rounding_half_to_even(self, write: Write, unit: str, begin: str | float, expected: int) -> None:
        mapping = BARE.replace("unit: ns", f"unit: {unit}")
        if isinstance(begin, str):
            path = write(f"r,op,t,d\n0,a,{begin},0\n", mapping)
        else:
            path = write({"r": [0], "op": ["a"], "t": [begin], "d": [0]}, mapping, "job.parquet")
        assert listed(opened(path)[1][0])[0][1] == expected

    @pytest.mark.parametrize(
        ("begin", "refused"),
        [
            *(((1 << 61) - 1, False), (1 << 61, True), (-(1 << 61) + 1, False), (-(1 << 61), True)),
            *((float((1 << 61) - (1 << 9)), False), (float(1 << 61), True), (float("nan"), True)),
        ],
    )
    def test_times_of_73_years_are_no_clocks(self, write: Write, begin: float, refused: bool) -> None:
        path = write({"r": [0, 0], "op": ["a", "a"], "t": [begin, begin], "d": [0, 0]}, name="job.parquet")
        read = table_batches(path, surveyed_mapping(path))
        if refused:
            with pytest.raises(InputError, match=r"column t: holds a time .*; is time.unit right\?"):
                list(read)
            return
        (batch,) = read
        assert batch["start"].to_pylist() == [int(begin)] * 2

    @pytest.mark.parametrize(
        ("unit", "last", "beyond"),
        [
            *(("s", "2305843008.999999999", "2305843009"), ("ms", "-2305843009212.999999", "-2305843009213")),
            ("us", "2305843009213692.999", "2305843009213693"),
            ("ns", "2305843009213693951", "2305843009213693952"),
        ],
    )
    def test_times_of_73_years_are_no_times(self, write: Write, unit: str, last: str, beyond: str) -> None:
        mapping = BARE.replace("unit: ns", f"unit: {unit}")
        path = write(f"r,op,t,d\n0,a,{last},0\n", mapping)
        (batch,) = table_batches(path, surveyed_mapping(path))
        assert batch["start"].to_pylist() == [int(last.replace(".", ""))]
        path = write(f"r,op,t,d\n0,a,{beyond},0\n", mapping)
        with pytest.raises(InputError, match="holds a time that no clock has"):
            list(table_batches(path, surveyed_mapping(path)))

    def test_names_may_be_coded_and_columns_empty(self, write: Write) -> None:
        rows = {"r": [0, 0], "op": pa.array(["a", "b"]).dictionary_encode(), "t": [1, 2], "d": [1, 1]}
        rows |= {"k": [1, 1], "n": pa.nulls(2), "b": pa.nulls(2), "g": pa.nulls(2), "p": pa.nulls(2)}
        path = write(rows, WHOLE.replace("mm:", "a: {does: all_reduce}, b:"), "job.parquet")
        (batch,) = table_batches(path, surveyed_mapping(path))
        assert batch["operator"].to_pylist() == ["a", "b"]
        assert (batch["group"].type, batch["peer"].type) == (pa.string(), pa.int64())
        assert [payload.group_name for payload, _, _ in told(opened(path)[0])] == ["a"]

    def test_what_is_read_of_a_table(self) -> None:
        told = {"rank": "r", "operator": "op", "start": "t", "duration": "d", "stream": "s"}
        columns = TimelineColumns(**told)
        assert wanted_columns(mapped(columns=columns, place={"dp": "x"})) == told | {"place.dp": "x"}
        values = pa.array(["1", "2", "3", "4"]).slice(1, 2)
        assert tables.exact_nanoseconds(values, "us", "here").tolist() == [2000, 3000]

    @pytest.mark.parametrize("rows_a_batch", [100, 2])
    @pytest.mark.parametrize("name", ["r", "op", "t", "d"])
    def test_a_value_that_is_needed_says_its_row(self, write, monkeypatch, name, rows_a_batch):
        monkeypatch.setattr(tables, "_ROWS_A_BATCH", rows_a_batch)
        rows = {"r": [0] * 5, "op": ["a"] * 5, "t": [1] * 5, "d": [1] * 5}
        rows[name] = [*rows[name][:3], None, None]  # type: ignore[list-item]
        path = write(rows, name="job.parquet")
        with pytest.raises(InputError, match=rf"^.*job.parquet: row 4: has no {name}$"):
            list(table_batches(path, surveyed_mapping(path)))

    def test_a_column_that_is_missing_is_named_with_those_there_are(self, write: Write) -> None:
        there = ",".join(f"{n}{'x' * 50}" for n in range(14))
        path = write(f"r,op,t,{there}\n")
        shown = ", ".join(["r", "op", "t", *(f"{n}{'x' * 50}"[:40] for n in range(9))])
        with pytest.raises(InputError) as raised:
            list(table_batches(path, surveyed_mapping(path)))
        assert str(raised.value) == f"{path}: has no column 'd', which timeline.yaml names; {shown}"

    @pytest.mark.parametrize(
        ("text", "name", "says"),
        [
            ("r,op,t,d\n", "job.txt", "is not named as Parquet, CSV or JSON lines$"),
            ("r,op,t,d\n0,a,1,x\n", "job.csv", "is damaged after row 0: "),
        ],
    )
    def test_what_is_no_table(self, write: Write, text: str, name: str, says: str) -> None:
        path = write(text, name=name)
        with pytest.raises(InputError, match=f"{name}: {says}"):
            list(table_batches(path, surveyed_mapping(path)))


def surveyed_mapping(path: Path) -> TimelineMapping:
    return mapping_at(path.with_name("timeline.yaml"))


def test_a_parquet_table_may_have_more_columns_but_not_fewer(write: Write) -> None:
    rows = {"r": [0], "op": ["a"], "t": [1], "d": [2], "more": ["x"]}
    assert listed(opened(write(rows, name="job.parquet"))[1][0]) == [("a", 1, 2, 0)]
    del rows["d"]
    path = write(rows, name="job.parquet")
    with pytest.raises(InputError, match=r"parquet: has no column 'd', which timeline.yaml names; r, op, t"):
        list(table_batches(path, surveyed_mapping(path)))


def test_steps_are_fewer_than_a_bound(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_STEPS", 3)
    two = "r,op,t,d,k\n0,mm,0,5,0\n0,mm,10,5,7\n"
    assert len(opened(write(two, STEPPED))[1]) == 1
    with pytest.raises(InputError, match=r"^has more than 3 steps$"):
        opened(write(two + "0,mm,20,5,9\n", STEPPED))

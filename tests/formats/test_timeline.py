# SPDX-License-Identifier: Apache-2.0
"""Tables of operators with a mapping beside them: a pipeline of two stages, by hand, times in ms."""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench.cli import main
from cclbench.ground.errors import InputError
from cclbench.ingestion.shards import merge
from cclbench.record.run import Run
from cclbench.record.store import Store

MAPPING = """\
version: 1
files: "job*"
columns: {rank: rank, step: step, operator: what, start: begin, duration: took}
time: {unit: ms, from: step}
place: {dp: replica, pp: stage}
operators:
  "fwd*": {does: compute}
  send: {does: send, peer: {pp: 1}}
  recv: {does: recv, peer: {pp: -1}}
  grads: {does: all_reduce, over: [dp]}
  note: {does: ignore}
"""
Row = dict[str, Any]


def table() -> list[Row]:
    """Two steps of 2 stages x 2 replicas: rank = 2 · stage + replica; replica 1 computes 2 ms longer.

    fwd 10 (12) on stage 0, send and recv together, fwd 20 on stage 1, then a gradient all-reduce of 5.
    """
    rows: list[Row] = []
    for step in (7, 9):
        for replica in (0, 1):
            sent = 10 + 2 * replica
            told: dict[int, list[tuple[str, int, int]]] = {
                0: [("fwd", 0, sent), ("send", sent, 1), ("grads", sent + 1, 18 - 2 * replica)],
                1: [("recv", 0, sent + 1), ("fwd2", sent + 1, 20), ("grads", sent + 21, 7 - 2 * replica)],
            }
            for stage, runs in told.items():
                own = {"rank": 2 * stage + replica, "step": step, "replica": replica, "stage": stage}
                rows += [own | {"what": what, "begin": at, "took": took} for what, at, took in runs]
    return [*rows, rows[0] | {"what": "note", "took": 0}]


def written(folder: Path, rows: list[Row], ending: str = ".csv", mapping: str = MAPPING) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "timeline.yaml").write_text(mapping)
    path = folder / f"job{ending}"
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif ending.startswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


def ingested(folder: Path) -> Run:
    return cclbench.ingest(folder, store=folder.parent / "store", jobs=1)


def events(run: Run) -> list[Row]:
    query = (
        "SELECT rank, step, name, category, start_ns, dur_ns, track FROM events ORDER BY rank, start_ns, name"
    )
    return run.sql(query).to_pylist()


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".jsonl.gz", ".parquet"])
def test_every_kind_of_file_gives_the_same_rows(ending: str, tmp_path: Path) -> None:
    run = ingested(written(tmp_path / "traces", table(), ending))
    assert run.ranks == [0, 1, 2, 3]
    own = [row for row in events(run) if row["rank"] == 3]
    assert [(r["step"], r["name"], r["start_ns"] // 10**6, r["dur_ns"] // 10**6) for r in own] == [
        (7, "recv", 0, 13), (7, "fwd2", 13, 20), (7, "grads", 33, 5),
        (9, "recv", 38, 13), (9, "fwd2", 51, 20), (9, "grads", 71, 5),
    ]  # fmt: skip
    assert [row["category"] for row in own[:3]] == ["communication", "compute", "communication"]
    dropped = [entry.dropped for entry in run.record.ranks]
    assert dropped == [{"rows of operators that the mapping ignores": 1}, {}, {}, {}]


def test_sends_meet_their_receives_and_groups_follow_from_places(tmp_path: Path) -> None:
    run = ingested(written(tmp_path / "traces", table()))
    assert run.record.matching.matched == run.record.matching.rows == 16
    query = 'SELECT rank, kind, "group", src_rank, dst_rank, wait_ns, transfer_ns, dimension FROM collectives'
    rows = run.sql(f"{query} WHERE step = 7 ORDER BY rank, start_ns").to_pylist()
    ms = 10**6
    assert [tuple(row.values()) for row in rows if row["rank"] in (0, 2)] == [
        (0, "send", None, 0, 2, 0, 1 * ms, "pp"),
        (0, "all_reduce", "0-1", None, None, 2 * ms, 16 * ms, "dp"),
        (2, "recv", None, 0, 2, 10 * ms, 1 * ms, "pp"),
        (2, "all_reduce", "2-3", None, None, 2 * ms, 5 * ms, "dp"),
    ]
    groups = {row["group"]: row["descriptions"] for row in run.groups().to_pylist()}
    assert groups == {"0-1": ["dp"], "2-3": ["dp"], "0,2": ["pp"], "1,3": ["pp"]}


def test_steps_are_as_long_as_the_table_says(tmp_path: Path) -> None:
    run = cclbench.run(written(tmp_path / "traces", table()), store=tmp_path / "store", metrics=["time.step"])
    lengths = {(row["rank"], row["step"]): row["value"] for row in run.rows if row["stat"] is None}
    assert lengths[None, None] == pytest.approx(0.038)
    # a rank's step ends with its last row
    assert {rank: lengths[rank, 7] for rank in range(4)} == pytest.approx(
        {0: 0.029, 1: 0.029, 2: 0.038, 3: 0.038}
    )


def test_times_of_one_origin_leave_out_what_was_not_recorded(tmp_path: Path) -> None:
    """Steps 1, 2 and 5 of 10 ms each: the first ends where the second begins, the others with their rows."""
    rows = [
        {"rank": 0, "step": step, "what": "fwd", "begin": at, "took": 6}
        for step, at in ((1, 0), (2, 10), (5, 40))
    ]
    mapping = MAPPING.replace(", from: step", "").replace("place: {dp: replica, pp: stage}\n", "")
    mapping = mapping[: mapping.index("  send:")]
    run = ingested(written(tmp_path / "traces", rows, mapping=mapping))
    query = "SELECT step, end_ns - start_ns AS ns, open FROM steps WHERE source = 'module' ORDER BY step"
    found = [(row["step"], row["ns"] // 10**6, row["open"]) for row in run.sql(query).to_pylist()]
    assert found == [(1, 10, False), (2, 6, False), (5, 6, True)]


def test_rows_of_another_steps_time_are_counted(tmp_path: Path) -> None:
    """A row of step 2 that begins before step 1 has ended, which is where step 2 begins."""
    told = ((1, 0, 6), (2, 4, 1), (1, 5, 5), (2, 10, 6))
    rows = [{"rank": 0, "step": s, "what": "fwd", "begin": at, "took": took} for s, at, took in told]
    mapping = MAPPING.replace(", from: step", "").partition("place:")[0]
    mapping += 'operators: {"fwd": {does: compute}}\n'
    run = ingested(written(tmp_path / "traces", rows, mapping=mapping))
    assert "1 rows begin during another step than their own, and count there" in run.record.ranks[0].notes


@pytest.mark.parametrize(
    ("unit", "told", "expected"),
    [
        ("us", "1700000000123456.789", 1_700_000_000_123_456_789),
        ("s", "1700000000.1234567894999", 1_700_000_000_123_456_789),
        ("ns", "1700000000123456789", 1_700_000_000_123_456_789),
    ],
)
def test_times_are_the_files_own_digits(unit: str, told: str, expected: int, tmp_path: Path) -> None:
    mapping = MAPPING.replace("unit: ms, from: step", f"unit: {unit}").partition("place:")[0]
    mapping += 'operators: {"*": {does: compute}}\n'
    row = {"rank": 0, "step": 1, "what": "fwd", "begin": told, "took": 5}
    run = ingested(written(tmp_path / "traces", [row], mapping=mapping))
    assert events(run)[0]["start_ns"] == expected


def test_columns_may_tell_groups_peers_bytes_streams_and_sequence(tmp_path: Path) -> None:
    """Two ranks that run calls 5 and 6 of one group in a different order of time."""
    mapping = """\
version: 1
files: job.csv
columns: {rank: r, operator: op, start: t, duration: d, group: g, peer: p, bytes: b, stream: s, sequence: n}
time: {unit: us}
operators: {sum: {does: all_reduce}, give: {does: send}, take: {does: recv}, move: {does: copy}}
"""
    head = ("r", "op", "t", "d", "g", "p", "b", "s", "n")
    told = [
        (0, "sum", 0, 10, "a", "", 4096, 20, 5), (0, "sum", 10, 10, "a", "", 4096, 20, 6),
        (1, "sum", 10, 10, "a", "", 4096, 20, 6), (1, "sum", 0, 10, "a", "", 4096, 21, 5),
        (0, "give", 30, 5, "", 1, 64, 22, ""), (1, "take", 30, 5, "", 0, 64, 22, ""),
        (0, "move", 40, 5, "", "", 1000, 7, ""),
    ]  # fmt: skip
    rows = [dict(zip(head, row, strict=True)) for row in told]
    run = ingested(written(tmp_path / "traces", rows, mapping=mapping))
    query = (
        "SELECT rank, kind, instance, in_bytes, src_rank, dst_rank FROM collectives ORDER BY rank, start_ns"
    )
    found = [tuple(row.values()) for row in run.sql(query).to_pylist()]
    (first, second, sent), (one, two, taken) = found[:3], found[3:]
    # Numbered calls go by their number, whatever the order; a send and its receive by their ranks.
    assert (first[2], second[2], sent[2]) == (one[2], two[2], taken[2])
    assert len({first[2], second[2], sent[2]}) == 3
    assert sent[3:] == taken[3:] == (64, 0, 1)
    assert {row["track"] for row in events(run)} == {7, 20, 21, 22}
    copies = run.sql("SELECT bytes FROM events WHERE kind = 'copy'").to_pylist()
    assert copies == [{"bytes": 1000}]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version: 1", "version: 2", "version"),
        ("unit: ms", "unit: minutes", "time.unit"),
        ("took}", "took, colour: red}", "colour: unknown key"),
        ("step: step, ", "", "has no step, to which times are relative"),
        ("peer: {pp: 1}", "peer: {tp: 1}", "names tp, for which `place` has no column"),
        ("does: compute", "does: compute, over: [dp]", "does not apply to compute"),
        ("does: send, peer: {pp: 1}", "does: send, category: gemm", "is only for compute"),
        ("  note: {does: ignore}\n", "", "has no entry for note"),
        ("begin, ", "start_ts, ", "has no column 'start_ts'"),
        ("pp: stage", "pp: replica", "ranks 0 and 2 have the same place"),
        ("pp: stage", "pp: step", "has two places"),
        ("place:", "ranks: 3\nplace:", "states 3 ranks, and the tables have 4"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in MAPPING
    with pytest.raises(InputError) as refused:
        ingested(written(tmp_path / "traces", table(), mapping=MAPPING.replace(old, new)))
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 3


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_damaged_tables_are_refused(ending: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table(), ending)
    path = folder / f"job{ending}"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3].rpartition(b",")[0])
    with pytest.raises(InputError, match="job"):
        ingested(folder)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("begin", "", "has no begin"),
        ("begin", "1e30", "a time that no clock has"),
        ("rank", -1, "has the rank -1"),
    ],
)
def test_values_that_cannot_be_are_refused(column: str, value: object, said: str, tmp_path: Path) -> None:
    rows = table()
    rows[3] |= {column: value}
    with pytest.raises(InputError, match=said):
        ingested(written(tmp_path / "traces", rows))


def test_groups_by_place_need_all_ranks(tmp_path: Path) -> None:
    mapping = MAPPING.replace("place:", "ranks: 8\nplace:")
    run = ingested(written(tmp_path / "traces", table(), mapping=mapping))
    assert run.groups().num_rows == 0
    assert run.record.matching.unmatched["its process group is unknown"] == 8
    assert "process groups by place are unknown" in str(run.record.ranks[0].notes)


def test_a_new_mapping_makes_a_new_run(tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table())
    first = ingested(folder)
    assert not any("timeline.yaml" in note for note in first.record.notes)
    written(folder, table(), mapping=MAPPING.replace('"fwd*": {does: compute}', '"fwd*": {does: copy}'))
    second = ingested(folder)
    assert first.id != second.id
    assert {row["category"] for row in events(second)} == {"communication", "copy"}


def test_another_tools_timeline_yaml_is_left_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table(), mapping="events: [1, 2]\n")
    with pytest.raises(InputError, match="no trace of a known format"):
        ingested(folder / "job.csv")


def test_shards_of_an_older_mapping_are_not_merged(tmp_path: Path) -> None:
    folder, store = written(tmp_path / "traces", table()), ("--store", str(tmp_path / "store"))
    assert main(["ingest", str(folder), "--shard", "1/1", *store]) == 0
    (shard,) = (tmp_path / "store").glob("*.shard-*")
    assert main(["merge", str(shard), *store]) == 0
    written(folder, table(), mapping=MAPPING.replace("compute}", "copy}"))
    with pytest.raises(InputError, match=r"timeline\.yaml: changed since the shards were made"):
        merge([shard], Store(tmp_path / "store"))


def test_a_table_without_a_mapping_is_no_trace(tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table())
    (folder / "timeline.yaml").unlink()
    with pytest.raises(InputError, match="no trace of a known format"):
        ingested(folder / "job.csv")


def test_a_decimal_keeps_its_digits() -> None:
    from cclbench.formats.timeline.tables import _exact_nanoseconds

    texts = ["0.1234567885", "0.0000000015", "-3e-9", "12"]
    expected = [round(Decimal(text) * 10**9) for text in texts]
    assert _exact_nanoseconds(pa.array(texts), "s", "here").tolist() == expected

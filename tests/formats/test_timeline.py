# SPDX-License-Identifier: Apache-2.0
"""Tables of operators with a mapping beside them: a pipeline of two stages, by hand, times in ms."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench.cli import main
from cclbench.ground.errors import InputError
from cclbench.ingestion.shards import merge_shards
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
    columns = "rank, step, name, category, start_ns, dur_ns, track"
    query = f"SELECT {columns} FROM events ORDER BY rank, start_ns, name"  # noqa: S608
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
    assert [lengths[rank, 7] for rank in range(4)] == pytest.approx([0.029, 0.029, 0.038, 0.038])


def test_times_of_one_origin_leave_out_what_was_not_recorded(tmp_path: Path) -> None:
    """Steps 1, 2 and 5 of 10 ms each: the first ends where the second begins, the others with their rows."""
    own = {"rank": 0, "what": "fwd", "took": 6}
    rows = [own | {"step": step, "begin": at} for step, at in ((1, 0), (2, 10), (5, 40))]
    mapping = MAPPING.replace(", from: step", "").replace("place: {dp: replica, pp: stage}\n", "")
    mapping = mapping[: mapping.index("  send:")]
    run = ingested(written(tmp_path / "traces", rows, mapping=mapping))
    query = "SELECT step, end_ns - start_ns AS ns, open FROM steps WHERE source = 'module' ORDER BY step"
    found = [(row["step"], row["ns"] // 10**6, row["open"]) for row in run.sql(query).to_pylist()]
    assert found == [(1, 10, False), (2, 6, False), (5, 6, True)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        *(("version: 1", "version: 2", "version"), ("unit: ms", "unit: minutes", "time.unit")),
        ("took}", "took, colour: red}", "colour: unknown key"),
        ("step: step, ", "", "has no step, to which times are relative"),
        ("place:", "ranks: 3\nplace:", "states 3 ranks, and the tables have 4"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in MAPPING
    folder = written(tmp_path / "traces", table(), mapping=MAPPING.replace(old, new))
    with pytest.raises(InputError, match=said) as refused:
        ingested(folder)
    assert len(str(refused.value).splitlines()) <= 3


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_damaged_tables_are_refused(ending: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table(), ending)
    path = folder / f"job{ending}"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3].rpartition(b",")[0])
    with pytest.raises(InputError, match="job"):
        ingested(folder)


def test_a_new_mapping_makes_a_new_run(tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table())
    first = ingested(folder)
    assert not any("timeline.yaml" in note for note in first.record.notes)
    written(folder, table(), mapping=MAPPING.replace('"fwd*": {does: compute}', '"fwd*": {does: copy}'))
    second = ingested(folder)
    assert first.id != second.id
    assert {row["category"] for row in events(second)} == {"communication", "copy"}


def test_other_mappings_are_left_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "traces", table(), mapping="events: [1, 2]\n")
    with pytest.raises(InputError, match="no trace of a known format"):
        ingested(folder / "job.csv")
    folder = written(tmp_path / "traces", table())
    (folder / "timeline.yaml").unlink()
    with pytest.raises(InputError, match="no trace of a known format"):
        ingested(folder / "job.csv")


def test_shards_of_an_older_mapping_are_not_merged(tmp_path: Path) -> None:
    folder, store = written(tmp_path / "traces", table()), ("--store", str(tmp_path / "store"))
    assert main(["ingest", str(folder), "--shard", "1/1", *store]) == 0
    (shard,) = (tmp_path / "store").glob("*.shard-*")
    assert main(["merge", str(shard), *store]) == 0
    written(folder, table(), mapping=MAPPING.replace("compute}", "copy}"))
    with pytest.raises(InputError, match=r"timeline\.yaml: changed since the shards were made"):
        merge_shards([shard], Store(tmp_path / "store"))

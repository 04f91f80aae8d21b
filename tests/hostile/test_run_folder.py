# SPDX-License-Identifier: Apache-2.0
"""The folder of a run is a stranger's: nothing in it reaches beyond it, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.typed import rewrite_manifest

import cclbench
from cclbench.ground.errors import InputError

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def run(cards: tuple[Path, Path], tmp_path: Path) -> Path:
    """A run of two ranks, in a store of its own."""
    made = cclbench.ingest(cards[0], store=tmp_path / "store")
    return Path(shutil.copytree(made.path, tmp_path / "given" / made.id))


def change(run: Path, alter: Change) -> None:
    """Alter the manifest."""
    document = json.loads((run / "manifest.json").read_text())
    alter(document)
    (run / "manifest.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    "alter",
    [
        lambda m: m["ranks"][0].update(
            rank="0/*.parquet') ; COPY (SELECT 1) TO 'written.csv'; SELECT * FROM read_parquet('0"
        ),
        lambda m: m["ranks"][0].update(rank=-1),
        lambda m: m["ranks"][0].update(rank=1 << 40),
        lambda m: m.update(sources=["../../elsewhere"]),
        lambda m: m.update(sources=[".."]),
        lambda m: m.update(ranks={}),
        lambda m: m["ranks"][0]["facts"].update(world_size="many"),
        lambda m: m["ranks"][0].update(files=[]),
    ],
)
def test_a_manifest_that_is_none_is_refused(
    run: Path, alter: Change, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(run, alter)
    monkeypatch.setenv("CCLBENCH_STORE", str(run.parent))
    before = sorted(run.parent.rglob("*"))
    for words in (("sql", run.name, "SELECT 1"), ("metrics", run.name), ("report", run.name, "-o", "x.html")):
        answer = call(*words)
        assert (answer.code, answer.out) == (3, "")
        assert "damaged manifest" in answer.err
        assert "its text" not in answer.err  # refused for what it says
    assert sorted(run.parent.rglob("*")) == before


@pytest.mark.parametrize("place", ["collectives/rank=0.parquet", "groups.parquet", "events/rank=0"])
def test_links_out_of_the_run_are_refused(run: Path, place: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (run / place).rename(outside)
    (run / place).symlink_to(outside)
    given = cclbench.record.run.Run(run)
    with pytest.raises(InputError, match="is a link"):
        given.sql("SELECT 1")
    if place != "groups.parquet":  # which no metric reads
        with pytest.raises(InputError, match="is a link"):
            cclbench.metrics(given)


Alter = Callable[[pa.Table], pa.Table]
TABLES = {"kernels": "events/rank=0/kernel-*.parquet", "steps": "steps/rank=0.parquet"}


def without_times(table: pa.Table) -> pa.Table:
    """The table without any begin."""
    at, none = table.column_names.index("start_ns"), pa.nulls(len(table), pa.int64())
    return table.set_column(at, pa.field("start_ns", pa.int64()), none)


def another(column: str, value: object) -> Alter:
    """The table with that value in the first row of a column."""

    def altered(table: pa.Table) -> pa.Table:
        field = table.schema.field(column)
        values = [value, *table[column].to_pylist()[1:]]
        words = pa.array(values, pa.string()).dictionary_encode() if isinstance(value, str) else values
        cast = words.cast(field.type) if isinstance(value, str) else pa.array(values, field.type)
        return table.set_column(table.column_names.index(column), field, cast)

    return altered


@pytest.mark.parametrize(
    ("table", "alter", "said"),
    [
        (TABLES["kernels"], another("category", "gem"), "column category holds an unknown word"),
        (TABLES["kernels"], another("phase", "forwards"), "column phase holds an unknown word"),
        ("collectives/rank=0.parquet", another("kind", "all_out"), "column kind holds an unknown word"),
        ("collectives/rank=0.parquet", another("instance", -3), "column instance holds a number below 0"),
    ],
)
def test_a_table_with_what_its_column_may_not_hold_is_damaged(
    run: Path, table: str, alter: Alter, said: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCLBENCH_STORE", str(run.parent))
    path = next(run.glob(table))
    pq.write_table(alter(pq.read_table(path)), path)
    rewrite_manifest(run)
    answer = call("metrics", run.name)
    assert (answer.code, answer.out) == (3, "")
    assert said in answer.err


def test_a_table_lost_rows(run: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCLBENCH_STORE", str(run.parent))
    path = next(run.glob("events/rank=1/kernel-*.parquet"))
    pq.write_table(pq.read_table(path).slice(1), path)
    rewrite_manifest(run)
    for words in (("metrics", run.name), ("whatif", run.name, "--set", "kernels.time=x2")):
        answer = call(*words)
        assert (answer.code, answer.out) == (3, "")
        assert "damaged table: " in answer.err
        assert "rows of kind kernel, of which" in answer.err


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "alter",
    [
        lambda t: t.drop_columns(t.column_names[0]),
        lambda t: t.append_column(t.column_names[0], t.column(0)),
        lambda t: t.rename_columns(["other", *t.column_names[1:]]),
        lambda t: t.set_column(0, t.column_names[0], pa.array([1.5] * len(t))),
        without_times,
    ],
    ids=["missing", "doubled", "renamed", "retyped", "nulls"],
)
def test_a_table_that_is_not_ours_is_damaged(
    run: Path, table: str, alter: Alter, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCLBENCH_STORE", str(run.parent))
    path = next(run.glob(TABLES[table]))
    pq.write_table(alter(pq.read_table(path)), path)
    rewrite_manifest(run)
    replayed = ("whatif", run.name, "--set", "kernels.time=x2")
    for words in (("sql", run.name, "SELECT 1"), ("metrics", run.name), replayed):
        answer = call(*words)
        assert (answer.code, answer.out) == (3, "")
        assert f"{path}: damaged table: " in answer.err
        assert answer.err.count("\n") <= 3

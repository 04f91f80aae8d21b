# SPDX-License-Identifier: Apache-2.0
"""Results that the store has are not computed again, and are the same rows as when they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.typed import run_of

import cclbench
from cclbench import engine, results
from cclbench.ground.errors import UsageError
from cclbench.ground.schema import EVENTS, OPERATORS
from cclbench.record import rank
from cclbench.record.files import EventFile
from cclbench.record.rank import BATCH_ROWS, Rank
from cclbench.record.run import Run

CARD = "tiny-llama-fsdp2-tp2-gloo-cpu.yaml"


@pytest.fixture(scope="module")
def stored(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in a store of its own, without results."""
    return cclbench.ingest(repository / "workload_cards" / CARD, store=tmp_path_factory.mktemp("store"))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed on ranks, in order."""
    done: list[str] = []
    every = engine.Engine.gather

    def counted(*arguments: Any, what: str = "", **options: Any) -> Any:
        done.append(what)
        return every(*arguments, what=what, **options)

    monkeypatch.setattr(engine.Engine, "gather", counted)
    return done


def cold(stored: Run, **options: Any) -> Run:
    (stored.path / "results.parquet").unlink(missing_ok=True)
    return cclbench.metrics(stored, **options)


@pytest.mark.parametrize("options", [{}, {"window": "trace"}, {"model": False}])
def test_stored_rows_are_the_computed_ones(stored: Run, computed: list[str], options: dict[str, Any]) -> None:
    first = cold(stored, **options)
    assert computed == ["computing metrics"]
    again = cclbench.metrics(stored, **options)
    assert computed == ["computing metrics"]
    assert (again.rows, again.window) == (first.rows, first.window)
    assert {row["rank"] for row in again.rows} == {None, 0, 1, 2, 3}


@pytest.mark.parametrize(
    "patterns",
    [
        *(["time.*"], ["comm.count", "time.step"], ["bandwidth_utilization_allgather_group_6"]),
        *(["serving.*"], "*"),
    ],
)
def test_stored_rows_asked_for_are_taken(stored: Run, computed: list[str], patterns: list[str]) -> None:
    alone = cold(stored, metrics=patterns)
    cold(stored)
    computed.clear()
    again = cclbench.metrics(stored, metrics=patterns)
    assert computed == []
    assert (again.rows, again.window) == (alone.rows, alone.window)


@pytest.mark.parametrize(
    "options", [{"window": "trace"}, {"model": False}, {"ranks": [0]}, {"steps": (0, 99)}]
)
def test_other_options_are_computed(stored: Run, computed: list[str], options: dict[str, Any]) -> None:
    alone = cold(stored, **options)
    cold(stored)
    computed.clear()
    assert cclbench.metrics(stored, **options).rows == alone.rows
    assert computed == ["computing metrics"]


def test_a_replay_comes_and_goes_with_the_question(stored: Run, computed: list[str]) -> None:
    replayed = cold(stored, metrics=["*", "whatif.*"])
    plain = cold(stored)
    assert plain.rows != replayed.rows
    computed.clear()
    for _ in range(2):
        assert cclbench.metrics(stored, metrics=["*", "whatif.*"]).rows == replayed.rows
        assert cclbench.metrics(stored).rows == plain.rows
    assert computed == []


def test_others_are_computed(stored: Run, computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cold(stored)
    monkeypatch.setattr(results, "_metrics_code_hash", lambda: "another")
    cclbench.metrics(stored)
    assert computed == ["computing metrics", "computing metrics"]


def test_a_wrong_selection_is_refused_as_before(stored: Run) -> None:
    cold(stored)
    with pytest.raises(UsageError, match="unknown window"):
        cclbench.metrics(stored, window="stepz")
    with pytest.raises(UsageError, match="has no rank"):
        cclbench.metrics(stored, ranks=[9])


ASKED = (
    ("start_ns", "dur_ns", "category"),
    ("device", "correlation", "start_ns"),
    ("start_ns", "dur_ns"),
    ("name",),
    ("category", "flops", "name", "start_ns"),
)


@pytest.fixture(scope="module")
def run(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    card = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    return cclbench.ingest(card, store=tmp_path_factory.mktemp("store"))


@pytest.fixture
def kept(run: Run) -> Rank:
    return run.rank(0).with_column_cache()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Parquet files that are opened."""
    names: list[str] = []
    file = pa.OSFile

    def counted(path: bytes, *mode: str) -> pa.OSFile:
        names.append(Path(os.fsdecode(path)).name)
        return file(path, *mode)

    monkeypatch.setattr(pa, "OSFile", counted)
    return names


def large(run: Run, folder: Path, sizes: tuple[int, ...]) -> Run:
    """The run's first rank with kernels in row groups of those sizes, each with words of its own."""
    operators = pa.Table.from_batches(run.rank(0).events(["op"], EVENTS.names))
    (folder / "events" / "rank=0").mkdir(parents=True)
    file = EventFile(folder / "events" / "rank=0", "kernel", 0)
    for number, rows in enumerate(sizes):
        part = pa.concat_tables([operators.slice(number)] * (rows // len(operators) + 1)).slice(0, rows)
        file.write(part)
    file.close()
    return run_of(folder, ["rank0.json"], {"kernel": sum(sizes)})


@pytest.mark.parametrize(
    "sizes", [(10,), (BATCH_ROWS,), (BATCH_ROWS + 5, 70_000, 3), (30_000, 30_000, 30_000)]
)
@pytest.mark.parametrize("room", [rank.MOST_KEPT, 10, 1_500_000])
def test_rows_are_the_same(
    run: Run, tmp_path: Path, sizes: tuple[int, ...], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank, "MOST_KEPT", room)
    path, entry = large(run, tmp_path, sizes).path, Run(tmp_path).rank(0).entry
    plain, kept = Rank(path, entry, 0.0), Rank(path, entry, 0.0).with_column_cache()
    for columns in (*ASKED, *ASKED):
        expected, found = ([*of.events(["kernel"], columns)] for of in (plain, kept))
        assert max(map(len, found)) <= BATCH_ROWS
        assert as_plain_table(found).equals(as_plain_table(expected))


def as_plain_table(batches: list[pa.RecordBatch]) -> pa.Table:
    """The rows in one chunk, words as texts."""
    table = pa.Table.from_batches(batches)
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(pa.string()))
    return table.combine_chunks()


def test_columns_are_read_once(kept: Rank, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ASKED:  # a small file is opened once
        list(kept.events(["annotation"], columns))
    assert opened == ["annotation-000.parquet"]
    opened.clear()
    monkeypatch.setattr(rank, "BATCH_ROWS", 10)
    for _ in range(3):
        list(kept.events(["op"], ASKED[0]))
        list(kept.events(["op"], ("start_ns", "name")))
    assert sorted(opened) == 2 * ["op-000-transfer.parquet"] + 2 * ["op-000.parquet"]


@pytest.mark.parametrize(("short_of", "opens"), [(0, 1), (1, 3)])
def test_calls_of_operators_are_read_once_where_there_is_room(
    run: Run, opened: list[str], monkeypatch: pytest.MonkeyPatch, short_of: int, opens: int
) -> None:
    entry = run.rank(0).entry
    room = entry.operators * len(OPERATORS) * 8
    monkeypatch.setattr(rank, "MOST_KEPT", room - short_of)
    plain, found = run.rank(0).operators(), run.rank(0).with_column_cache()
    opened.clear()
    for columns in (["name", "parent"], ["operator"]):
        assert found.operators(columns).equals(plain.select(columns))
    assert found.operators().equals(plain)
    assert len(opened) == opens


def test_the_metrics_of_a_rank_open_a_file_a_few_times(run: Run, opened: list[str]) -> None:
    cclbench.metrics(run, ranks=[0])
    assert max(map(opened.count, set(opened))) <= 5

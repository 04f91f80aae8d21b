# SPDX-License-Identifier: Apache-2.0
"""Hostile run folders and data points."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import hostile_job as job
from helpers.typed import rewrite_manifest
from hostile.test_terminal import assert_clean

import cclbench
from cclbench.contribute.archive import unpack_archive
from cclbench.ground.errors import InputError

Change = Callable[[dict[str, Any]], Any]
Call = Callable[..., Any]


Refused = Callable[..., str]


@pytest.fixture
def run(cards: tuple[Path, Path], tmp_path: Path) -> Path:
    """A run of two ranks, in a store of its own."""
    made = cclbench.ingest(cards[0], store=tmp_path / "store")
    return Path(shutil.copytree(made.path, tmp_path / "given" / made.id))


@pytest.fixture
def refused(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Calls a command that takes nothing from the run's store; what it says."""
    monkeypatch.setenv("CCLBENCH_STORE", str(run.parent))

    def said(*words: object) -> str:
        answer = call(*words)
        assert (answer.code, answer.out) == (3, "")
        return str(answer.err)

    return said


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
def test_bad_manifests_are_refused(run: Path, alter: Change, refused: Refused) -> None:
    document = json.loads((run / "manifest.json").read_text())
    alter(document)
    (run / "manifest.json").write_text(json.dumps(document))
    before = sorted(run.parent.rglob("*"))
    for words in (("sql", run.name, "SELECT 1"), ("metrics", run.name), ("report", run.name, "-o", "x.html")):
        said = refused(*words)
        assert "damaged manifest" in said
        assert "its text" not in said  # refused for what it says
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
    run: Path, table: str, alter: Alter, said: str, refused: Refused
) -> None:
    path = next(run.glob(table))
    pq.write_table(alter(pq.read_table(path)), path)
    rewrite_manifest(run)
    assert said in refused("metrics", run.name)


def test_a_table_lost_rows(run: Path, refused: Refused) -> None:
    path = next(run.glob("events/rank=1/kernel-*.parquet"))
    pq.write_table(pq.read_table(path).slice(1), path)
    rewrite_manifest(run)
    for words in (("metrics", run.name), ("whatif", run.name, "--set", "kernels.time=x2")):
        assert re.search("damaged table: .*rows of kind kernel, of which", refused(*words), re.DOTALL)


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
def test_foreign_tables_are_damaged(run: Path, table: str, alter: Alter, refused: Refused) -> None:
    path = next(run.glob(TABLES[table]))
    pq.write_table(alter(pq.read_table(path)), path)
    rewrite_manifest(run)
    replayed = ("whatif", run.name, "--set", "kernels.time=x2")
    for words in (("sql", run.name, "SELECT 1"), ("metrics", run.name), replayed):
        said = refused(*words)
        assert f"{path}: damaged table: " in said
        assert said.count("\n") <= 3


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_contribute_and_verify(call: Call, cards: tuple[Path, Path], tmp_path: Path) -> None:
    """The names of files are made plain, the evidence stays evidence."""
    card = cards[0]
    root, collection = card.parent.parent, tmp_path / "collection"
    collection.mkdir()
    before = files(tmp_path)
    traces, scripts = root / "traces" / card.stem, root / "scripts" / card.stem
    answer = call(
        *("contribute", card, "--traces", traces, "--scripts", scripts),
        *("--collection", collection, "--no-input", "--allow-gaps", "--licence", "Apache-2.0"),
    )
    assert answer.code == 0, answer.err
    assert_clean(answer.out + answer.err)
    made = files(collection)
    assert {path.split("/")[0] for path in made} == {"workload_cards", "traces", "scripts"}
    assert all(
        path.isascii() and path.isprintable() and not set(path) & set(" <>|`$&()'\";{}*?") for path in made
    )
    assert files(tmp_path) - before == {f"collection/{path}" for path in made}
    checked = call("verify", "--all", "--collection", collection)
    assert checked.code == 0, checked.out + checked.err
    assert_clean(checked.out + checked.err)


def test_a_member_without_a_name_is_refused(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(ZipInfo(""), b"x")
    with pytest.raises(InputError, match="it has no name"):
        unpack_archive(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["../breakout.json", "/breakout.json", "a/../../breakout.json", "$(touch breakout).json", "-rf"]
)
def test_archives_stay_in_a_folder(call: Call, cards: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    archive = tmp_path / "traces.tar.gz"
    content = json.dumps(job.trace(0)).encode()
    with tarfile.open(archive, "w:gz") as out:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        out.addfile(entry, BytesIO(content))
    (tmp_path / "collection").mkdir()
    root = cards[0].parent.parent
    answer = call(
        *("contribute", cards[0], "--traces", archive, "--scripts", root / "scripts" / cards[0].stem),
        *("--collection", tmp_path / "collection", "--no-input"),
    )
    assert answer.code in (1, 3)
    assert_clean(answer.out + answer.err)
    assert answer.err.startswith("error: ")
    assert files(tmp_path / "collection") == set()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("id", "../breakout"), ("id", "$(touch breakout)"), ("id", "<script>"),
        ("path", "../../breakout.json"), ("path", "/etc/passwd"), ("path", "\u0000"),
        ("calibration", "../../../../etc/passwd"), ("url", "javascript:alert(1)"),
        ("launch", "../../../etc/passwd"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "card validate", "card show"])
def test_cards_that_point_elsewhere(call: Call, tmp_path: Path, command: str, key: str, text: str) -> None:
    card = job.card("hostile", ["traces/rank0.json"])
    places = {"id": card, "path": card["evidence"]["traces"][0], "calibration": card["hardware"]}
    places |= {"url": card["workload"]["model"], "launch": card["evidence"]}
    places[key][key] = text
    path = tmp_path / "workload_cards" / "hostile.yaml"
    path.parent.mkdir()
    path.write_text(json.dumps(card))
    answer = call(*command.split(), path)
    assert answer.code in (1, 3), answer.out
    assert_clean(answer.out + answer.err)
    assert "error" in answer.err
    assert "root:" not in answer.out + answer.err


def test_published_rows(call: Call, tmp_path: Path) -> None:
    """Rows whose every text is hostile become runs of the store, and none of them anything else."""

    def row(n: int, text: str) -> dict[str, Any]:
        words = ("workload_name", "model_family", "hardware_model", "framework", "comm_library", "dataset")
        facts = dict.fromkeys(words, text) | {"phase": "training", "hardware_type": "GPU"}
        facts |= {"total_count": n + 1, "batch_size": 4, "seq_len": 512, "trace_types": [text[:300]]}
        facts |= {"description": text, text[:300]: text}
        return {"trace": text, "metadata": facts, "metrics": {"avg_step_time": 1.0 + n, text[:300]: 1.0}}

    board = tmp_path / "board.json"
    board.write_text(json.dumps({"rows": [row(n, text[:10_000]) for n, text in enumerate(job.TEXTS)]}))
    store = tmp_path / "store"
    for words in (
        ("import", "ccl-bench", board),
        ("list", "runs"),
        ("claims", "-v"),
        ("claims", "-o", tmp_path / "claims.svg"),
    ):
        answer = call(*words, "--store", store)
        assert answer.code == 0, answer.err
        assert_clean(answer.out + answer.err)
        assert max(map(len, answer.out.splitlines())) <= 80
    runs = [path.name for path in store.iterdir() if path.is_dir()]
    assert len(runs) == len(job.TEXTS)
    assert all(name.isascii() and not set(name) & set(" /\\<>|`$&()'\";{}*?") for name in runs)
    first, second = sorted(runs)[:2]
    answer = call("compare", first, second, "-v", "-o", tmp_path / "page.html", "--store", store)
    assert answer.code == 0, answer.err
    assert_clean(answer.out + answer.err)

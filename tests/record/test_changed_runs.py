# SPDX-License-Identifier: Apache-2.0
"""A run one of whose files was lost, replaced or changed: no command takes a number from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.command_line import Answer
from helpers.typed import run_of
from record.test_store import fill

import cclbench
from cclbench.agents.reach import Reach
from cclbench.agents.tools import Tools
from cclbench.cli import main
from cclbench.ground.errors import InputError
from cclbench.record import inventory
from cclbench.record.inventory import file_sizes, verify
from cclbench.record.run import Run
from cclbench.record.store import Store

CARDS = ("tiny-llama-operators-ddp2-gloo-cpu", "tiny-llama-profile-ddp2-gloo-cpu")
COMMANDS = (
    *("metrics {run} --jobs 1", "run {run} --jobs 1", "diagnose {run} --jobs 1", "ops {run}"),
    *("compare {run} {other} --jobs 1", "compare {other} {run} --jobs 1"),
    *("report {run} -o out.html --jobs 1", "whatif {run} --set kernels.time=x0.5"),
    *("export {run} --to chakra -o out", "stragglers {run}", "timeline {run} -o out.svg", "memory {run}"),
    *("sequences {run}", "open {run} -o out.json", "search {run} --space space.yaml"),
)
Clean = tuple[Path, str, str]
QUERY = "SELECT count(*) AS n FROM steps"  # which reads one table of the run


@dataclass(frozen=True)
class Desk:
    """A folder with a store of two runs that have results, of which `run` may be changed."""

    store: Path
    clean: Path
    run: str
    other: str
    capsys: pytest.CaptureFixture[str]

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.store / self.run

    def renew(self) -> None:
        """The run as it was."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.clean / self.run, self.path)

    def call(self, words: str | list[str]) -> Answer:
        """`cclbench WORDS`."""
        listed = words if isinstance(words, list) else words.format(run=self.run, other=self.other).split()
        self.capsys.readouterr()
        code = main(listed)
        told = self.capsys.readouterr()
        return Answer(code, told.out, told.err)

    def made(self, words: str | list[str]) -> tuple[str, list[bytes]]:
        """What a command prints and writes, which is removed."""
        out = self.call(words).out
        paths = sorted(self.store.parent.glob("out*"))
        files = [f for path in paths for f in ([path] if path.is_file() else sorted(path.rglob("*.*")))]
        content = [path.read_bytes() for path in files]
        for path in paths:
            path.unlink() if path.is_file() else shutil.rmtree(path)
        return out, content

    def tables(self) -> list[str]:
        """The run's tables, without its results."""
        names = (path.relative_to(self.path).as_posix() for path in self.path.rglob("*.parquet"))
        return sorted(set(names) - {"results.parquet"})


@pytest.fixture(scope="module")
def clean(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """A store of two runs with results, and their ids."""
    store = tmp_path_factory.mktemp("clean")
    ids = [cclbench.run(repository / "workload_cards" / f"{card}.yaml", store=store).id for card in CARDS]
    return store, ids[0], ids[1]


@pytest.fixture
def desk(
    clean: Clean, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """A copy of the store, in whose parent the commands are called."""
    store = tmp_path / "store"
    shutil.copytree(clean[0], store)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CCLBENCH_STORE", str(store))
    monkeypatch.setenv("COLUMNS", "10000")
    (tmp_path / "space.yaml").write_text("space:\n  kernels.time: [x1, x0.5]\n")
    return Desk(store, *clean, capsys)


delete = Path.unlink


def truncate(path: Path) -> None:
    """Take the last byte away."""
    path.write_bytes(path.read_bytes()[:-1])


def append(path: Path) -> None:
    """Add a byte."""
    path.write_bytes(path.read_bytes() + b"\0")


def add(path: Path) -> None:
    """Put another table beside it, which a pattern of names finds."""
    shutil.copyfile(path, path.with_name(f"{path.stem}-copy.parquet"))


def swap(path: Path) -> None:
    """Put another rank's table in its place; of no rank's the file is lost to the other."""
    of, by = ("rank=0", "rank=1") if "rank=0" in str(path) else ("rank=1", "rank=0")
    other = Path(str(path).replace(of, by))
    if other == path:
        path.rename(path.with_name("other.parquet"))
        return
    content = path.read_bytes()
    path.write_bytes(other.read_bytes() if other.exists() else b"")
    other.write_bytes(content)


@pytest.mark.parametrize("change", [delete, truncate, append, add, swap])
def test_no_command_reads_a_changed_table(desk: Desk, change: Callable[[Path], None], tmp_path: Path) -> None:
    before, same_size = sorted(tmp_path.iterdir()), []
    for table in desk.tables():
        desk.renew()
        change(desk.path / table)
        if file_sizes(desk.path) == file_sizes(desk.clean / desk.run):
            same_size.append(table)
            continue
        for words in (*COMMANDS, ["sql", desk.run, QUERY]):
            answer = desk.call(words)
            assert (answer.code, answer.out) == (3, ""), (table, words, answer)
            assert len(answer.err.splitlines()) <= 3
            for told in (f"{desk.path}/", f"run {desk.run}", "cclbench ingest ", "cclbench verify --run"):
                assert told in answer.err, (table, words)
        listed = json.loads(desk.call("list runs --json").out)["rows"]
        (row,) = (row for row in listed if row["run"] == desk.run)
        assert row.keys() == {"run", "problem"}
        assert f"{desk.path}/" in row["problem"]
        tools = Tools(desk.store, Reach(()), 1 << 30)
        for ask in (tools.metrics, tools.diagnose, tools.ops):
            with pytest.raises(InputError, match=f"run {desk.run}"):
                ask(desk.run)
        assert tools.runs().all_rows == 2
    assert sorted(tmp_path.iterdir()) == before
    # Tables that are as large as those of the other rank are told from them where they are read.
    for words in (*COMMANDS, ["sql", desk.run, "FROM steps"]) if same_size else ():
        desk.renew()
        usual = desk.made(words)
        for table in same_size:
            desk.renew()
            change(desk.path / table)
            assert desk.call("verify --run {run}").code == 3
            assert desk.call(words).code == 3 or desk.made(words) == usual, (table, words)


def test_the_same_commands_are_done_where_nothing_is_changed(desk: Desk, tmp_path: Path) -> None:
    """Else the test above would hold for commands that never work."""
    for words in (*COMMANDS, ["sql", desk.run, QUERY], "list runs", "verify --run {run} --run {other}"):
        answer = desk.call(words)
        assert answer.code == (2 if words == "sequences {run}" else 0), answer.err  # which has no kernels
        (tmp_path / "out").exists() and shutil.rmtree(tmp_path / "out")


def flipped(path: Path) -> None:
    """Change one bit amid the content: the size and the footer stay."""
    content = bytearray(path.read_bytes())
    content[(len(content) - int.from_bytes(content[-8:-4], "little")) // 2] ^= 1
    path.write_bytes(content)


def test_a_flipped_byte_is_found_by_verify_and_where_it_is_read(desk: Desk) -> None:
    (desk.path / "results.parquet").unlink()
    usual = desk.call("metrics {run} --jobs 1 --json").out
    for table in desk.tables():
        desk.renew()
        (desk.path / "results.parquet").unlink()
        flipped(desk.path / table)
        answer = desk.call("verify --run {run} --json")
        assert answer.code == 3
        assert f"cclbench ingest {Run(desk.path).record.source}" in answer.err
        (found,) = json.loads(answer.out)["runs"]
        assert found["changes"] == [{"path": table, "what": inventory.OTHER_CONTENT}]
        if "rank=1" not in table:
            computed = desk.call("metrics {run} --jobs 1 --json")
            assert computed.code == 3 or computed.out == usual, table


def test_verify_lists_all_that_is_wrong(desk: Desk) -> None:
    delete(desk.path / "groups.parquet")
    append(desk.path / "steps" / "rank=0.parquet")
    add(desk.path / "steps" / "rank=1.parquet")
    flipped(desk.path / "results.parquet")
    answer = desk.call("verify --run {other} --run {run}")
    assert answer.code == 3
    lines = [line.split(":")[0] for line in answer.out.splitlines() if line.startswith("- ")]
    changed = ["groups.parquet", "results.parquet", "steps/rank=0.parquet", "steps/rank=1-copy.parquet"]
    assert lines == [f"- {path}" for path in changed]
    assert "error: 1 of 2 runs differ from what was written" in answer.err
    assert desk.call("verify --run {run} --all").code == 2


def test_naming_the_source_reads_a_changed_run_again(desk: Desk, repository: Path) -> None:
    card = repository / "workload_cards" / f"{CARDS[0]}.yaml"
    delete(desk.path / "steps" / "rank=1.parquet")
    assert desk.call(["ingest", str(card), "-q", "--jobs", "1"]).code == 0
    assert file_sizes(desk.path).keys() == file_sizes(desk.clean / desk.run).keys() - {"results.parquet"}
    assert desk.call("verify --run {run}").code == 0


# ------------------------------------------------------------------------------------ kept results


def test_results_of_another_run_are_not_taken(desk: Desk) -> None:
    usual = desk.call("metrics {run} --jobs 1 --json").out
    shutil.copyfile(desk.store / desk.other / "results.parquet", desk.path / "results.parquet")
    rows = {row["run"]: row for row in json.loads(desk.call("list runs --json").out)["rows"]}
    assert rows[desk.run]["step_s"] is None
    answer = desk.call(["sql", desk.run, "FROM results"])
    assert (answer.code, answer.out) == (3, "")
    assert f"cclbench metrics {desk.run}" in answer.err
    assert desk.call("metrics {run} --jobs 1 --json").out == usual
    assert desk.call(["sql", desk.run, "FROM results"]).code == 0
    flipped(desk.path / "results.parquet")
    for words in (["sql", desk.run, "FROM results"], "metrics {run} --jobs 1"):
        answer = desk.call(words)
        assert (answer.code, answer.out) == (3, "")
        assert "results.parquet" in answer.err


# ------------------------------------------------------------------------- other files of the run


def test_a_card_of_the_same_size_is_not_taken_for_the_own(desk: Desk) -> None:
    card = desk.path / "card.yaml"
    text = card.read_text()
    card.write_text(text.replace("layers: 2", "layers: 3", 1))
    assert card.read_text() != text
    (desk.path / "results.parquet").unlink()
    answer = desk.call("metrics {run} --jobs 1")
    assert (answer.code, answer.out) == (3, "")
    assert f"{card}: {inventory.OTHER_CONTENT}" in answer.err
    path = desk.path / "manifest.json"  # nor is a manifest with another number
    document = json.loads(path.read_text())
    document["matching"]["matched"] += 1
    path.write_text(json.dumps(document))
    answer = desk.call("metrics {run}")
    assert (answer.code, answer.out) == (3, "")
    assert "damaged manifest" in answer.err


# ------------------------------------------------------------------------------ tables of one size


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Run]:
    """A run whose ranks' tables are of one size; after the test another of its id is opened as written."""
    store = Store(tmp_path / "twins")
    with store.new_run_folder("job") as folder:
        fill(folder)
    yield store.get("job")
    with store.new_run_folder("job") as folder:
        fill(folder)
    assert verify(store.get("job").path).changes == []


@pytest.mark.parametrize("table", ["events/rank=0/kernel-000.parquet", "steps/rank=0.parquet"])
def test_tables_of_one_size_that_were_swapped_are_told_apart(twin: Run, table: str) -> None:
    path, sizes = twin.path / table, file_sizes(twin.path)
    swap(path)
    assert file_sizes(twin.path) == sizes
    rank = twin.rank(0)
    reads: dict[str, tuple[Callable[[], object], ...]] = {
        "events": (lambda: twin.sql("FROM events"), lambda: list(rank.events(["kernel"], ["name"]))),
        "steps": (lambda: twin.sql("FROM steps"), rank.steps),
    }
    for act in reads[table.split("/")[0]]:
        with pytest.raises(InputError, match="its content is not what was written") as raised:
            act()
        assert raised.value.where == str(path)
        assert raised.value.hint is not None
        assert "cclbench remove job" in raised.value.hint


def test_a_run_replaced_while_it_is_opened_is_the_new_one(twin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are looked at when those of the manifest that was read are gone."""
    steps = []

    def replaced(folder: Path) -> dict[str, int]:
        if not steps:
            steps.append(folder)
            with Store(twin.store).new_run_folder("job") as other:
                run_of(other, [])
        return file_sizes(folder)

    monkeypatch.setattr(inventory, "file_sizes", replaced)
    assert Run(twin.path).ranks == []
    monkeypatch.undo()


# ------------------------------------------------------------------------------------------ shards


@pytest.mark.parametrize("change", [delete, truncate, append, add, flipped])
def test_a_shard_with_a_changed_file_is_refused(
    change: Callable[[Path], None], repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "shards"
    source = repository / "traces" / CARDS[0]
    for share in ("1/2", "2/2"):
        words = ["ingest", str(source), "--shard", share, "--store", str(store), "-q", "--jobs", "1"]
        assert main(words) == 0
    shards = sorted(store.glob("*.shard-*"))
    assert main(["merge", *map(str, shards), "--store", str(tmp_path / "whole"), "-q", "--jobs", "1"]) == 0
    for table in sorted(shards[1].rglob("*.parquet")):
        content = table.read_bytes()
        change(table)
        capsys.readouterr()
        store_of_run = tmp_path / "runs"
        assert main(["merge", *map(str, shards), "--store", str(store_of_run), "-q", "--jobs", "1"]) == 3
        error = capsys.readouterr().err
        assert f"{shards[1]}/" in error
        assert "the shard is not what was written; make it again" in error
        assert not store_of_run.exists() or list(store_of_run.iterdir()) == []
        table.with_name(f"{table.stem}-copy.parquet").unlink(missing_ok=True)
        table.write_bytes(content)

# SPDX-License-Identifier: Apache-2.0
"""A site's data and files: exact figures, ranks of equal work alone, written whole or not at all."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from helpers.compared_subjects import card, subject
from helpers.site_store import DEFECT, published_row
from hypothesis import given
from hypothesis import strategies as st

from cclbench.cli import main
from cclbench.comparison.work_groups import WorkGroup
from cclbench.ground.errors import UsageError
from cclbench.ground.units import display_scale
from cclbench.present.board.build import build_site
from cclbench.present.board.document import Board, board_document, packed_column, published_document
from cclbench.present.board.pages import MARK
from cclbench.present.board.rows import BoardRow, _card_facts, page_name, read_run
from cclbench.record.store import Store

FIGURE = re.compile(r"globalThis\.(\w+) = (.*);\n", re.DOTALL)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Four published rows; the second names its model alone."""
    store = Store(tmp_path_factory.mktemp("site") / "runs")
    for number in range(4):
        published_row(store, number, model_family="llama", **({"phase": "training"} if number != 1 else {}))
    return store


@pytest.fixture(scope="module")
def rows(store: Store) -> list[BoardRow]:
    return [read_run(run, None).row for run in store.runs()]


def unpacked(column: dict[str, list[Any]]) -> list[Any]:
    """The values of a packed column."""
    times = column.get("times", [1] * len(column["of"]))
    return [value for value, count in zip(column["of"], times, strict=True) for _ in range(count)]


def figure_of(document: dict[str, Any], metric: str, number: int) -> tuple[float | None, list[str | None]]:
    """Value, and status, provenance and reason, as the script of the pages finds them."""
    column = document["figures"][[one["name"] for one in document["metrics"]].index(metric)]
    numbers = [first + place for first, count in column["rows"] for place in range(count)]
    place = numbers.index(number)
    texts = document["texts"]
    words = document["cells"][unpacked(column["cells"])[place]][:3]
    return unpacked(column["values"])[place], [None if word is None else texts[word] for word in words]


def test_figures_are_exact_and_keep_their_defects(rows: list[BoardRow]) -> None:
    document = board_document(Board(rows, []))
    assert figure_of(document, "time.step", 3) == (0.503, ["ok", "published", None])
    assert figure_of(document, "comm.time", 0) == (0.9, ["ok", "published", DEFECT])
    # A metric that no row has a number of has no column; its reasons are in the Parquet file.
    assert "compute.mfu" not in [one["name"] for one in document["metrics"]]
    assert [row.workload for row in rows] == ["llama training", "llama", "llama training", "llama training"]


def test_a_row_without_a_number_has_its_reason(rows: list[BoardRow]) -> None:
    figure = msgspec.structs.replace(
        rows[0].figures["compute.mfu"], value=0.5, status="ok", provenance="measured", reason=None
    )
    one = replace(rows[0], id="own", published=None, figures={"compute.mfu": figure})
    document = board_document(Board([one, rows[1]], []))
    reason = "not published: its tool gave no number"
    assert figure_of(document, "compute.mfu", 1) == (None, ["not_applicable", None, reason])
    assert unpacked(document["rows"]["page"]) == ["runs/own.html", None]


def test_published_figures_are_ranked_where_they_are_asked_for(rows: list[BoardRow]) -> None:
    document = board_document(Board(rows, [WorkGroup((0, 2), "equal by hand")]))
    # 1,000 and 998 tokens/s: the first is ahead.
    ranking = {"rows": [0, 2], "ranks": [1, 2]}
    assert document["rankings"] == {"throughput.tokens_per_device": {"p": ranking, "pm": ranking}}
    assert unpacked(document["rows"]["group"]) == [0, None, 0, None]


def test_what_is_published_with_a_row_is_kept(rows: list[BoardRow]) -> None:
    document = published_document(rows)
    texts = document["texts"]
    assert document["rows"] == [[0, 4]]
    assert document["columns"]["metadata.model_family"] == {"of": [texts.index("llama")], "times": [4]}
    phases = unpacked(document["columns"]["metadata.phase"])
    assert phases[1] is None
    assert texts[phases[0]] == "training"


@given(st.lists(st.sampled_from([None, 0, 1.5]), max_size=20))
def test_a_packed_column_keeps_its_values_and_is_never_longer(values: list[float | None]) -> None:
    column = packed_column(values)
    assert unpacked(column) == values
    assert sum(map(len, column.values())) <= len(values)


def test_scales_are_those_of_single_figures() -> None:
    told = {(0.0012, "s"): (1e-3, "ms"), (3e11, "B/s"): (1e9, "GB/s"), (0.4, "1"): (0.01, "%")}
    for (value, unit), scale in {**told, (0.0, "s"): (1.0, "s"), (7.0, "J"): (1.0, "J")}.items():
        assert display_scale(value, unit) == scale


def test_names_of_pages_are_plain_and_distinct() -> None:
    assert page_name("run-1f.a") == "run-1f.a.html"
    names = [
        page_name(text)
        for text in ("../x", "..\\x", "a/b", "a?b", "", "<b>", ".", "..", "é" * 300, "a b", "h100", "H100")
    ]
    assert all(
        re.fullmatch(r"[A-Za-z0-9._-]{1,90}\.html", name) and not name.startswith(".") for name in names
    )
    assert len({name.lower() for name in names}) == len(names)


def test_a_site_is_written_whole_and_replaces_only_a_site(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["site", str(store.folder), "-o", str(out), "-q"]) == 0
    (out / "old.html").write_text("of the former site")
    build_site(store.folder, output=out)
    assert not (out / "old.html").exists()
    assert json.loads((out / MARK).read_text())["rows"] == 4
    table = pq.read_table(out / "figures.parquet").to_pylist()
    assert len(table) == 16
    assert {row["reason"] for row in table if row["figure"] == "compute.mfu"} == {
        "not published: its tool gave no number"
    }
    name, text = FIGURE.fullmatch((out / "assets" / "board.js").read_text()).groups()  # type: ignore[union-attr]
    assert name == "BOARD"
    assert figure_of(json.loads(text), "time.step", 0)[0] == 0.5
    # A folder of something else is left alone, and nothing is left beside it.
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=f"has no {MARK}"):
        build_site(store.folder, output=other)
    with pytest.raises(UsageError, match="no run"):
        build_site(tmp_path / "none", output=tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]
    assert [path.name for path in other.iterdir()] == ["mine.txt"]


def test_a_damaged_run_is_left_out_with_the_reason(tmp_path: Path) -> None:
    copy = Store(tmp_path / "runs")
    published_row(copy, 0)
    damaged = copy.folder / published_row(copy, 1)
    (damaged / "results.parquet").write_bytes(b"PAR1")
    site = build_site(copy.folder, output=tmp_path / "out")
    assert [row.id for row in site.board.rows] == ["paper-00000"]
    assert site.left_out[0].startswith("paper-00001: ")
    assert "paper-00001" in (tmp_path / "out" / "index.html").read_text()


def test_a_repository_is_recomputed_if_asked_for(tmp_path: Path) -> None:
    name, here = "tiny-jax-h100", Path(__file__).parents[2]
    for folder, path in (("workload_cards", f"{name}.yaml"), ("traces", name)):
        (tmp_path / folder).mkdir()
        origin, copy = here / folder / path, tmp_path / folder / path
        if origin.is_dir():
            shutil.copytree(origin, copy)
        else:
            shutil.copy(origin, copy)
    (tmp_path / "workload_cards" / "broken.yaml").write_text("version: 2\n")
    site = build_site(tmp_path, output=tmp_path / "out", verify=True, store=tmp_path / "runs")
    (row,) = site.board.rows
    assert site.board.verified == {row.id: "verified"}
    assert site.left_out[0].startswith("broken: ")
    assert row.facts["model"] == "tiny-transformer-52M"
    assert row.facts["standard"] is None
    assert row.figures["time.step"].provenance == "measured"
    page = (tmp_path / "out" / "runs" / page_name(row.id)).read_text()
    assert "verified: every recorded value was reproduced" in page
    assert f"cclbench verify {name}" in page
    assert f"cclbench run workload_cards/{name}.yaml" in page
    assert str(tmp_path) not in page  # nobody else needs to know this machine's folders


def test_the_standard_workload_of_a_card_is_a_fact() -> None:
    named = subject("A", [], card(workload__standard="ccl-bench-llama-3.1-8b-inference"))
    assert _card_facts(named)["standard"] == "ccl-bench-llama-3.1-8b-inference"


def test_libraries_are_the_recorded_files() -> None:
    folder = resources.files("cclbench.present") / "vendor"
    listed = dict(
        re.findall(r"^\| (\S+) \| .* \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    )
    there = {
        file.name: sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name != "README.md"
    }
    assert listed == there

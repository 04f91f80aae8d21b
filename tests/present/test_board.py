# SPDX-License-Identifier: Apache-2.0
"""The board, words, briefs, workbooks and lines of metrics."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import msgspec
import pyarrow.parquet as pq
import pytest
from helpers.compared_subjects import card, subject
from helpers.hand_results import by_rank, found
from helpers.report_run import HOSTILE, row
from helpers.site_store import DEFECT, published_row
from helpers.typed import figures
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from cclbench.api import run
from cclbench.cli import main
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.work_groups import WorkGroup
from cclbench.ground.errors import UsageError
from cclbench.ground.units import display_scale
from cclbench.present import workbook as module
from cclbench.present.board.build import build_site
from cclbench.present.board.document import Board, board_document, packed_column, published_document
from cclbench.present.board.pages import MARK
from cclbench.present.board.rows import BoardRow, _card_facts, board_entry, page_name
from cclbench.present.brief import BRIEF_BYTES, brief_answer, brief_text
from cclbench.present.terminal.figures import metrics_lines
from cclbench.present.words import (
    bound_text,
    breakable_name,
    hover_attribute,
    name_markup,
    number_markup,
    quantity_markup,
)
from cclbench.present.workbook import workbook_bytes
from cclbench.record.rows import Row
from cclbench.record.selection import Selection
from cclbench.record.store import Store
from cclbench.results import full_results

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
    subjects = [ComparisonSubject("A", run, full_results(run, Selection()), None) for run in store.runs()]
    return [board_entry(subject, None, None).row for subject in subjects]


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
    with pytest.raises(UsageError, match="no such folder"):
        build_site(store.folder, tmp_path / "none", output=tmp_path / "empty")
    with pytest.raises(UsageError, match="no run"):
        build_site(output=tmp_path / "empty", store=tmp_path / "none")
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


def test_of_two_runs_with_one_id_the_first_has_row_and_page(tmp_path: Path) -> None:
    """Without traces: there are no ranks to open, no step to replay, and nothing states a date."""
    line = " iteration {0}/ 20 | elapsed time per iteration (ms): {1}0{0}.0 | global batch size: 64 |\n"
    for store, tenths in (("a", 4), ("b", 5)):
        (tmp_path / "job.log").write_text("".join(line.format(step, tenths) for step in range(1, 9)))
        run(tmp_path / "job.log", store=tmp_path / store).path.rename(tmp_path / store / "job")
    site = build_site(tmp_path / "a", tmp_path / "b", output=tmp_path / "out")
    assert [row.id for row in site.board.rows] == ["job"]
    assert site.left_out == ("job: another run has this id",)
    page = (tmp_path / "out" / "runs" / "job.html").read_text()
    assert site.board.rows[0].fingerprint in page
    assert "cclbench metrics job" in page
    assert not re.search("cclbench (open|whatif|diagnose)", page.partition('id="origin"')[2])
    assert "None: no computed run states its date" in (tmp_path / "out" / "index.html").read_text()


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


def test_texts_are_cut_isolated_and_cannot_leave_an_attribute() -> None:
    assert bound_text("a" * 7, 7) == "a" * 7
    assert bound_text("a" * 8, 7) == "a" * 7 + "… (cut, 8 characters)"
    assert bound_text("a" * 7, 7, length=1_000_000) == "a" * 7 + "… (cut, 1,000,000 characters)"
    assert hover_attribute('" onmouseover="alert(1)') == ' title="&#34; onmouseover=&#34;alert(1)"'
    assert name_markup("עברית") == '<bdi class="name" title="עברית">עברית</bdi>'


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_stranger_writes_markup_or_steers(text: str) -> None:
    for markup in (
        name_markup(text),
        hover_attribute(text),
        breakable_name(text),
        number_markup(figures([row(text, 1.0, reason=text, group=text)])[0]),
    ):
        assert isinstance(markup, Markup)
        assert "<script" not in markup
        assert "<img" not in markup
        assert "\u202e" not in markup
        assert "\x1b" not in markup
        assert "\x00" not in markup
        assert len(markup) < 20_000


def test_a_long_name_keeps_its_head_and_its_tail() -> None:
    text = "void at::native::vectorized_elementwise_kernel<4, " + "x" * 60 + ", std::array<char*, 3ul> >(int)"
    markup = name_markup(text)
    assert f'title="{Markup.escape(text)}"' in markup
    pieces = [Markup(piece).unescape() for piece in re.findall(r"<span>(.*?)</span>", markup)]  # noqa: S704 - our own
    assert ("".join(pieces), pieces[1]) == (text, text[-24:])
    longest = name_markup("a" * 150 + "b" * 150).striptags()
    assert longest == "a" * 99 + "..." + "b" * 98


def test_the_hover_text_tells_all_of_a_number() -> None:
    told = str(number_markup(figures([row("time.step", 0.00123, reason="of steps 3-5", rank=2)])[0]))
    for part in (
        "time.step = 0.00123 s",
        "rank 2",
        "measured; window: steps; source: kineto; definition version 1",
    ):
        assert part in told
    assert "Length of the window" in told  # the metric's own definition
    assert "of steps 3-5" in told
    assert told.endswith(">1.23 ms</span>")
    missing = number_markup(figures([row("compute.mfu", None, reason="no card")])[0])
    assert "n/a" in missing
    assert "no card" in missing
    failed = figures([row("compute.mfu", None, status="failed", reason="above 1")])
    assert ">failed<" in number_markup(failed[0])


@pytest.mark.parametrize(
    ("provenance", "text"), [("measured", "1.00 s"), ("modelled", "~1.00 s"), ("published", "1.00 s")]
)
def test_provenance_is_seen(provenance: str, text: str) -> None:
    assert quantity_markup(1.0, "s", provenance) == f'<span class="n {provenance}" title="">{text}</span>'


RUN = {"id": "job-1", "accelerators": ["H100"], "ranks_found": [0, 1], "steps": [3], "notes": []}
RUN["truncated"] = []


def sequences(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    head = {"schema": "sequences.v1", "run": "job-1", "length": 2, "kernel_time_s": 1.5, "notes": []}
    return head | {"rows": rows} | changes


def test_numbers_have_units_and_missing_values_are_left_out() -> None:
    row = {"kernels": ["a", "b"], "count": 3, "time_s": 0.0125, "share": None, "gap_s": 0.0}
    expected = {"rows": [{"kernels": ["a", "b"], "count": 3, "time": "12.5 ms", "gap": "0 s"}]}
    expected |= {"run": "job-1", "length": 2, "kernel_time": "1.50 s"}
    expected |= {"next": ["sequences RUN with another length", "--json without --brief: the whole document"]}
    assert brief_answer(sequences([row])) == expected


def test_what_does_not_fit_is_counted() -> None:
    rows = [
        {"kernels": [f"kernel{n}"], "count": n, "time_s": 1.0, "share": 0.1, "gap_s": 0.0} for n in range(99)
    ]
    answer = brief_answer(sequences(rows))
    assert answer["left_out"] == {"rows": 99 - len(answer["rows"])}
    assert [row["count"] for row in answer["rows"]] == [*range(len(answer["rows"]))]
    assert len(answer["rows"]) >= 5


def test_the_culprit_is_the_first_field_and_its_gain_is_in_words() -> None:
    one = found(*by_rank("time.step", 1.0, 1.0), *by_rank("time.idle_host_by", 0.2, 0.1, category="loader"))
    import msgspec

    rows = [msgspec.to_builtins(one["data_loading"])]
    answer = brief_answer({"schema": "findings.v1", "run": RUN, "findings": rows})
    assert next(iter(answer)) == "findings"
    (shown,) = answer["findings"]
    assert "200 ms" in shown["claim"]
    assert "ranks" not in shown  # none stands out
    nothing = brief_answer({"schema": "findings.v1", "run": RUN, "findings": []})
    assert nothing["answer"] == "no cause was found that would gain 1 % of the time"
    unknown = brief_answer({"schema": "findings.v1", "run": RUN, "findings": [], "unknown": "no steps"})
    assert unknown["answer"] == "no step time: no steps"


@given(st.lists(st.text(max_size=3000), max_size=20), st.text(max_size=500))
def test_any_text_fits_and_the_same_document_gives_the_same_bytes(texts: list[str], run: str) -> None:
    rows = [{"kernels": texts, "count": 1, "time_s": 1.0, "share": 1.0, "gap_s": 0.0}] * 30
    document = sequences(rows, run=run, notes=texts)
    text = brief_text(brief_answer(document))
    assert len(text.encode("utf-8", "surrogatepass")) <= BRIEF_BYTES
    assert json.loads(text)["next"]
    assert text == brief_text(brief_answer(document))


NAMESPACE = {"s": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}


def read(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> dict[str, tuple[str, str]]:
    """Type and text of each cell, by its place."""
    written = workbook_bytes(rows, columns, lambda value: value)
    sheet = ElementTree.fromstring(ZipFile(BytesIO(written)).read("xl/worksheets/sheet1.xml"))  # noqa: S314
    return {
        cell.get("r", ""): (cell.get("t", "n"), "".join(cell.itertext()))
        for cell in sheet.iterfind(".//s:c", NAMESPACE)
    }


def test_numbers_stay_numbers_and_texts_texts() -> None:
    """An integer that a double would round is a text; one that is too long is marked at its end."""
    exact, rounded = 2**53, 2**53 + 1
    rows = [{"a": 1.5, "b": "aten::mm", "c": None}, {"a": -3, "b": "1e5", "c": True}]
    rows += [{"a": exact, "b": "x" * 40_000}, {"a": rounded}, {"a": -rounded}]
    cells = read(rows, ["a", "b", "c"])
    assert cells.pop("B4") == ("inlineStr", "x" * 32_766 + "…")
    assert cells == {
        "A1": ("inlineStr", "a"),
        "B1": ("inlineStr", "b"),
        "C1": ("inlineStr", "c"),
        "A2": ("n", "1.5"),
        "B2": ("inlineStr", "aten::mm"),
        "A3": ("n", "-3"),
        "B3": ("inlineStr", "1e5"),
        "C3": ("b", "1"),
        "A4": ("n", str(exact)),
        "A5": ("inlineStr", str(rounded)),
        "A6": ("inlineStr", str(-rounded)),
    }
    assert read([], ["a"]) == {"A1": ("inlineStr", "a")}


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "{=1}", "https://example.org", "12"])
def test_no_text_is_a_formula_a_link_or_a_number(text: str) -> None:
    assert read([{"a": text}], ["a"])["A2"] == ("inlineStr", text)


def test_more_rows_than_a_sheet_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    assert read([{"a": 1}] * 2, ["a"])["A3"] == ("n", "1")
    with pytest.raises(UsageError, match="at most 2 rows"):
        workbook_bytes([{"a": 1}] * 3, ["a"], lambda value: value)


def moved(value: float, category: str | None = None) -> Row:
    """A row of what copies move."""
    return Row(
        metric="memory.copy_bandwidth",
        value=value,
        unit="B/s",
        status="ok",
        provenance="measured",
        window="steps",
        version=1,
        category=category,
    )


def test_directions_of_copies_stand_before_the_whole_that_hides_them() -> None:
    rows = [moved(58.7e9), moved(27.7e9, "h2d"), moved(1e12, "d2d")]
    expected = [["memory.copy_bandwidth"], ["d2d", "1.00", "TB/s"], ["h2d", "27.7", "GB/s"]]
    expected += [["all", "58.7", "GB/s"]]
    assert [str(line).split() for line in metrics_lines(rows)][1:] == expected
    alone = [str(line).split() for line in metrics_lines([moved(58.7e9)])]
    assert alone[1:] == [["memory.copy_bandwidth", "58.7", "GB/s"]]

# SPDX-License-Identifier: Apache-2.0
"""The SQL library: headers, what a query opens, views of other packages, `explain` and `list`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.sql_run import answers, hand_made

from cclbench.cli import cli
from cclbench.ground import registry
from cclbench.ground.errors import UsageError
from cclbench.record.run import Run
from cclbench.sql import VIEWS, dependency_closure, parse_view

HEADER = """-- What its rows are.
--
-- Columns:
--   rank INTEGER: rank
--   ns BIGINT [ns]: time,
--     in two lines
--
-- Example:
--   SELECT * FROM longest
--   ORDER BY rank
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return hand_made(tmp_path_factory.mktemp("views") / "hand")


@pytest.mark.parametrize("name", list(VIEWS))
def test_a_header_has_the_units_and_an_example_that_runs(name: str, run: Run) -> None:
    view = VIEWS.get(name)
    assert name in view.example
    assert run.sql(view.example).column_names
    assert view.definition.endswith(".")
    assert all(column.unit or not column.name.endswith("_ns") for column in view.columns)


def test_a_query_opens_what_it_names_and_what_that_reads(run: Run) -> None:
    assert dependency_closure(["busy"]) == [
        *("events", "rank_devices", "activity", "steps", "step_windows", "busy")
    ]
    names = [name for (name,) in answers(run, "SELECT name FROM (SHOW TABLES)")]
    assert set(VIEWS) <= set(names)
    assert answers(run, "WITH busy AS (SELECT 1 AS x) FROM busy") == [(1,)]


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("FROM bussy", 'Did you mean "busy"'),
        ("SELECT idle FROM busy", "idle_ns"),
        ("SELECT 1 +", "cclbench list views"),
    ],
)
def test_a_wrong_name_comes_with_what_is_near(query: str, near: str, run: Run) -> None:
    with pytest.raises(UsageError) as raised:
        run.sql(query)
    assert near in str(raised.value.hint)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with views of its own, installed for the length of a test."""
    folder = tmp_path / "their_views"
    folder.mkdir()
    (folder / "__init__.py").write_text("from cclbench.sql import add_views\nadd_views(__name__)\n")
    entry = metadata.EntryPoint(name="theirs", value="their_views", group="cclbench.views")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == entry.group else [])
    monkeypatch.syspath_prepend(tmp_path)
    for field, value in (("_known", dict(VIEWS._known)), ("_origin", dict(VIEWS._origin)), ("broken", {})):
        monkeypatch.setattr(VIEWS, field, value)
    monkeypatch.setattr(VIEWS, "_loaded", False)
    yield folder
    sys.modules.pop("their_views", None)


def test_a_package_adds_a_view_with_one_file(package: Path, run: Run) -> None:
    query = "SELECT rank, max(dur_ns) AS ns FROM device_rows GROUP BY rank"
    (package / "longest.sql").write_text(HEADER + query + "\n")
    assert answers(run, "FROM longest ORDER BY rank") == [(0, 400), (1, 400)]
    view = VIEWS.get("longest")
    expected = ("What its rows are.", query, "SELECT * FROM longest\nORDER BY rank")
    assert (view.definition, view.query, view.example) == expected
    expected = [("rank", None, "rank"), ("ns", "ns", "time, in two lines")]
    assert [(column.name, column.unit, column.meaning) for column in view.columns] == expected
    assert VIEWS.origin("longest") == "their_views"


def test_a_package_with_a_wrong_view_is_named(package: Path) -> None:
    (package / "longest.sql").write_text("SELECT 1\n")
    with pytest.warns(UserWarning, match="their_views"):
        assert "longest" not in list(VIEWS)
    assert "has no complete header" in VIEWS.broken["theirs"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("FROM step_windows SELECT rank, ns", r"view longest of their_views: .*ns"),
        ("SELECT 1 AS rank", "header has rank INTEGER, ns BIGINT; its SELECT gives rank INTEGER$"),
        ("FROM shortest", "reads itself: longest <- shortest <- longest"),
    ],
)
def test_a_view_that_cannot_be_answered_is_named(package: Path, run: Run, query: str, said: str) -> None:
    (package / "longest.sql").write_text(f"{HEADER}{query}\n")
    (package / "shortest.sql").write_text(HEADER + "FROM longest\n")
    with pytest.raises(UsageError, match=said):
        run.sql("FROM longest")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("events", HEADER + "SELECT 1", "no name for a view"),
        ("Longest", HEADER + "SELECT 1", "no name for a view"),
        ("longest", HEADER.replace("Example:", "For example:") + "SELECT 1", "has no complete header"),
        ("longest", HEADER.replace("rank INTEGER:", "rank:") + "SELECT 1", "rank' describes no column"),
    ],
)
def test_a_file_that_is_no_view_says_why(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_view(name, text)


def test_explain_and_list_show_views() -> None:
    explained = CliRunner().invoke(cli, ["explain", "busy"]).output
    assert all(column.name in explained for column in VIEWS.get("busy").columns)
    listed = CliRunner().invoke(cli, ["list", "views", "--format", "csv"]).output
    assert all(f"\n{name}," in listed for name in VIEWS)
    unknown = CliRunner().invoke(cli, ["explain", "bussy"])
    assert isinstance(unknown.exception, UsageError)
    assert "did you mean busy" in str(unknown.exception.hint)

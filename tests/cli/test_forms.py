# SPDX-License-Identifier: Apache-2.0
"""The commands on a small trace, in every form of output."""

from __future__ import annotations

import csv
import io
import json
import os
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call
from jsonschema import Draft7Validator

from cclbench import api
from cclbench.analyzers.aliases import ALIASES, SYNONYMS
from cclbench.analyzers.metric import METRICS
from cclbench.findings.finding import FINDINGS
from cclbench.ground.schema import RESULTS
from cclbench.ground.text import printable


def schema(name: str) -> Draft7Validator:
    """The validator of a schema in the package; the schema itself is valid, too."""
    document = json.loads((files("cclbench") / "schemas" / f"{name}.json").read_text())
    Draft7Validator.check_schema(document)
    return Draft7Validator(document)


def value(document: dict[str, Any], metric: str, **keys: Any) -> float:
    """The one value about the run, or about what `keys` say."""
    narrowed = dict.fromkeys(("rank", "step", "group", "collective", "category", "stat")) | keys
    found = [
        row["value"]
        for row in document["results"]
        if row["metric"] == metric and all(row[key] == wanted for key, wanted in narrowed.items())
    ]
    assert len(found) == 1
    return float(found[0])


def test_json_of_run(call: Call, trace: Path) -> None:
    answer = call("run", trace, "--json", "--per-rank")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert list(schema("result").iter_errors(document)) == []
    assert document["run"]["ranks"] == [0]
    assert (document["run"]["steps"], document["run"]["open_steps"]) == ([0], [1])
    # Step 0 lasts from its first kernel at 1010 µs to step 1's at 1110 µs; the last event ends at 1175 µs.
    assert value(document, "time.step", step=0) == pytest.approx(100e-6, abs=1e-12)
    assert value(document, "time.step", rank=0, step=1, stat="open") == pytest.approx(65e-6, abs=1e-12)
    # Kernels at 10..50 µs and 30..60 µs of each step, the copy at 70..75 µs.
    for name, microseconds in {
        "compute_only": 20,
        "overlapped": 20,
        "exposed_comm": 10,
        "exposed_copy": 5,
        "idle": 45,
    }.items():
        assert value(document, f"time.{name}") == pytest.approx(microseconds * 1e-6, abs=1e-12)


@pytest.mark.parametrize("command", ["run", "metrics"])
def test_the_parts_of_single_ranks_are_printed_on_request(call: Call, trace: Path, command: str) -> None:
    keys = ("step", "group", "collective", "category", "stat")
    everything = json.loads(call(command, trace, "--json", "--per-rank").out)
    document = json.loads(call(command, trace, "--json").out)
    of_ranks = [row for row in everything["results"] if row["rank"] is not None]
    parts = [row for row in of_ranks if any(row[key] is not None for key in keys)]
    assert 0 < len(parts) < len(of_ranks)
    assert document["results"] == [row for row in everything["results"] if row not in parts]
    assert document["run"] == everything["run"]
    for more, printed in (((), document), (("--per-rank",), everything)):
        rows = list(csv.DictReader(io.StringIO(call(command, trace, "--format", "csv", *more).out)))
        assert [row["metric"] for row in rows] == [row["metric"] for row in printed["results"]]
        assert len(call(command, trace, "--format", "md", *more).out.splitlines()) == len(rows) + 2
    query = "SELECT count(*) AS n FROM results WHERE rank IS NOT NULL"
    stored = json.loads(call("sql", document["run"]["id"], query, "--json").out)
    assert stored["rows"] == [{"n": len(of_ranks)}]


def test_json_has_a_result_a_line(call: Call, trace: Path) -> None:
    lines = call("run", trace, "--json").out.splitlines()
    first, last = lines.index('  "results": ['), lines.index("  ]")
    rows = [json.loads(line.strip().removesuffix(",")) for line in lines[first + 1 : last]]
    assert len(rows) > 50
    assert {row["metric"] for row in rows} >= {"time.step", "overlap.ratio"}


def test_json_of_a_hand_made_run_follows_the_schema(
    call: Call, monkeypatch: pytest.MonkeyPatch, fake_run: Any
) -> None:
    monkeypatch.setattr(api, "run", lambda *_, **__: fake_run)
    document = json.loads(call("run", "traces/tiny", "--json").out)
    assert list(schema("result").iter_errors(document)) == []
    assert len(document["results"]) == len(fake_run.rows)


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        ("time.step", {"value": None}),
        ("time.step", {"unit": ""}),
        ("time.step", {"provenance": "guessed"}),
        ("compute.mfu", {"value": 0.0}),
        ("compute.mfu", {"reason": None}),
        ("time.step", {"extra": 1}),
    ],
)
def test_the_schema_refuses_a_row_that_is_wrong(fake_run: Any, metric: str, change: dict[str, Any]) -> None:
    from cclbench.present.terminal.run import run_document

    made = run_document(fake_run.record, fake_run.figures, "steps")
    for row in made["results"]:
        row |= change if row["metric"] == metric else {}
    assert not schema("result").is_valid(made)


def test_a_number_that_is_none_is_an_internal_error(
    call: Call, monkeypatch: pytest.MonkeyPatch, fake_run: Any
) -> None:
    fake_run.rows[0]["value"] = float("nan")
    monkeypatch.setattr(api, "run", lambda *_, **__: fake_run)
    answer = call("run", "traces/tiny", "--json")
    assert (answer.code, answer.out) == (4, "")


def test_csv_has_the_columns_of_the_schema(call: Call, trace: Path) -> None:
    answer = call("run", trace, "--format", "csv", "--metric", "time.step", "--metric", "mfu")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert list(rows[0]) == RESULTS.names
    first = next(
        row for row in rows if row["metric"] == "time.step" and row["step"] == "0" and not row["rank"]
    )
    assert float(first["value"]) == pytest.approx(100e-6)
    missing = next(row for row in rows if row["metric"] == "compute.mfu")
    assert (missing["value"], missing["status"]) == ("", "not_applicable")
    assert missing["reason"]


def test_markdown_is_a_table(call: Call, trace: Path) -> None:
    lines = call("run", trace, "--format", "md", "--metric", "overlap.ratio").out.splitlines()
    header, rule, *body = lines
    assert header.startswith("| metric | value | unit | status |")
    assert "| group |" not in header, "a column without entries is left out"
    assert set(rule) == set("|- ")
    assert body
    assert {line.count("|") for line in body} == {header.count("|")}


def test_markdown_escapes_bars(call: Call) -> None:
    answer = call("explain", "time.idle", "--format", "md")
    assert answer.out.splitlines()[2].replace("\\|", "").count("|") == answer.out.splitlines()[0].count("|")


def test_table_of_run(call: Call, trace: Path) -> None:
    answer = call("metrics", trace)
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    assert not [line for line in answer.out.splitlines() if line != line.rstrip()]
    assert "  time.idle                            45.0 µs" in answer.out.splitlines()
    assert "steps    1 of 2 (step 0)" in answer.out


@pytest.mark.parametrize(
    ("variables", "coloured"), [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False)]
)
def test_colour_follows_the_environment(
    call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, word in variables.items():
        monkeypatch.setenv(name, word)
    assert ("\x1b[3" in call("run", trace).out) is coloured


def test_metrics_of_a_stored_run(call: Call, trace: Path) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    answer = call("metrics", run_id, "--json", "--metric", "time.*")
    document = json.loads(answer.out)
    assert list(schema("result").iter_errors(document)) == []
    assert {row["metric"].split(".")[0] for row in document["results"]} == {"time"}
    assert document["run"]["id"] == run_id
    again = json.loads(call("run", trace, "--json", "--metric", "time.*").out)
    assert again["results"] == document["results"]


def test_steps_and_ranks_narrow_the_figures(call: Call, trace: Path) -> None:
    document = json.loads(call("run", trace, "--json", "--steps", "1:", "--metric", "time.step").out)
    assert document["run"]["steps"] == [1]
    assert value(document, "time.step") == pytest.approx(65e-6, abs=1e-12)
    assert call("run", trace, "--ranks", "5").code == 2


def test_ingest(call: Call, trace: Path, tmp_path: Path) -> None:
    answer = call("ingest", trace, "--json")
    document = json.loads(answer.out)
    assert document["schema"] == "manifest.v1"
    (manifest,) = document["runs"]
    assert list(schema("manifest").iter_errors(manifest)) == []
    assert manifest["ranks"][0]["rows"] == {"annotation": 2, "copy": 2, "kernel": 4, "launch": 6}
    stored = tmp_path / "store" / manifest["run"] / "manifest.json"
    assert json.loads(stored.read_text()) == manifest
    table = call("ingest", trace)
    assert f"run      {manifest['run']}" in table.out
    assert "steps    2, as the device ran them" in table.out.splitlines()
    (row,) = csv.DictReader(io.StringIO(call("ingest", trace, "--format", "csv").out))
    assert (row["file"], row["reader"], row["rows"]) == ("rank0.json", "kineto", "14")


def test_plot(call: Call, trace: Path, tmp_path: Path) -> None:
    for name, magic in (("step.png", b"\x89PNG"), ("step.svg", b"<?xml"), ("step.pdf", b"%PDF")):
        answer = call("run", trace, "--plot", tmp_path / name, "-q")
        assert (answer.code, answer.err) == (0, "")
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert "exposed communication" in (tmp_path / "step.svg").read_text()


def test_plot_without_a_partition_is_wrong_usage(call: Call, trace: Path, tmp_path: Path) -> None:
    answer = call("run", trace, "--metric", "comm.*", "--plot", tmp_path / "x.png")
    assert answer.code == 2
    assert "no step partition" in answer.err
    assert not (tmp_path / "x.png").exists()


def test_list_metrics_and_readers(call: Call) -> None:
    document = json.loads(call("list", "metrics", "--json").out)
    assert (document["schema"], document["what"]) == ("list.v1", "metrics")
    step = next(row for row in document["rows"] if row["name"] == "time.step")
    assert (step["unit"], step["better"], step["origin"]) == ("s", "lower", "cclbench.analyzers.time")
    readers = json.loads(call("list", "readers", "--json").out)["rows"]
    assert ".json.gz" in next(row for row in readers if row["name"] == "kineto")["extensions"]


def test_list_operators_says_which_models_no_trace_has_met(call: Call) -> None:
    rows = {row["name"]: row for row in json.loads(call("list", "operators", "--json").out)["rows"]}
    product, layer = rows["matrix_product"], rows["te_linear"]
    assert (product["family"], product["flops"], product["tested"]) == (
        "matrix product",
        "2·B·M·N·K",
        "a trace",
    )
    assert "aten::mm" in product["operators"]
    assert layer["tested"] == "no trace"


def test_list_shows_a_broken_plug_in(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from cclbench.formats import READERS

    monkeypatch.setitem(READERS.broken, "mine", "ImportError: no module named mine")
    rows = json.loads(call("list", "readers", "--json").out)["rows"]
    assert {"name": "mine", "formats": "did not load: ImportError: no module named mine"} in rows
    assert "did not load: ImportError" in " ".join(call("list", "readers").out.split())


def test_list_hardware(call: Call) -> None:
    rows = json.loads(call("list", "hardware", "--json").out)["rows"]
    h100 = next(row for row in rows if row["id"] == "nvidia-h100-sxm")
    assert h100["peak_flops_per_s"]["bf16"] == 989e12
    line = next(
        line for line in call("list", "hardware").out.splitlines() if line.startswith("nvidia-h100-sxm ")
    )
    assert line.split()[1:7] == ["accelerator", "bf16", "989", "TFLOP/s,", "80.0", "GB"]
    assert {row["kind"] for row in rows} == {"accelerator", "fabric", "system"}


def test_list_runs(call: Call, trace: Path) -> None:
    assert json.loads(call("list", "runs", "--json").out)["rows"] == []
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    (row,) = json.loads(call("list", "runs", "--json").out)["rows"]
    assert row.pop("date") == str(date.today())
    known = {"devices": "NVIDIA A100-SXM4-80GB", "card": None, "published": None, "source": str(trace)}
    assert row == known | {"run": run_id, "ranks": 1, "steps": 2, "step_s": None}
    assert "1 × A100-SXM4-80GB" in call("list", "runs").out
    result = json.loads(call("run", trace, "--json").out)["results"]
    step = next(row["value"] for row in result if row["metric"] == "time.step" and row["rank"] is None)
    (row,) = json.loads(call("list", "runs", "--json").out)["rows"]
    assert row["step_s"] == step
    assert call("list", "runs").out.splitlines()[-1].endswith("2  100 µs")


def test_the_list_of_runs_fits_a_terminal(call: Call, tmp_path: Path, trace: Path) -> None:
    long = tmp_path / f"{'a-long-name-of-a-job-' * 6}.json"
    long.write_bytes(trace.read_bytes())
    call("ingest", long)
    assert "no runs yet" not in (shown := call("list", "runs").out)
    assert max(map(len, shown.splitlines())) <= 80
    assert "".join(line.split("  ")[0] for line in shown.splitlines()[1:]).startswith(long.stem[:60])


def test_remove_takes_whole_runs_and_asks_first(call: Call, trace: Path, tmp_path: Path) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    answer = call("remove", run_id)
    assert (answer.code, "add --yes" in answer.err) == (2, True)
    answer = call("remove", run_id, f"{run_id[:-1]}x", "--yes")
    assert (answer.code, f"did you mean {run_id}" in answer.err) == (2, True)
    for elsewhere in ("..", "../other", ".", str(tmp_path)):
        assert call("remove", elsewhere, "--yes").code == 2
    assert (tmp_path / "store" / run_id / "manifest.json").exists()
    answer = call("remove", run_id, "--yes")
    assert (answer.code, answer.err) == (0, f"removed {run_id}\n")
    assert list((tmp_path / "store").iterdir()) == []
    assert trace.exists()
    assert call("list", "runs").out == "no runs yet: create one with `cclbench run SOURCE`\n"


def test_a_run_of_another_version_is_listed_as_that(call: Call, trace: Path, tmp_path: Path) -> None:
    run_id = json.loads(call("run", trace, "--json").out)["run"]["id"]
    path = tmp_path / "store" / run_id / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tables": "0" * 12}))
    (row,) = json.loads(call("list", "runs", "--json").out)["rows"]
    assert row["run"] == run_id
    assert "written by another version; ingest the source again" in row["problem"]
    assert call("list", "runs").code == 0
    answer = call("sql", run_id, "SELECT 1")
    assert (answer.code, "another version" in answer.err) == (3, True)
    claims = call("claims")
    assert (claims.code, f"run {run_id} cannot be read" in claims.err) == (2, True)


def test_list_cards(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "workload_cards").mkdir()
    (tmp_path / "workload_cards" / "broken.yaml").write_text("a: [")
    (tmp_path / "workload_cards" / "empty.yaml").write_text("version: 2\nid: other\n")
    monkeypatch.chdir(tmp_path)
    broken, empty = json.loads(call("list", "cards", "--json").out)["rows"]
    assert broken["path"] == os.path.join("workload_cards", "broken.yaml")
    assert broken["id"] is None
    assert broken["valid"].startswith("no: ")
    assert empty["id"] == "other"
    assert empty["valid"].startswith("no: ")


def test_the_cards_of_the_repository_are_listed_as_valid(
    call: Call, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.chdir(repository)
    rows = json.loads(call("list", "cards", "--json").out)["rows"]
    assert rows
    assert {row["valid"] for row in rows} == {"yes"}


@pytest.mark.parametrize(
    ("word", "metrics"),
    [
        ("HFU", ["compute.hfu"]),
        ("bubble", ["overlap.bubble_ideal", "overlap.pipeline_bubble"]),
        ("tail latency", ["serving.e2e_latency", "serving.ttft", "time.step"]),
    ],
)
def test_explain_finds_metrics_by_the_fields_words(call: Call, word: str, metrics: list[str]) -> None:
    found = json.loads(call("explain", word, "--json").out)["metrics"]
    assert [row["name"] for row in found] == metrics


def test_every_word_of_the_field_names_metrics_that_there_are() -> None:
    assert {name for names in SYNONYMS.values() for name in names} <= set(METRICS)
    assert not set(SYNONYMS) & {*METRICS, *ALIASES, *FINDINGS}
    assert all(word == word.lower() for word in SYNONYMS)


def test_explain(call: Call) -> None:
    document = json.loads(call("explain", "load_imbalance_ratio", "--json").out)
    assert document["schema"] == "explain.v1"
    (metric,) = document["metrics"]
    assert metric["name"] == "balance.load_imbalance"
    assert "load_imbalance_ratio" in metric["aliases"]
    names = [row["name"] for row in json.loads(call("explain", "time.*", "--json").out)["metrics"]]
    assert {"time.step", "time.idle"} <= set(names)
    assert all(name.startswith("time.") for name in names)


def test_explain_finds_a_setting_by_any_of_its_keys(call: Call) -> None:
    key = "rank[3].kernels[gemm].time"
    (setting,) = json.loads(call("explain", key, "--json").out)["settings"]
    assert (setting["name"], "median" in setting["values"]) == ("kernels.time", True)
    listed = json.loads(call("list", "settings", "--json").out)["rows"]
    assert setting["definition"] in [row["definition"] for row in listed]
    shown = call("explain", key, "host_bound").out
    assert shown.index("host_bound") < shown.index("kernels.time")


def test_sql(call: Call, trace: Path) -> None:
    run_id = json.loads(call("run", trace, "--json").out)["run"]["id"]
    query = "SELECT kind, count(*) AS n FROM events GROUP BY kind ORDER BY kind"
    document = json.loads(call("sql", run_id, query, "--json").out)
    assert (document["schema"], document["run"]) == ("sql.v1", run_id)
    assert document["columns"] == ["kind", "n"]
    counts = {"annotation": 2, "copy": 2, "kernel": 4, "launch": 6}
    assert document["rows"] == [{"kind": kind, "n": n} for kind, n in counts.items()]
    assert call("sql", run_id, query, "--format", "csv").out.splitlines()[1:3] == ["annotation,2", "copy,2"]
    assert "kernel" in call("sql", run_id, query).out


def test_sql_says_what_json_has_no_word_for(call: Call, trace: Path) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    query = (
        "SELECT 'nan'::DOUBLE AS a, '\\x01'::BLOB AS b, 1.5::DECIMAL(3,1) AS c, [1, 2] AS d, {'k': 1} AS e"
    )
    (row,) = json.loads(call("sql", run_id, query, "--json").out)["rows"]
    assert row == {"a": None, "b": "01", "c": "1.5", "d": [1, 2], "e": {"k": 1}}


def test_sql_gives_times_that_python_has_not(call: Call, trace: Path) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    query = (
        "SELECT 'infinity'::TIMESTAMP AS a, '-infinity'::DATE AS b, '44-03-15 (BC)'::DATE AS c,"
        " '12:00:00+02'::TIMETZ AS d, INTERVAL 3 MONTH AS e, ['290000-01-01'::TIMESTAMP] AS f"
    )
    (row,) = json.loads(call("sql", run_id, query, "--json").out)["rows"]
    assert row == {
        "a": "infinity",
        "b": "-infinity",
        "c": "0044-03-15 (BC)",
        "d": "12:00:00+02",
        "e": "3 months",
        "f": "['290000-01-01 00:00:00']",
    }


def test_sql_loses_no_column_to_another_of_its_name(call: Call, trace: Path) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    answer = call("sql", run_id, "SELECT 1 AS a, 2 AS a")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: SQL: two columns are called 'a'")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1"])
def test_csv_runs_nothing_in_a_spreadsheet(call: Call, trace: Path, text: str) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    codes = " || ".join(f"chr({ord(character)})" for character in text)
    query = f"SELECT {codes} AS \"=a\", -1 AS b, 'a=1' AS c"
    inert = csv.reader(io.StringIO(call("sql", run_id, query, "--format", "csv").out, newline=""))
    assert list(inert) == [["'=a", "b", "c"], [f"'{printable(text)}", "-1", "a=1"]]
    raw = csv.reader(io.StringIO(call("sql", run_id, query, "--format", "csv", "--raw").out, newline=""))
    assert list(raw) == [["=a", "b", "c"], [text, "-1", "a=1"]]


def test_raw_is_of_csv(call: Call) -> None:
    answer = call("list", "metrics", "--raw")
    assert answer.code == 2
    assert "--raw requires --format csv" in answer.err


@pytest.mark.parametrize(
    "query",
    [
        "",
        "SELEC 1",
        "SELECT * FROM nowhere",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/hosts')",
        "CREATE TABLE mine AS SELECT 1",
        "DROP VIEW events",
        "COPY (SELECT 1) TO 'RUN/mine.csv'",
        "ATTACH 'RUN/mine.db'",
        "SET enable_external_access = true",
    ],
)
def test_sql_only_reads_the_run(call: Call, trace: Path, tmp_path: Path, query: str) -> None:
    run_id = json.loads(call("ingest", trace, "--json").out)["runs"][0]["run"]
    folder = tmp_path / "store" / run_id
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    answer = call("sql", run_id, query.replace("RUN", str(folder)))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) <= 3
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before

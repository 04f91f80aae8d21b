# SPDX-License-Identifier: Apache-2.0
"""Forms of commands and options, their help and completion."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import pytest
from helpers.command_line import Call, Told
from jsonschema import Draft7Validator

from cclbench import api
from cclbench.analyzers.aliases import ALIASES, SYNONYMS
from cclbench.analyzers.metric import METRICS
from cclbench.cli import COMMANDS, cli, options
from cclbench.cli.options import RankList, Size, StepRange
from cclbench.engine import Serial
from cclbench.engine.processes import Processes
from cclbench.findings.finding import FINDINGS
from cclbench.formats import READERS
from cclbench.ground.schema import RESULTS
from cclbench.ground.text import printable
from cclbench.present.terminal.run import run_document
from cclbench.replay.scenario import parse_scenario


def schema(name: str) -> Draft7Validator:
    """The validator of a schema in the package; the schema itself is valid, too."""
    document = json.loads((files("cclbench") / "schemas" / f"{name}.json").read_text())
    Draft7Validator.check_schema(document)
    return Draft7Validator(document)


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


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
    parts = {"compute_only": 20, "overlapped": 20, "exposed_comm": 10, "exposed_copy": 5, "idle": 45}
    for name, us in parts.items():
        assert value(document, f"time.{name}") == pytest.approx(us * 1e-6, abs=1e-12)
    lines = call("run", trace, "--json").out.splitlines()
    first, last = lines.index('  "results": ['), lines.index("  ]")
    rows = [json.loads(line.strip().removesuffix(",")) for line in lines[first + 1 : last]]
    assert len(rows) > 50, "a result a line"
    assert {row["metric"] for row in rows} >= {"time.step", "overlap.ratio"}


@pytest.mark.parametrize("command", ["run", "metrics"])
def test_parts_of_ranks_are_printed_on_request(call: Call, told: Told, trace: Path, command: str) -> None:
    everything, document = told(command, trace, "--per-rank"), told(command, trace)
    of_ranks = [row for row in everything["results"] if row["rank"] is not None]
    keys = ("step", "group", "collective", "category", "stat")
    parts = [row for row in of_ranks if any(row[key] is not None for key in keys)]
    assert 0 < len(parts) < len(of_ranks)
    assert document["results"] == [row for row in everything["results"] if row not in parts]
    assert document["run"] == everything["run"]
    for more, printed in (((), document), (("--per-rank",), everything)):
        rows = csv_rows(call(command, trace, "--format", "csv", *more).out)
        assert [row["metric"] for row in rows] == [row["metric"] for row in printed["results"]]
        assert len(call(command, trace, "--format", "md", *more).out.splitlines()) == len(rows) + 2
    query = "SELECT count(*) AS n FROM results WHERE rank IS NOT NULL"
    assert told("sql", document["run"]["id"], query)["rows"] == [{"n": len(of_ranks)}]


def test_json_of_a_made_run(call: Call, told: Told, monkeypatch: pytest.MonkeyPatch, fake_run: Any) -> None:
    """It follows the schema; a number that is none is an internal error."""
    monkeypatch.setattr(api, "run", lambda *_, **__: fake_run)
    document = told("run", "traces/tiny")
    assert list(schema("result").iter_errors(document)) == []
    assert len(document["results"]) == len(fake_run.rows)
    fake_run.rows[0]["value"] = float("nan")
    answer = call("run", "traces/tiny", "--json")
    assert (answer.code, answer.out) == (4, "")


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
    made = run_document(fake_run.record, fake_run.figures, "steps")
    for row in made["results"]:
        row |= change if row["metric"] == metric else {}
    assert not schema("result").is_valid(made)


def test_csv_has_the_columns_of_the_schema(call: Call, trace: Path) -> None:
    rows = csv_rows(call("run", trace, "--format", "csv", "--metric", "time.step", "--metric", "mfu").out)
    assert list(rows[0]) == RESULTS.names
    first = next(r for r in rows if r["metric"] == "time.step" and r["step"] == "0" and not r["rank"])
    assert float(first["value"]) == pytest.approx(100e-6)
    missing = next(row for row in rows if row["metric"] == "compute.mfu")
    assert (missing["value"], missing["status"]) == ("", "not_applicable")
    assert missing["reason"]


def test_table_of_run(call: Call, trace: Path) -> None:
    answer = call("metrics", trace)
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    assert not [line for line in answer.out.splitlines() if line != line.rstrip()]
    assert "  time.idle                            45.0 µs" in answer.out.splitlines()
    assert "steps    1 of 2 (step 0)" in answer.out


@pytest.mark.parametrize(("name", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_colour_follows_the_environment(
    call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch, name: str, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for either in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(either, raising=False)
    monkeypatch.setenv(name, "1")
    assert ("\x1b[3" in call("run", trace).out) is coloured


def test_metrics_of_a_stored_run_and_of_some_steps(call: Call, told: Told, stored: str, trace: Path) -> None:
    document = told("metrics", stored, "--metric", "time.*")
    assert list(schema("result").iter_errors(document)) == []
    assert {row["metric"].split(".")[0] for row in document["results"]} == {"time"}
    assert document["run"]["id"] == stored
    assert told("run", trace, "--metric", "time.*")["results"] == document["results"]
    document = told("run", trace, "--steps", "1:", "--metric", "time.step")
    assert document["run"]["steps"] == [1]
    assert value(document, "time.step") == pytest.approx(65e-6, abs=1e-12)
    assert call("run", trace, "--ranks", "5").code == 2


def test_ingest(call: Call, told: Told, trace: Path, tmp_path: Path) -> None:
    document = told("ingest", trace)
    assert document["schema"] == "manifest.v1"
    (manifest,) = document["runs"]
    assert list(schema("manifest").iter_errors(manifest)) == []
    assert manifest["ranks"][0]["rows"] == {"annotation": 2, "copy": 2, "kernel": 4, "launch": 6}
    written = tmp_path / "store" / manifest["run"] / "manifest.json"
    assert json.loads(written.read_text()) == manifest
    table = call("ingest", trace)
    assert f"run      {manifest['run']}" in table.out
    assert "steps    2 in the traces, 1 of them complete, as the device ran them" in table.out.splitlines()
    (row,) = csv_rows(call("ingest", trace, "--format", "csv").out)
    assert (row["file"], row["reader"], row["rows"]) == ("rank0.json", "kineto", "14")


def test_plot(call: Call, trace: Path, tmp_path: Path) -> None:
    for name, magic in (("step.png", b"\x89PNG"), ("step.svg", b"<?xml"), ("step.pdf", b"%PDF")):
        answer = call("run", trace, "--plot", tmp_path / name, "-q")
        assert (answer.code, answer.err) == (0, "")
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert "exposed communication" in (tmp_path / "step.svg").read_text()
    answer = call("run", trace, "--metric", "comm.*", "--plot", tmp_path / "x.png")
    assert answer.code == 2
    assert "no step partition" in answer.err
    assert not (tmp_path / "x.png").exists()


def test_lists(call: Call, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of metrics, readers (one of which did not load), models of operators, and hardware."""
    document = told("list", "metrics")
    assert (document["schema"], document["what"]) == ("list.v1", "metrics")
    step = next(row for row in document["rows"] if row["name"] == "time.step")
    assert (step["unit"], step["better"], step["origin"]) == ("s", "lower", "cclbench.analyzers.time")
    monkeypatch.setitem(READERS.broken, "mine", "ImportError: no module named mine")
    readers = told("list", "readers")["rows"]
    assert ".json.gz" in next(row for row in readers if row["name"] == "kineto")["extensions"]
    assert {"name": "mine", "formats": "did not load: ImportError: no module named mine"} in readers
    shown = call("list", "readers").out
    assert "did not load: ImportError" in " ".join(shown.split())
    (line,) = (line for line in shown.splitlines() if line.startswith("ascend_steps "))
    assert line.endswith("  real, documentation")
    models = {row["name"]: row for row in told("list", "operators")["rows"]}
    product, layer = models["matrix_product"], models["te_linear"]
    said = (product["family"], product["flops"], product["tested"])
    assert said == ("matrix product", "2·B·M·N·K", "a trace")
    assert "aten::mm" in product["operators"]
    assert layer["tested"] == "no trace"
    hardware = told("list", "hardware")["rows"]
    h100 = next(row for row in hardware if row["id"] == "nvidia-h100-sxm")
    assert h100["peak_flops_per_s"]["bf16"] == 989e12
    shown = call("list", "hardware").out.splitlines()
    line = next(line for line in shown if line.startswith("nvidia-h100-sxm "))
    assert line.split()[1:7] == ["accelerator", "bf16", "989", "TFLOP/s,", "80.0", "GB"]
    assert {row["kind"] for row in hardware} == {"accelerator", "fabric", "system"}


def test_list_runs(call: Call, told: Told, trace: Path) -> None:
    assert told("list", "runs")["rows"] == []
    run_id = told("ingest", trace)["runs"][0]["run"]
    (row,) = told("list", "runs")["rows"]
    assert row.pop("date") == str(date.today())
    known = {"devices": "NVIDIA A100-SXM4-80GB", "card": None, "published": None, "source": str(trace)}
    assert row == known | {"run": run_id, "ranks": 1, "steps": 2, "step_s": None}
    assert "1 × A100-SXM4-80GB" in call("list", "runs").out
    step = value(told("run", trace), "time.step")
    (row,) = told("list", "runs")["rows"]
    assert row["step_s"] == step
    assert call("list", "runs").out.splitlines()[-1].endswith("2  100 µs")


def test_the_list_of_runs_fits_a_terminal(call: Call, tmp_path: Path, trace: Path) -> None:
    long = tmp_path / f"{'a-long-name-of-a-job-' * 6}.json"
    long.write_bytes(trace.read_bytes())
    call("ingest", long)
    assert "no runs yet" not in (shown := call("list", "runs").out)
    assert max(map(len, shown.splitlines())) <= 80
    assert "".join(line.split("  ")[0] for line in shown.splitlines()[1:]).startswith(long.stem[:60])


def test_remove_takes_whole_runs_and_asks_first(call: Call, stored: str, trace: Path, tmp_path: Path) -> None:
    answer = call("remove", stored)
    assert (answer.code, "add --yes" in answer.err) == (2, True)
    answer = call("remove", stored, f"{stored[:-1]}x", "--yes")
    assert (answer.code, f"did you mean {stored}" in answer.err) == (2, True)
    for elsewhere in ("..", "../other", ".", str(tmp_path)):
        assert call("remove", elsewhere, "--yes").code == 2
    assert (tmp_path / "store" / stored / "manifest.json").exists()
    answer = call("remove", stored, "--yes")
    assert (answer.code, answer.err) == (0, f"removed {stored}\n")
    assert list((tmp_path / "store").iterdir()) == []
    assert trace.exists()
    assert call("list", "runs").out == "no runs yet: create one with `cclbench run SOURCE`\n"


def test_a_run_of_another_version_is_listed_so(call: Call, told: Told, stored: str, tmp_path: Path) -> None:
    path = tmp_path / "store" / stored / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tables": "0" * 12}))
    (row,) = told("list", "runs")["rows"]
    assert row["run"] == stored
    assert "written by another version; ingest the source again" in row["problem"]
    assert call("list", "runs").code == 0
    answer = call("sql", stored, "SELECT 1")
    assert (answer.code, "another version" in answer.err) == (3, True)
    claims = call("claims")
    assert (claims.code, f"run {stored} cannot be read" in claims.err) == (2, True)


def test_list_cards(told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path) -> None:
    (tmp_path / "workload_cards").mkdir()
    (tmp_path / "workload_cards" / "broken.yaml").write_text("a: [")
    (tmp_path / "workload_cards" / "empty.yaml").write_text("version: 2\nid: other\n")
    monkeypatch.chdir(tmp_path)
    broken, empty = told("list", "cards")["rows"]
    assert broken["path"] == os.path.join("workload_cards", "broken.yaml")
    assert (broken["id"], empty["id"]) == (None, "other")
    assert broken["valid"].startswith("no: ")
    assert empty["valid"].startswith("no: ")
    monkeypatch.chdir(repository)
    assert {row["valid"] for row in told("list", "cards")["rows"]} == {"yes"}


@pytest.mark.parametrize(
    ("word", "metrics"),
    [
        ("HFU", ["compute.hfu"]),
        ("bubble", ["overlap.bubble_ideal", "overlap.pipeline_bubble"]),
        ("tail latency", ["serving.e2e_latency", "serving.ttft", "time.step"]),
    ],
)
def test_explain_finds_metrics_by_the_fields_words(told: Told, word: str, metrics: list[str]) -> None:
    assert [row["name"] for row in told("explain", word)["metrics"]] == metrics


def test_every_word_of_the_field_names_metrics_that_there_are() -> None:
    assert {name for names in SYNONYMS.values() for name in names} <= set(METRICS)
    assert not set(SYNONYMS) & {*METRICS, *ALIASES, *FINDINGS}
    assert all(word == word.lower() for word in SYNONYMS)


def test_explain(call: Call, told: Told) -> None:
    """By a name, an alias, a pattern, and any of the keys of a setting; a reader as it is listed."""
    document = told("explain", "load_imbalance_ratio")
    assert document["schema"] == "explain.v1"
    (metric,) = document["metrics"]
    assert metric["name"] == "balance.load_imbalance"
    assert "load_imbalance_ratio" in metric["aliases"]
    names = [row["name"] for row in told("explain", "time.*")["metrics"]]
    assert {"time.step", "time.idle"} <= set(names)
    assert all(name.startswith("time.") for name in names)
    key = "rank[3].kernels[gemm].time"
    (setting,) = told("explain", key)["settings"]
    assert (setting["name"], "median" in setting["values"]) == ("kernels.time", True)
    assert setting["definition"] in [row["definition"] for row in told("list", "settings")["rows"]]
    (reader,) = told("explain", "ascend_steps")["readers"]
    assert reader in told("list", "readers")["rows"]
    assert reader["capture"].split()[0] in call("explain", "ascend_steps").out
    shown = call("explain", key, "host_bound").out
    assert shown.index("host_bound") < shown.index("kernels.time")


def test_sql(call: Call, told: Told, stored: str) -> None:
    query = "SELECT kind, count(*) AS n FROM events GROUP BY kind ORDER BY kind"
    document = told("sql", stored, query)
    assert (document["schema"], document["run"]) == ("sql.v1", stored)
    assert document["columns"] == ["kind", "n"]
    counts = {"annotation": 2, "copy": 2, "kernel": 4, "launch": 6}
    assert document["rows"] == [{"kind": kind, "n": n} for kind, n in counts.items()]
    assert call("sql", stored, query, "--format", "csv").out.splitlines()[1:3] == ["annotation,2", "copy,2"]
    assert "kernel" in call("sql", stored, query).out


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'nan'::DOUBLE", None),
        ("'\\x01'::BLOB", "01"),
        ("1.5::DECIMAL(3,1)", "1.5"),
        ("[1, 2]", [1, 2]),
        ("{'k': 1}", {"k": 1}),
        ("'infinity'::TIMESTAMP", "infinity"),
        ("'-infinity'::DATE", "-infinity"),
        ("'44-03-15 (BC)'::DATE", "0044-03-15 (BC)"),
        ("'12:00:00+02'::TIMETZ", "12:00:00+02"),
        ("INTERVAL 3 MONTH", "3 months"),
        ("['290000-01-01'::TIMESTAMP]", "['290000-01-01 00:00:00']"),
    ],
)
def test_sql_says_what_json_has_no_word_for(told: Told, stored: str, expression: str, value: Any) -> None:
    assert told("sql", stored, f"SELECT {expression} AS a")["rows"] == [{"a": value}]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1"])
def test_csv_runs_nothing_in_a_spreadsheet(call: Call, stored: str, text: str) -> None:
    codes = " || ".join(f"chr({ord(character)})" for character in text)
    words = ("sql", stored, f"SELECT {codes} AS \"=a\", -1 AS b, 'a=1' AS c")
    inert = csv.reader(io.StringIO(call(*words, "--format", "csv").out, newline=""))
    assert list(inert) == [["'=a", "b", "c"], [f"'{printable(text)}", "-1", "a=1"]]
    raw = csv.reader(io.StringIO(call(*words, "--format", "csv", "--raw").out, newline=""))
    assert list(raw) == [["=a", "b", "c"], [text, "-1", "a=1"]]
    refused = call(*words, "--raw")
    assert (refused.code, "--raw requires --format csv" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", ""),
        ("SELEC 1", ""),
        ("SELECT 1 AS a, 2 AS a", "SQL: two columns are called 'a'"),
        ("SELECT * FROM read_csv('/etc/hosts')", ""),
        ("COPY (SELECT 1) TO 'RUN/mine.csv'", ""),
    ],
)
def test_sql_only_reads_the_run(call: Call, stored: str, tmp_path: Path, query: str, says: str) -> None:
    """tests/record/test_store.py has all that a query may not do."""
    folder = tmp_path / "store" / stored
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    answer = call("sql", stored, query.replace("RUN", str(folder)))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {says}")
    assert len(answer.err.splitlines()) <= 3
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


ACCEPTED = {
    StepRange: {"2:5": (2, 5), "3:": (3, None), ":10": (None, 10), ":": (None, None)},
    RankList: {"0": [0], "0,2,4-7": [0, 2, 4, 5, 6, 7], "5,1-2, 1": [1, 2, 5]},
    Size: {"1GB": 10**9, "50 MB": 5 * 10**7, "1.5GiB": 3 << 29, "64KiB": 1 << 16},
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in ACCEPTED for text in ACCEPTED[kind]])
def test_what_a_text_is(kind: Any, text: str) -> None:
    assert kind.convert(text, None, None) == ACCEPTED[kind][text]


REFUSED = {
    StepRange: ["", "3", "5:2", "-1:3", "1:2:3", "a:b", "1:99999999999"],
    RankList: ["", ",", "a", "3-1", "-1", "0-9999999999", "1-2-3"],
    Size: ["", "1", "GB", "1 furlong", "0 GB", "-1 GB"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in REFUSED for text in REFUSED[kind]])
def test_what_a_text_is_not(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, fake_run: Any) -> dict[str, Any]:
    """The keywords with which `run` was called."""
    seen: dict[str, Any] = {}

    def compute(source: str, **options: Any) -> Any:
        seen.update(options, source=source)
        return fake_run

    monkeypatch.setattr(api, "run", compute)
    return seen


def test_options_reach_the_api(call: Call, recorded: dict[str, Any], tmp_path: Path) -> None:
    """And their defaults; the store's is from $CCLBENCH_STORE."""
    words = "--metric time.* --metric mfu --window trace --steps 2:5 --ranks 0,4-5 --jobs 3 --allow-truncated"
    words += " --step-annotation ^it --no-inference --store"
    answer = call("run", "traces/tiny", *words.split(), tmp_path / "s")
    assert answer.code == 0, answer.err
    engine = recorded.pop("engine")
    assert isinstance(engine, Processes)
    assert engine.workers == 3
    common = {"source": "traces/tiny", "model": True, "labels": {}, "progress": None}
    given = {"metrics": ("time.*", "mfu"), "window": "trace", "steps": (2, 5), "ranks": [0, 4, 5]}
    given |= {"allow_truncated": True, "step_annotation": "^it", "inference": False, "store": tmp_path / "s"}
    assert recorded == common | given
    assert call("run", "traces/tiny").code == 0
    assert isinstance(recorded.pop("engine"), Serial | Processes)
    defaults = {"metrics": ("*",), "window": "steps", "steps": None, "ranks": None, "allow_truncated": False}
    defaults |= {"step_annotation": None, "inference": True, "store": tmp_path / "store"}
    assert recorded == common | defaults


@pytest.mark.parametrize("command", ["run", "metrics"])
def test_models_can_be_off(call: Call, monkeypatch: pytest.MonkeyPatch, fake_run: Any, command: str) -> None:
    seen: list[bool] = []

    def compute(_: str, *, model: bool, **__: Any) -> Any:
        seen.append(model)
        return fake_run

    monkeypatch.setattr(api, command, compute)
    assert call(command, "tiny").code == 0
    assert call(command, "tiny", "--no-model").code == 0
    assert seen == [True, False]


def test_an_engine_prepares_for_the_text_of_a_source(tmp_path: Path) -> None:
    class Noted(Serial):
        def prepare(self, size_bytes: int) -> None:
            sizes.append(size_bytes)

    sizes: list[int] = []
    (tmp_path / "a.json").write_bytes(bytes(7))
    (tmp_path / "b.json.gz").write_bytes(bytes(3))
    for source in ("a.json", "b.json.gz", ".", "absent", "nul\0"):
        options.prepare_engine(Noted(), str(tmp_path / source))
    assert sizes == [7, 30, 37]


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands and subcommands with their paths."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())
CONTRACT = """
run site ingest merge metrics list explain diagnose sql ops reproduce sequences stragglers pareto report
memory timeline open compare history whatif project export remove search selftest selfcheck contribute verify
import claims mcp card hardware
"""


def test_the_contract_has_its_commands_each_with_its_summary() -> None:
    assert {path[0] for path in ALL} == set(CONTRACT.split())
    for name, summary in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert summary == " ".join(command.help.split("\n\n")[0].split())


def test_every_command_has_help_that_fits_with_an_example_and_says_what_options_do(call: Call) -> None:
    for path, command in ALL.items():
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert options, path
        assert [option.name for option in options if not option.help] == [], path
        answer = call(*path, "--help")
        assert answer.code == 0, path
        assert max(map(len, answer.out.splitlines())) <= 80, path
        text = command.help or ""
        assert len(text) > 20, path
        assert path[0] == "card" or f"cclbench {' '.join(path)} " in text.partition("Examples:")[2], path


def test_the_settings_in_the_help_can_be_set() -> None:
    keys = (ALL["whatif",].help or "").partition("Keys:")[2].partition("`")[0]
    named = re.findall(r"[\w.\[\]]+=[\w.:]+", keys)
    assert len(named) >= 10
    for text in named:
        parse_scenario([text])


def test_explain_without_a_metric_explains_all(call: Call) -> None:
    shown = call("explain").out.splitlines()
    begins = {name: shown.index(name) for name in METRICS}
    for name, begin in begins.items():
        end = min((other for other in begins.values() if other > begin), default=len(shown))
        explained = "".join("".join(shown[begin:end]).split())
        one = METRICS.get(name)
        texts = (one.definition, one.formula, one.not_applicable, one.combined, *one.aliases)
        assert [text for text in texts if "".join(text.split()) not in explained] == [], name
    answer = call("explain", name)
    assert (answer.code, answer.out.splitlines()) == (0, shown[begin:])


def test_the_program_alone_prints_a_short_help(call: Call) -> None:
    answer = call()
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert len(lines) < 12
    assert "All commands: cclbench --help. One of them: cclbench COMMAND --help." in lines
    named = {line.split()[1] for line in lines if line.startswith("  cclbench ")}
    assert named <= set(COMMANDS)


def completed(words: str, store: Path) -> list[str]:
    """What the shell's own way of asking answers for the last of the words."""
    at = len(words.split()) - (not words.endswith(" "))
    asked = {"_CCLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    program = str(Path(sys.executable).parent / "cclbench")
    environment = os.environ | asked | {"CCLBENCH_STORE": str(store)}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_runs_and_metrics_are_completed(stored: str, tmp_path: Path) -> None:
    """A store that is none completes nothing."""
    store = tmp_path / "store"
    assert {"plain,run", "plain,explain"} <= set(completed("cclbench ", store))
    for command in ("report", "compare", "remove", "stragglers", "run"):
        assert f"plain,{stored}" in completed(f"cclbench {command} {stored[:4]}", store), command
    assert completed("cclbench report nothing-like-it", store) == ["file,nothing-like-it"]
    assert completed("cclbench report x", tmp_path / "nowhere") == ["file,x"]
    exposed = completed("cclbench metrics x --metric time.exposed_w", store)
    assert exposed == ["plain,time.exposed_wait"]
    assert completed("cclbench history --metric time.exposed_w", store) == exposed
    assert completed("cclbench explain late_r", store) == ["plain,late_rank"]
    settings = completed("cclbench whatif x --set scale_up.b", store)
    assert settings == ["plain,scale_up.bandwidth="]
    assert "plain,collective." in completed("cclbench whatif x --set coll", store)
    assert completed("cclbench report @", store) == ["plain,@last", "file,@"]
    assert completed("cclbench project x --system aws-p5e", store) == ["plain,aws-p5e", "plain,aws-p5en"]
    assert "plain,nvidia-h100-sxm" in completed("cclbench hardware show nvidia-h100-s", store)
    assert completed("cclbench ops x --by op,ph", store) == ["plain,op,phase"]
    assert completed("cclbench compare a b --fail-on time.exposed_w", store) == exposed


def test_runs_are_listed_by_time(call: Call, trace: Path, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / trace.name).write_bytes(trace.read_bytes())
        call("ingest", tmp_path / name)
    for age, name in enumerate("bca"):
        (manifest,) = (tmp_path / "store").glob(f"{name}-*/manifest.json")
        os.utime(manifest, (2e9 - age, 2e9 - age))
    rows = json.loads(call("list", "runs", "--json").out)["rows"]
    assert [row["run"][0] for row in rows] == ["b", "c", "a"]

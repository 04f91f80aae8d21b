# SPDX-License-Identifier: Apache-2.0
"""Every command, in every form, of hostile names and texts: what reaches stdout and stderr is text."""

from __future__ import annotations

import csv
import io
import json
import pickle
import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import pytest
from formats.test_memory_snapshot import snapshot
from helpers import hostile_job as job
from hostile.test_terminal import assert_clean

from cclbench.cli import cli, main
from cclbench.ground.text import printable
from cclbench.present.brief import BRIEF_BYTES
from cclbench.present.terminal.streams import PrintableStream, printable_streams
from cclbench.selfcheck import relations

NAME: Final = "n\x1b]52;c;eA==\x07\x9b31m\r\b\u202e\u2066\u2028\u200b\n"
"""Part of the name of each folder."""
STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE: Final = "".join(text for text in job.SHORT if "\0" not in text)
QUERY: Final = (
    "SELECT DISTINCT name AS \"\x1b]0;t\x07\u202e\", name || chr(155) AS b, [name] AS l, {'k\x1b': name} AS s"
    " FROM events WHERE length(name) < 1000"
)
LISTS: Final = ("runs", "cards", "metrics", "findings", "readers", "hardware", "settings", "workloads")
SWEEP: Final = (
    f"# coll: all_reduce\n# ranks: 16\n# nodes: 2\n# gpus_per_node: 8\n# note: {NAME}\n"
    "size_bytes,count,dtype,redop,oop_time_us,oop_algbw_GBps,oop_busbw_GBps,"
    "ip_time_us,ip_algbw_GBps,ip_busbw_GBps\n1048576,262144,float\x1b\u202e,sum,100,0,0,,,\n"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of hostile data points, side files and a store."""
    folder = tmp_path_factory.mktemp("streams") / NAME
    folder.mkdir()
    for identity, layers in (("hostile", 2), ("other", 3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "TEXTS", (*job.SHORT, "n" * 3000))  # a megabyte in every form takes minutes
            job.write(folder, identity, layers=layers)
        (folder / "traces" / identity / f"{NAME}.csv").write_text(SWEEP)
    (folder / "sweep.csv").write_text(SWEEP)
    (folder / "snapshot").mkdir()
    (folder / "snapshot" / f"rank0{NAME}.pickle").write_bytes(
        pickle.dumps(json.loads(json.dumps(snapshot()).replace("model.py", json.dumps(HOSTILE)[1:-1])))
    )
    row = {"trace": NAME, "metadata": {"workload_name": HOSTILE, "phase": "training", "hardware_type": "GPU"}}
    rows = {"rows": [row | {"metrics": {"avg_step_time": 1.0, HOSTILE: 1.0}}]}
    (folder / f"{NAME}board.json").write_text(json.dumps(rows))
    with (folder / f"{NAME}results.csv").open("w", newline="") as stream:
        trial = [
            json.dumps(part) for part in ({"tp": HOSTILE, HOSTILE: 1}, {"avg_step_time": 1.0, HOSTILE: 2.0})
        ]
        columns = ["iteration", "config", "metrics", "status", "error_msg"]
        csv.writer(stream).writerows([columns, [0, *trial, HOSTILE, ""], [1, "{}", "{}", "error", HOSTILE]])
    (folder / f"{NAME}run.sh").write_text(f"pretrain_gpt.py --global-batch-size {HOSTILE}\n")
    facts = {"model": {"model_family": HOSTILE}, "hardware": {"xpu_spec": {"model": HOSTILE}}}
    (folder / f"{NAME}old.yaml").write_text(json.dumps({"version": 1, "workload": facts}))
    client = {"tokenizer_id": HOSTILE, "num_prompts": 1, "model_id": HOSTILE, "output_throughput": 1.0}
    (folder / f"{NAME}client.json").write_text(json.dumps(client | {"mean_ttft_ms": 1.0}))
    (folder / "space.yaml").write_text('space: {kernels.time: [x1, x2]}\ncost_unit: "\\u202e"\n')
    (folder / "collection").mkdir()
    return folder


def calls(root: Path) -> dict[str, list[list[Any]]]:
    """Arguments of each command, of those of a group by both words; `-o OUT` stands for a new place."""
    card, other, traces = (
        *(root / "workload_cards" / f"{name}.yaml" for name in ("hostile", "other")),
        root / "traces" / "hostile",
    )
    scripts, collection = root / "scripts" / "hostile", ["--collection", root / "collection"]
    data_point = [card, "--traces", traces, "--scripts", scripts, *collection, "--licence", "Apache-2.0"]
    results = root / f"{NAME}results.csv"
    wrong = [HOSTILE, root / f"{NAME}missing", traces / "missing"]
    return {
        "run": [[card], [card, "-v"], [traces, "--window", "trace"], *([word] for word in wrong)],
        "ingest": [[card, "-v"], [other], [traces, "--shard", "1/1", "--store", root / f"shards{NAME}"]],
        "merge": [[*sorted((root / f"shards{NAME}").glob("*")), "--store", root / "merged"]],
        "metrics": [[card], [HOSTILE]],
        "diagnose": [[card, "-v"], [root / "snapshot"]],
        "list": [[what] for what in LISTS],
        "remove": [[HOSTILE, "--yes"], [NAME]],
        "explain": [["time.step"], [HOSTILE]],
        "sql": [[card, QUERY], [card, "FROM results"], [card, "FROM groups"], [card, f"SELECT {HOSTILE}"]],
        "ops": [[card, "--by", by] for by in ("op", "module", "kernel")],
        "reproduce": [[card, "--row", "1"], [card, "--row", "9"], [card, "--check", card]],
        "sequences": [[card]],
        "stragglers": [[card, other]],
        "pareto": [[card], [root / f"{NAME}client.json"], [HOSTILE]],
        "report": [[card, "-o", "OUT.html"], [card, "-o", f"OUT{NAME}"]],
        "memory": [[root / "snapshot"], [card]],
        "timeline": [[card, "-o", "OUT.svg"]],
        "open": [[card, "-o", "OUT.json"]],
        "compare": [[card, other, "-v", "-o", "OUT.json"], [card, other, "--fail-on", f"{HOSTILE} > 5 s"]],
        "history": [[], [card, "-v"], [card, "--fail-on", "time.step > +3%"], [HOSTILE]],
        "site": [[root, "-o", "OUT"], [HOSTILE, "-o", "OUT"], [root / "none", "-o", f"OUT{NAME}"]],
        "whatif": [[card, "--set", "kernels.time=x2", "-v"], [card, "--set", HOSTILE]],
        "project": [
            [card, "--system", "aws-p5", "--gpus", "8"],
            [card, "--system", HOSTILE, "--gpus", "2"],
            [card, "--system", "aws-p5", "--gpus", "8", "--step", "1s"],
        ],
        "export": [
            [card, "--to", "chakra", "--check", "-o", "OUT"],
            [card, "--to", "prometheus", "-o", "OUT.prom"],
            [card, "--to", "mlflow", "-o", f"OUT{NAME}"],
        ],
        "search": [[card, "--space", root / "space.yaml"]],
        "contribute": [[*data_point, "--replace", "--no-input", "--allow-gaps", "-v"]],
        "selftest": [
            ["--cause", "heat", "--per-cause", "0", "--equal", "0", "--healthy", "0", "--output", "OUT.json"],
            ["--cause", HOSTILE],
        ],
        "selfcheck": [[traces], [root / "snapshot"], [HOSTILE]],
        "verify": [["--all", "-v", *collection], [HOSTILE, *collection]],
        "import ccl-bench": [[root / f"{NAME}board.json"], [root / f"{NAME}none"]],
        "import ccl-search": [
            [results, "--script", root / f"{NAME}run.sh", "--card", root / f"{NAME}old.yaml"],
            [results, "--script", root / f"{NAME}none"],
        ],
        "import mlperf": [[root], [root / f"{NAME}none"]],
        "import inferencex": [[root / f"{NAME}board.json"], [root / f"{NAME}none"]],
        "claims": [["-v"]],
        "card new": [[traces], [traces, "-o", f"OUT{NAME}.yaml"]],
        "card show": [[card]],
        "card fetch": [[card]],
        "card validate": [[card], [root / "space.yaml", root / "none\x1b"]],
        "card upgrade": [[card], [root / "space.yaml"]],
        "card schema": [[]],
        "hardware show": [[], ["aws-p5"], [HOSTILE]],
        "hardware predict": [
            ["--system", "aws-p5", "--collective", "all_reduce", "--size", "1MiB", "--ranks", "8"],
            ["--system", HOSTILE, "--collective", HOSTILE, "--size", "1"],
        ],
        "hardware validate": [[root / "sweep.csv", "--system", "aws-p5"], [traces, "--system", "aws-p5"]],
        "hardware calibrate": [[root / "sweep.csv", "--system", "aws-p5", "-o", f"OUT{NAME}.yaml"]],
        "hardware probe": [
            ["aws-p5", "--collective", "all_reduce", "--commands", "1"],
            ["aws-p5", root / "sweep.csv"],
            ["aws-p5", "--collective", HOSTILE],
        ],
    }


COMPUTED: Final = {
    "contribute": "cclbench.contribute.package.make_data_point",
    "selfcheck": "cclbench.selfcheck.check_source",
    "verify": "cclbench.contribute.verify.verify_data_point",
    "compare": "cclbench.comparison.build.compare",
}
"""What these commands print in their forms takes seconds to compute: the forms of one call share it."""
NOT_CALLED: Final = {"mcp"}
"""Its stdout is a protocol's; `tests/agents` speaks it."""


def commands() -> dict[str, click.Command]:
    context, found = click.Context(cli), {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        within = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {word}": one for word, one in within.items()} or {name: command}
    return found


def forms(command: click.Command) -> Iterator[list[str]]:
    """Every `--format`, `--json` and `--brief` of a command; one that has none is called as it is."""
    choices = [list(one.type.choices) for one in command.params if "--format" in one.opts]  # type: ignore[attr-defined]
    yield from (["--format", form] for form in (choices[0] if choices else ()))
    if any("--brief" in one.opts for one in command.params):
        yield ["--json", "--brief"]
    if not choices:
        yield []
        if any("--json" in one.opts for one in command.params):
            yield ["--json"]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path) -> Any:
    """Calls the command line; its exit code, stdout and stderr as bytes."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("CCLBENCH_STORE", str(root / f"store{NAME}"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("cclbench.engine.available_cores", lambda: 1)
    numbers = iter(range(10_000))

    def call(words: list[Any]) -> tuple[int, bytes, str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        placed = [re.sub("^OUT", str(tmp_path / str(next(numbers))), str(word)) for word in words]
        with redirect_stdout(out), redirect_stderr(err):
            code = main(placed)
        return code, out.buffer.getvalue(), err.buffer.getvalue().decode()  # type: ignore[attr-defined]

    return call


def test_every_command_is_called(root: Path) -> None:
    assert set(calls(root)) == set(commands()) - NOT_CALLED


@pytest.mark.parametrize("words", sorted(set(commands()) - NOT_CALLED))
def test_only_text_is_printed(words: str, say: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = set()
    # of changes that each read all traces again one of rows and one of times; all are tests/selfcheck's
    monkeypatch.setattr(
        "cclbench.selfcheck.relations.RELATIONS", (relations.TimesShifted, relations.TimesScaled)
    )
    if words in COMPUTED:
        compute = pkgutil.resolve_name(COMPUTED[words])
        results: dict[tuple[str, str], Any] = {}

        def computed(*given: Any, **options: Any) -> Any:
            key = str(given[:1]), str(options.get("fail_on"))
            if key not in results:
                results[key] = compute(*given, **options)
            return results[key]

        monkeypatch.setattr(COMPUTED[words], computed)
    if words == "merge":
        say(["ingest", root / "traces" / "hostile", "--shard", "1/1", "--store", root / f"shards{NAME}"])
    before = {"verify": "contribute", "claims": "import ccl-bench"}.get(words)
    if before is not None:
        say([*before.split(), *calls(root)[before][0]])
    for n, arguments in enumerate(calls(root)[words]):
        # Errors read alike in every form.
        for form in islice(forms(commands()[words]), None if n == 0 or words == "list" else 1):
            code, out, err = say([*words.split(), *form, *arguments])
            codes.add(code)
            assert code in (0, 1, 2, 3, 5), (arguments, err)
            assert_clean(err)
            if form != ["--format", "xlsx"] or code:
                assert_clean(out.decode())
            if {"json", "--brief"} & {*form} and not code:
                assert json.loads(out)
                assert "--brief" not in form or len(out) <= BRIEF_BYTES + 1
            if form == ["--format", "csv"] and not code:
                assert all(map(str.isprintable, out.decode().split("\n")))
    # The job has two ranks, and project takes one; nothing here is a result of MLPerf or InferenceX.
    refused = {"remove", "reproduce", "hardware calibrate", "card upgrade", "project"}
    refused |= {"import mlperf", "import inferencex"}
    assert 0 in codes or words in refused
    # On a terminal that shows colours they are all that is no text.
    monkeypatch.setenv("FORCE_COLOR", "1")
    form = next(forms(commands()[words]))
    _, out, err = say([*words.split(), *form, *calls(root)[words][0]])
    assert_clean(STYLE.sub("", out.decode()) + STYLE.sub("", err))


def test_raw_csv_is_for_files(say: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts as they are, and to no terminal."""
    query = ["sql", root / "workload_cards" / "hostile.yaml", QUERY, "--format", "csv"]
    _, raw, _ = say([*query, "--raw"])
    rows = list(csv.reader(io.StringIO(raw.decode(), newline="")))
    assert rows[0][0] == "\x1b]0;t\x07\u202e"
    assert set(job.SHORT) <= {row[0] for row in rows}
    _, escaped, _ = say(query)
    shown = {row[0] for row in csv.reader(io.StringIO(escaped.decode(), newline=""))}
    assert {printable(text) for text in job.SHORT} <= {*shown, *(cell.removeprefix("'") for cell in shown)}
    monkeypatch.setattr(PrintableStream, "isatty", lambda _: True, raising=False)
    code, out, err = say([*query, "--raw"])
    assert (code, out) == (2, b"")
    assert "stdout is a terminal" in err


def test_warnings_and_tracebacks_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    """What a library or a plug-in prints of itself, too."""
    with printable_streams():
        sys.stdout.write(f"a{NAME}b")
        sys.stderr.write(f"a{NAME}b")
    told = capsys.readouterr()
    assert_clean(told.out + told.err)
    assert told.out == told.err == f"a{json.dumps(NAME[:-1])[1:-1]}\nb"


def test_an_encoding_that_lacks_a_character_keeps_json_json() -> None:
    out = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    with redirect_stdout(out), printable_streams():
        sys.stdout.write(json.dumps({"é": "\U0001f600\u202e\udce9"}, ensure_ascii=False))
    assert json.loads(out.buffer.getvalue()) == {"é": "\U0001f600\u202e\\xe9"}

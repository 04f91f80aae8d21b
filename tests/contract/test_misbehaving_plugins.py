# SPDX-License-Identifier: Apache-2.0
"""Plug-ins whose code is wrong: a line that names them, and all else as without them."""

from __future__ import annotations

import inspect
import json
import pydoc
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from helpers.packages import cclbench_with, with_module
from helpers.page_commands import blocks

from cclbench.ground.errors import PluginError, UsageError
from cclbench.ground.registry import Registry, plugin_code
from cclbench.operators.cost import Cost, CostModel, require_explained
from cclbench.sql import add_views

CARD = Path("workload_cards") / "tiny-llama-ddp4-gloo-cpu.yaml"
METRICS = '''
"""Metrics that misbehave."""

from cclbench.analyzers.metric import Value, metric

ABOUT = {"definition": "None.", "formula": "none", "unit": "s"}


def torn(ranks):
    """Raises."""
    return [Value(value=1 / 0)]


def silent(ranks):
    """Nothing."""
    return []


@metric("mine.torn", **ABOUT, combine=torn)
@metric("mine.silent", **ABOUT, combine=silent)
def one(rank):
    return Value(value=1.0)


print("loaded")


@metric("mine.raises", **ABOUT)
def raises(rank):
    return Value(value=1 / 0)


@metric("mine.prints", **ABOUT)
def prints(rank):
    print("computing")
    yield Value(value=1.0)
'''
SETTINGS = """
from dataclasses import replace

from cclbench.replay.change import change, share_of


@change("raises", values="x2", definition="none", read=share_of)
def raises(subject, factor):
    return 1 / 0


@change("nothing", values="x2", definition="none", read=share_of)
def nothing(subject, factor):
    return None


@change("negative", values="x2", definition="none", read=share_of)
def negative(subject, factor):
    nodes = subject.graph.nodes
    return replace(subject.graph, nodes=replace(nodes, dur=nodes.dur - 10**12))


@change("broken", values="x2", definition="none", read=share_of)
def broken(subject, factor):
    return replace(subject.graph, nodes=replace(subject.graph.nodes, dur=subject.graph.nodes.dur * 1.5))


@change("unreadable", values="x2", definition="none", read=lambda text, value: int(value))
def unreadable(subject, factor):
    return subject.graph
"""
FINDINGS = """
from cclbench.findings.finding import finding

ABOUT = {"title": "none", "rule": "none", "gain": "none", "actions": {"any": ("nothing",)}}


@finding("refused", **ABOUT)
def refused(case):
    yield case.finding("refused", "It is.", lost={0: 1.0}, whatif=["kernel.time=0"], because="of a test")


@finding("renamed", **ABOUT)
def renamed(case):
    yield case.finding("rename", "It is.", because="of a test")


@finding("narrowed", **ABOUT)
def narrowed(case):
    yield from case.ranks("time.step", categry="compute")
"""
READER = """
import numpy as np

from cclbench.formats import READERS, Names, Part, Reader, Rows, Trace
from cclbench.record.facts import TraceFacts


class Mine(Reader):
    name, description, extensions, versions, tested = "mine", "a test's", (".mine",), "all", "not"
    side, duration = "device", 5

    def sniff(self, head):
        return None if head == b"mine vote" else float(head.startswith(b"mine"))

    def parts(self, path):
        return [] if path.stem == "empty" else [Part()]

    def read(self, path, *, part, allow_truncated):
        if path.stem == "raises":
            raise KeyError("stream")
        names, at = Names(), np.arange(0, 30, 10)
        names["gemm"]
        rows = Rows(
            kind="kernels" if path.stem == "kind" else "kernel",
            side="dev" if path.stem == "side" else "device",
            names=names,
            codes=np.zeros(3, np.int32),
            track=np.zeros(3, np.int64),
            start_ns=at.astype(float) if path.stem == "times" else at,
            dur_ns=np.array([5, 5, -5 if path.stem == "negative" else 5]),
        )
        return Trace(batches=iter([rows]), facts=TraceFacts(rank=0, rank_source="a test", works_on="device"))


READERS.add("mine", Mine(), origin=__name__)
"""


def test_the_answer_is_whole_whatever_metrics_do(repository: Path, tmp_path: Path) -> None:
    """One that raises, or whose combination does, is a failed row; no word of theirs is on stdout."""
    outside = with_module(tmp_path, "my_metrics", METRICS, "cclbench.analyzers")
    asked = (repository / CARD, "--metric", "mine.*", "--metric", "time.step", "--json", "--jobs", "2")
    done = cclbench_with(outside, "run", *asked, "--store", tmp_path / "store")
    rows = {row["metric"]: row for row in json.loads(done.stdout)["results"] if row["rank"] is None}
    for name in ("mine.torn", "mine.raises"):
        assert rows[name]["status"] == "failed"
        assert "a defect of the plug-in my_metrics: ZeroDivisionError" in rows[name]["reason"]
    assert rows["mine.silent"]["status"] == "not_applicable"
    assert rows["mine.prints"]["value"] == 1.0
    assert "computing" in done.stderr
    assert "loaded" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('@metric("mine.one", combine=lambda ranks: ranks, **ABOUT)', "combine=<lambda> has no docstring"),
        ('@metric("mine.one", better="less", **ABOUT)', "better='less' is none of"),
        ('@metric("Mine-One", **ABOUT)', "'Mine-One' is no name for a metric"),
        ('@metric("mine.one", **ABOUT | {"unit": "ms"})', "unit='ms' is none of values; values are in 's'"),
    ],
)
def test_a_metric_that_explain_cannot_show_is_refused(wrong: str, said: str, tmp_path: Path) -> None:
    source = METRICS.split("@metric", 1)[0] + f"{wrong}\ndef one(rank):\n    return Value(value=1.0)\n"
    done = cclbench_with(
        with_module(tmp_path, "my_metrics", source, "cclbench.analyzers"), "explain", "time.step"
    )
    assert done.returncode == 0
    assert said in done.stderr
    assert "(my_metrics) did not load" in done.stderr


SET = {
    "raises=x2": "ZeroDivisionError: division by zero",
    "nothing=x2": "TypeError: nothing gives neither a graph nor words, but NoneType",
    "negative=x2": "ValueError: negative gives nodes a negative duration",
    "unreadable=x2": "ValueError: invalid literal",
    "broken=x2": "TypeError: broken gives durations of float64, not int64",
}


def test_a_setting_that_fails_is_named(repository: Path, tmp_path: Path) -> None:
    outside = with_module(tmp_path, "my_settings", SETTINGS, "cclbench.scenarios")
    for setting, said in SET.items():
        done = cclbench_with(
            outside, "whatif", repository / CARD, "--set", setting, "--store", tmp_path / "store"
        )
        assert done.returncode == PluginError.exit_code
        assert f"a defect of the plug-in my_settings: {said}" in done.stderr


def test_findings_that_name_nothing_known_leave_the_others(repository: Path, tmp_path: Path) -> None:
    outside = with_module(tmp_path, "my_findings", FINDINGS, "cclbench.findings")
    done = cclbench_with(outside, "diagnose", repository / CARD, "--json", "--store", tmp_path / "store")
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert "there is no setting 'kernel.time'; did you mean kernels.time" in found["refused"]["no_gain"]
    assert "finding 'renamed' failed: UsageError: it yields what it calls 'rename'" in done.stderr
    assert "UsageError: rows have no key 'categry'; did you mean category? (line 19)" in done.stderr
    assert "uneven_ranks" in found


READ = {
    "raises": "a defect of the plug-in my_reader: KeyError: 'stream'",
    "side": "the reader mine gave rows of side 'dev'; did you mean device?",
    "kind": "the reader mine gave rows of kind 'kernels'; did you mean kernel?",
    "times": "the reader mine gave start_ns of float64; times are whole nanoseconds",
    "vote": "a defect of the plug-in my_reader: ValueError: sniff of the reader mine returned None",
    "empty": "empty.mine: holds no rows of any rank",
}


def read(folder: Path, name: str, *words: str, source: str = READER) -> subprocess.CompletedProcess[str]:
    """`cclbench run` of a file that the reader of that source reads."""
    outside = with_module(folder, "my_reader", source, "cclbench.readers")
    trace = folder / f"{name}.mine"
    trace.write_text("mine vote" if name == "vote" else "mine")
    return cclbench_with(outside, "run", trace, *words, "--store", folder / "store")


@pytest.mark.parametrize("name", READ)
def test_a_reader_that_fails_is_named(name: str, tmp_path: Path) -> None:
    done = read(tmp_path, name)
    assert READ[name] in done.stderr
    assert "a defect of cclbench" not in done.stderr


def test_rows_of_negative_duration_are_set_aside_and_counted(tmp_path: Path) -> None:
    told = json.loads(read(tmp_path, "negative", "--json", "--metric", "compute.*").stdout)
    (count,) = (
        row for row in told["results"] if row["metric"] == "compute.kernel_count" and row["rank"] is None
    )
    assert count["value"] == 2
    assert "of negative duration" in " ".join(told["run"]["notes"])


def test_a_reader_that_changed_reads_anew(tmp_path: Path) -> None:
    sources = (READER, READER.replace("else 5])", "else 4 + 5])"))
    done = [read(tmp_path, "job", "--metric", "time.step", "--json", source=source) for source in sources]
    first, second = (json.loads(one.stdout)["results"][0]["value"] for one in done)
    assert second == pytest.approx(first + 4e-9)


def test_a_reader_that_states_too_little_does_not_load(tmp_path: Path) -> None:
    source = READER.replace("versions, tested", "other, another")
    done = cclbench_with(with_module(tmp_path, "my_reader", source, "cclbench.readers"), "list", "readers")
    assert done.returncode == 0
    assert "did not load: the reader Mine does not state its versions, tested" in done.stderr


def test_views_without_a_file_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"no file NAME\.sql is installed beside .*package-data"):
        add_views("json")


def undocumented(_: object) -> Cost:
    """What it is.

    FLOPs: 1 an element
    """
    raise NotImplementedError


@pytest.mark.parametrize(
    ("pattern", "said"), [("a(b", r"the pattern 'a\(b'"), ("ab", "its docstring lacks Bytes, Source")]
)
def test_cost_models_are_checked_where_they_register(pattern: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        require_explained(CostModel("mine", "mine", (pattern,), undocumented))


def test_what_a_plug_in_raises_names_it_and_what_ours_raise_stays() -> None:
    with pytest.raises(PluginError, match="a defect of the plug-in mine: KeyError: 'x'"), plugin_code("mine"):
        raise KeyError("x")
    for origin, error in (("cclbench.sql", KeyError), ("mine", UsageError), ("mine", OSError)):
        with pytest.raises(error), plugin_code(origin):
            raise error("x")


def test_a_plug_in_that_is_not_valid_is_not_registered() -> None:
    def refuse(_: object) -> None:
        raise UsageError("no")

    numbers: Registry[int] = Registry("number", home="json", group="cclbench.no_such_group", validate=refuse)
    with pytest.raises(UsageError, match="no"):
        numbers.add("one", 1, origin="here")
    assert list(numbers) == []


BUILT_IN = {"Iterator", "Sequence", "Iterable", "Path", "False", "True", "None"}
POINTS: Sequence[tuple[str, str]] = (
    ("cclbench.analyzers.metric", "metric"),
    ("cclbench.analyzers.metric", "run_metric"),
    ("cclbench.findings.finding", "finding"),
    ("cclbench.replay.change", "change"),
    ("cclbench.operators.cost", "cost_model"),
    ("cclbench.sql", "add_views"),
    ("cclbench.formats", "Reader"),
    ("cclbench.hardware.collectives.algorithm", "algorithm"),
    ("cclbench.present.charts.chart", "section"),
)


@pytest.mark.parametrize(("module", "name"), POINTS)
def test_help_of_each_plug_in_point_shows_one_use(module: str, name: str, repository: Path) -> None:
    loaded = import_module(module)
    pydoc.render_doc(loaded)  # annotations that nobody can resolve would raise
    used = {"Reader": "(Reader)"}.get(name, f"{name}(")
    texts = [inspect.getdoc(getattr(loaded, name)) or "", inspect.getdoc(loaded) or ""]
    (example, *_) = [text for text in texts if used in text]
    sources = [file.read_text() for file in (repository / "cclbench").rglob("*.py")]
    for word in set(re.findall(r"(?:: |-> |return |yield |\[)([A-Z][A-Za-z]+)\b", example)) - BUILT_IN:
        defined = re.compile(rf"^(?:class {word}\b|{word}\b.* = )", re.MULTILINE)
        assert any(map(defined.search, sources)), f"{name}: nothing is called {word}"


def test_the_page_on_views_installs_its_file_of_sql(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="61")
    (tmp_path / "my_views").mkdir()
    for _, name, block in blocks((repository / "docs" / "add-a-view.md").read_text()):
        if name is not None:
            (tmp_path / name).write_text(block)
    build = [sys.executable, "-c", "from setuptools import setup; setup()", "build", "--build-lib", "built"]
    subprocess.run(build, cwd=tmp_path, capture_output=True, check=True)
    expected = {"__init__.py", "kernel_spread.sql"}
    assert {file.name for file in (tmp_path / "built" / "my_views").iterdir()} == expected

# SPDX-License-Identifier: Apache-2.0
"""What reads a metric declares it; one that does not exist is refused where it registers, with near names."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from helpers.packages import cclbench_with, with_module
from helpers.report_run import results, table

import cclbench
from cclbench.analyzers.metric import METRICS
from cclbench.findings.finding import FINDINGS, finding
from cclbench.ground.errors import UsageError
from cclbench.record.metric_name import DECLARED, MetricName
from cclbench.record.results import Results

GROUPS = ("cclbench.analyzers", "cclbench.findings", "cclbench.sections")
OUTSIDE = '''
"""A metric, and a finding and a section that read it and one more."""

from cclbench.analyzers.metric import Value, metric
from cclbench.findings.finding import finding
from cclbench.present.charts.chart import Chart, section
from cclbench.record.metric_name import metric_names

READ = metric_names("mine.one", "{}")


@metric("mine.one", definition="One.", formula="1", unit="1")
def one(rank):
    return Value(value=1.0)


@finding("mine", title="always there", rule="always", gain="none", actions={{}})
def mine(case):
    yield case.finding("mine", "It is there.", because="it is", evidence=case.evidence(*READ))


@section("mine", place=15)
def chart(runs):
    return Chart("mine", "My chart", "Nothing.", None)
'''


def test_all_metrics_that_cclbench_reads_exist() -> None:
    folder = Path(cclbench.__file__).parent
    for path in folder.rglob("*.py"):
        if "record.metric_name import" in path.read_text():
            importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
    # Other tests register metrics of their own in this process, whose names `metric` declares.
    reading = {
        name: [m for m in modules if m.startswith("cclbench.") and m != "cclbench.analyzers.metric"]
        for name, modules in DECLARED.items()
    }
    own = {name for name, modules in reading.items() if modules}
    assert len(own) > 80
    assert own <= {*METRICS}


def test_plug_ins_that_read_what_exists_register(repository: Path, tmp_path: Path) -> None:
    outside = with_module(tmp_path, "mine", OUTSIDE.format("time.step"), *GROUPS)
    card = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    printed = cclbench_with(outside, "diagnose", card, "--json", "--store", tmp_path / "store")
    (own,) = (one for one in json.loads(printed.stdout)["findings"] if one["name"] == "mine")
    assert [row["metric"] for row in own["evidence"]] == ["mine.one", "time.step"]


def test_those_that_read_a_misspelt_metric_are_left_out_and_named(repository: Path, tmp_path: Path) -> None:
    outside = with_module(tmp_path, "mine", OUTSIDE.format("time.stpe"), *GROUPS)
    why = "mine reads an unknown metric 'time.stpe'; did you mean time.step"
    listed = cclbench_with(outside, "list", "findings", "--json")
    rows = {row["name"]: row for row in json.loads(listed.stdout)["rows"]}
    assert why in rows["mine"]["title"]
    assert why in listed.stderr
    assert "host_bound" in rows
    card, page = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml", tmp_path / "page.html"
    printed = cclbench_with(outside, "report", card, "-o", page, "--store", tmp_path / "store")
    assert "section plug-in 'mine' (mine) did not load" in printed.stderr
    assert "My chart" not in page.read_text()


def test_one_that_comes_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "host_bound" in FINDINGS  # all are loaded
    monkeypatch.setitem(DECLARED, MetricName("time.stpe"), {__name__})
    with pytest.raises(UsageError, match=r"unknown metric 'time\.stpe'; did you mean time\.step"):
        finding("late", title="", rule="", gain="", actions={})(lambda _: iter(()))
    assert "late" not in FINDINGS


def test_rows_are_not_asked_for_a_misspelt_metric() -> None:
    rows = Results(table(results()))
    misspelt = MetricName("time.stpe")
    for ask in (rows.row, rows.value, rows.missing_reason, rows.parts, rows.ranks, rows.steps, rows.grid):
        with pytest.raises(LookupError, match=r"no metric is called 'time\.stpe'; did you mean time\.step"):
            ask(misspelt)

# SPDX-License-Identifier: Apache-2.0
"""Runs and comparisons in Python sessions: findings, pictures, pages, what a notebook's cell shows."""

from __future__ import annotations

import inspect
import pickle
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from formats.test_memory_snapshot import snapshot

import cclbench
from cclbench.ground.errors import UsageError


@pytest.fixture(scope="module")
def run(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    """A data point that the repository ships, with its metrics."""
    store = tmp_path_factory.mktemp("interactive") / "runs"
    return cclbench.run(repository / "workload_cards" / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml", store=store)


@pytest.fixture(scope="module")
def other(repository: Path, run: cclbench.Run) -> cclbench.Run:
    """The same model, trained otherwise."""
    card = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    return cclbench.run(card, store=run.store)


def test_the_package_lists_what_it_offers() -> None:
    listed = dir(cclbench)
    api = [
        *("Comparison", "Run", "compare", "ingest", "metrics", "plot"),
        *("project", "report", "run", "runs", "search", "timeline", "whatif"),
    ]
    assert [name for name in listed if name != "__version__"] == api
    assert all(getattr(cclbench, name).__doc__ for name in listed if name != "__version__")
    assert "store" in inspect.signature(cclbench.run).parameters


def test_findings_need_no_metrics_before(run: cclbench.Run) -> None:
    found = run.findings
    assert found
    stored = cclbench.ingest(run.record.source, store=run.store)
    assert not len(stored.figures)
    assert stored.findings == found
    part = cclbench.run(run, metrics=["time.*"])
    with pytest.raises(UsageError, match=r"findings need all metrics, and \d+ are not computed"):
        part.findings  # noqa: B018


def test_a_run_is_asked_for_a_figure_by_its_name(run: cclbench.Run) -> None:
    step = run["time.step"]
    rows = run.results.set_index("metric")
    whole = rows[rows[["rank", "step", "stat"]].isna().all(axis=1)]
    assert (step.value, step.unit, step.status) == (whole.value["time.step"], "s", "ok")
    assert 0 < run["time.step_parts[stat=compute]"].value < step.value
    lacking = run["memory.peak_allocated"]
    assert (lacking.value, lacking.status) == (None, "not_applicable")
    assert lacking.reason
    with pytest.raises(UsageError, match=r"did you mean time\.step"):
        run["time.stepp"]
    with pytest.raises(UsageError, match=r"no time\.step\[stat=p96\]; the metric has no such part"):
        run["time.step[stat=p96]"]
    stored = cclbench.ingest(run.record.source, store=run.store)
    assert stored["time.step"] == step  # computed when it is asked for


def test_operators_and_memory_are_tables(run: cclbench.Run, tmp_path: Path) -> None:
    by_phase = run.ops(by="phase", sort="calls").to_pandas()
    assert by_phase.time_s.sum() == pytest.approx(sum(run.ops()["time_s"].to_pylist()))
    assert list(by_phase.calls) == sorted(by_phase.calls, reverse=True)
    assert len(run.memory()) == 0
    (tmp_path / "rank3.pickle").write_bytes(pickle.dumps(snapshot()))
    recorded = cclbench.ingest(tmp_path / "rank3.pickle", store=run.store)
    device = recorded.memory().to_pylist()[0]
    assert (device["rank"], device["device"], device["peak_allocated"]) == (3, 0, 650)
    assert sum(recorded.memory(by="call_site")["bytes"].to_pylist()) == 650


def test_pictures_are_shown_and_kept(run: cclbench.Run, other: cclbench.Run, tmp_path: Path) -> None:
    pictures = [
        cclbench.plot(run),
        cclbench.timeline(run, step=5, ranks=[0, 2]),
        cclbench.plot(cclbench.compare(run, other)),
    ]
    for picture in pictures:
        assert picture._repr_png_().startswith(b"\x89PNG")

    def labels(picture: Any) -> list[str]:
        return [label.get_text() for label in picture.figure.axes[0].get_yticklabels()]

    assert labels(pictures[0]) == ["mean of 4 ranks", "rank 0", "rank 1", "rank 2", "rank 3"]
    assert labels(pictures[1]) == ["rank 0", "rank 2"]
    assert labels(pictures[2])[0] == "A: mean of 4 ranks"
    assert labels(pictures[2])[-1] == "B: rank 3"
    # a run without metrics draws what it computes
    assert len(labels(cclbench.plot(cclbench.ingest(run.record.source, store=run.store)))) == 5
    assert pictures[0].save(tmp_path / "bars.svg").read_text().startswith("<?xml")


def test_pages(run: cclbench.Run, other: cclbench.Run, tmp_path: Path) -> None:
    page = cclbench.report(run, tmp_path / "run.html").read_text()
    assert run.findings[0].claim in page
    assert run.id in cclbench.report(cclbench.compare(run, other), tmp_path / "both.html").read_text()


def test_the_cell_of_a_run_has_verdict_bars_and_figures(run: cclbench.Run) -> None:
    cell = run._repr_html_()
    assert all(f"<td>rank {rank}</td>" in cell for rank in range(4))
    assert cell.count("<li>") == 3
    assert run.findings[0].claim in cell
    assert "<td>time.step</td><td><b>676 ms</b></td>" in cell
    alone = cclbench.ingest(run.record.source, store=run.store)._repr_html_()
    assert "no metrics yet" in alone
    assert "<li>" not in alone


def test_the_cell_of_a_comparison_says_who_and_where(run: cclbench.Run, other: cclbench.Run) -> None:
    compared = cclbench.compare(run, other)
    cell = compared._repr_html_()
    assert compared.versus[0].words in unescape(cell)
    assert "<tr><td>exposed transfer</td><td>135 ms</td><td>48.6 ms</td><td>-86.3 ms</td></tr>" in cell
    assert "<th>total</th><th>676 ms</th><th>537 ms</th><th>-139 ms</th>" in cell


def test_the_cell_of_an_answer_is_humanised_and_escaped(run: cclbench.Run) -> None:
    answer = run.sql("SELECT '<b>' AS name, 1500000 AS dur_ns, 2048 AS in_bytes, NULL AS x, 1.5 AS gap_s")
    cell = answer._repr_html_()
    assert '<td>&lt;b&gt;</td><td title="1500000">1.50 ms</td><td title="2048">2.05 kB</td><td></td>' in cell
    assert "1.50 s" in cell
    assert answer.to_pandas()["dur_ns"].tolist() == [1_500_000]
    assert len(answer) == 1
    many = run.sql("SELECT range AS n FROM range(100)")._repr_html_()
    assert many.count("<tr>") == 21
    assert "and 80 more rows" in many

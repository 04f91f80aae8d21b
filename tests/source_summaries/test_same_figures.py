# SPDX-License-Identifier: Apache-2.0
"""Real sources of each kind: screen, page and JSON have the same figures, and none is about steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cclbench.present.figure_tables import cell_text
from cclbench.present.page import MOST_ROWS
from cclbench.source_summaries.summary import FigureColumn

Call = Callable[..., Any]

SOURCES = {
    "nccl_tests/aws_p5_2n16_allreduce.csv": ["sweep"],
    "nccl_tests": ["sweep"],
    "nccl_logs/h100_8gpu_all_reduce.txt": ["sweep"],
    "nccl_logs/h100_4gpu_torn_rows.log": ["sweep", "library"],
    "nccl_job_logs/b0_fsdp8.tar.gz": ["job_log", "calls", "library"],
    "memory/training_ctx128.pickle": ["memory"],
    "memory/inference_ctx128.pickle": ["memory"],
    "serving_vllm/nebius/results_exp": ["serving"],
    "serving_vllm/nebius/results_exp/sweep_c16.json": ["serving"],
    "serving_repeats": ["serving"],
}
ABOUT_STEPS = re.compile(r"\bno (?:numbered )?steps?\b|no step time", re.IGNORECASE)


def plain(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


@pytest.mark.parametrize("source", SOURCES)
def test_screen_page_and_json_agree(
    source: str, test_data: Path, call: Call, tmp_path: Path, repository: Path
) -> None:
    path = test_data / source
    document = json.loads(call("run", path, "--json").out)
    schema = json.loads((repository / "cclbench" / "schemas" / "result.json").read_text())
    jsonschema.validate(document, schema)
    summaries = document["summaries"]
    assert [one["kind"] for one in summaries] == SOURCES[source]

    screen = call("run", path).out
    lines = screen.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert not ABOUT_STEPS.search(screen)
    assert not ABOUT_STEPS.search(call("diagnose", path).out)

    page = tmp_path / "page.html"
    assert call("report", path, "-o", page).code == 0
    html = page.read_text()
    assert not ABOUT_STEPS.search(html[: html.index('id="metrics"')])
    text, shown = plain(unescape(html)), plain(screen)
    whole = plain(call("run", path, "-v").out)
    for summary in summaries:
        assert summary["heading"] in text
        for words in (*summary["warnings"], *summary["sentences"]):
            assert plain(words) in text
            assert plain(words) in shown
        for table in summary["tables"]:
            columns = [FigureColumn(**column) for column in table["columns"]]
            for row in table["rows"][:MOST_ROWS]:
                for column in columns:
                    cell = cell_text(column, row[column.name])
                    assert cell is None or f">{cell}</td>" in unescape(html)
                    assert cell is None or column.unit is None or cell in whole


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("nccl_tests/aws_p5_2n16_allreduce.csv", "nccl_tests/gcp_a3mega_2n16_allreduce.csv"),
        ("nccl_logs/h100_4gpu_torn_rows.log", "nccl_logs/h100_8gpu_all_reduce.txt"),
        ("memory/training_ctx128.pickle", "memory/inference_ctx128.pickle"),
        ("serving_repeats/A0_baseline_rep2.json", "serving_repeats/B0_chunk8192_rep2.json"),
    ],
)
def test_two_of_a_kind_are_compared_by_their_tables(
    first: str, second: str, test_data: Path, call: Call, tmp_path: Path, repository: Path
) -> None:
    pair = test_data / first, test_data / second
    document = json.loads(call("compare", *pair, "--json").out)
    jsonschema.validate(document, json.loads((repository / "cclbench/schemas/comparison.json").read_text()))
    assert document["tables"]
    assert document["versus"][0]["outcome"] != "not comparable"
    alone = [json.loads(call("run", path, "--json").out)["summaries"] for path in pair]
    for table in document["tables"]:
        keys = [column["name"] for column in table["columns"] if column["key"]]
        sides = [rows_of(summaries, table, keys) for summaries in alone]
        for row in table["rows"]:
            for name in (column["name"] for column in table["columns"] if not column["key"]):
                before, after = (side[tuple(row[key] for key in keys)][name] for side in sides)
                assert (row[name]["base"], row[name]["other"]) == (before, after)
                known = isinstance(before, float | int) and before and after is not None
                assert row[name]["ratio"] == pytest.approx(after / before if known else None)
    printed = call("compare", *pair).out
    assert not ABOUT_STEPS.search(printed)
    assert "time.step" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    page = tmp_path / "page.html"
    assert call("compare", *pair, "-o", page, "-q").code == 0
    html = page.read_text()
    assert not ABOUT_STEPS.search(html[: html.index('id="metrics"')])


def rows_of(
    summaries: list[dict[str, Any]], table: dict[str, Any], keys: list[str]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of the same table of one source, by their keys."""
    of_kind = (one for summary in summaries if summary["kind"] == table["kind"] for one in summary["tables"])
    found = [one for one in of_kind if one["subject"] == table["subject"]]
    return {tuple(row[key] for key in keys): row for one in found for row in one["rows"]}


def test_a_trace_has_no_summary(test_data: Path, call: Call) -> None:
    document = json.loads(call("run", test_data / "kineto" / "ddp_a100", "--json").out)
    assert document["summaries"] == []

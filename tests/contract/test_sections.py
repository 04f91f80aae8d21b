# SPDX-License-Identifier: Apache-2.0
"""A section of the report from outside is one file with an entry point: in its place, or failing alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.packages import cclbench_with, with_module
from markupsafe import escape

from cclbench.present.charts.chart import SECTIONS

STEPS = '''
"""How many steps each run has."""

from cclbench.present.charts.chart import Chart, section


@section("steps", place=15)
def steps(runs):
    counted = ", ".join(f"{run.id} has {len(run.results.steps('time.step'))} steps" for run in runs)
    return Chart("steps", "Steps <counted>", counted, None)


@section("hopeless", place=16)
def hopeless(runs):
    raise ValueError("no <such> thing")
'''


@pytest.fixture
def outside(tmp_path: Path) -> Mapping[str, str]:
    """The environment with a package installed that holds two sections."""
    return with_module(tmp_path, "step_count", STEPS, "cclbench.sections")


def test_each_section_has_a_place_of_its_own() -> None:
    assert set(SECTIONS) == {
        *("partition", "overlap", "sweep", "latency", "bandwidth", "exchange", "roofline", "straggler"),
        *("memory", "pareto"),
    }
    assert len({SECTIONS.get(name).place for name in SECTIONS}) == len(list(SECTIONS))


def test_a_section_from_outside_is_part_of_the_page(
    outside: Mapping[str, str], repository: Path, tmp_path: Path
) -> None:
    card, page = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml", tmp_path / "page.html"
    cclbench_with(outside, "report", card, "-o", page, "--store", tmp_path / "store", check=True)
    text = page.read_text()
    headings = ["rank by rank", "Steps &lt;counted&gt;", "<h3>hopeless</h3>", "Overlap and step time"]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert " steps</p>" in text
    assert f"failed, a defect of step_count: ValueError: {escape('no <such> thing')}" in text

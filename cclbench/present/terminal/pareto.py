# SPDX-License-Identifier: Apache-2.0
"""Serving benchmarks on a terminal: throughput, latencies, and for which latencies each is best."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.comparison.serving_points import ServingPoints
from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.terminal.output import titled_bullets

_NAME = 34
"""Most characters of a benchmark's name."""


def pareto_page(points: ServingPoints) -> list[RenderableType]:
    """A row for each point by throughput, the best ones marked, and notes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("benchmark", overflow="fold")
    figures = _shown_figures(points)
    rate = "tokens/s\nper device" if points.is_per_device else "tokens/s\nin all"
    shown = [f"{figure} {stat}" for figure in figures for stat in ("p50", "p99")]
    for heading in ("load", rate, *(latency.replace("_latency", "").replace(" ", "\n") for latency in shown)):
        table.add_column(heading, justify="right", no_wrap=True)
    several = len({point.run for point in points.points}) > 1
    names = [point.name if several or not point.benchmark else point.benchmark for point in points.points]
    endings = {PurePath(name).suffix for name in names}
    ending = endings.pop() if len(endings) == 1 else ""
    for number in sorted(range(len(points.points)), key=lambda n: points.throughput(points.points[n]) or 0.0):
        point = points.points[number]
        throughput = points.throughput(point)
        table.add_row(
            Text(shorten_middle(printable(names[number].removesuffix(ending)), _NAME)),
            _load_words(point.load),
            "n/a" if throughput is None else f"{throughput:,.1f}",
            *(_latency_cell(points, number, latency) for latency in shown),
        )
    best = "* no other point of the same workload has as much throughput and as short a latency"
    parts: list[RenderableType] = [table, Text(), Text(best)]
    return [*parts, *titled_bullets("Notes", [printable(note) for note in points.notes])]


def _load_words(load: Mapping[str, float]) -> str:
    concurrency, rate = load.get("max_concurrency"), load.get("request_rate")
    words = [f"{concurrency:g}"] if concurrency is not None else []
    return ", ".join([*words, f"{rate:g}/s"] if rate is not None else words) or "n/a"


def _shown_figures(points: ServingPoints) -> list[str]:
    """Three latencies: without gaps between tokens, the time per token."""
    gaps = "itl" if {"itl p50", "itl p99"} & set(points.fronts) else "tpot"
    return ["ttft", gaps, "e2e_latency"]


def _latency_cell(points: ServingPoints, number: int, latency: str) -> str:
    seconds = points.points[number].latencies.get(latency)
    best = "*" if number in points.fronts.get(latency, ()) else " "
    return "n/a " if seconds is None else humanise(seconds, "s") + best

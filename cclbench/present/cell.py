# SPDX-License-Identifier: Apache-2.0
"""What a cell of a notebook shows of a run and of a comparison: the verdict, bars, the main figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cclbench.comparison.comparison import Comparison
from cclbench.findings.diagnosis import findings, unknown_step
from cclbench.present import sections
from cclbench.present.charts.palette import SLICES, Slice, light
from cclbench.present.headline import worth
from cclbench.present.html import rendered
from cclbench.present.partition import Bar, bars_of, by_rank, extremes
from cclbench.present.topics import key_rows
from cclbench.present.words import NOTHING, gained
from cclbench.record.run import Run
from cclbench.units import humanise

_MOST_RANKS: Final = 8


def of_run(run: Run) -> str:
    """A run as HTML; without metrics, how to compute them."""
    rows = list(run.figures.in_short)
    bars = bars_of(by_rank(rows), finer=lambda one: all(finer.short for finer in one.finer))
    shown = extremes(bars, _MOST_RANKS)
    return rendered(
        "cell_run.html",
        {
            "run": run,
            "computed": bool(rows),
            "unknown": unknown_step(run.figures),
            "nothing": NOTHING,
            "causes": worth(findings(run, run.figures)) if rows else [],
            "bars": shown,
            "hidden": len(bars) - len(shown),
            "longest": max((bar.seconds for bar in bars), default=0.0) or 1.0,
            "parts": [one for whole in SLICES for one in (whole, *whole.finer) if _is_drawn(one, bars)],
            "figures": key_rows(rows),
            "gained": gained,
            "humanise": humanise,
            "light": light,
        },
    )


def _is_drawn(part: Slice, bars: Sequence[Bar]) -> bool:
    return any(one is part and seconds for bar in bars for one, seconds in bar.slices)


def of_comparison(comparison: Comparison) -> str:
    """A comparison as HTML: the verdicts, each run's first finding, where the difference lies."""
    return rendered(
        "cell_comparison.html",
        {
            "comparison": comparison,
            "foremost": sections.foremost,
            "headline": sections.headline,
            "part_rows": sections.part_rows,
            "whole_step": sections.whole_step,
        },
    )

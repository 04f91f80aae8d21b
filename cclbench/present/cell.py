# SPDX-License-Identifier: Apache-2.0
"""A run or a comparison in a notebook cell: the verdict, bars, the main figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cclbench.comparison.comparison import Comparison
from cclbench.findings.diagnosis import findings_of_run, unknown_step
from cclbench.ground.units import humanise
from cclbench.present import sections
from cclbench.present.charts.palette import SLICES, StepSlice, light_colour
from cclbench.present.headline import first_findings
from cclbench.present.html import render_template
from cclbench.present.partition import PartitionBar, bars_of, by_rank, extreme_bars
from cclbench.present.topics import key_rows
from cclbench.present.words import NOTHING, gain_words
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries

_MOST_RANKS: Final = 8


def run_cell(run: Run) -> str:
    """A run as HTML; if it has no metrics, how to compute them."""
    rows = list(run.figures.summary)
    bars = bars_of(by_rank(rows), finer=lambda part: all(finer.short for finer in part.finer))
    shown = extreme_bars(bars, _MOST_RANKS)
    unknown = unknown_step(run.figures)
    return render_template(
        "cell_run.html",
        {
            "run": run,
            "computed": bool(rows),
            "unknown": unknown and (_summary_words(run) or unknown),
            "nothing": NOTHING,
            "causes": first_findings(findings_of_run(run, run.figures)) if rows else [],
            "bars": shown,
            "hidden": len(bars) - len(shown),
            "longest": max((bar.total_seconds for bar in bars), default=0.0) or 1.0,
            "parts": [
                step_slice
                for part in SLICES
                for step_slice in (part, *part.finer)
                if _is_drawn(step_slice, bars)
            ],
            "figures": key_rows(rows),
            "gain_words": gain_words,
            "humanise": humanise,
            "light": light_colour,
        },
    )


def _summary_words(run: Run) -> str:
    summaries = source_summaries(run, run.figures)
    return " ".join(words for summary in summaries for words in (*summary.warnings, *summary.sentences))


def _is_drawn(part: StepSlice, bars: Sequence[PartitionBar]) -> bool:
    return any(step_slice is part and seconds for bar in bars for step_slice, seconds in bar.slices)


def comparison_cell(comparison: Comparison) -> str:
    """A comparison as HTML: the verdicts, each run's first finding, the parts of the difference."""
    return render_template(
        "cell_comparison.html",
        {
            "comparison": comparison,
            "foremost_finding": sections.foremost_finding,
            "subject_headline": sections.subject_headline,
            "part_rows": sections.part_rows,
            "step_totals": sections.step_totals,
        },
    )

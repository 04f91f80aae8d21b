# SPDX-License-Identifier: Apache-2.0
"""Step times that a capture measured with and without the profiler, by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cclbench.formats.step_times import StepTimesFile
from cclbench.ground.units import humanise
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_PHASES: Final = {"unprofiled": "without the profiler", "profiled": "with it"}
_STATS: Final = ("median", "p5", "p95", "p99", "most")
_COLUMNS: Final = (
    FigureColumn(name="rank", key=True),
    FigureColumn(name="steps", key=True),
    FigureColumn(name="count", unit="count"),
    *(
        FigureColumn(name=name, unit="s", lead=name == "median")
        for name in ("mean", "median", "p5", "p95", "p99", "max")
    ),
    FigureColumn(name="slow", unit="count"),
)
_MOST_RANKS: Final = 4
_MOST_SLOW: Final = 4


def summarise_step_times(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All ranks, with and without the profiler; slow steps in sentences."""
    ranks = sorted(
        (file.facts for file in inputs.run.record.evidence if file.reader == StepTimesFile.name),
        key=lambda facts: int(str(facts["rank"])),
    )
    if not ranks:
        return
    sentences = [_typical_sentence(facts) for facts in ranks[:_MOST_RANKS]]
    sentences += [words for facts in ranks[:_MOST_RANKS] for words in _slow_sentences(facts)]
    listed = all(f"{phase}_median_s" in facts for facts in ranks for phase in _PHASES)
    yield SourceSummary(
        kind="step_times",
        heading="Step times with and without the profiler",
        sentences=sentences,
        tables=[
            FigureTable(
                subject="steps",
                title="Step times",
                columns=_COLUMNS,
                rows=[_row(facts, phase) for facts in ranks for phase in _PHASES],
            )
        ],
        absent=[] if listed else ["medians and slow steps: the file has only sums over steps"],
    )


def _row(facts: Mapping[str, Any], phase: str) -> tuple[Cell, ...]:
    return (
        f"rank {facts['rank']}",
        _PHASES[phase],
        facts[f"{phase}_steps"],
        facts[f"{phase}_step_s"],
        *(facts.get(f"{phase}_{stat}_s") for stat in _STATS),
        facts.get(f"{phase}_slow_steps"),
    )


def _typical_sentence(facts: Mapping[str, Any]) -> str:
    stat, words = ("median", "in the median") if "unprofiled_median_s" in facts else ("step", "in the mean")
    steps = facts["unprofiled_steps"]
    text = f"Rank {facts['rank']}: a step takes {humanise(facts[f'unprofiled_{stat}_s'], 's')} {words}"
    text += f" of {steps:,} step{'s'[: steps != 1]}"
    if "unprofiled_p5_s" in facts:
        low, high, most = (humanise(facts[f"unprofiled_{name}_s"], "s") for name in ("p5", "p95", "most"))
        text += f", {low} to {high} (p5 to p95), at most {most}"
    elif "unprofiled_least_s" in facts:
        low, most = (humanise(facts[f"unprofiled_{name}_s"], "s") for name in ("least", "most"))
        text += f", {low} to {most}"
    return f"{text}."


def _slow_sentences(facts: Mapping[str, Any]) -> Iterator[str]:
    for phase, words in (("unprofiled", "without"), ("profiled", "with")):
        if slow := facts.get(f"{phase}_slow"):
            count = facts[f"{phase}_slow_steps"]
            more = f", {count - _MOST_SLOW:,} more" if count > _MOST_SLOW else ""
            steps = "; ".join(slow[:_MOST_SLOW])
            yield f"Rank {facts['rank']}, slow steps {words} the profiler: {steps}{more}."

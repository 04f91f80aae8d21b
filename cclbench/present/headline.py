# SPDX-License-Identifier: Apache-2.0
"""Headline of a run: its step time in a sentence and a few numbers, and the main findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from cclbench.analyzers.step_parts import PARTS
from cclbench.classify.kernel_labels import kernel_label, shorten_name
from cclbench.comparison.subject import ComparisonSubject
from cclbench.findings.diagnosis import findings_of_run
from cclbench.findings.finding import FINDINGS, Finding
from cclbench.ground.units import humanise
from cclbench.present.topics import LEAST_SHARE, ZERO_TELLS
from cclbench.present.words import number_markup
from cclbench.record.metric_name import MetricName, metric_name
from cclbench.record.results import Results
from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")
_STEP_PARTS: Final = metric_name("time.step_parts")
_GRAPH_ONLY: Final = metric_name("time.graph_only")
_IDLE: Final = metric_name("time.idle")
_BUSY: Final = metric_name("compute.busy")
_CATEGORY_SHARE: Final = metric_name("compute.category_share")
_DOMINANT_KERNEL: Final = metric_name("compute.dominant_kernel")
_ROOFLINE_EFFICIENCY: Final = metric_name("compute.roofline_efficiency")

MOST_CAUSES: Final = 3
_KERNEL: Final = 66
"""Most characters of a kernel's name on a line."""
_MOST_NAMED: Final = 4
"""Most ranks that the first line names."""
_LEAST_PART: Final = 0.01
"""Least share of a step for which a sentence names a part."""
_ALL: Final = 0.995
"""Share of the time from which on it counts as all of it."""
_TILES: Final = (
    (_STEP, "step time"),
    (metric_name("serving.output_throughput"), "output tokens"),
    (metric_name("serving.ttft"), "time to first token"),
    (metric_name("serving.tpot"), "time per output token"),
    (metric_name("throughput.tokens_per_device"), "tokens per device"),
    (metric_name("compute.mfu"), "model FLOPs utilisation"),
    (metric_name("compute.busy"), "computes"),
    (metric_name("overlap.ratio"), "communication overlapped"),
    (metric_name("comm.bandwidth_utilization"), "of the links' rate"),
    (metric_name("balance.load_imbalance"), "load imbalance"),
    (metric_name("compute.roofline_efficiency"), "of the roofline"),
    (metric_name("compute.gemm_efficiency"), "of peak in products"),
    (metric_name("memory.peak_allocated"), "memory at the peak"),
    (_IDLE, "idle"),
)
"""Figures by importance."""
_MOST_TILES: Final = 6


_CAPTURE: Final = "whole capture"


def headline_tiles(run: ComparisonSubject) -> list[tuple[str, Markup, str]]:
    """Label, number and qualifier of the figures that the run has, most important first."""
    rows = [(label, run.results.run.get(metric)) for metric, label in _TILES]
    tiles = [
        (
            _CAPTURE if row.metric == _STEP and row.window == "trace" else label,
            number_markup(row),
            _tile_qualifier(run, row.metric),
        )
        for label, row in rows
        if row and row.has_value and not _is_noise(run, row)
    ]
    return tiles[:_MOST_TILES]


def _tile_qualifier(run: ComparisonSubject, metric: MetricName) -> str:
    """The qualifier of a tile: variation over steps, range over ranks."""
    if metric == _STEP:
        steps = len(run.results.steps(metric))
        cv = run.results.value(metric, stat="cv")
        variation = [f"{steps} steps", *([f"cv {humanise(cv, '1')}"] if cv is not None else [])]
        if run.all_open:
            return "last step incomplete: its end is not in the trace"
        return ", ".join(variation) if steps > 1 else ""
    ranks = run.results.ranks(metric).values()
    unit = run.results.run[metric].unit
    ends = [humanise(end, unit) for end in (min(ranks), max(ranks))] if ranks else []
    return " .. ".join(ends) if len(set(ends)) > 1 else ""


def _is_noise(run: ComparisonSubject, row: Row) -> bool:
    """Whether a figure is 0, or idle time that is nothing of the step."""
    step = run.results.value(_STEP)
    idle = row.metric == _IDLE and step is not None and row.number < LEAST_SHARE * step
    return idle or not (row.number or row.metric in ZERO_TELLS)


def step_story(run: ComparisonSubject) -> str | None:
    """The parts of a step in a sentence, else the sentences of its summaries; None if the run has neither."""
    step = run.results.run.get(_STEP)
    if step is None or not step.has_value:
        return " ".join(words for summary in run.summaries for words in summary.sentences) or None
    what = "The whole trace takes" if step.window == "trace" else "A step takes"
    parts = ((run.results.value(_STEP_PARTS, stat=part), words) for part, words in PARTS.items())
    largest = sorted(((s, words) for s, words in parts if s and step.number), reverse=True)
    shares = [
        f"{100 * s / step.number:.0f} % {words}" for s, words in largest if s >= _LEAST_PART * step.number
    ]
    where = "on the rank with the longest window " * (len(run.ranks) > 1)
    breakdown = f": {where}{_join_words(shares)}" if shares else ""
    return f"{what} {humanise(step.number, 's')}{breakdown}."


def run_findings(run: ComparisonSubject) -> list[Finding]:
    """The findings of a run; none for published figures."""
    return [] if run.is_published else findings_of_run(run.stored, run.results)


def first_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The findings on the first screen: those with the largest gain, else the first of the others."""
    return [finding for finding in findings if _takes_time(finding)][:MOST_CAUSES] or list(findings[:1])


def _takes_time(finding: Finding) -> bool:
    """Whether a finding has a gain, or a lost time of more than low confidence."""
    return finding.gain_s is not None or (finding.lost_s is not None and finding.confidence != "low")


def opening_words(results: Results, findings: Sequence[Finding]) -> str | None:
    """Step time, the main finding's gain or lost time, and the calls behind it; None without a step time."""
    step = results.row(_STEP)
    if step is None or not step.has_value:
        return None
    takes = f"{'The capture' if step.window == 'trace' else 'A step'} takes {humanise(step.number, 's')}"
    first = next(filter(_takes_time, findings), None)
    if first is None:
        return f"{takes}."
    if first.gain_share is not None:
        amount = f"up to {humanise(first.gain_share, '1')} of it to gain"
    else:
        amount = f"{humanise(first.lost_s or 0.0, 's')} of it, gain unknown"
    title = FINDINGS.get(first.name).title
    at = [f"rank {', '.join(map(str, first.ranks))}"] if 0 < len(first.ranks) <= _MOST_NAMED else []
    at += [first.culprit.call_words()] if first.culprit else []
    details = f" ({'; '.join(at)})" if at else ""
    return f"{takes}; {amount}. {title[0].upper()}{title[1:]}{details}."


def longest_kernels(results: Results) -> list[tuple[float, str]]:
    """The three kernels with the largest shares of all kernels' durations, and their short names."""
    rows, _ = results.parts(_DOMINANT_KERNEL)
    named = sorted(((row.number, row.category) for row in rows if row.category), reverse=True)
    return [(share, shorten_name(kernel_label(name), _KERNEL)) for share, name in named]


def modelled_words(results: Results) -> str:
    """For how much of the kernels' time FLOPs and bytes are known, or why no roofline is."""
    roof = results.row(_ROOFLINE_EFFICIENCY)
    if roof is None or not roof.has_value:
        reason = results.missing_reason(_ROOFLINE_EFFICIENCY)
        return f"no roofline: {reason}" if reason else "no roofline"
    coverage = 1.0 if roof.coverage_time is None else roof.coverage_time
    return f"FLOPs and bytes known for {humanise(coverage, '1')}"


def busy_with(results: Results) -> str:
    """How busy the device is, with which kernels, and at which efficiency."""
    graphs, step = results.value(_GRAPH_ONLY), results.value(_STEP)
    if graphs and step:
        share = humanise(graphs / step, "1")
        return f"CUDA graphs traced as a whole run in {share} of it: their kernels are not recorded."
    busy = results.value(_BUSY)
    if busy is None:
        return "It is unknown how busy the device is."
    rows, _ = results.parts(_CATEGORY_SHARE)
    shares = sorted(
        ((row.number, row.category) for row in rows if row.category and not row.stat), reverse=True
    )
    listed = ", ".join(f"{category} {humanise(share, '1')}" for share, category in shares[:3])
    if not listed and not longest_kernels(results):
        return "The device ran no kernel."
    of_kernels = f" Of all kernels' time: {listed}." if listed else ""
    return f"Kernels compute in {humanise(busy, '1')} of it.{of_kernels} {_explained_words(results)}"


def _explained_words(results: Results) -> str:
    """The roofline efficiency, and the share of time for which it is known."""
    roof = results.row(_ROOFLINE_EFFICIENCY)
    if roof is None or not roof.has_value:
        reason = results.missing_reason(_ROOFLINE_EFFICIENCY)
        return f"Roofline efficiency is unknown: {reason}."
    reached = f"{humanise(roof.number, '1')} of the roofline"
    if roof.coverage_time is None or roof.coverage_time >= _ALL:
        return f"They reach {reached}."
    coverage = humanise(roof.coverage_time, "1")
    sentence = f"FLOPs and bytes are known for {coverage} of their time, which reaches {reached}"
    return f"{sentence}; the efficiency of the rest is unknown."


def _join_words(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

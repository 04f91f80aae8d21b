# SPDX-License-Identifier: Apache-2.0
"""The verdict on one subject against the first: which is faster, by how much, how surely, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.comparison.attribution import change_of_step, part_changes
from cclbench.comparison.comparison import PARTS, Outcome, PartChange, Versus
from cclbench.comparison.division_rules import equal_by_rules, rule_refusal
from cclbench.comparison.fingerprint import UNKNOWN, Equality
from cclbench.comparison.interval import (
    LEAST_STEPS,
    USUAL_SPREAD,
    Captures,
    Floats,
    RatioInterval,
    compare_captures,
)
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.work import PHASE, is_different, is_work_unknown, work_inequalities
from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_name
from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")
_TOKENS_PER_DEVICE: Final = metric_name("throughput.tokens_per_device")

_MENTIONED_SHARE: Final = 0.05
"""Share of the largest part's change from which a part is mentioned."""
_MOST_MENTIONED: Final = 4
_PERCENT_BELOW: Final = 1.05
"""Factor below which a difference is given in percent."""
_NARROW: Final = 0.02
"""Interval width below which more digits are printed."""
CLIENT: Final = metric_name("serving.output_throughput")
_REQUESTS: Final = metric_name("serving.request_throughput")
_TRAINING: Final = metric_name("log.time_to_train")
_OF_WHOLES: Final = (CLIENT, _REQUESTS, _TRAINING)
"""Measures of a benchmark as a whole."""
_TIMES: Final = (_STEP, _TRAINING)
"""Measures of which less is faster."""
_UNITS: Final[dict[MetricName, str]] = {
    _STEP: "a step",
    _TOKENS_PER_DEVICE: "tokens per second and device",
    CLIENT: "output tokens per second",
    _REQUESTS: "requests per second",
    _TRAINING: "to train to the target",
}


def judge_subject(
    base: ComparisonSubject,
    other: ComparisonSubject,
    work: Equality = UNKNOWN,
    repeats: Sequence[Captures] = (),
) -> Versus:
    """The verdict on one subject against the first.

    `work`: whether their work is equal by their traces; `repeats`: captures of other jobs.
    """
    reasons = work_inequalities(base, other, work)
    measure = _chosen_measure(base, other, reasons)
    refusal = _incomparable_reason(base, other, measure, reasons)
    ratio = None if refusal else ratio_of(base, other, measure, repeats)
    outcome = _ratio_outcome(ratio, measure) if ratio else "not comparable"
    change_ns = change_of_step(base, other)
    parts = part_changes(base, other, change_ns) if change_ns is not None else ()
    pair = f"{other.letter} and {base.letter}"
    words = (
        _verdict_words(base, other, measure, ratio, outcome, work)
        if ratio
        else f"{pair} are not comparable: {refusal}."
    )
    if ratio and measure in _OF_WHOLES and equal_by_rules(base, other):
        words += " By MLPerf's rules for the closed division their work as a whole is equal."
    elif ratio and reasons:
        words += f" They are ranked by {_UNITS[measure]} because their work differs: {', '.join(reasons)}."
    elif ratio and _work_unknown(base, other, work):
        work_source = "their steps do"
        if measure in (CLIENT, _REQUESTS):
            work_source = "their clients requested"
        elif _is_whole_trace(base):
            work_source = "the two traces contain"
        words += f" Whether {work_source} equal work is unknown."
    elif ratio and work.status == "proved" and (is_work_unknown(base) or is_work_unknown(other)):
        words += f" Their work is equal: {work.reason}."
    elif ratio and work.standard:
        words += f" By the standard workload {work.standard}, which both cards name, their work is equal."
    if base.per_call and other.per_call:
        words += f" They contain {other.per_call[1]:,.0f} and {base.per_call[1]:,.0f} such calls."
    return Versus(
        base=base.letter,
        other=other.letter,
        measure=measure,
        ratio=ratio.ratio if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        spread=ratio.spread if ratio else None,
        captures_needed=ratio.captures_needed if ratio else None,
        outcome=outcome,
        work=work,
        words=" ".join(filter(None, [words, _parts_words(base, other, outcome, change_ns, parts)])),
        change_ns=change_ns,
        changes=parts,
    )


def _incomparable_reason(
    base: ComparisonSubject, other: ComparisonSubject, measure: MetricName, reasons: Sequence[str]
) -> str | None:
    """Why the two cannot be ranked; None where they can."""
    if is_different(PHASE, base, other):
        return f"their steps are of different kinds ({reasons[0]})"
    if refusal := rule_refusal(base, other):
        return refusal
    if refusal := window_refusal(base, other):
        return refusal
    for subject in (base, other):
        row = subject.results.row(measure)
        if not subject.results.value(measure):
            absence = f"{subject.letter} has no {measure}"
            if row is not None and row.reason:
                absence += f" ({row.reason})"
            return f"their work differs ({', '.join(reasons)}) and {absence}" if reasons else absence
        if row is not None and row.status == "partial":
            return f"{measure} of {subject.letter} is partial ({row.reason})"
    return None


def window_refusal(base: ComparisonSubject, other: ComparisonSubject) -> str | None:
    """Why figures of a whole trace and of a step are not compared; None where both have one window."""
    windows = {base.window_policy, other.window_policy} - {None}
    if len(windows) > 1 and "trace" in windows:
        letter = base.letter if base.window_policy == "trace" else other.letter
        return f"the window of {letter} is its whole trace, not a step"
    return None


def _chosen_measure(base: ComparisonSubject, other: ComparisonSubject, reasons: Sequence[str]) -> MetricName:
    """Step time for equal work, else tokens; for a server without steps, the client's throughput.

    That is of tokens, or of requests where one has no tokens.  Of closed results of a benchmark that trains:
    the time to train, since only their whole work is equal.
    """
    if equal_by_rules(base, other) and all(subject.results.value(_TRAINING) for subject in (base, other)):
        return _TRAINING
    for measure in (CLIENT, _REQUESTS):
        if all(
            subject.results.value(_STEP) is None and subject.results.value(measure)
            for subject in (base, other)
        ):
            return measure
    return _TOKENS_PER_DEVICE if reasons else _STEP


def ratio_of(
    base: ComparisonSubject, other: ComparisonSubject, metric: MetricName, repeats: Sequence[Captures] = ()
) -> RatioInterval:
    """Ratio of a figure that both have per step or per capture: `time.step`, or a rate."""
    single_figure = metric.startswith("serving.")  # of all requests of a benchmark
    interval = compare_captures(
        captures_of(base, metric), captures_of(other, metric), repeats, single_figure=single_figure
    )
    if any(capture.all_open for subject in (base, other) for capture in subject.each_capture):
        return replace(
            interval, low=None, high=None, captures_needed=None
        )  # a step's end is not in the trace
    return interval


def captures_of(subject: ComparisonSubject, metric: MetricName) -> Captures:
    """Each capture's figures of its complete steps, whose mean is the capture's; that alone without steps."""
    return [capture_figures(capture, metric) for capture in subject.each_capture]


def capture_figures(capture: ComparisonSubject, metric: MetricName) -> Floats:
    """One capture's figures as in `captures_of`, shape (steps,)."""
    steps = np.array(list(capture.results.steps(metric).values()), np.float64)
    if not len(steps):
        return np.array([capture.results.value(metric)], np.float64)
    if metric == _STEP:
        return steps
    # A rate is work over the mean step: a step longer by some share has a rate lower by that share.
    times = 1 / steps
    return np.asarray((2 - times / times.mean()) / times.mean())


def _ratio_outcome(ratio: RatioInterval, measure: MetricName) -> Outcome:
    if ratio.low is None or ratio.high is None:
        return "undecided"
    if ratio.low <= 1 <= ratio.high:
        return "no difference"
    return "slower" if (ratio.low > 1) == (measure in _TIMES) else "faster"


def _verdict_words(
    base: ComparisonSubject,
    other: ComparisonSubject,
    measure: MetricName,
    ratio: RatioInterval,
    outcome: Outcome,
    work: Equality,
) -> str:
    unit = _UNITS[measure]
    if _is_whole_trace(base):
        unit = f"a call of {base.per_call[0]}" if base.per_call else "for the whole trace"
    figures = f"{_figure_words(other, measure)} against {_figure_words(base, measure)} {unit}"
    if outcome == "undecided":
        return (
            f"{_longer_words(base, other, measure, ratio)} in these captures ({figures})."
            f" Whether it is in others is unknown: {_too_few_reason(base, other, measure)}."
        )
    if outcome == "no difference":
        interval = _interval_words(base, other, ratio, inverse=ratio.ratio < 1)
        words = f"{_longer_words(base, other, measure, ratio)} in these captures"
        words += ", which may be chance" * (ratio.ratio != 1)
        return f"{words} ({figures}; {interval}). {_resolution_words(ratio)}".rstrip()
    assert ratio.low is not None  # noqa: S101 - else undecided
    if measure == _STEP and _work_unknown(base, other, work):  # less time need not be more speed
        words = _longer_words(base, other, measure, ratio)
    else:
        words = f"{other.letter} is {_factor_words(ratio)} {outcome} than {base.letter}"
    return f"{words} ({figures}; {_interval_words(base, other, ratio, inverse=ratio.low < 1)})."


def _longer_words(
    base: ComparisonSubject, other: ComparisonSubject, measure: MetricName, ratio: RatioInterval
) -> str:
    """`B's step is 1.2 × longer than A's`."""
    is_time = measure in _TIMES
    quantity = "rate" if not is_time else "trace" if _is_whole_trace(base) else "step"
    quantity = "time to train" if measure == _TRAINING else quantity
    if base.per_call:
        quantity = f"time per call of {base.per_call[0]}"
    if ratio.ratio == 1:
        return f"{other.letter}'s {quantity} is as {'long' if is_time else 'high'} as {base.letter}'s"
    more, less = ("longer", "shorter") if is_time else ("higher", "lower")
    factor = f"{_factor_words(ratio)} {more if ratio.ratio > 1 else less}"
    return f"{other.letter}'s {quantity} is {factor} than {base.letter}'s"


def _too_few_reason(base: ComparisonSubject, other: ComparisonSubject, measure: MetricName) -> str:
    if measure == _TRAINING:
        return "one run each; MLPerf's score is the mean of several, without the fastest and the slowest"
    return too_few_steps_reason(base, other)


def too_few_steps_reason(base: ComparisonSubject, other: ComparisonSubject) -> str:
    """Why there is no interval, and what would give one."""
    if _is_whole_trace(base):
        return (
            "a whole trace is one figure, as long as the capture: mark steps, or capture each job three times"
        )
    counts = " and ".join(
        f"{subject.letter} has {'only an incomplete one' if subject.all_open else subject.step_count}"
        for subject in (base, other)
    )
    return f"an interval needs {LEAST_STEPS} complete steps of each, {counts}"


def _resolution_words(ratio: RatioInterval) -> str:
    """How many captures would resolve a difference of that size."""
    if ratio.ratio == 1:
        return ""
    if ratio.captures_needed is None:
        return "It would take more than 100 captures of each to resolve so small a difference."
    return f"About {ratio.captures_needed} captures of each would resolve a difference of this size."


def _factor_words(ratio: RatioInterval) -> str:
    """The factor between the means, in either direction: `1.34×`, or `2.1 %` where it is small."""
    factor = max(ratio.ratio, 1 / ratio.ratio)
    return humanise(factor, "ratio") if factor >= _PERCENT_BELOW else f"{100 * (factor - 1):.2g} %"


def _work_unknown(base: ComparisonSubject, other: ComparisonSubject, work: Equality) -> bool:
    """Whether equal work is unknown; cards state a step's work, not how many steps a whole trace holds."""
    return work.status != "proved" and (
        is_work_unknown(base) or is_work_unknown(other) or _is_whole_trace(base)
    )


def _is_whole_trace(subject: ComparisonSubject) -> bool:
    """Whether its window is the whole trace; `_incomparable_reason` ensures the same of the other."""
    return subject.window_policy == "trace"


def _figure_words(subject: ComparisonSubject, measure: MetricName) -> str:
    row = subject.results.row(measure)
    assert row is not None  # noqa: S101 - it has a ratio
    return row_figure_words(row).removesuffix(" /s")


def _interval_words(
    base: ComparisonSubject, other: ComparisonSubject, ratio: RatioInterval, *, inverse: bool
) -> str:
    assert ratio.low is not None and ratio.high is not None  # noqa: S101, PT018 - else undecided
    low, high = (1 / ratio.high, 1 / ratio.low) if inverse else (ratio.low, ratio.high)
    digits = 2 if high - low >= _NARROW else 4
    evidence = f"{_evidence_words(base, other)}; {spread_words(ratio)}"
    return f"95 % interval {low:.{digits}f} to {high:.{digits}f} over {evidence}"


def _evidence_words(base: ComparisonSubject, other: ComparisonSubject) -> str:
    """`3 captures of each`, or with one capture each, `12 steps of each`."""
    captures = [len(subject.each_capture) for subject in (base, other)]
    counts, word = (
        (captures, "capture") if max(captures) > 1 else ([base.step_count, other.step_count], "step")
    )
    if not max(counts):
        return "one benchmark each"
    if counts[0] == counts[1]:
        return f"{counts[0]} {word}s of each"
    return f"{counts[1]} and {counts[0]} {word}s"


def spread_words(ratio: RatioInterval) -> str:
    """The assumed or estimated spread between captures of one job, and its basis."""
    spread = ratio.spread
    if not spread.repeated and not spread.stored:
        usual = f"{100 * USUAL_SPREAD:g} %"
        assumption = f"captures of one job are assumed to differ by up to {usual}"
        return f"{assumption}, since neither job was captured twice"
    words = f"captures of one job differ by about {100 * spread.value:.2g} %"
    return words if spread.repeated else f"{words}, as repeated captures in the store do"


def _parts_words(
    base: ComparisonSubject,
    other: ComparisonSubject,
    outcome: Outcome,
    change_ns: int | None,
    parts: Sequence[PartChange],
) -> str:
    """The largest parts of the difference in step time, largest first."""
    if not change_ns:
        return ""
    noun = "The window" if "trace" in (base.window_policy, other.window_policy) else "A step"
    is_mean = outcome in ("no difference", "undecided")
    beginning = f"In the mean {noun[0].lower()}{noun[1:]}" if is_mean else noun
    direction = "longer" if change_ns > 0 else "shorter"
    words = f"{beginning} of {other.letter} is {humanise(abs(change_ns) / 1e9, 's')} {direction}"
    if base.per_call:
        words += " per call"
    by_size = sorted(parts, key=lambda part: -abs(part.change_ns))
    least_ns = _MENTIONED_SHARE * abs(by_size[0].change_ns) if by_size else 0
    mentioned = [part for part in by_size if abs(part.change_ns) >= least_ns][:_MOST_MENTIONED]
    if not mentioned:
        return f"{words}."
    return f"{words}: {', '.join(map(_part_words, mentioned))}."


def _part_words(change: PartChange) -> str:
    largest = next((m for m in change.movers if m.dimension in ("category", "collective")), None)
    mover_words = f" ({largest.name} {signed_seconds(largest.change_s)})" if largest else ""
    return f"{PARTS[change.part]} {signed_seconds(change.change_ns / 1e9)}{mover_words}"


def row_figure_words(row: Row) -> str:
    """A row's figure in words, with its provenance unless measured or derived."""
    figure = humanise(row.number, row.unit)
    return figure if row.provenance in ("measured", "derived") else f"{row.provenance} {figure}"


def signed_seconds(seconds: float) -> str:
    """`+80.0 ms`, `-1.20 s`, `0 s`."""
    sign = "-" if seconds < 0 else "+" if seconds > 0 else ""
    return f"{sign}{humanise(abs(seconds), 's')}"

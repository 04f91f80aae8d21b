# SPDX-License-Identifier: Apache-2.0
"""Who is faster, by how much, how surely, and why: one subject against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.analyzers.step_parts import PARTS
from cclbench.comparison.attribution import change_of_step, changes
from cclbench.comparison.comparison import Change, Measure, Outcome, Versus
from cclbench.comparison.interval import LEAST_STEPS, difference
from cclbench.comparison.subject import Subject
from cclbench.comparison.work import PHASE, differs, unequal, unknown
from cclbench.record.rows import Row
from cclbench.units import humanise

_TOLD: Final = 0.05
"""Share of the largest part's change from which on a part is told in the sentence."""
_MOST_TOLD: Final = 4
_SMALL: Final = 1.05
"""Factor below which a difference is told in percent."""
_FINE: Final = 0.02
"""Width of an interval below which it needs more digits."""
_UNITS: Final[dict[Measure, str]] = {
    "time.step": "a step",
    "throughput.tokens_per_device": "tokens per second and device",
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """The other's figure over the base's, its interval, the steps of each, and those that would settle it."""

    value: float
    low: float | None
    high: float | None
    steps: tuple[int, int]
    needed: int | None


def versus(base: Subject, other: Subject) -> Versus:
    """The verdict on one subject against the first."""
    reasons = unequal(base, other)
    measure: Measure = "throughput.tokens_per_device" if reasons else "time.step"
    why_not = _incomparable(base, other, measure, reasons)
    ratio = None if why_not else ratio_of(base, other, measure)
    outcome = _outcome(ratio, measure) if ratio else "not comparable"
    change_ns = change_of_step(base, other)
    parts = changes(base, other, change_ns) if change_ns is not None else ()
    pair = f"{other.letter} and {base.letter}"
    words = (
        _judged(base, other, measure, ratio, outcome) if ratio else f"{pair} are not comparable: {why_not}."
    )
    if ratio and reasons:
        words += f" They are ranked so since their work differs: {', '.join(reasons)}."
    elif ratio and _work_unknown(base, other):
        held = "the two traces hold" if _whole(base) else "a step of each is"
        words += f" Whether {held} equal work is unknown."
    return Versus(
        base=base.letter,
        other=other.letter,
        measure=measure,
        ratio=ratio.value if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        steps_needed=ratio.needed if ratio else None,
        outcome=outcome,
        words=" ".join(filter(None, [words, _why(base, other, outcome, change_ns, parts)])),
        change_ns=change_ns,
        changes=parts,
    )


def _incomparable(base: Subject, other: Subject, measure: Measure, reasons: Sequence[str]) -> str | None:
    """Why the two cannot be ranked; None where they can."""
    if differs(PHASE, base, other):
        return f"their steps are of another kind ({reasons[0]})"
    windows = {base.window, other.window} - {None}
    if len(windows) > 1 and "trace" in windows:
        whole = base.letter if base.window == "trace" else other.letter
        return f"the window of {whole} is its whole trace, no step"
    for subject in (base, other):
        row = subject.results.row(measure)
        if not subject.results.value(measure):
            lacks = f"{subject.letter} has no {measure}"
            if row is not None and row.reason:
                lacks += f" ({row.reason})"
            return f"their work differs ({', '.join(reasons)}) and {lacks}" if reasons else lacks
        if row is not None and row.status == "partial":
            return f"{measure} of {subject.letter} is partial ({row.reason})"
    return None


def ratio_of(base: Subject, other: Subject, metric: str) -> Ratio:
    """Of a figure that both have and that single steps have: `time.step`, or a rate.

    Its interval is of logarithms, so that a rate's is the inverse of that of the time that each step takes.
    """
    before, after = base.results.value(metric), other.results.value(metric)
    assert before and after  # noqa: S101, PT018 - callers have looked
    values = [np.array(list(s.results.steps(metric).values()), np.float64) for s in (base, other)]
    steps = len(values[0]), len(values[1])
    if not min(steps):
        return Ratio(after / before, None, None, steps, None)
    found = difference(*values)
    return Ratio(after / before, found.low, found.high, steps, found.steps_needed)


def _outcome(ratio: Ratio, measure: Measure) -> Outcome:
    if ratio.low is None or ratio.high is None:
        return "undecided"
    if ratio.low <= 1 <= ratio.high:
        return "no difference"
    return "slower" if (ratio.low > 1) == (measure == "time.step") else "faster"


def _judged(base: Subject, other: Subject, measure: Measure, ratio: Ratio, outcome: Outcome) -> str:
    unit = "for the whole trace" if _whole(base) else _UNITS[measure]
    figures = f"{_figure(other, measure)} against {_figure(base, measure)} {unit}"
    if outcome == "undecided":
        why = "a whole trace is one figure, as long as the capture; mark steps"
        if not _whole(base):
            why = too_few(base, other, ratio)
        return f"No difference can be told between {other.letter} and {base.letter} ({figures}): {why}."
    if outcome == "no difference":
        said = f"{other.letter} and {base.letter} show no difference ({figures}, ratio {ratio.value:.2f}"
        return f"{said}; {_spread(ratio, inverse=False)}). {_to_settle(ratio)}"
    assert ratio.low is not None  # noqa: S101 - else undecided
    inverse = ratio.low < 1
    if measure == "time.step" and _work_unknown(base, other):  # less time need not be more speed
        length = "shorter" if inverse else "longer"
        what = "trace" if _whole(base) else "step"
        said = f"{other.letter}'s {what} is {_times(ratio)} {length} than {base.letter}'s"
    else:
        said = f"{other.letter} is {_times(ratio)} {outcome} than {base.letter}"
    return f"{said} ({figures}; {_spread(ratio, inverse=inverse)})."


def too_few(base: Subject, other: Subject, ratio: Ratio) -> str:
    """Why so few steps give no interval, and how many would settle it."""
    counts = " and ".join(
        f"{subject.letter} has {'none but an open one' if subject.all_open else steps}"
        for subject, steps in zip((base, other), ratio.steps, strict=True)
    )
    more = max(LEAST_STEPS, ratio.needed or LEAST_STEPS)
    enough = f"about {more}" if more > LEAST_STEPS else f"{LEAST_STEPS} or more"
    return f"it takes {LEAST_STEPS} closed steps of each, {counts}; trace {enough} of each"


def _to_settle(ratio: Ratio) -> str:
    """How many steps would tell a difference of that size."""
    if ratio.needed is None:
        return (
            "No number of steps would tell so small a difference." if ratio.value != 1 else "They are equal."
        )
    return f"About {ratio.needed:,} steps of each would tell a difference of that size."


def _times(ratio: Ratio) -> str:
    """`1.34×`, of a small difference `2.1 %`: by how much the means differ, whichever way."""
    factor = max(ratio.value, 1 / ratio.value)
    return humanise(factor, "ratio") if factor >= _SMALL else f"{100 * (factor - 1):.2g} %"


def _work_unknown(base: Subject, other: Subject) -> bool:
    """Cards tell the work of a step, and not how many a whole trace holds."""
    return unknown(base) or unknown(other) or _whole(base)


def _whole(subject: Subject) -> bool:
    """Whether its window is the whole trace; `_incomparable` has seen that the other's is so too."""
    return subject.window == "trace"


def _figure(subject: Subject, measure: Measure) -> str:
    row = subject.results.row(measure)
    assert row is not None  # noqa: S101 - it has a ratio
    return stated(row).removesuffix(" /s")


def _spread(ratio: Ratio, *, inverse: bool) -> str:
    assert ratio.low is not None and ratio.high is not None  # noqa: S101, PT018 - else undecided
    low, high = (1 / ratio.high, 1 / ratio.low) if inverse else (ratio.low, ratio.high)
    mean = 1 / ratio.value if inverse else ratio.value
    digits = 2 if high - low >= _FINE else 4
    base, other = ratio.steps
    over = f"{base} steps each" if base == other else f"{other} and {base} steps"
    typical = "" if low <= mean <= high else " of typical steps, which a few long ones are not"
    return f"95 % interval {low:.{digits}f} to {high:.{digits}f}{typical} over {over}"


def _why(
    base: Subject, other: Subject, outcome: Outcome, change_ns: int | None, parts: Sequence[Change]
) -> str:
    """The parts that make up the difference of the step times, largest first."""
    if not change_ns:
        return ""
    of = "The window" if "trace" in (base.window, other.window) else "A step"
    lead = f"In the mean {of[0].lower()}{of[1:]}" if outcome in ("no difference", "undecided") else of
    more = "longer" if change_ns > 0 else "shorter"
    said = f"{lead} of {other.letter} is {humanise(abs(change_ns) / 1e9, 's')} {more}"
    moved = sorted(parts, key=lambda part: -abs(part.change_ns))
    told = [part for part in moved if abs(part.change_ns) >= _TOLD * abs(moved[0].change_ns)][:_MOST_TOLD]
    if not told:
        return f"{said}."
    return f"{said}: {', '.join(map(_part, told))}."


def _part(change: Change) -> str:
    most = next((m for m in change.movers if m.dimension in ("category", "collective")), None)
    within = f" ({most.name} {signed(most.change_s)})" if most else ""
    return f"{PARTS[change.part]} {signed(change.change_ns / 1e9)}{within}"


def stated(row: Row) -> str:
    """A row's figure in a sentence; one that is neither measured nor derived says what it is."""
    figure = humanise(row.number, row.unit)
    return figure if row.provenance in ("measured", "derived") else f"{row.provenance} {figure}"


def signed(seconds: float) -> str:
    """`+80.0 ms`, `-1.20 s`, `0 s`."""
    sign = "-" if seconds < 0 else "+" if seconds > 0 else ""
    return f"{sign}{humanise(abs(seconds), 's')}"

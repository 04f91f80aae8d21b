# SPDX-License-Identifier: Apache-2.0
"""Work of two runs matched by what it computes, on any vendor's device, and who wins in which family of it.

Calls match where their key is equal (`equal_work.WorkKey`), as many of each as both make per step; the time
of equal calls is divided by their number.  All else is unmatched, with its time and the reason.  Matched and
unmatched time sum to that of all work, in whole ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from cclbench.analyzers.view.equal_work import EqualWork, WorkKey, WorkTimes
from cclbench.comparison.attribution import round_to_total
from cclbench.comparison.comparison import FamilyChange, MatchedWork, Outcome, UnmatchedWork
from cclbench.comparison.interval import Captures, Floats
from cclbench.comparison.kernel_groups import GROUPS, GroupDifference, device_words, group_intervals
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise

_OTHER: Final = "other kernels"
_COPIES: Final = "copies and fills"
_OF_MODELS: Final = {
    "matrix product": "GEMM",
    "attention": "attention",
    "convolution": "convolution",
    "linear algebra": "linear algebra",
    "experts": "mixture-of-experts kernels",
} | dict.fromkeys(
    (
        *("normalisation", "elementwise", "lookup", "pooling", "copy", "embedding tables", "reduction"),
        *("softmax and losses", "quantisation", "lists of tensors", "upsampling", "rotary embedding"),
    ),
    "memory-bound kernels",
)
"""Family of operators by that of their cost model; others are of the family of their kernel's category."""
_OF_CATEGORIES: Final = {category: group for group, categories in GROUPS.items() for category in categories}
_LEAST_MATCHED: Final = 0.5
"""Least matched share of each subject's time for which the families are stated in words."""
_LEAST_MENTIONED: Final = 0.05
"""Least share of either's time for which a family is mentioned."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """The calls of one key, per step and rank, in all captures of a subject."""

    times: WorkTimes
    calls: Fraction
    ns: Fraction
    roofline_ns: Fraction
    rooflined_ns: Fraction


@dataclass(frozen=True, slots=True)
class _Side:
    """A subject's work: its sums, and of each matched key its family and the share of its calls."""

    letter: str
    captures: Sequence[EqualWork]
    sums: Mapping[WorkKey, _Sum]
    families: Mapping[WorkKey, str]
    shares: Mapping[WorkKey, Fraction]

    @property
    def total_ns(self) -> int:
        """Device time of all work."""
        return round(sum((work.ns for work in self.sums.values()), Fraction(0)))

    def matched_ns(self, family: str) -> Fraction:
        """Device time of a family's matched work."""
        return sum((self.shares[key] * self.sums[key].ns for key in self._keys(family)), Fraction(0))

    def reached(self, family: str) -> float | None:
        """Roofline time of a family's matched work / its device time; None where none has a roofline."""
        keys = self._keys(family)
        roofline, time = (
            sum((self.shares[key] * getattr(self.sums[key], name) for key in keys), Fraction(0))
            for name in ("roofline_ns", "rooflined_ns")
        )
        return float(roofline / time) if time else None

    def step_times(self) -> dict[str, Captures]:
        """Seconds of each family's matched work by step, for each capture, mean over ranks."""
        names = dict.fromkeys(self.families.values())
        return {name: [self._capture_times(capture, name) for capture in self.captures] for name in names}

    def _capture_times(self, capture: EqualWork, family: str) -> Floats:
        times = np.zeros(len(capture.steps))
        for key in self._keys(family):
            if key in capture.works:
                times += float(self.shares[key]) * capture.works[key].step_ns
        return times / (1e9 * capture.ranks)

    def _keys(self, family: str) -> list[WorkKey]:
        return [key for key, name in self.families.items() if name == family]


def match_work(
    base: ComparisonSubject,
    other: ComparisonSubject,
    before: Sequence[EqualWork],
    after: Sequence[EqualWork],
    repeats: Sequence[Captures] = (),
) -> MatchedWork | None:
    """The work of two subjects, of each of their captures, matched; None where either has no device time.

    `repeats`: captures of other jobs, for the intervals.
    """
    sums = _sums(before), _sums(after)
    shared = [key for key in sums[0] if key in sums[1] and key.why_not is None]
    families = {key: _family(sums[0][key].times, sums[1][key].times) for key in shared}
    sides = [
        _Side(
            subject.letter,
            captures,
            mine,
            families,
            {key: min(mine[key].calls, theirs[key].calls) / mine[key].calls for key in shared},
        )
        for subject, captures, mine, theirs in ((base, before, *sums), (other, after, *sums[::-1]))
    ]
    if not all(side.total_ns for side in sides):
        return None
    names = list(dict.fromkeys(families.values()))
    (a, lost), (b, gained) = (_parts_of_side(mine, theirs, names) for mine, theirs in (sides, sides[::-1]))
    times = sides[0].step_times(), sides[1].step_times()
    is_open = any(capture.all_open for subject in (base, other) for capture in subject.each_capture)
    intervals = {} if is_open else {interval.group: interval for interval in group_intervals(*times, repeats)}
    changes = [
        FamilyChange(
            family=name,
            before_ns=a[name],
            after_ns=b[name],
            change_ns=b[name] - a[name],
            ratio=_mean_ratio(*(each[name] for each in times)),
            low=intervals[name].low if name in intervals else None,
            high=intervals[name].high if name in intervals else None,
            outcome=_outcome(intervals.get(name)),
            before_reached=sides[0].reached(name),
            after_reached=sides[1].reached(name),
        )
        for name in names
    ]
    matched_work = MatchedWork(
        before_ns=sides[0].total_ns,
        after_ns=sides[1].total_ns,
        families=tuple(sorted(changes, key=lambda change: (-abs(change.change_ns), change.family))),
        unmatched=tuple(sorted([*lost, *gained], key=lambda work: (-work.time_ns, work.subject, work.name))),
        words="",
    )
    return replace(matched_work, words=_matched_words(base, other, matched_work))


def _sums(captures: Sequence[EqualWork]) -> dict[WorkKey, _Sum]:
    """Sums by key over all captures, as of one capture with all their steps."""
    windows = sum(capture.windows for capture in captures)
    by_key: dict[WorkKey, list[WorkTimes]] = {}
    for capture in captures:
        for key, times in capture.works.items():
            by_key.setdefault(key, []).append(times)
    return {
        key: _Sum(
            each[0],
            Fraction(sum(times.calls for times in each), windows),
            Fraction(sum(int(times.step_ns.sum()) for times in each), windows),
            Fraction(sum(times.roofline_ns for times in each)) / windows,
            Fraction(sum(times.rooflined_ns for times in each), windows),
        )
        for key, each in by_key.items()
    }


def _parts_of_side(
    mine: _Side, theirs: _Side, names: Sequence[str]
) -> tuple[dict[str, int], list[UnmatchedWork]]:
    """Whole ns of each family's matched work, and the unmatched work; all sum to `total_ns`."""
    left = [
        (key, work, 1 - mine.shares.get(key, Fraction(0)))
        for key, work in mine.sums.items()
        if work.ns and mine.shares.get(key) != 1
    ]
    exact = [*map(mine.matched_ns, names), *(part * work.ns for _, work, part in left)]
    rounded = round_to_total(exact, mine.total_ns)
    unmatched = [
        UnmatchedWork(
            subject=mine.letter,
            name=work.times.name,
            family=mine.families.get(key) or _family(work.times),
            calls=float(part * work.calls),
            time_ns=ns,
            reason=key.why_not or _absence(work, theirs, key),
        )
        for (key, work, part), ns in zip(left, rounded[len(names) :], strict=True)
    ]
    return dict(zip(names, rounded, strict=False)), unmatched


def _absence(work: _Sum, theirs: _Side, key: WorkKey) -> str:
    """Why the other subject has no equal call."""
    if key not in theirs.sums:
        return f"{theirs.letter} has no call of equal work"
    counts = (humanise(float(calls), "count") for calls in (theirs.sums[key].calls, work.calls))
    return f"{theirs.letter} makes {' of '.join(counts)} such calls a step"


def _family(*sides: WorkTimes) -> str:
    """The family of work: of its operator, else of its kernels in the first run that knows their category."""
    for times in sides:
        if not times.computes and times.category != "communication":
            continue
        family = _OF_MODELS.get(times.model or "") or _OF_CATEGORIES.get(times.category)
        if family:
            return family
    return _OTHER if any(times.computes for times in sides) else _COPIES


def _mean_ratio(base: Captures, other: Captures) -> float | None:
    before, after = (float(np.mean([steps.mean() for steps in captures])) for captures in (base, other))
    return after / before if before and after else None


def _outcome(interval: GroupDifference | None) -> Outcome:
    if interval is None:
        return "undecided"
    if interval.low <= 1 <= interval.high:
        return "no difference"
    return "slower" if interval.low > 1 else "faster"


def _matched_words(base: ComparisonSubject, other: ComparisonSubject, matched_work: MatchedWork) -> str:
    """`Of the work that both do (...), B (AMD Instinct MI300X) loses 12.0 ms in GEMM (...) and wins ...`."""
    totals = {base.letter: matched_work.before_ns, other.letter: matched_work.after_ns}
    matched = {letter: 1 - matched_work.unmatched_ns(letter) / total for letter, total in totals.items()}
    if min(matched.values()) < _LEAST_MATCHED:
        return ""
    shares = ", ".join(
        f"{humanise(share, '1')} of {letter}'s{' device time' * (letter == base.letter)}"
        for letter, share in matched.items()
    )
    head = f"Of the work that both do ({shares}) {other.letter}{device_words(base, other)}"
    large = [
        change
        for change in matched_work.families
        if max(abs(change.change_ns) / total for total in totals.values()) >= _LEAST_MENTIONED
    ]
    if any(change.outcome != "undecided" for change in matched_work.families):
        decided = [change for change in matched_work.families if change.outcome in ("slower", "faster")]
        words = _verbs(("loses", "wins"), decided, matched_work) or f"differs from {base.letter} in no family"
        words += " beyond the intervals" * (not decided)
    elif large:
        words = f"takes {_verbs(('', ''), large, matched_work, (' more', ' less'))} in these captures"
    else:
        return ""
    return f"{head} {words}.{_unmatched_words(matched_work, totals)}"


def _verbs(
    verbs: tuple[str, str],
    changes: Sequence[FamilyChange],
    matched_work: MatchedWork,
    comparatives: tuple[str, str] = ("", ""),
) -> str:
    """`loses 12.0 ms in GEMM (...) and wins 3.00 ms in attention (...)`."""
    parts = []
    for longer, verb, comparative in zip((True, False), verbs, comparatives, strict=True):
        words = [
            f"{humanise(abs(change.change_ns) / 1e9, 's')}{comparative}"
            f" in {change.family} ({_facts(change, matched_work)})"
            for change in changes
            if (change.change_ns > 0) == longer
        ]
        if words:
            parts.append(f"{verb} {_listed(words)}".strip())
    return " and ".join(parts)


def _facts(change: FamilyChange, matched_work: MatchedWork) -> str:
    """`8.3 % of A's, 1.31×, 1.20 to 1.43; roofline 61 % and 37 %`."""
    facts = f"{humanise(abs(change.change_ns) / matched_work.before_ns, '1')}"
    if change.ratio is not None:
        facts += f", {humanise(change.ratio, 'ratio')}"
    if change.low is not None and change.high is not None:
        facts += f", {change.low:.2f} to {change.high:.2f}"
    if change.before_reached is not None and change.after_reached is not None:
        reached = (humanise(share, "1") for share in (change.before_reached, change.after_reached))
        facts += f"; {' against '.join(reached)} of the roofline"
    return facts


def _unmatched_words(matched_work: MatchedWork, totals: Mapping[str, int]) -> str:
    """What only one of them does, by its largest family, where that takes a notable share of its time."""
    words = []
    for letter, total in totals.items():
        times: dict[str, int] = {}
        for work in matched_work.unmatched:
            if work.subject == letter:
                times[work.family] = times.get(work.family, 0) + work.time_ns
        family, ns = max(times.items(), key=lambda entry: entry[1], default=("", 0))
        if ns / total >= _LEAST_MENTIONED:
            words.append(f"{humanise(ns / 1e9, 's')} in {family} of {letter}")
    return f" Without a match: {_listed(words)}." if words else ""


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

# SPDX-License-Identifier: Apache-2.0
"""The regression gate: `time.step > +5%` fails a comparison in which a step takes over 5 % longer than A's.

A gate is refused where the comparison is refused or hedged.  A change of a per-step figure is judged by its
interval: it fails where the whole interval lies beyond the limit, not where only the mean does.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cclbench.analyzers.aliases import ALIASES, SYNONYMS, refusal_of
from cclbench.analyzers.metric import METRICS, OTHER_NAMES
from cclbench.comparison.comparison import GateCheck
from cclbench.comparison.fingerprint import UNKNOWN, Equality
from cclbench.comparison.interval import Captures
from cclbench.comparison.lines import metric_selector
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import ratio_of, row_figure_words, spread_words, too_few_steps_reason
from cclbench.comparison.work import work_inequalities
from cclbench.ground.errors import CclbenchError, CheckFailed, UndecidedError, UsageError, near
from cclbench.ground.text import quoted_value
from cclbench.ground.units import Dimension, parse_quantity
from cclbench.record.metric_name import MetricName, metric_name
from cclbench.record.results import KEYS
from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")
_MFU: Final = metric_name("compute.mfu")

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NAME: Final = r"\s*([a-z0-9_.]+)\s*(?:\[(.{1,400}?)\])?\s*"
_FIGURE: Final = re.compile(_NAME)
_EXPRESSION: Final = re.compile(
    _NAME + r"(>=|<=|>|<)\s*([+-]?)\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(\S{0,20})\s*"
)
_MOST_LISTED: Final = 3
_SAME_PROVENANCE: Final = {"derived": "measured"}
"""Provenances treated as another: derived values rest on measured ones."""
_NEXT_KEY: Final = rf",(?=\s*(?:{'|'.join(KEYS)})\s*=)"
"""A comma before a key; values may contain commas, as group 1,3."""
_DIMENSIONS: Final[Mapping[str, Dimension]] = {
    "s": "time",
    "B": "size",
    "B/s": "bandwidth",
    "FLOP/s": "work rate",
}
_EXAMPLE: Final = (
    "write METRIC OP VALUE, such as 'time.step > +5%', 'time.step > 800 ms' or 'compute.mfu < 0.4'"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """One expression; the comparison fails where it holds."""

    expression: str
    metric: MetricName
    keys: Mapping[str, str]
    operator: str
    number: float
    """In the metric's base unit; a percentage as a fraction."""
    against: bool
    """Whether the number is a change against A, not an absolute value."""
    percent: bool

    def limit(self, before: float) -> float:
        """The value from which the expression holds, with `before` as the value that a change is against."""
        return before * (1 + self.number) if self.percent else before + self.number

    def is_met(self, value: float, limit: float) -> bool:
        """Whether the expression holds for a value."""
        return _OPERATORS[self.operator](value, limit)


def parse_figure(text: str) -> tuple[MetricName, dict[str, str]]:
    """A metric, or the part of it that brackets select: `time.step[stat=p95]`; `UsageError` otherwise."""
    match = _FIGURE.fullmatch(text)
    if match is None:
        raise UsageError(f"{quoted_value(text)} is not a metric or a part, such as time.step[stat=p95]")
    metric, keys = _metric_and_keys(match[1])
    return metric, keys | _parse_keys(match[2])


def parse_gate(expression: str) -> Gate:
    """Parse `METRIC OP VALUE`; the gate fails where the expression holds.

    METRIC is a name, an alias or a part: `comm.busbw[collective=all_reduce]`, `time.step[stat=p95]`.  OP is
    >, <, >= or <=.  A VALUE with a sign is a change against A: `+5%`, `-2%`, `+3 ms`, `-0.02`; without one
    it is the figure itself: `800 ms`, `100 GB/s`, `0.4`.  Raises `UsageError` for a malformed expression.
    """
    try:
        return _parse_comparison(expression)
    except CclbenchError as error:
        raise UsageError(f"--fail-on {quoted_value(expression)}: {error.what}", hint=error.hint) from None


def _parse_comparison(expression: str) -> Gate:
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise UsageError("not of the form METRIC OP VALUE", hint=_EXAMPLE)
    name, selector, comparator, sign, number, unit = match.groups()
    metric, keys = _metric_and_keys(name)
    keys |= _parse_keys(selector)
    percent = unit == "%"
    if percent and not sign:
        hint = f"write +{number}% or -{number}% for a change against A, or a share as a number: 0.4"
        raise UsageError("a percentage needs a sign", hint=hint)
    value = float(number) / 100 if percent else _base_value(metric, keys, number, unit)
    return Gate(expression, metric, keys, comparator, -value if sign == "-" else value, bool(sign), percent)


def _metric_and_keys(name: str) -> tuple[MetricName, dict[str, str]]:
    if name in METRICS:
        return METRICS.get(name).name, {}
    alias, metrics = ALIASES.get(name), SYNONYMS.get(name, ())
    if len(metrics) == 1:
        return METRICS.get(metrics[0]).name, {}
    if metrics:
        raise UsageError(f"{name} may mean several metrics", hint=f"choose one: {', '.join(metrics)}")
    if alias is None:
        hint = near(name, METRICS, OTHER_NAMES)
        raise refusal_of(name) or UsageError(f"no metric is called {name}", hint=hint)
    if len(alias.collectives) > 1:
        hint = f"choose one: {alias.metric}[collective={alias.collectives[0]}]"
        raise UsageError(f"{name} covers several figures", hint=hint)
    return METRICS.get(alias.metric).name, ({"collective": alias.collectives[0]} if alias.collectives else {})


def _parse_keys(selector: str | None) -> dict[str, str]:
    keys: dict[str, str] = {}
    for pair in re.split(_NEXT_KEY, selector) if selector else ():
        key, equals, value = (word.strip() for word in pair.partition("="))
        if key not in KEYS or not equals or not value or key in keys:
            hint = f"select by {', '.join(KEYS)}, such as [collective=all_reduce]"
            raise UsageError(f"{quoted_value(pair.strip())} is not a valid selector", hint=hint)
        keys[key] = value
    return keys


def _base_value(metric: str, keys: Mapping[str, str], number: str, unit: str) -> float:
    """The number in the metric's base unit; a coefficient of variation has no unit."""
    base = "1" if keys.get("stat") == "cv" else METRICS.get(metric).unit
    dimension = _DIMENSIONS.get(base)
    if dimension is None and not unit:
        return float(number)
    if dimension is None or not unit:
        expected = (
            "a number without a unit" if dimension is None else f"a number with a unit (base unit {base})"
        )
        raise UsageError(f"{metric} takes {expected}", hint=_EXAMPLE)
    return parse_quantity(f"{number} {unit}", dimension)


def require_passed(checks: Sequence[GateCheck]) -> None:
    """Raise `CheckFailed` naming the first checks that failed, if any, and those that were refused.

    Refusals are listed apart from failures, since they are no regressions; `UndecidedError` if none failed.
    """
    messages = []
    for outcome, words in (("failed", "checks failed"), ("refused", "checks refused")):
        reasons = [f"{check.expression}: {check.reason}" for check in checks if check.outcome == outcome]
        if reasons:
            more = f"; and {len(reasons) - _MOST_LISTED} more" if len(reasons) > _MOST_LISTED else ""
            messages.append(
                f"{len(reasons)} of {len(checks)} {words}: {'; '.join(reasons[:_MOST_LISTED])}{more}"
            )
    if messages:
        failed = any(check.outcome == "failed" for check in checks)
        raise (CheckFailed if failed else UndecidedError)(". ".join(messages))


def check_gate(
    gate: Gate,
    base: ComparisonSubject,
    other: ComparisonSubject,
    work: Equality = UNKNOWN,
    repeats: Sequence[Captures] = (),
) -> GateCheck:
    """Check the expression for a subject against the first; a missing figure fails.

    `work`: whether their work is equal by their traces; `repeats`: captures of other jobs.
    """

    def gate_check(outcome: Literal["passed", "failed", "refused"], reason: str) -> GateCheck:
        return GateCheck(gate.expression, other.letter, outcome, reason)

    name = metric_selector(gate.metric, gate.keys)
    row, before = (subject.results.row(gate.metric, **gate.keys) for subject in (other, base))
    pairs = [(other, row), *([(base, before)] if gate.against else [])]
    for subject, subject_row in pairs:
        if subject_row is None or not subject_row.has_value:
            reason = f": {subject_row.reason}" if subject_row and subject_row.reason else ""
            return gate_check("failed", f"{subject.letter} has no {name}{reason}")
        if subject_row.status == "partial":
            return gate_check("refused", f"{name} of {subject.letter} is partial ({subject_row.reason})")
    assert row is not None  # noqa: S101 - just looked
    words = f"{name} of {other.letter} is {row_figure_words(row)}"
    if not gate.against or before is None:
        return gate_check("failed" if gate.is_met(row.number, gate.number) else "passed", words)
    words += f", of {base.letter} {row_figure_words(before)}"
    if refusal := _refusal_reason(base, other, before, row, work):
        return gate_check("refused", f"{words}, but {refusal}")
    limit = gate.limit(before.number)
    positive = before.number > 0 and row.number > 0
    if positive:
        words += f": {_percent_words(row.number / before.number)}"
    if not positive or gate.keys or not _has_step_values(gate.metric):
        return gate_check("failed" if gate.is_met(row.number, limit) else "passed", words)
    ratio = ratio_of(base, other, gate.metric, repeats)
    if ratio.low is None or ratio.high is None:
        return gate_check(
            "refused", f"{words}, but there is no interval: {too_few_steps_reason(base, other)}"
        )
    words += (
        f" (95 % interval {_percent_words(ratio.low)} to {_percent_words(ratio.high)}; {spread_words(ratio)})"
    )
    # The whole interval must lie beyond the limit, so the end nearer to passing decides.
    decisive = ratio.low if gate.operator.startswith(">") else ratio.high
    is_beyond = gate.is_met(decisive * before.number, limit)
    if not is_beyond and gate.is_met(row.number, limit):
        words += ", which is not wholly beyond the limit"
    return gate_check("failed" if is_beyond else "passed", words)


def _percent_words(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


def _has_step_values(metric: MetricName) -> bool:
    """Whether the metric has a value for each step, so that a change has an interval."""
    return metric in (_STEP, _MFU) or metric.startswith("throughput.")


def _refusal_reason(
    base: ComparisonSubject, other: ComparisonSubject, before: Row, row: Row, work: Equality
) -> str | None:
    """Why the two figures cannot be compared; None where they can."""
    if reasons := work_inequalities(base, other, work):
        return f"their work differs ({', '.join(reasons)})"
    for subject, figure in ((base, before), (other, row)):
        if figure.window == "trace" and not subject.is_published:
            return f"the window of {subject.letter} is its whole trace, as long as the capture"
    kinds = [_SAME_PROVENANCE.get(figure.provenance or "", figure.provenance) for figure in (before, row)]
    if kinds[0] != kinds[1]:
        return f"{base.letter}'s figure is {kinds[0]}, {other.letter}'s is {kinds[1]}"
    return None

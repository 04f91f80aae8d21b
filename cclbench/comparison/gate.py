# SPDX-License-Identifier: Apache-2.0
"""The regression gate: `time.step > +5%` fails a comparison in which a step takes 5 % longer than A's.

A gate speaks where the comparison does, and refuses where it is refused or hedged.  A change of a figure that
steps have is judged by its interval: it fails where the interval lies beyond the limit, not where the mean
does.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cclbench.analyzers.aliases import ALIASES, SYNONYMS
from cclbench.analyzers.metric import METRICS, OTHER_NAMES
from cclbench.comparison.comparison import GateCheck
from cclbench.comparison.fingerprint import UNKNOWN, Equality
from cclbench.comparison.interval import Captures
from cclbench.comparison.lines import metric_selector
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import ratio_of, spread_words, stated_figure, too_few
from cclbench.comparison.work import work_inequalities
from cclbench.ground.errors import CclbenchError, CheckFailed, UsageError, near
from cclbench.ground.text import shown
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
_EXPRESSION: Final = re.compile(
    r"\s*([a-z0-9_.]+)\s*(?:\[(.{1,400}?)\])?\s*(>=|<=|>|<)\s*([+-]?)\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(\S{0,20})\s*"
)
_NAMED: Final = 3
_TAKEN: Final = {"derived": "measured"}
"""Provenances that count as another: what is derived rests on what was measured."""
_NEXT_KEY: Final = rf",(?=\s*(?:{'|'.join(KEYS)})\s*=)"
"""A comma before a key: values may hold commas, as group 1,3."""
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
    """One expression: it fails the comparison where it holds."""

    expression: str
    metric: MetricName
    keys: Mapping[str, str]
    operator: str
    number: float
    """In the metric's base unit; of a percentage, the fraction."""
    against: bool
    """Whether the number is a change against A, not a value."""
    percent: bool


def parse_gate(expression: str) -> Gate:
    """`METRIC OP VALUE`: fails where the metric is so.

    METRIC is a name, an alias or a part: `comm.busbw[collective=all_reduce]`, `time.step[stat=p95]`.  OP is
    >, <, >= or <=.  A VALUE with a sign is a change against A: `+5%`, `-2%`, `+3 ms`, `-0.02`; without one
    it is the figure itself: `800 ms`, `100 GB/s`, `0.4`.  Raises `UsageError` that says what is wrong.
    """
    try:
        return _parse_comparison(expression)
    except CclbenchError as error:
        raise UsageError(f"--fail-on {shown(expression)}: {error.what}", hint=error.hint) from None


def _parse_comparison(expression: str) -> Gate:
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise UsageError("not understood", hint=_EXAMPLE)
    name, part, compared, sign, number, unit = match.groups()
    metric, keys = _metric_and_keys(name)
    keys |= _parse_keys(part)
    percent = unit == "%"
    if percent and not sign:
        hint = f"write +{number}% or -{number}% for a change against A, or a share as a number: 0.4"
        raise UsageError("a percentage needs a sign", hint=hint)
    value = float(number) / 100 if percent else _base_value(metric, keys, number, unit)
    return Gate(expression, metric, keys, compared, -value if sign == "-" else value, bool(sign), percent)


def _metric_and_keys(name: str) -> tuple[MetricName, dict[str, str]]:
    if name in METRICS:
        return METRICS.get(name).name, {}
    alias, meant = ALIASES.get(name), SYNONYMS.get(name, ())
    if len(meant) == 1:
        return METRICS.get(meant[0]).name, {}
    if meant:
        raise UsageError(f"{name} may mean several metrics", hint=f"choose one: {', '.join(meant)}")
    if alias is None:
        raise UsageError(f"no metric is called {name}", hint=near(name, METRICS, OTHER_NAMES))
    if len(alias.collectives) > 1:
        hint = f"choose one: {alias.metric}[collective={alias.collectives[0]}]"
        raise UsageError(f"{name} stands for several figures", hint=hint)
    return METRICS.get(alias.metric).name, ({"collective": alias.collectives[0]} if alias.collectives else {})


def _parse_keys(part: str | None) -> dict[str, str]:
    keys: dict[str, str] = {}
    for one in re.split(_NEXT_KEY, part) if part else ():
        key, equals, value = (word.strip() for word in one.partition("="))
        if key not in KEYS or not equals or not value or key in keys:
            hint = f"select by {', '.join(KEYS)}, such as [collective=all_reduce]"
            raise UsageError(f"{shown(one.strip())} selects nothing", hint=hint)
        keys[key] = value
    return keys


def _base_value(metric: str, keys: Mapping[str, str], number: str, unit: str) -> float:
    """The number in the metric's base unit; a coefficient of variation has none."""
    base = "1" if keys.get("stat") == "cv" else METRICS.get(metric).unit
    dimension = _DIMENSIONS.get(base)
    if dimension is None and not unit:
        return float(number)
    if dimension is None or not unit:
        wanted = "a plain number" if dimension is None else f"a unit: it is in {base}"
        raise UsageError(f"{metric} takes {wanted}", hint=_EXAMPLE)
    return parse_quantity(f"{number} {unit}", dimension)


def require_passed(checks: Sequence[GateCheck]) -> None:
    """Raise `CheckFailed` that names the first checks that failed or were refused, where any did.

    A refusal is no regression, and is said to be one of a kind of its own.
    """
    said = []
    for outcome, words in (("failed", "checks failed"), ("refused", "checks cannot be made")):
        found = [f"{check.expression}: {check.reason}" for check in checks if check.outcome == outcome]
        if found:
            more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            said.append(f"{len(found)} of {len(checks)} {words}: {'; '.join(found[:_NAMED])}{more}")
    if said:
        raise CheckFailed(". ".join(said))


def check_gate(
    gate: Gate,
    base: ComparisonSubject,
    other: ComparisonSubject,
    work: Equality = UNKNOWN,
    repeats: Sequence[Captures] = (),
) -> GateCheck:
    """What the expression says of a subject against the first; a figure that is missing fails.

    `work` is what the traces tell of whether their work is equal, `repeats` are captures of other jobs.
    """

    def gate_check(outcome: Literal["passed", "failed", "refused"], reason: str) -> GateCheck:
        return GateCheck(gate.expression, other.letter, outcome, reason)

    holds = _OPERATORS[gate.operator]
    name = metric_selector(gate.metric, gate.keys)
    row, before = (subject.results.row(gate.metric, **gate.keys) for subject in (other, base))
    pairs = [(other, row), *([(base, before)] if gate.against else [])]
    for subject, found in pairs:
        if found is None or not found.has_value:
            why = f": {found.reason}" if found and found.reason else ""
            return gate_check("failed", f"{subject.letter} has no {name}{why}")
        if found.status == "partial":
            return gate_check("refused", f"{name} of {subject.letter} is partial ({found.reason})")
    assert row is not None  # noqa: S101 - just looked
    said = f"{name} of {other.letter} is {stated_figure(row)}"
    if not gate.against or before is None:
        return gate_check("failed" if holds(row.number, gate.number) else "passed", said)
    said += f", of {base.letter} {stated_figure(before)}"
    if refusal := _refusal_reason(base, other, before, row, work):
        return gate_check("refused", f"{said}, and {refusal}")
    limit = before.number * (1 + gate.number) if gate.percent else before.number + gate.number
    positive = before.number > 0 and row.number > 0
    if positive:
        said += f": {_percent_words(row.number / before.number)}"
    if not positive or gate.keys or not _of_steps(gate.metric):
        return gate_check("failed" if holds(row.number, limit) else "passed", said)
    ratio = ratio_of(base, other, gate.metric, repeats)
    if ratio.low is None or ratio.high is None:
        return gate_check("refused", f"{said}, and there is no interval: {too_few(base, other)}")
    said += (
        f" (95 % interval {_percent_words(ratio.low)} to {_percent_words(ratio.high)}; {spread_words(ratio)})"
    )
    # The whole interval must lie beyond the limit: of its two ends the one that is nearer to passing.
    decisive = ratio.low if gate.operator.startswith(">") else ratio.high
    beyond = holds(decisive * before.number, limit)
    if not beyond and holds(row.number, limit):
        said += ", which does not lie beyond the limit"
    return gate_check("failed" if beyond else "passed", said)


def _percent_words(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


def _of_steps(metric: MetricName) -> bool:
    """Whether the run has a figure of each step, so that a change has an interval."""
    return metric in (_STEP, _MFU) or metric.startswith("throughput.")


def _refusal_reason(
    base: ComparisonSubject, other: ComparisonSubject, before: Row, row: Row, work: Equality
) -> str | None:
    """Why the two figures cannot be set against each other; None where they can."""
    if reasons := work_inequalities(base, other, work):
        return f"their work differs ({', '.join(reasons)})"
    for subject, found in ((base, before), (other, row)):
        if found.window == "trace" and not subject.is_published:
            return f"the window of {subject.letter} is its whole trace, as long as the capture"
    kinds = [_TAKEN.get(found.provenance or "", found.provenance) for found in (before, row)]
    if kinds[0] != kinds[1]:
        return f"{base.letter}'s is {kinds[0]}, {other.letter}'s {kinds[1]}"
    return None

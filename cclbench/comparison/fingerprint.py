# SPDX-License-Identifier: Apache-2.0
"""Whether two jobs do equal work by their evidence, not their cards: proved, refuted or unknown.

Work is what a step of the whole job computes: the FLOPs of its operators, from recorded shapes.  FLOPs do
not depend on how the job is parallelised, but on batch, sequence, model and micro-batches.  Without shapes,
only a multiple is conclusive: every operator with FLOPs is called k times as often, or every kind of
collective moves k times the bytes, on as many ranks.  For a server, work is what a client requested and got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from cclbench.analyzers.benchmarks import Benchmark, run_benchmarks
from cclbench.analyzers.view.run_view import RunView
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.operator_table import OperatorTable
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from cclbench.comparison.operators import OperatorTables

_VOLUME: Final = metric_name("comm.volume")
_RECOMPUTE_SHARE: Final = metric_name("compute.recompute_share")

Status = Literal["proved", "refuted", "unknown"]

_EQUAL: Final = 0.005
"""Relative difference of FLOPs up to which work is equal."""
_DIFFERENT: Final = 0.1
"""Relative difference from which work differs; below it, data may vary from step to step."""
_LEAST_FLOPS_SHARE: Final = 0.9
"""Least share of the compute time that must have FLOPs."""
_LEAST_CALLS: Final = 10
_MULTIPLE: Final = 0.02
_SERVING_TOTALS: Final = ("completed", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Work of a step, per rank that has a trace, as far as the evidence shows."""

    ranks: int
    """Ranks of the whole job."""
    flops: float | None
    """None where less than 90 % of the compute time has FLOPs."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """Calls of operators with FLOPs, by name."""
    all_calls: Mapping[str, float] = field(default_factory=dict)
    """Calls of all operators, by name."""
    bytes: Mapping[str, float] = field(default_factory=dict)
    """Payload of collectives, by kind."""
    recomputes: bool = False
    """Whether forward operators run again in the backward pass."""
    served: Mapping[str, Any] = field(default_factory=dict)
    """A serving client's settings, and the requests and tokens it got."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether two jobs do equal work, and the reason."""

    status: Status
    reason: str
    standard: str | None = None
    """The standard workload by which the cards state equal work."""


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """An operator whose calls count the work of two captures without steps, and its calls in each."""

    operator: str
    before: float
    after: float


UNKNOWN: Final = Equality("unknown", "the traces do not record what a step works on")


def work_fingerprint(subject: ComparisonSubject, tables: OperatorTables | None) -> Fingerprint:
    """The fingerprint of a subject; `tables` are its operators, if any."""
    ranks = subject.world_size or len(subject.ranks)
    rows = subject.results.rows
    volume = {
        row.collective: row.number
        for row in rows
        if row.metric == _VOLUME and row.collective and row.status == "ok" and not row.group
    }
    fingerprint = Fingerprint(ranks, None, bytes=volume, served=_serving_totals(subject))
    if tables is None or subject.whole_graphs:
        return fingerprint
    ops = tables.ops
    has_flops = ops.modelled_share >= _LEAST_FLOPS_SHARE
    return replace(
        fingerprint,
        flops=sum(row.flops or 0.0 for row in ops.rows) / ops.windows if has_flops else None,
        calls=_calls_per_window(ops, with_flops=True),
        all_calls=_calls_per_window(ops),
        recomputes=bool(subject.results.value(_RECOMPUTE_SHARE)),
    )


def _calls_per_window(table: OperatorTable, *, with_flops: bool = False) -> dict[str, float]:
    return {row.key: row.calls / table.windows for row in table.rows if row.flops or not with_flops}


def _serving_totals(subject: ComparisonSubject) -> dict[str, Any]:
    """Settings of a serving client's file and totals of its benchmarks; empty unless there is one file.

    Totals are those that the file states, else those of the requests that it lists.
    """
    entries = [entry for entry in subject.stored.record.evidence if entry.rows.get("serving")]
    if len(entries) != 1:
        return {}
    view = RunView(subject.stored, settings={entries[0].name: entries[0].facts})
    benchmarks = run_benchmarks(view)
    facts: dict[str, Any] = {**entries[0].facts, "client": entries[0].reader}
    for number, benchmark in enumerate(benchmarks, 1):
        totals = _benchmark_totals(benchmark)
        if totals is None:
            return {}
        suffix = f"_of_benchmark_{number}" if len(benchmarks) > 1 else ""
        facts |= {f"{name}{suffix}": total for name, total in zip(_SERVING_TOTALS, totals, strict=True)}
    return facts


def _benchmark_totals(benchmark: Benchmark) -> tuple[float, ...] | None:
    """Answered requests, and their input and output tokens; None where any is unknown."""
    totals = [benchmark.stated.get((name, None)) for name in _SERVING_TOTALS]
    listed = len(benchmark.requests) and not benchmark.unknown_count
    answered = benchmark.answered_requests if listed else None
    for place, column in enumerate((None, "input_tokens", "output_tokens")):
        if totals[place] is None and answered is not None:
            if column is None:
                totals[place] = len(answered)
            elif not answered[column].null_count:
                totals[place] = int(answered[column].to_numpy().sum())
    numbers = [total for total in totals if total is not None]
    return tuple(numbers) if len(numbers) == len(totals) else None


def work_equality(base: Fingerprint, other: Fingerprint) -> Equality:
    """Whether `other` does the same work as `base`."""
    if base.served and other.served:
        return _equally_served(base.served, other.served)
    if base.flops and other.flops:
        return _equal_flops(base, other)
    if base.ranks == other.ranks:
        for before, after, label in (
            (base.calls, other.calls, "calls of {}"),
            (base.bytes, other.bytes, "bytes of {}"),
        ):
            multiple = _is_whole_multiple(before, after)
            if multiple:
                name = min(before, key=lambda key: before[key])
                calls = label.format(name)
                counts = f"{_count_words(after[name])} against {_count_words(before[name])} {calls} a step"
                return Equality("refuted", counts)
    return UNKNOWN


def find_work_unit(base: Fingerprint, other: Fingerprint) -> WorkUnit | None:
    """The least-called operator with FLOPs; None unless the calls of all such operators differ by one ratio.

    Each capture must hold at least ten calls, since a capture's ends may fall anywhere between calls.
    """
    if not base.calls or set(base.calls) != set(other.calls):
        return None
    ratios = [other.calls[name] / base.calls[name] for name in base.calls]
    name = min(base.calls, key=lambda name: base.calls[name])
    unit = WorkUnit(name, base.calls[name], other.calls[name])
    is_one_ratio = max(ratios) / min(ratios) <= 1 + _DIFFERENT
    return unit if is_one_ratio and min(unit.before, unit.after) >= _LEAST_CALLS else None


def scale_to_call(fingerprint: Fingerprint, calls: float) -> Fingerprint:
    """The fingerprint per call, of a capture that holds `calls` calls."""
    return replace(
        fingerprint,
        flops=fingerprint.flops and fingerprint.flops / calls,
        calls={name: count / calls for name, count in fingerprint.calls.items()},
        all_calls={name: count / calls for name, count in fingerprint.all_calls.items()},
        bytes={kind: amount / calls for kind, amount in fingerprint.bytes.items()},
    )


def _equally_served(base: Mapping[str, Any], other: Mapping[str, Any]) -> Equality:
    """Proved where settings, requests and tokens are equal, else refuted.

    Two clients' settings have other names: of theirs those that both state count, beside the totals.
    """
    same_client = base.get("client") == other.get("client")
    names = dict.fromkeys((*base, *other))
    for key in names if same_client else [key for key in names if _is_common(key, base, other)]:
        if base.get(key) != other.get(key):
            words = key.replace("_", " ")
            return Equality(
                "refuted", f"{words} {_value_words(other.get(key))} against {_value_words(base.get(key))}"
            )
    sums = (sum(base[key] for key in base if key.startswith(name)) for name in _SERVING_TOTALS)
    requests, *tokens = (f"{total:,.0f}" for total in sums)
    return Equality("proved", f"{requests} requests, {tokens[0]} input and {tokens[1]} output tokens each")


def _is_common(key: str, base: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether it is a total, or a setting that both clients state."""
    return key.startswith(_SERVING_TOTALS) or (key in base and key in other and key != "client")


def _equal_flops(base: Fingerprint, other: Fingerprint) -> Equality:
    assert base.flops and other.flops  # noqa: S101, PT018 - callers have looked
    before, after = base.flops * base.ranks, other.flops * other.ranks
    difference = abs(after - before) / max(after, before)
    figures = f"{humanise(after, 'FLOP')} against {humanise(before, 'FLOP')} a step"
    if difference <= _EQUAL:
        return Equality("proved", f"{humanise(before, 'FLOP')} a step each")
    if difference < _DIFFERENT:
        return Equality("unknown", f"{figures}, which may differ with the data of a step")
    if base.recomputes != other.recomputes:
        return Equality("unknown", f"{figures}; only one of them recomputes its forward pass")
    counts = _least_called_operator(base, other)
    return Equality("refuted", f"{counts}, {figures}" if counts else figures)


def _least_called_operator(base: Fingerprint, other: Fingerprint) -> str | None:
    """In words, the least-called operator whose calls per rank differ by the ratio of the FLOPs."""
    assert base.flops and other.flops  # noqa: S101, PT018 - callers have looked
    ratio = other.flops / base.flops
    candidates = [
        (calls, name)
        for name, calls in base.all_calls.items()
        if name in other.all_calls and abs(other.all_calls[name] / calls / ratio - 1) <= _MULTIPLE
    ]
    if not candidates:
        return None
    calls, name = min(candidates)
    return f"{_count_words(other.all_calls[name])} against {_count_words(calls)} calls of {name}"


def _is_whole_multiple(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether both have the same names and all differ by one integer factor of at least 2."""
    ratios = [after[name] / before[name] for name in before if after.get(name) and before[name]]
    if not ratios or set(before) != set(after):
        return False
    factor = max(ratios[0], 1 / ratios[0])
    multiple = round(factor)
    return (
        multiple > 1
        and abs(factor / multiple - 1) <= _MULTIPLE
        and max(ratios) / min(ratios) - 1 <= _MULTIPLE
    )


def _count_words(number: float) -> str:
    return f"{number:,.0f}" if abs(number - round(number)) < 0.005 * max(number, 1) else f"{number:,.1f}"


def _value_words(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int) else "unknown" if value is None else str(value)


def evidence_contradiction(
    base: ComparisonSubject, other: ComparisonSubject, traces: Equality, reasons: Sequence[str]
) -> str | None:
    """A warning where cards and evidence contradict; None where they agree or either is silent."""
    pair = f"{base.letter} and {other.letter}"
    if traces.status == "proved" and reasons:
        differs = ", ".join(reasons)
        return (
            f"the cards of {pair} state different work ({differs}), but their traces show equal work"
            f" ({traces.reason})"
        )
    has_equal_keys = base.workload.work_key is not None and base.workload.work_key == other.workload.work_key
    if traces.status == "refuted" and not reasons and (has_equal_keys or traces.standard):
        by = f" ({traces.standard})" if traces.standard else ""
        return (
            f"the cards of {pair} state equal work{by}, but their traces show different work: {traces.reason}"
        )
    return None

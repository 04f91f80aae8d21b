# SPDX-License-Identifier: Apache-2.0
"""From metrics to result rows: the per-rank part, and the combination of ranks into `schema.RESULTS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from sys import intern
from typing import Final, NamedTuple

import msgspec

from cclbench.analyzers.aliases import Alias
from cclbench.analyzers.metric import (
    METRICS,
    Coverage,
    Failed,
    Metric,
    NotApplicable,
    Unknown,
    Value,
    no_value,
)
from cclbench.analyzers.stand_ins import FROM_EVIDENCE, STAND_INS
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.whole_graphs import UnknownGraphs
from cclbench.ground.errors import PluginError
from cclbench.ground.registry import plugin_code
from cclbench.ground.schema import group_id
from cclbench.normalize.steps import POLICIES
from cclbench.record.facts import ran_no_kernel
from cclbench.record.manifest import RankEntry
from cclbench.record.rows import Row

_LONGEST: Final = 300
_WINDOWS: Final = {"steps": "steps", "annotations": "annotations of steps", "trace": "the whole trace"}
NO_TRACE: Final = no_value("the run has no trace")


def rank_rows(view: RankView, metrics: Sequence[Metric], *, model: bool = False) -> dict[str, list[Value]]:
    """Every metric of one rank, by name; a metric without an answer is one value that says why.

    With `model` a metric that does not apply is modelled, where it has a stand-in.
    """
    found: dict[str, list[Value]] = {}
    for m in metrics:
        if m.per_rank is not None:
            found[m.name] = _metric_values(partial(m.per_rank, view), m)
    for m in metrics:
        if model and m.name in STAND_INS and found[m.name][0].status == "not_applicable":
            found[m.name] = _modelled_values(view, m, found[m.name])
    graphs = _whole_graphs(view)
    if graphs is None:
        return found
    return {m.name: _less_graphs(m, found[m.name], graphs) for m in metrics if m.name in found}


def _whole_graphs(view: RankView) -> UnknownGraphs | None:
    try:
        return view.whole_graphs
    except NotApplicable:
        return None


def _less_graphs(metric: Metric, values: list[Value], graphs: UnknownGraphs) -> list[Value]:
    """A metric's values as far as they hold where what ran inside these graphs is unknown.

    A metric that lacks their kernels has no value where these are most of the time; else it is partial, as
    what takes graphs for compute.
    """
    if metric.whole_graphs == "counted" or values[0].status == "failed":
        return values
    if not values[0].has_value:
        reason = "; ".join(dict.fromkeys(filter(None, (values[0].reason, graphs.unknown_reason))))
        return [replace(values[0], reason=reason, coverage=graphs.coverage)]
    if metric.whole_graphs == "lacking" and graphs.are_most:
        return [no_value(graphs.unknown_reason, coverage=graphs.coverage)]
    unknown = Coverage(0, graphs.launches, 0, graphs.unknown_ns)
    return [
        replace(
            v,
            reason=f"{v.reason}; {graphs.unknown_reason}" if v.reason else graphs.unknown_reason,
            coverage=graphs.coverage if v.coverage is None else v.coverage + unknown,
        )
        if v.has_value
        else v
        for v in values
    ]


def _modelled_values(view: RankView, metric: Metric, lacking: list[Value]) -> list[Value]:
    """The stand-in's values; what is lacking where it has none, and why it has none."""
    try:
        values = _as_list(STAND_INS[metric.name](view))
    except NotApplicable as why:
        reason = lacking[0].reason
        also = "" if str(why) == reason else f"; not modelled: {why}"
        return [replace(lacking[0], reason=f"{reason}{also}")]
    return [
        replace(
            v,
            provenance="modelled",
            reason=v.reason and f"modelled, since {metric.not_applicable}; {v.reason}",
        )
        for v in values
    ] or lacking


def run_values(view: RunView, metrics: Sequence[Metric]) -> dict[str, list[Value]]:
    """Every metric of the run itself, and what files beside its traces tell of ranks' metrics, by name.

    One without an answer is one value that says why.
    """
    functions = {m.name: m.per_run or FROM_EVIDENCE.get(m.name) for m in metrics}
    return {m.name: _metric_values(partial(told, view), m) for m in metrics if (told := functions[m.name])}


def window_policy(view: RankView, asked: str) -> str:
    """The window policy that the rank's numbers rest on; the one asked for where it has no window."""
    try:
        return view.windows.policy
    except NotApplicable:
        return asked


def _origin(metric: Metric) -> str:
    """The module of its function."""
    return (metric.per_rank or metric.per_run or metric.combine).__module__


def _metric_values(compute: Callable[[], Value | Iterable[Value]], metric: Metric) -> list[Value]:
    try:
        with plugin_code(_origin(metric), NotApplicable, Failed):
            values = _as_list(compute())
    except Unknown as why:
        return [no_value(str(why), coverage=why.coverage or Coverage(0, 1))]
    except NotApplicable as why:
        return [no_value(str(why))]
    except Failed as why:
        return [Value(value=None, status="failed", reason=str(why))]
    except PluginError as error:
        return [Value(value=None, status="failed", reason=error.what[:_LONGEST])]
    return _require_finite(values) or [no_value(metric.not_applicable)]


def _as_list(given: Value | Iterable[Value]) -> list[Value]:
    return [given] if isinstance(given, Value) else list(given)


def _require_finite(values: list[Value]) -> list[Value]:
    """The values, or in their place a failure where one is no number."""
    if any(v.has_value and (v.value is None or not math.isfinite(v.value)) for v in values):
        return [Value(value=None, status="failed", reason="the result is not a finite number")]
    return values


def metric_rows(
    metric: Metric,
    ranks: Mapping[int, Sequence[Value]],
    policies: Mapping[int, str],
    told: Sequence[Value],
    *,
    asked: str,
    source: str | None,
) -> list[Row]:
    """The result rows of a metric: the run's own, its breakdowns, then the ranks' in the same order.

    `ranks` has each rank's values by `rank_rows`, `policies` its window policy, `told` the metric's values by
    `run_values`; `asked` is the window policy asked for, `source` the reader of the run's traces.  Of what is
    about windows, ranks of another policy than the run's are not combined.  The same input gives the same
    rows in the same order.
    """
    own = dict(sorted(ranks.items()))

    def of_run(window: str) -> list[Row]:
        return [_result_row(metric, v, v.rank, window, v.source or source) for v in _order_values(told)]

    if metric.per_run is not None:
        return of_run(max(policies.values(), key=POLICIES.index, default=asked))
    alike = _of_one_policy(own, policies) if "steps" in metric.inputs else own
    combined = _combine_ranks(metric, alike) if own else [NO_TRACE]
    if combined[0].status == "not_applicable" and (any(v.has_value for v in told) or (told and not own)):
        return of_run("trace")  # all of a log, or of a recording
    answered = [rank for rank, values in alike.items() if values[0].has_value]
    window = max((policies[rank] for rank in answered or own), key=POLICIES.index, default=asked)
    rows = [_result_row(metric, value, None, window, source) for value in _order_values(combined)]
    if metric.rank_rows:
        rows += [
            _result_row(metric, value, rank, policies[rank], source)
            for rank, values in own.items()
            for value in _order_values(values)
        ]
    return rows


def policy_of(policies: Iterable[str]) -> str | None:
    """The first of `POLICIES` that a rank has, which is the run's; None without any."""
    return min(policies, key=POLICIES.index, default=None)


def _of_one_policy(
    own: Mapping[int, Sequence[Value]], policies: Mapping[int, str]
) -> dict[int, Sequence[Value]]:
    """The ranks' values; of ranks whose windows are none of the run's the words that say so.

    The run's policy is that of its ranks that have a number.
    """
    policy = policy_of(policies[rank] for rank, values in own.items() if values[0].has_value)
    found = dict(own)
    for rank, values in own.items():
        if values[0].has_value and policy not in (None, policies[rank]):
            found[rank] = [
                no_value(f"its windows are {_WINDOWS[policies[rank]]}, the run's {_WINDOWS[policy]}")
            ]
    return found


def _combine_ranks(metric: Metric, own: Mapping[int, Sequence[Value]]) -> list[Value]:
    """The run's values, qualified by the ranks that have none; a rank that failed fails the run."""
    answered = {rank: values for rank, values in own.items() if values[0].has_value}
    told = {rank: values for rank, values in answered.items() if values[0].provenance != "modelled"}
    answered = told or answered  # what was measured is not averaged with what was modelled
    failed = {rank: values for rank, values in own.items() if values[0].status == "failed"}
    if failed:
        return [Value(value=None, status="failed", reason=_rank_reasons(failed, len(own)))]
    if not answered:
        return [no_value(_rank_reasons(own, len(own)))]
    try:
        with plugin_code(_origin(metric), NotApplicable):
            values = list(metric.combine(answered))
    except NotApplicable as why:
        return [no_value(str(why))]
    except PluginError as error:
        return [Value(value=None, status="failed", reason=error.what[:_LONGEST])]
    values = _require_finite(values) or [no_value(metric.not_applicable)]
    if len(answered) == len(own):
        return values
    silent = {rank: values for rank, values in own.items() if rank not in answered}
    missing = f"{len(silent)} of {len(own)} ranks left out: {_rank_reasons(silent, len(own))}"
    unknown = [values[0].coverage for values in silent.values() if values[0].coverage is not None]
    return [
        replace(
            v,
            reason=f"{v.reason}; {missing}" if v.reason else missing,
            coverage=_reduced_coverage(v.coverage, unknown, len(answered)) if unknown else v.coverage,
        )
        for v in values
    ]


def _reduced_coverage(own: Coverage | None, unknown: Sequence[Coverage], ranks: int) -> Coverage:
    """The coverage of a figure over `ranks` that lacks other ranks' unknown rows.

    Rows add up where all count them; otherwise, and where the own rows are all there, ranks are counted.
    """
    if own is not None and all(coverage.ns is not None for coverage in unknown):
        return reduce(add, unknown, own)
    return own if own is not None and not own.is_complete else Coverage(ranks, ranks + len(unknown))


def _rank_reasons(silent: Mapping[int, Sequence[Value]], of: int) -> str:
    """The ranks' reasons, each with its ranks unless it is every rank's."""
    reasons: dict[str, list[int]] = {}
    for rank, values in silent.items():
        reasons.setdefault(values[0].reason or "no reason given", []).append(rank)
    return "; ".join(
        reason if len(ranks) == of else f"{reason} (rank {group_id(tuple(ranks))})"
        for reason, ranks in reasons.items()
    )


def _order_values(values: Sequence[Value]) -> Iterator[Value]:
    """The value that spans everything first, then statistics, groups, collectives, categories, steps."""

    def order_key(value: Value) -> tuple[int, bool, int, str, str, str, str]:
        narrowed = (value.stat, value.collective, value.group, value.category)
        stat, collective, group, category = (word or "" for word in narrowed)
        of_rank = -1 if value.rank is None else value.rank
        return of_rank, value.step is not None, value.step or 0, stat, collective, group, category

    yield from sorted(values, key=order_key)


def _result_row(metric: Metric, value: Value, rank: int | None, window: str, source: str | None) -> Row:
    coverage = value.coverage if value.status == "partial" else None
    return Row(
        metric=metric.name,
        value=float(value.value) if value.has_value and value.value is not None else None,
        unit=value.unit or metric.unit,
        status=value.status,
        coverage=None if coverage is None else coverage.by_count,
        coverage_time=None if coverage is None else coverage.by_time,
        provenance=value.provenance if value.has_value else None,
        # Ranks say the same, each in a text of its own.
        reason=None if value.words is None else intern(value.words),
        better=metric.better,
        rank=rank,
        step=value.step,
        group=value.group,
        collective=value.collective,
        category=value.category,
        stat=value.stat,
        window=window,
        version=metric.version,
        source=value.source or source,
    )


def select_alias_rows(rows: Sequence[Row], alias: Alias) -> list[Row]:
    """The rows of the alias's metric that it asks for; a row that says so where there are none."""
    own = [row for row in rows if row.metric == alias.metric]
    if not alias.collectives or not any(row.has_value for row in own):
        return own
    kept = [row for row in own if row.collective in alias.collectives]
    if kept:
        return kept
    reason = f"{' or '.join(alias.collectives)}: no such collective of known size in the window"
    nothing = msgspec.structs.replace(
        own[0],
        value=None,
        status="not_applicable",
        provenance=None,
        reason=reason,
        collective=alias.collectives[0] if len(alias.collectives) == 1 else None,
    )
    return [nothing]


def with_caveat(rows: Sequence[Row], caveat: str | None) -> list[Row]:
    """The rows, those with a number that rests on process groups with the caveat after their reason.

    They are the rows of a group and all rows of metrics that have groups or matching among their inputs.
    """
    if caveat is None:
        return list(rows)
    return [
        row.noted(caveat)
        if row.value is not None and (row.group is not None or METRICS.get(row.metric).rests_on_groups)
        else row
        for row in rows
    ]


def with_lacking(rows: Sequence[Row], entries: Iterable[RankEntry]) -> list[Row]:
    """The rows, those with a number from the steps of ranks of which rows are wrong or missing as partial.

    The coverage is at most the share of the rows that are right: of the rank's, or of all ranks' together.
    A device that ran no kernel lacks all of them, however many they are.
    """
    counts: dict[int | None, _Lacking] = {
        one.rank: _Lacking(
            sum(one.implausible.values()),
            sum(one.missing.values()),
            int(ran_no_kernel(one.facts, one.rows)),
            sum(one.rows.values()),
        )
        for one in entries
    }
    whole = _Lacking(*(sum(numbers) for numbers in zip(*counts.values(), strict=True))) if counts else None
    if whole is None or not any(whole[:-1]):
        return list(rows)
    counts = {rank: own for rank, own in counts.items() if any(own[:-1])} | {None: whole}
    return [
        _partly_lacking(row, counts[row.rank])
        if row.has_value and row.rank in counts and "steps" in METRICS.get(row.metric).inputs
        else row
        for row in rows
    ]


class _Lacking(NamedTuple):
    """Of ranks: rows whose times cannot be true, missing rows, devices that ran no kernel, all rows."""

    implausible: int
    missing: int
    without_kernels: int
    rows: int


def _partly_lacking(row: Row, own: _Lacking) -> Row:
    words = {
        "rows of the traces have times that cannot be true": own.implausible,
        "kernels have a launch and no row": own.missing,
        "devices ran no kernel": own.without_kernels,
    }
    share = own.rows / (own.rows + own.implausible + own.missing)
    noted = row.noted("; ".join(f"{count:,} {what}" for what, count in words.items() if count))
    known = [one for one in (row.coverage, None if own.without_kernels else share) if one is not None]
    return msgspec.structs.replace(noted, status="partial", coverage=min(known, default=None))

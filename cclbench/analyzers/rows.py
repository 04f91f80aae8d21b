# SPDX-License-Identifier: Apache-2.0
"""From metrics to result rows: per-rank values, and the combination of ranks into `schema.RESULTS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from sys import intern
from typing import Final

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
from cclbench.record.rows import Row

_LONGEST: Final = 300
_WINDOWS: Final = {"steps": "steps", "annotations": "annotations of steps", "trace": "the whole trace"}
NO_TRACE: Final = no_value("the run has no trace")


def rank_rows(view: RankView, metrics: Sequence[Metric], *, model: bool = False) -> dict[str, list[Value]]:
    """The values of each metric for one rank, by name; a metric without a value has one that states why.

    With `model`, a metric that does not apply is modelled, where it has a stand-in.
    """
    values: dict[str, list[Value]] = {
        m.name: _metric_values(partial(m.per_rank, view), m) for m in metrics if m.per_rank is not None
    }
    for metric in metrics:
        if model and metric.name in STAND_INS and values[metric.name][0].status == "not_applicable":
            values[metric.name] = _modelled_values(view, metric, values[metric.name])
    graphs = _whole_graphs(view)
    if graphs is None:
        return values
    return {m.name: _less_graphs(m, values[m.name], graphs) for m in metrics if m.name in values}


def _whole_graphs(view: RankView) -> UnknownGraphs | None:
    try:
        return view.whole_graphs
    except NotApplicable:
        return None


def _less_graphs(metric: Metric, values: list[Value], graphs: UnknownGraphs) -> list[Value]:
    """A metric's values where the kernels inside CUDA graphs are unknown.

    A metric that lacks these kernels has no value where graphs are most of the time, else it is partial, as
    is one that counts graphs as compute.
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
            value,
            reason=f"{value.reason}; {graphs.unknown_reason}" if value.reason else graphs.unknown_reason,
            coverage=graphs.coverage if value.coverage is None else value.coverage + unknown,
        )
        if value.has_value
        else value
        for value in values
    ]


def _modelled_values(view: RankView, metric: Metric, lacking: list[Value]) -> list[Value]:
    """The stand-in's values; without any, the value that does not apply, with the stand-in's reason."""
    try:
        values = _as_list(STAND_INS[metric.name](view))
    except NotApplicable as why:
        reason = lacking[0].reason
        also = "" if str(why) == reason else f"; not modelled: {why}"
        return [replace(lacking[0], reason=f"{reason}{also}")]
    return [
        replace(
            value,
            provenance="modelled",
            reason=value.reason and f"modelled, since {metric.not_applicable}; {value.reason}",
        )
        for value in values
    ] or lacking


def run_values(view: RunView, metrics: Sequence[Metric]) -> dict[str, list[Value]]:
    """The values of metrics of the run, and of rank metrics from files other than traces, by name.

    A metric without a value has one that states why.
    """
    functions = {metric.name: metric.per_run or FROM_EVIDENCE.get(metric.name) for metric in metrics}
    return {
        metric.name: _metric_values(partial(function, view), metric)
        for metric in metrics
        if (function := functions[metric.name])
    }


def window_policy(view: RankView, default: str) -> str:
    """The window policy of the rank's values; `default` where it has no windows."""
    try:
        return view.windows.policy
    except NotApplicable:
        return default


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


def _as_list(result: Value | Iterable[Value]) -> list[Value]:
    """The values that a metric's function returned; `TypeError` for anything else."""
    values = list(result) if isinstance(result, Iterable) else [result]
    wrong = [type(value).__name__ for value in values if not isinstance(value, Value)]
    if wrong:
        raise TypeError(f"the function returns {wrong[0]}, not a Value")
    return values


def _require_finite(values: list[Value]) -> list[Value]:
    """The values, or a single failed one if any is not finite."""
    if any(value.has_value and (value.value is None or not math.isfinite(value.value)) for value in values):
        return [Value(value=None, status="failed", reason="the result is not a finite number")]
    return values


def metric_rows(
    metric: Metric,
    ranks: Mapping[int, Sequence[Value]],
    policies: Mapping[int, str],
    run_level: Sequence[Value],
    *,
    default_window: str,
    source: str | None,
) -> list[Row]:
    """Result rows of a metric: the run's value, its breakdowns, then the ranks' in the same order.

    `ranks`: each rank's values by `rank_rows`; `policies`: its window policy; `run_level`: the metric's
    values by `run_values`; `default_window`: the requested window policy; `source`: the reader of the run's
    traces. Ranks with another window policy than the run's are not combined, unless the metric does not
    depend on windows. The order of rows is deterministic.
    """
    by_rank = dict(sorted(ranks.items()))

    def run_rows(window: str) -> list[Row]:
        return [_result_row(metric, v, v.rank, window, v.source or source) for v in _order_values(run_level)]

    if metric.per_run is not None:
        return run_rows(max(policies.values(), key=POLICIES.index, default=default_window))
    alike = _same_policy_values(by_rank, policies) if "steps" in metric.inputs else by_rank
    combined = _combine_ranks(metric, alike) if by_rank else [NO_TRACE]
    if combined[0].status == "not_applicable" and (
        any(v.has_value for v in run_level) or (run_level and not by_rank)
    ):
        return run_rows("trace")  # all of a log, or of a recording
    answered = [rank for rank, values in alike.items() if values[0].has_value]
    window = max((policies[rank] for rank in answered or by_rank), key=POLICIES.index, default=default_window)
    rows = [_result_row(metric, value, None, window, source) for value in _order_values(combined)]
    if metric.rank_rows:
        rows += [
            _result_row(metric, value, rank, policies[rank], source)
            for rank, values in by_rank.items()
            for value in _order_values(values)
        ]
    return rows


def policy_of(policies: Iterable[str]) -> str | None:
    """The run's window policy: the first of `POLICIES` that a rank has; None without ranks."""
    return min(policies, key=POLICIES.index, default=None)


def _same_policy_values(
    by_rank: Mapping[int, Sequence[Value]], policies: Mapping[int, str]
) -> dict[int, Sequence[Value]]:
    """The ranks' values; those of ranks with other windows than the run's become not applicable.

    The run's policy is that of its ranks that have a value.
    """
    policy = policy_of(policies[rank] for rank, values in by_rank.items() if values[0].has_value)
    alike = dict(by_rank)
    for rank, values in by_rank.items():
        if values[0].has_value and policy not in (None, policies[rank]):
            alike[rank] = [
                no_value(f"its windows are {_WINDOWS[policies[rank]]}, the run's {_WINDOWS[policy]}")
            ]
    return alike


def _combine_ranks(metric: Metric, by_rank: Mapping[int, Sequence[Value]]) -> list[Value]:
    """The run's values, qualified by the ranks without one; a failed rank fails the run."""
    answered = {rank: values for rank, values in by_rank.items() if values[0].has_value}
    measured = {rank: values for rank, values in answered.items() if values[0].provenance != "modelled"}
    answered = measured or answered  # measured values are not averaged with modelled ones
    failed = {rank: values for rank, values in by_rank.items() if values[0].status == "failed"}
    if failed:
        return [Value(value=None, status="failed", reason=_rank_reasons(failed, len(by_rank)))]
    if not answered:
        return [no_value(_rank_reasons(by_rank, len(by_rank)))]
    try:
        with plugin_code(_origin(metric), NotApplicable):
            values = list(metric.combine(answered))
    except NotApplicable as why:
        return [no_value(str(why))]
    except PluginError as error:
        return [Value(value=None, status="failed", reason=error.what[:_LONGEST])]
    of_ranks = any(value.step is None for values in answered.values() for value in values)
    reason = metric.not_applicable if of_ranks else "only single steps have a value"
    values = _require_finite(values) or [no_value(reason)]
    if len(answered) == len(by_rank):
        return values
    silent = {rank: values for rank, values in by_rank.items() if rank not in answered}
    missing = f"{len(silent)} of {len(by_rank)} ranks left out: {_rank_reasons(silent, len(by_rank))}"
    unknown = [values[0].coverage for values in silent.values() if values[0].coverage is not None]
    return [
        replace(
            value,
            reason=f"{value.reason}; {missing}" if value.reason else missing,
            coverage=_reduced_coverage(value.coverage, unknown, len(answered)) if unknown else value.coverage,
        )
        for value in values
    ]


def _reduced_coverage(combined: Coverage | None, unknown: Sequence[Coverage], ranks: int) -> Coverage:
    """Coverage of a value over `ranks` ranks that lacks other ranks' unknown rows.

    Rows add up where all ranks count them; else, if no own row is missing, ranks are counted.
    """
    if combined is not None and all(coverage.ns is not None for coverage in unknown):
        return reduce(add, unknown, combined)
    if combined is not None and not combined.is_complete:
        return combined
    return Coverage(ranks, ranks + len(unknown))


def _rank_reasons(silent: Mapping[int, Sequence[Value]], ranks_in_all: int) -> str:
    """The ranks' reasons, each with its ranks unless all share it."""
    reasons: dict[str, list[int]] = {}
    for rank, values in silent.items():
        reasons.setdefault(values[0].reason or "no reason given", []).append(rank)
    return "; ".join(
        reason if len(ranks) == ranks_in_all else f"{reason} (rank {group_id(tuple(ranks))})"
        for reason, ranks in reasons.items()
    )


def _order_values(values: Sequence[Value]) -> Iterator[Value]:
    """The overall value first, then by stat, collective, group, category and step."""

    def order_key(value: Value) -> tuple[int, bool, int, str, str, str, str]:
        return (
            -1 if value.rank is None else value.rank,
            value.step is not None,
            value.step or 0,
            value.stat or "",
            value.collective or "",
            value.group or "",
            value.category or "",
        )

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
        # equal texts of ranks share memory
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
    """The rows of its metric that the alias selects; one that states why where there are none."""
    of_metric = [row for row in rows if row.metric == alias.metric]
    if not alias.collectives or not any(row.has_value for row in of_metric):
        return of_metric
    selected = [row for row in of_metric if row.collective in alias.collectives]
    if selected:
        return selected
    reason = f"{' or '.join(alias.collectives)}: no such collective of known size in the window"
    nothing = msgspec.structs.replace(
        of_metric[0],
        value=None,
        status="not_applicable",
        provenance=None,
        reason=reason,
        collective=alias.collectives[0] if len(alias.collectives) == 1 else None,
    )
    return [nothing]


def with_caveat(rows: Sequence[Row], caveat: str | None) -> list[Row]:
    """The rows, with the caveat added to the reason of values that depend on process groups.

    These are rows of a group, and all rows of metrics with groups or matching as input.
    """
    if caveat is None:
        return list(rows)
    return [
        row.noted(caveat)
        if row.value is not None and (row.group is not None or METRICS.get(row.metric).rests_on_groups)
        else row
        for row in rows
    ]

# SPDX-License-Identifier: Apache-2.0
"""What metrics say of hand-made ranks, to be compared with what was worked out on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from cclbench.analyzers.metric import METRICS, Value
from cclbench.analyzers.rows import metric_rows, rank_rows, window_policy
from cclbench.analyzers.view.rank_view import RankView
from cclbench.record.rows import builtins


def values(view: RankView, metric: str) -> list[Value]:
    """What the metric says of one rank, reasons included."""
    return rank_rows(view, [METRICS.get(metric)])[metric]


def main(view: RankView, metric: str, status: str = "ok") -> float | None:
    """The rank's own value, in the metric's unit; fails where its status is another."""
    first = values(view, metric)[0]
    assert first.status == status, first.reason
    assert first.key == (None,) * 5
    return first.value


def reason(view: RankView, metric: str) -> str:
    """Why the metric does not apply; fails where it does."""
    (only,) = values(view, metric)
    assert only.status == "not_applicable"
    assert only.value is None
    return only.reason or ""


def told(found: Iterable[Any]) -> dict[Any, float | None]:
    """Values or rows by what each is about: None of the whole, else that one thing or a tuple of several."""
    columns = ("step", "collective", "group", "category", "stat")
    made: dict[Any, float | None] = {}
    for one in found:
        get = one.get if isinstance(one, dict) else partial(getattr, one)
        about = tuple(part for part in (get(column) for column in columns) if part is not None)
        key = (about[0] if len(about) == 1 else about) if about else None
        assert key not in made, key
        made[key] = get("value")
    return made


def in_ns(found: Mapping[Any, float | None]) -> dict[Any, float | None]:
    """The same in ns, where there is a number."""
    return {about: None if seconds is None else seconds * 1e9 for about, seconds in found.items()}


def parts(view: RankView, metric: str) -> dict[Any, float | None]:
    """What the metric says of one rank, by what it is about."""
    return told(values(view, metric))


def run_parts(metric: str, *views: RankView) -> dict[Any, float | None]:
    """What the metric says of the run of those ranks, by what it is about."""
    return told(row for row in rows_of(metric, *views) if row["rank"] is None)


def rows_of(metric: str, *views: RankView) -> list[dict[str, Any]]:
    """The result rows of the metric over those ranks."""
    chosen = METRICS.get(metric)
    ranks = {view.rank: rank_rows(view, [chosen])[metric] for view in views}
    policies = {view.rank: window_policy(view, "steps") for view in views}
    return builtins(metric_rows(chosen, ranks, policies, [], default_window="steps", source="kineto"))

# SPDX-License-Identifier: Apache-2.0
"""Roles of a reinforcement-learning job, such as sampler and trainer: when each is active, and when none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from statistics import fmean
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, run_metric
from cclbench.analyzers.view.columns import has_values, with_words
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals

NO_ROLES: Final = "needs utilisation over time of two or more roles of a job, a file for each"
_SOURCE: Final = "tpu_duty_cycle"


@run_metric(
    "rl.active",
    definition="Share of time in which a role of a job is active, the mean over roles; by category for each"
    " role, with stat utilization: its devices' mean utilisation while it is. A role is active from a sample"
    " in which a device of it is busy to the next one. Categories all and none: shares of the time that"
    " all files cover in which all roles are active, or none is; in the rest roles wait for others.",
    formula="|active| / |time of the role's samples|",
    unit="1",
    better="higher",
    inputs=("counters",),
    not_applicable=NO_ROLES,
)
def active(run: RunView) -> Iterator[Value]:
    """Activity of roles."""
    roles = _roles(run)
    if len(roles) < 2:
        raise NotApplicable(NO_ROLES)
    shares = {role: active.length / (times[-1] - times[0]) for role, (times, active, _) in roles.items()}
    names = f"roles {', '.join(roles)}"
    yield Value(value=fmean(shares.values()), reason=names, provenance="derived", source=_SOURCE)
    for role, share in shares.items():
        yield Value(value=share, category=role, provenance="derived", source=_SOURCE)
        busy = roles[role][2]
        if busy is not None:
            yield Value(value=busy, category=role, stat="utilization", source=_SOURCE)
    begin = max(int(times[0]) for times, _, _ in roles.values())
    end = min(int(times[-1]) for times, _, _ in roles.values())
    if begin < end:
        spans = [intervals.clipped(active, begin, end) for _, active, _ in roles.values()]
        together = reduce(intervals.intersect, spans).length / (end - begin)
        neither = 1 - intervals.join(*spans).length / (end - begin)
        for category, share in (("all", together), ("none", neither)):
            yield Value(value=share, category=category, provenance="derived", source=_SOURCE)


def _roles(run: RunView) -> Mapping[str, tuple[Int64, Intervals, float | None]]:
    """Of each role the moments of its samples, when it is active, and the mean utilisation while it is."""
    samples = with_words(run.table("counters"), "counter", ("gpu_utilization",))
    roles = {}
    for file, facts in sorted(run.settings.items()):
        role = facts.get("role")
        file_samples = with_words(samples, "file", (file,))
        moments = (
            file_samples["start_ns"].to_numpy()
            if len(file_samples) and has_values(file_samples, "start_ns").all()
            else ()
        )
        if not isinstance(role, str) or len(moments) < 2:
            continue
        times, sample = np.unique(moments, return_inverse=True)
        values = file_samples["value"].to_numpy()
        busy = np.zeros(len(times), np.bool_)
        np.logical_or.at(busy, sample, values > 0)
        mean = float(values[busy[sample]].mean()) if busy.any() else None
        if len(times) > 1:
            roles[role] = times, intervals.union(times[:-1][busy[:-1]], times[1:][busy[:-1]]), mean
    return roles

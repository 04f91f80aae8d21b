# SPDX-License-Identifier: Apache-2.0
"""Published step times that are of profiled steps, by the logs of the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.record.published import metadata_count
from cclbench.studies.claims.claim import complete_value, equal_work, group_items

_STEP, _LOGGED = metric_name("time.step"), metric_name("log.step")
_SAME_STEP: Final = 0.01
"""Relative difference up to which a trace and a log time the same step."""


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A published run, and the log of its job."""

    run: ComparisonSubject
    log: ComparisonSubject
    step: int
    """The profiled step that was published."""
    logged_s: float
    """That step's time by the log, s."""
    median_s: float
    """Median of the log's steps, s."""

    @property
    def overhead(self) -> float:
        """Published step over the log's median."""
        return (complete_value(self.run, _STEP) or 0) / self.median_s


def logged_jobs(published: Sequence[ComparisonSubject], runs: Sequence[ComparisonSubject]) -> list[LoggedJob]:
    """The published runs whose job's log is in the store.

    A log is of the same job if framework, devices, layout, batch and sequence length agree, and if it marks
    a step as profiled whose time is the published one.
    """
    logs = [(run, facts) for run in runs if not run.is_published and (facts := _log_facts(run))]
    return [
        job
        for run in published
        for log, facts in logs
        if _is_same_job(run, facts) and (job := _logged_job(run, log)) is not None
    ]


def _log_facts(run: ComparisonSubject) -> Mapping[str, Any]:
    """What the only job log of a run states once; empty if it has none or several."""
    logs = [file.facts for file in run.stored.record.evidence if file.reader == "job_log"]
    return logs[0] if len(logs) == 1 and complete_value(run, _LOGGED) else {}


def _is_same_job(run: ComparisonSubject, facts: Mapping[str, Any]) -> bool:
    published = run.metadata
    shards, replicas = (metadata_count(published, name) for name in ("dp_shard", "dp_replicate"))
    stated = {
        "devices": run.workload.devices,
        "global_batch": run.workload.batch,
        "sequence_length": run.workload.sequence_length,
        "tensor_parallel": published.get("tp"),
        "pipeline_parallel": published.get("pp"),
        "data_parallel": shards and replicas and shards * replicas,
    }
    framework, producer = run.workload.framework or "", facts.get("producer")
    return (
        isinstance(producer, str)
        and framework.casefold().startswith(producer.casefold())
        and all(value is not None and facts.get(name) == value for name, value in stated.items())
    )


def _logged_job(run: ComparisonSubject, log: ComparisonSubject) -> LoggedJob | None:
    published, median = complete_value(run, _STEP) or 0, complete_value(log, _LOGGED) or 0
    profiled = {
        row["step"]: row["value"]
        for row in log.results.metric_rows(_LOGGED).to_pylist()
        if row["category"] == "profiled" and row["step"] is not None and row["value"] is not None
    }
    step = min(profiled, key=lambda step: abs(profiled[step] - published), default=None)
    if step is None or abs(profiled[step] - published) > _SAME_STEP * published:
        return None
    return LoggedJob(run, log, step, profiled[step], median)


def log_contests(
    jobs: Sequence[LoggedJob], line: Callable[[ComparisonSubject, str, float], dict[str, Any]]
) -> Iterator[list[dict[str, Any]]]:
    """Jobs of equal work by the median steps of their logs, shortest first."""
    for alike in group_items(jobs, lambda job: equal_work(job.run)).values():
        order = sorted(alike, key=lambda job: job.median_s)
        yield [
            _logged_line(
                job,
                line(job.run, "equal work, median step of the job's log", job.median_s / order[0].median_s),
            )
            for job in order
        ]


def _logged_line(job: LoggedJob, line: dict[str, Any]) -> dict[str, Any]:
    work = job.run.workload
    tokens = (work.batch or 0) * (work.sequence_length or 0) / (job.median_s * (work.devices or 1))
    return line | {"step_s": job.median_s, "tokens_per_s_per_device": tokens, "run": job.log.id}


def log_caveats(jobs: Sequence[LoggedJob]) -> Iterator[str]:
    """Published steps that are profiled ones, by job."""
    if jobs:
        yield (
            "published step times come from traces, so they are of profiled steps; what the profiler adds is"
            f" known of the {len(jobs)} with a log:"
        )
    for job in jobs:
        yield (
            f"published {complete_value(job.run, _STEP):.3f} s of {job.run.workload.framework},"
            f" {job.run.workload.plan}, is profiled iteration {job.step} ({job.logged_s:.3f} s in the job's"
            f" log); the log's median is {job.median_s:.3f} s, so the published step is"
            f" {humanise(job.overhead, 'ratio')} as long"
        )

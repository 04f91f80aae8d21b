# SPDX-License-Identifier: Apache-2.0
"""Metrics in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cclbench.record.metric_name import metric_names
from cclbench.record.rows import Row

TOPICS: Final = {
    "time": "Time: where a step goes",
    "throughput": "Throughput",
    "scaling": "Scaling",
    "compute": "Compute",
    "launch": "Launches",
    "memory": "Memory",
    "comm": "Communication",
    "overlap": "Overlap",
    "balance": "Balance",
    "log": "Steps by the job's log",
    "goodput": "Goodput",
    "serving": "Serving",
    "requests": "Requests of a trace",
    "data": "Data loading",
    "storage": "Storage",
    "rl": "Reinforcement learning",
    "agent": "Agents",
    "energy": "Energy",
    "cost": "Cost",
    "whatif": "Under other hardware",
}
"""Headings by the part of a metric's name before the dot."""

_FIRST: Final = metric_names(
    "time.step",
    "time.compute_only",
    "time.graph_only",
    "time.overlapped",
    "time.exposed_comm",
    "time.exposed_wait",
    "time.exposed_transfer",
    "time.exposed_unmatched",
    "time.exposed_copy",
    "time.idle",
)

KEY_METRICS: Final = metric_names(
    "serving.ttft",
    "serving.tpot",
    "serving.output_throughput",
    "serving.iteration",
    "time.step",
    "throughput.tokens_per_device",
    "throughput.samples",
    "compute.mfu",
    "memory.mbu",
    "time.graph_only",
    "compute.busy",
    "compute.achieved_flops",
    "compute.gemm_efficiency",
    "compute.roofline_efficiency",
    "memory.hbm_utilization",
    "overlap.ratio",
    "comm.bandwidth_utilization",
    "comm.busbw",
    "balance.load_imbalance",
    "overlap.pipeline_bubble",
    "memory.peak_allocated",
    "compute.kernel_count",
    "comm.volume",
    "launch.queue_length",
)
"""Key figures by importance; the first ones that a run has are shown."""
_MOST_KEY_ROWS: Final = 10
PARTS_FIRST: Final = metric_names("memory.copy_bandwidth")
"""Metrics whose parts differ so much that they are shown before the total."""


ZERO_TELLS: Final = metric_names("compute.busy", "overlap.ratio", "comm.bandwidth_utilization")
"""Shares that are an answer even if they are 0."""
LEAST_SHARE: Final = 0.001


def key_rows(rows: Sequence[Row]) -> list[Row]:
    """The ten most important figures of a run, without zeros and shares too small to mean anything."""
    by_metric = {row.metric: row for row in rows if row.rank is None and not row.narrowed and row.has_value}
    key_figures = [by_metric[metric] for metric in KEY_METRICS if metric in by_metric]
    return [row for row in key_figures if row.metric in ZERO_TELLS or _is_notable(row)][:_MOST_KEY_ROWS]


def _is_notable(row: Row) -> bool:
    return row.number >= LEAST_SHARE if row.unit == "1" else row.number != 0


def topic_of(metric: str) -> str:
    """The heading of a metric."""
    topic = metric.partition(".")[0]
    return TOPICS.get(topic, topic)


def metric_order(metric: str) -> tuple[int, int, str]:
    """Sort key: by topic; within time, the total before its parts; else by name."""
    topics = list(TOPICS)
    topic = metric.partition(".")[0]
    return (
        topics.index(topic) if topic in TOPICS else len(topics),
        _FIRST.index(metric) if metric in _FIRST else len(_FIRST),
        metric,
    )

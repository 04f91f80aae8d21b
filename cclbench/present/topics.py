# SPDX-License-Identifier: Apache-2.0
"""Metrics in the order in which a person reads them."""

from __future__ import annotations

from typing import Final

TOPICS: Final = {
    "time": "Time: where a step goes",
    "throughput": "Throughput",
    "compute": "Compute",
    "launch": "Launches",
    "memory": "Memory",
    "comm": "Communication",
    "overlap": "Overlap",
    "balance": "Balance",
    "serving": "Serving",
    "data": "Data loading",
    "whatif": "Under other hardware",
}
"""The part of a metric's name before the dot, and its heading."""

_FIRST: Final = (
    "time.step",
    "time.compute_only",
    "time.overlapped",
    "time.exposed_comm",
    "time.exposed_wait",
    "time.exposed_transfer",
    "time.exposed_unmatched",
    "time.exposed_copy",
    "time.idle",
)


def topic_of(metric: str) -> str:
    """The heading a metric stands under."""
    topic = metric.partition(".")[0]
    return TOPICS.get(topic, topic)


def place(metric: str) -> tuple[int, int, str]:
    """Topics as listed; in time first the whole, then its parts; else by name."""
    topics = list(TOPICS)
    topic = metric.partition(".")[0]
    return (
        topics.index(topic) if topic in TOPICS else len(topics),
        _FIRST.index(metric) if metric in _FIRST else len(_FIRST),
        metric,
    )

# SPDX-License-Identifier: Apache-2.0
"""First screens of storage, calls for files, agents and roles, on real evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from cclbench.api import run
from cclbench.record.selection import Selection
from cclbench.results import full_results
from cclbench.source_summaries import source_summaries

SENTENCES = {
    "mlperf_storage": (
        "storage",
        ["Training: accelerators compute 93.6 % of the time, 708.9 samples/s, 104 GB/s."],
    ),
    "dlio/tests/test_data/iostat.json": (
        "stores",
        [  # Σ r/s · r_await / Σ r/s = 484.6 µs; 1,109,166,964 B/s in the mean of 131 reports
            "flush: 0.3965 operations/s, 7.05 ms each.",
            "read: 1.11 GB/s, 9,245 operations/s, 485 µs each.",
            "trim: 0 B/s, 0 operations/s.",
            "write: 5.42 MB/s, 276.7 operations/s, 1.40 ms each.",
            "all: with a request 75.1 % of the time.",
        ],
    ),
    "dftracer/examples": (
        "io_calls",
        [
            "37,495 calls of 6 processes: 1.72 s in calls for files, 1.2 % of their time.",
            "Read: 1,735 calls, 35.6 ms, 362 kB, 10.2 MB/s.",
            "Write: 14,661 calls, 390 ms, 91.5 MB, 235 MB/s.",
            "Metadata: 21,099 calls, 1.56 s.",
        ],
    ),
    "agent_tools": (
        "agents",
        [
            "2 sessions, 19 rounds, 19 calls of tools: 263 s, model 52.9 %, tools 30.1 %, neither 17.0 %.",
            "A cache of tool results saves 79.0 s at most.",
        ],
    ),
    "rl_tpu": (
        "roles",
        [
            "sampler_a is active 56.2 % of the time; trainer_a is active 39.5 % of the time;"
            " all at once 0.23 %, none 4.5 %."
        ],
    ),
}


@pytest.mark.parametrize("source", SENTENCES)
def test_a_source_says_what_it_is_about_first(test_data: Path, evidence_store: Path, source: str) -> None:
    read = run(test_data / source, store=evidence_store)
    first = source_summaries(read, full_results(read, Selection()))[0]
    assert (first.kind, first.sentences) == SENTENCES[source]
    assert all(len(row) == len(table.columns) for table in first.tables for row in table.rows)

# SPDX-License-Identifier: Apache-2.0
"""The kinds of sources without device steps."""

from __future__ import annotations

from typing import Final

from cclbench.source_summaries.agents import summarise_agents
from cclbench.source_summaries.counters import summarise_counters
from cclbench.source_summaries.inspector import summarise_inspector
from cclbench.source_summaries.job_logs import summarise_job_logs
from cclbench.source_summaries.libraries import summarise_libraries
from cclbench.source_summaries.logged_calls import summarise_calls
from cclbench.source_summaries.rl_steps import summarise_rl_steps
from cclbench.source_summaries.roles import summarise_roles
from cclbench.source_summaries.served_apart import summarise_served_apart
from cclbench.source_summaries.server_metrics import summarise_server_metrics
from cclbench.source_summaries.serving import summarise_serving
from cclbench.source_summaries.snapshots import summarise_snapshots
from cclbench.source_summaries.stated_parts import summarise_stated_parts
from cclbench.source_summaries.step_times import summarise_step_times
from cclbench.source_summaries.storage import summarise_io_calls, summarise_storage, summarise_stores
from cclbench.source_summaries.summary import Summarise
from cclbench.source_summaries.sweeps import summarise_sweeps

KINDS: Final[tuple[Summarise, ...]] = (
    summarise_storage,
    summarise_stores,
    summarise_io_calls,
    summarise_agents,
    summarise_roles,
    summarise_rl_steps,
    summarise_job_logs,
    summarise_stated_parts,
    summarise_step_times,
    summarise_sweeps,
    summarise_served_apart,
    summarise_serving,
    summarise_server_metrics,
    summarise_snapshots,
    summarise_calls,
    summarise_inspector,
    summarise_libraries,
    summarise_counters,
)
"""Kinds of sources without device steps, in the order in which a run of several is summarised."""

# SPDX-License-Identifier: Apache-2.0
"""What sources without device steps say: sweeps, logs, counters, memory snapshots, serving benchmarks.

`source_summaries` is where the kind of a source decides what its first screen and its page show.  A kind is
one function of one file, listed in `kinds.KINDS`.
"""

from __future__ import annotations

from typing import Final

from cclbench.analyzers.view.run_view import RunView
from cclbench.machine import machine_of
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results
from cclbench.record.run import Run
from cclbench.source_summaries.summary import SourceSummary, SummaryInputs

_STEP: Final = metric_name("time.step")


def source_summaries(run: Run, results: Results) -> list[SourceSummary]:
    """Summaries of a run without device steps, by kind; empty for one whose traces have a step time.

    `results`: the run's rows, which the summaries of logs are made of.
    """
    step = results.run.get(_STEP)
    if run.record.published is not None or (run.ranks and (step is None or step.has_value)):
        return []
    from cclbench.source_summaries.kinds import KINDS  # few runs need them

    view = RunView(
        run,
        card=run.card,
        machine=machine_of(run),
        settings={file.name: file.facts for file in run.record.evidence},
    )
    inputs = SummaryInputs(run, view, results)
    return [summary for summarise in KINDS for summary in summarise(inputs)]

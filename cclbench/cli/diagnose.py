# SPDX-License-Identifier: Apache-2.0
"""`cclbench diagnose`: the causes that make a run slow."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import options


@click.command()
@options.run
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show only the first N findings.")
@click.option(
    "--fail-on",
    "limits",
    metavar="NAME>SHARE",
    multiple=True,
    help="Exit with 1 if fixing a finding may gain more than this share of the step, such as host_bound>20%"
    " or any>5%; repeatable.",
)
@options.window
@options.steps
@options.ranks
@options.opening
@options.brief
@options.page
def diagnose(
    run: str,
    form: str,
    verbosity: int,
    opening: dict[str, Any],
    top: int | None,
    limits: tuple[str, ...],
    **arguments: Any,
) -> None:
    """Find what makes a run slow, what fixing it would gain, and what to try.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. Findings are derived from the run's
    results; each has a claim, evidence, bounds on the step time it would gain, a confidence, and a SQL query
    for the events behind it. They are ranked by the middle of the bounds; gains below 1 % of the step are
    left out. `cclbench list findings` lists all causes that are checked.

    \b
    Examples:
      cclbench diagnose traces/my-job
      cclbench diagnose my-job-3f2a91c0 --top 3 --json
      cclbench diagnose my-job-3f2a91c0 --fail-on 'host_bound>20%'
    """
    from cclbench.api import metrics
    from cclbench.findings.diagnosis import GainLimit, diagnose_run
    from cclbench.ground.errors import CheckFailed
    from cclbench.present.terminal.findings import COLUMNS, findings_page
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.run import document_head
    from cclbench.source_summaries import source_summaries
    from cclbench.source_summaries.summary import summary_document

    gain_limits = [GainLimit.from_text(text) for text in limits]
    with progress_bar(verbosity) as bars:
        computed = metrics(run, progress=bars, **opening, **arguments)
    diagnosis, summaries = diagnose_run(computed), source_summaries(computed, computed.figures)
    emit_answer(
        form,
        document={
            **document_head(computed.record, computed.figures, computed.window, schema="findings.v1"),
            **({"unknown": diagnosis.unknown} if diagnosis.unknown else {}),
            **({"summaries": list(map(summary_document, summaries))} if summaries else {}),
            "findings": diagnosis.top_rows(top),
        },
        rows=diagnosis.top_rows(top),
        columns=COLUMNS,
        table=lambda: findings_page(diagnosis, top, summaries),
    )
    if gain_limits and diagnosis.unknown:
        raise CheckFailed(f"no findings: {diagnosis.unknown}")
    exceeded = [text for limit in gain_limits for text in limit.broken_limits(diagnosis.findings)]
    if exceeded:
        raise CheckFailed("; ".join(exceeded))

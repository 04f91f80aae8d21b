# SPDX-License-Identifier: Apache-2.0
"""`cclbench diagnose`: what makes a run slow."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import options


@click.command()
@options.run
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N findings.")
@click.option(
    "--fail-on",
    "limits",
    metavar="NAME>SHARE",
    multiple=True,
    help="Exit with 1 if a finding may gain more of the step than that, such as host_bound>20%, or any>5%;"
    " repeatable.",
)
@options.window
@options.steps
@options.ranks
@options.opening
@options.page
def diagnose(
    run: str,
    form: str,
    verbosity: int,
    opening: dict[str, Any],
    top: int | None,
    limits: tuple[str, ...],
    **wishes: Any,
) -> None:
    """Find what makes a run slow, what it would gain, and what to try.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. Findings follow from the run's result
    rows; each has a claim, its evidence, a bound on what a step would gain without it, how sure that is, and
    SQL that lists the events behind it. They are ranked by the middle of that bound; what gains less than 1 %
    of the step is left out. `cclbench list findings` names what is looked for.

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

    asked = [GainLimit.from_text(text) for text in limits]
    with progress_bar(verbosity) as bars:
        computed = metrics(run, progress=bars, **opening, **wishes)
    found = diagnose_run(computed)
    emit_answer(
        form,
        document={
            **document_head(computed.record, computed.figures, computed.window, schema="findings.v1"),
            **({"unknown": found.unknown} if found.unknown else {}),
            "findings": found.top_rows(top),
        },
        rows=found.top_rows(top),
        columns=COLUMNS,
        table=lambda: findings_page(found, top),
    )
    if asked and found.unknown:
        raise CheckFailed(f"nothing can be said of the run's step: {found.unknown}")
    broken = [told for limit in asked for told in limit.broken_limits(found.findings)]
    if broken:
        raise CheckFailed("; ".join(broken))

# SPDX-License-Identifier: Apache-2.0
"""`cclbench selfcheck`: consistency checks of the results of your own traces."""

from __future__ import annotations

import click

from cclbench.cli import options


@click.command()
@click.argument("source", metavar="SOURCE")
@options.ingest
@options.page
def selfcheck(
    source: str,
    allow_truncated: bool,
    step_annotation: str | None,
    inference: bool,
    form: str,
    verbosity: int,
) -> None:
    """Check that the results of your own traces are consistent.

    The true values of a trace are unknown, but the relations between them are known. Agreements: the parts of
    a step add up to its length, times equal those from an independent count of the rows, the replay of the
    unchanged run reproduces it, and the what-if of each finding lies within its bounds. Relations: the traces
    are read again with a change (a day later, twice as slow, rows reordered or repeated, ranks renumbered,
    one left out, a device added that only sets memory), and each value must change as its definition says.

    Exits with 1 if a check fails. Each of some eleven changes reads all traces again, in this process;
    nothing is stored.

    \b
    Examples:
      cclbench selfcheck traces/my-job
      cclbench selfcheck rank0.json.gz --json
    """
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.selfcheck import selfcheck_page
    from cclbench.record.manifest import Options
    from cclbench.selfcheck import as_document, check_source, require_passed
    from cclbench.selfcheck.outcome import COLUMNS

    reading = Options(allow_truncated, step_annotation, inference)
    with progress_bar(verbosity) as bars:
        outcome = check_source(source, options=reading, progress=bars)
    document = as_document(outcome)
    emit_answer(
        form,
        document=document,
        rows=document["checks"],
        columns=COLUMNS,
        table=lambda: selfcheck_page(outcome, verbosity=verbosity),
    )
    require_passed(outcome)

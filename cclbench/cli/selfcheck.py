# SPDX-License-Identifier: Apache-2.0
"""`cclbench selfcheck`: figures of anybody's own traces, held against themselves."""

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
    """Check figures of your own traces against themselves.

    No true figure of a trace is known, but how figures hang together is. Agreements: the parts of a step are
    its length, times are what a count of the rows gives, the replay of the unchanged run is the run, and the
    what-if of each finding lies within its bounds. Relations: the traces are read once more with a change (a
    day later, twice as slow, rows in another order or twice, ranks renumbered, one left out, a device added
    that only sets memory), and each figure has to change as its definition says, and not otherwise.

    Exit code 1 where a check does not hold. Each of some eleven changes reads all traces again, in this
    process; nothing is stored.

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

    wishes = Options(allow_truncated, step_annotation, inference)
    with progress_bar(verbosity) as bars:
        found = check_source(source, options=wishes, progress=bars)
    told = as_document(found)
    emit_answer(
        form,
        document=told,
        rows=told["checks"],
        columns=COLUMNS,
        table=lambda: selfcheck_page(found, verbosity=verbosity),
    )
    require_passed(found)

# SPDX-License-Identifier: Apache-2.0
"""`cclbench compare`: who is faster, by how much, and why; the regression gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say


@click.command()
@click.argument("runs", metavar="A B [C]...", nargs=-1, required=True, shell_complete=options.run_ids)
@options.file("-o", "--output", help="Also write the comparison to this .html, .md or .json file.")
@click.option(
    "--fail-on",
    "fail_on",
    metavar="EXPR",
    multiple=True,
    help="Exit with 1 where METRIC OP VALUE holds of B, such as 'time.step > +5%'; repeatable.",
)
@options.metric
@options.window
@options.model
@options.opening
@options.page
def compare(runs: tuple[str, ...], output: Path | None, form: str, verbosity: int, **wishes: Any) -> None:
    """Compare runs: who is faster, by how much, and why.

    A, B, ... are ids of runs (`cclbench list runs`) or any SOURCE that `cclbench run` takes; each is set
    against the first. Unequal work is said, and ranked by tokens per second and device.

    \b
    EXPR is METRIC OP VALUE; OP is > < >= or <=. VALUE with a sign is a change
    against A (+5%, -2%, +3 ms), without one a figure (800 ms, 100 GB/s, 0.4).
    A figure that is missing fails. A part of a metric is chosen in brackets:
      comm.busbw[collective=all_reduce] < -10%      time.step[stat=p95] > +5%

    \b
    Examples:
      cclbench compare before/ after/
      cclbench compare run-a run-b run-c -o comparison.html
      cclbench compare main-1f0c pr-77ab --fail-on 'time.step > +5%' --format md
    """
    from cclbench.comparison.build import compare as build
    from cclbench.comparison.document import COLUMNS, document, rows
    from cclbench.comparison.gate import require
    from cclbench.present.comparison_file import check_file, write
    from cclbench.present.markdown import markdown
    from cclbench.present.terminal.comparison import page
    from cclbench.present.terminal.output import emit, progress, writes_unicode

    if output is not None:
        check_file(output)
    with progress(verbosity) as bars:
        found = build(*runs, progress=bars, **wishes)
    if form == "md":
        click.echo(markdown(found), nl=False)
    else:
        emit(
            form,
            document=document(found) if form == "json" else {},
            rows=list(rows(found)),
            columns=COLUMNS,
            table=lambda: page(found, verbosity=verbosity, unicode=writes_unicode()),
        )
    if output is not None:
        write(found, output)
        say(f"wrote {output}")
    require(found.checks)

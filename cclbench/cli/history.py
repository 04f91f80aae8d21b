# SPDX-License-Identifier: Apache-2.0
"""`cclbench history`: a figure over a job's runs in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import completion, options


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=completion.run_ids)
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    shell_complete=completion.metric_names,
    help="Figure to follow, such as time.step[stat=p95]; repeatable.  [default: time.step, else log.step]",
)
@click.option(
    "--last",
    type=click.IntRange(min=3),
    default=10,
    show_default=True,
    metavar="N",
    help="Comparable runs that --fail-on compares the newest with.",
)
@click.option(
    "--fail-on",
    "fail_on",
    metavar="EXPR",
    multiple=True,
    shell_complete=completion.metric_names,
    help="Exit with 1 if METRIC OP VALUE holds for the newest run, such as 'time.step > +5%'; repeatable.",
)
@options.file("--plot", help="Also plot the history to this .png, .svg or .pdf file.")
@options.opening
@options.brief
@options.page
def history(
    runs: tuple[str, ...],
    plot: Path | None,
    form: str,
    verbosity: int,
    opening: dict[str, Any],
    **arguments: Any,
) -> None:
    """Show a figure over a job's runs in time: its changes of level, and what else changed then.

    RUN is the id of a run, any SOURCE that `cclbench run` takes, or a quoted pattern of these; without one,
    all runs of the store. Runs are ordered by date: that of --label date=..., else that of their traces, else
    that of reading them.

    A change of level is a regression or an improvement by the metric's better direction, unless the runs on
    both sides differ in work, hardware or method (window, kind of trace, version of the metric). It must
    exceed the noise between runs; for that, 10 runs are needed, 3 of them since the change. Where a
    steady slope describes the runs better than levels do, that drift and its first run are stated instead.

    --fail-on compares the newest run with the mean of the last N runs of the same hardware and method. Exit
    code 1: it is worse, by its whole 95 % interval; 5: it cannot be judged.

    \b
    Examples:
      cclbench run traces/tonight --label commit=1f0c9ab --label driver=580.82
      cclbench history 'nightly-*'
      cclbench history 'nightly-*' --metric throughput.tokens --plot history.png
      cclbench history 'nightly-*' --fail-on 'time.step > +3%' --last 20
    """
    from cclbench.comparison.gate import require_passed
    from cclbench.comparison.history import history as follow
    from cclbench.comparison.history_document import COLUMNS, history_document, history_rows
    from cclbench.present.picture import check_picture, save_picture
    from cclbench.present.terminal.history import history_page
    from cclbench.present.terminal.output import emit_answer, progress_bar, writes_unicode
    from cclbench.present.terminal.streams import say_on_stderr

    if plot is not None:
        check_picture(plot)
    with progress_bar(verbosity) as bars:
        histories, checks = follow(*runs, progress=bars, **opening, **arguments)
    emit_answer(
        form,
        document=history_document(histories, checks),
        rows=[row for figure_history in histories for row in history_rows(figure_history)],
        columns=COLUMNS,
        table=lambda: history_page(histories, checks, verbosity=verbosity, unicode=writes_unicode()),
    )
    if plot is not None:
        from cclbench.present.history_picture import draw_history

        save_picture(lambda: draw_history(histories), plot)
        say_on_stderr(f"wrote {plot}")
    require_passed(checks)

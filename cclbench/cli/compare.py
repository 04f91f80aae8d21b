# SPDX-License-Identifier: Apache-2.0
"""`cclbench compare`: which run is faster, by how much, and why; the regression gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from cclbench.cli import completion, options
from cclbench.present.terminal import DOCUMENTS
from cclbench.present.terminal.streams import say_on_stderr

_AGAINST: Final = "--against"


class _Sides(click.Command):
    """A command whose option --against takes all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of these words, as click expects."""
        words, against = [], False
        for word in args:
            if word.startswith("-") and word != "-":
                against = word == _AGAINST
                words += [] if against else [word]
            else:
                words += [_AGAINST, word] if against else [word]
        if args and args[-1] == _AGAINST:
            words.append(_AGAINST)  # without a word, which is an error
        return super().parse_args(ctx, words)


@click.command(cls=_Sides)
@click.argument("runs", metavar="A B [C]...", nargs=-1, required=True, shell_complete=completion.run_ids)
@click.option(
    _AGAINST,
    metavar="B1 B2...",
    multiple=True,
    shell_complete=completion.run_ids,
    help="Captures of job B; those before this option are of job A.",
)
@options.file("-o", "--output", help="Also write the comparison to this .html, .md or .json file.")
@click.option(
    "--fail-on",
    "fail_on",
    metavar="EXPR",
    multiple=True,
    shell_complete=completion.metric_names,
    help="Exit with 1 if METRIC OP VALUE holds for B, such as 'time.step > +5%', with 5 if the runs cannot be"
    " compared; repeatable.",
)
@options.metric
@options.window
@options.model
@options.opening
@options.brief
@options.page
def compare(
    runs: tuple[str, ...],
    against: tuple[str, ...],
    output: Path | None,
    form: str,
    verbosity: int,
    opening: dict[str, Any],
    **arguments: Any,
) -> None:
    """Compare runs: which is faster, by how much, and why.

    A, B, ... are ids of runs (`cclbench list runs`) or any SOURCE that `cclbench run` takes; each is compared
    with the first. If the runs did unequal work, the comparison says so and ranks them by tokens per second
    and device.

    Captures of one job vary, so give several of each: A1 A2 A3 --against B1 B2 B3. With one of each, the
    variation is estimated from repeated captures of equal work in the store, else from a prior. A quoted *
    matches anything in the names of runs, cards and folders.

    \b
    EXPR is METRIC OP VALUE; OP is > < >= or <=. VALUE with a sign is a change
    relative to A (+5%, -2%, +3 ms), without one an absolute value (800 ms,
    100 GB/s, 0.4). A missing value fails. Brackets select a part of a metric:
      comm.busbw[collective=all_reduce] < -10%      time.step[stat=p95] > +5%

    \b
    Examples:
      cclbench compare before/ after/
      cclbench compare before-1/ before-2/ --against after-1/ after-2/
      cclbench compare 'main-*' --against 'pr-77-*'
      cclbench compare run-a run-b run-c -o comparison.html
      cclbench compare main-1f0c pr-77ab --fail-on 'time.step > +5%' --format md
    """
    from cclbench.comparison.build import compare as build
    from cclbench.comparison.document import COLUMNS, comparison_document, flat_rows
    from cclbench.comparison.gate import require_passed
    from cclbench.present.comparison_file import check_file, write_comparison
    from cclbench.present.markdown import comparison_markdown
    from cclbench.present.terminal.comparison import terminal_page
    from cclbench.present.terminal.output import emit_answer, progress_bar, writes_unicode

    if output is not None:
        check_file(output)
    with progress_bar(verbosity) as bars:
        comparison = build(*runs, against=against, progress=bars, **opening, **arguments)
    if form == "md":
        click.echo(comparison_markdown(comparison), nl=False)
    else:
        emit_answer(
            form,
            document=comparison_document(comparison) if form in DOCUMENTS else {},
            rows=list(flat_rows(comparison)),
            columns=COLUMNS,
            table=lambda: terminal_page(comparison, verbosity=verbosity, unicode=writes_unicode()),
        )
    if output is not None:
        write_comparison(comparison, output)
        say_on_stderr(f"wrote {output}")
    require_passed(comparison.checks)

# SPDX-License-Identifier: Apache-2.0
"""`cclbench claims`: CCL-Bench's claims and figures, examined on the store's runs."""

from __future__ import annotations

from pathlib import Path

import click

from cclbench.cli import options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@click.argument("names", metavar="[CLAIM]...", nargs=-1)
@options.file("-o", "--output", help="Also draw the claims: a .png, .svg or .pdf file.")
@options.store
@options.page
def claims(names: tuple[str, ...], output: Path | None, store: Path, form: str, verbosity: int) -> None:
    """Re-examine CCL-Bench's claims on the runs of the store.

    Uses published (`cclbench import`) and computed runs, also logs of jobs; shows each claim with
    tables and caveats. -v lists the rows behind each.

    \b
    Claims:
      overlap      more overlap can come with a longer step
      bandwidth    twice the bandwidth within a node helps TPUs more than GPUs
      frameworks   one framework's best can be 3x slower than another's
      figures      the figures that the paper states stand in its leaderboard

    \b
    Examples:
      cclbench claims
      cclbench claims overlap -v
      cclbench claims -o claims.png --format md
    """
    from cclbench.present.picture import check_picture, save_picture
    from cclbench.present.terminal.output import emit_answer
    from cclbench.studies.claims import examine_claims
    from cclbench.studies.claims.forms import claims_document, claims_markdown, claims_page, claims_rows

    if output is not None:
        check_picture(output)
    examined = examine_claims(store, names)
    if form == "md":
        click.echo(claims_markdown(examined), nl=False)
    else:
        columns, lines = claims_rows(examined)
        emit_answer(
            form,
            document=claims_document(examined),
            rows=lines,
            columns=columns,
            table=lambda: claims_page(examined, verbosity),
        )
    if output is not None:
        from cclbench.studies.claims.picture import draw_claims

        save_picture(lambda: draw_claims(examined.claims), output)
        say_on_stderr(f"wrote {output}")

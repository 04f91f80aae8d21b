# SPDX-License-Identifier: Apache-2.0
"""`cclbench claims`: what the runs of the store say of CCL-Bench's three claims."""

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
    """Examine CCL-Bench's claims again, on the runs of the store.

    Published runs (`cclbench import`) and computed ones alike; each claim with its table, and what to
    keep in mind. -v lists what each rests on.

    \b
    Claims:
      overlap      more overlap can come with a longer step
      bandwidth    twice the bandwidth inside a node helps TPUs more than GPUs
      frameworks   the best of one framework can be 3x slower than another's

    \b
    Examples:
      cclbench claims
      cclbench claims overlap -v
      cclbench claims -o claims.png --format md
    """
    from cclbench.present.picture import check_picture, save_picture
    from cclbench.present.terminal.output import emit_answer
    from cclbench.studies.claims import examine
    from cclbench.studies.claims.forms import claims_document, claims_markdown, claims_page, claims_rows

    if output is not None:
        check_picture(output)
    examined = examine(store, names)
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

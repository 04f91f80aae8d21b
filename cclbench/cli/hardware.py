# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware`: accelerators, fabrics and systems of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from cclbench.cli import completion, options
from cclbench.cli.hardware_model import calibrate, validate
from cclbench.cli.hardware_predict import predict
from cclbench.cli.hardware_probe import probe

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS: Final = ("id", "kind", "summary")


@click.group()
def hardware() -> None:
    """Show machines; predict collectives; validate, calibrate and probe the cost model."""


for command in (predict, validate, calibrate, probe):
    hardware.add_command(command)


@hardware.command()
@click.argument("entry", metavar="[ID]", required=False, shell_complete=completion.catalog_entries)
@options.hardware
@options.form
def show(entry: str | None, files: tuple[Path, ...], form: str) -> None:
    """Show one entry of the catalog, or list all.

    Every figure is shown with its source; those without one are marked unverified. Rates are per direction.

    \b
    Examples:
      cclbench hardware show
      cclbench hardware show aws-p5en
      cclbench hardware show lab-node --hardware my-hardware/ --json
    """
    import msgspec

    from cclbench.hardware import catalog
    from cclbench.hardware.describe import entry_summary, figures_of
    from cclbench.present.terminal.hardware import FIGURES, entry_page
    from cclbench.present.terminal.output import emit_answer

    with catalog.extended_catalog(files):
        if entry is None:
            entries = [*catalog.catalog_entries().values()]
            rows, columns = (
                [{"id": e.id, "kind": e.kind, "summary": entry_summary(e)} for e in entries],
                _COLUMNS,
            )
        else:
            entries = [catalog.entry_of(entry)]
            rows, columns = figures_of(entries[0]), FIGURES
        emit_answer(
            form,
            document={"schema": "hardware.v1", "entries": [msgspec.to_builtins(e) for e in entries]},
            rows=rows,
            columns=columns,
            table=None if entry is None else lambda: entry_page(entries[0], rows),
        )

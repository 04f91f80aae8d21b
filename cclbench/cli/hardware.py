# SPDX-License-Identifier: Apache-2.0
"""`cclbench hardware`: accelerators, fabrics and systems of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli.hardware_model import calibrate, validate
from cclbench.cli.hardware_options import hardware_option
from cclbench.cli.hardware_predict import predict
from cclbench.cli.options import debug_option, format_options

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS: Final = ("id", "kind", "summary")
_FIGURES: Final = ("field", "value", "source")


@click.group()
def hardware() -> None:
    """Show machines; predict collectives, validate and calibrate the model."""


for command in (predict, validate, calibrate):
    hardware.add_command(command)


@hardware.command()
@click.argument("entry", metavar="[ID]", required=False)
@hardware_option
@format_options
@debug_option
def show(entry: str | None, files: tuple[Path, ...], form: str) -> None:
    """Show one entry with the source of every figure, or list all.

    Rates are per direction. Figures that no source was found for are marked unverified.

    \b
    Examples:
      cclbench hardware show
      cclbench hardware show aws-p5en
      cclbench hardware show lab-node --hardware my-hardware/ --json
    """
    from cclbench.hardware import catalog

    with catalog.using(files):
        if entry is None:
            _all(form)
        else:
            _one(entry, form)


def _all(form: str) -> None:
    import msgspec

    from cclbench.hardware.catalog import entries
    from cclbench.hardware.describe import summary
    from cclbench.present.terminal.output import emit, grid

    found = entries()
    rows = [{"id": one.id, "kind": one.kind, "summary": summary(one)} for one in found.values()]
    emit(
        form,
        document={"schema": "hardware.v1", "entries": [msgspec.to_builtins(one) for one in found.values()]},
        rows=rows,
        columns=_COLUMNS,
        table=lambda: grid(rows, _COLUMNS),
    )


def _one(name: str, form: str) -> None:
    import msgspec

    from cclbench.hardware.catalog import entry_of
    from cclbench.hardware.describe import figures_of, summary
    from cclbench.present.terminal.output import emit, grid

    found = entry_of(name)
    rows: list[dict[str, Any]] = figures_of(found)
    shown = [{**row, "value": row["shown"]} for row in rows]
    lines = [f"{key}: {source.title}, {source.date}" for key, source in found.sources.items()]
    lines += [f"{other.source} says of {other.field}: {other.says}" for other in found.disagreements]
    emit(
        form,
        document={"schema": "hardware.v1", "entries": [msgspec.to_builtins(found)]},
        rows=rows,
        columns=_FIGURES,
        table=lambda: [
            f"{found.id}: {summary(found)}\n",
            *grid(shown, _FIGURES),
            "\n".join(["", *lines, *filter(None, [found.notes])]),
        ],
    )

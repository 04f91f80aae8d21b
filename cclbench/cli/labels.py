# SPDX-License-Identifier: Apache-2.0
"""Labels of runs, as option of the commands that read a source."""

from __future__ import annotations

from typing import Final

import click


def _label_pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    return {name: text for name, _, text in pairs}


labels: Final = click.option(
    "--label",
    "labels",
    metavar="NAME=TEXT",
    multiple=True,
    callback=_label_pairs,
    help="Note this about the run in the store, such as commit=1f0c9ab, for `cclbench history`;"
    " date=2026-01-31 is its date there; repeatable.",
)

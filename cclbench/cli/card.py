# SPDX-License-Identifier: Apache-2.0
"""`cclbench card`: make, check, upgrade and show workload cards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cclbench.cli import options
from cclbench.errors import CheckFailed, InputError, UsageError

if TYPE_CHECKING:
    from cclbench.card import Card

_output = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file, not to stdout."
)
_force = click.option("--force", is_flag=True, help="Replace the output file where it exists.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def card() -> None:
    """Make, check, upgrade and show workload cards."""


@card.command()
@click.argument("cards", nargs=-1, required=True, type=click.Path(path_type=Path))
@_json
@options.debug
def validate(cards: Sequence[Path], as_json: bool) -> None:
    """Check cards, and name every problem.

    Checks the schema, the agreement of the fields, and presence and hashes of the files they name.

    Prints every problem with file, line and key.  Exits with 1 where a card is invalid, with 3 where one
    cannot be read as YAML.
    """
    from cclbench.card import validate as problems_of

    rows: list[dict[str, Any]] = []
    unreadable = 0
    for path in cards:
        try:
            found = problems_of(path)
        except InputError as error:
            unreadable += 1
            problem = {
                "severity": "error",
                "file": str(path),
                "line": None,
                "path": "",
                "message": str(error),
            }
            rows.append({"file": str(path), "valid": False, "problems": [problem]})
            _say(as_json, str(error))
        else:
            valid = all(problem.severity != "error" for problem in found)
            rows.append({"file": str(path), "valid": valid, "problems": [problem.row() for problem in found]})
            _say(as_json, *(f"{problem.severity}: {problem}" for problem in found))
            _say(as_json, f"{path}: {'valid' if valid else 'invalid'}")
    if as_json:
        _print_json({"schema": "card-validation.v1", "files": rows})
    if unreadable:
        raise InputError(f"{unreadable} of {len(rows)} cards cannot be read")
    if invalid := sum(not row["valid"] for row in rows):
        raise CheckFailed(f"{invalid} of {len(rows)} cards are invalid")


@card.command()
@click.argument("path", metavar="CARD", type=click.Path(path_type=Path))
@_output
@_force
@_json
@options.debug
def upgrade(path: Path, output: Path | None, force: bool, as_json: bool) -> None:
    """Turn a version 1 card into version 2.

    Whatever cannot be carried over is named on stderr and marked as a gap in the new card.  Where the new
    card is not valid, it is written all the same, its problems are listed, and the exit code is 1.
    """
    from cclbench.card import upgrade as upgraded

    result = upgraded(path)
    for warning in result.warnings:
        click.echo(f"warning: {warning}", err=True)
    _write(None if as_json and output is None else result.text, output, force)
    if as_json:
        _print_json(
            {
                "schema": "card-upgrade.v1",
                "file": str(path),
                "card": result.text,
                "warnings": [warning.row() for warning in result.warnings],
                "problems": [problem.row() for problem in result.problems],
            }
        )
    if result.problems:
        raise CheckFailed(
            "the upgraded card is not valid:\n" + "\n".join(map(str, result.problems)), where=str(path)
        )


@card.command()
@click.argument("path", metavar="CARD", type=click.Path(path_type=Path))
@_json
@options.debug
def show(path: Path, as_json: bool) -> None:
    """Show what a card says."""
    from cclbench.card import load

    loaded = load(path)
    if as_json:
        _print_json({"schema": "card.v2", "file": str(path), "card": loaded.raw})
        return
    from cclbench.present.terminal.output import console, grid
    from cclbench.text import printable

    click.echo("\n".join([loaded.id, *map(printable, loaded.description.strip().splitlines()), ""]))
    out = console()
    for part in grid([{"field": key, "value": value} for key, value in _facts(loaded)], ("field", "value")):
        out.print(part)


@card.command()
@options.debug
def schema() -> None:
    """Print the JSON Schema of cards.

    Draft 7; editors use it to complete and check a card.
    """
    from cclbench.card import schema as card_schema

    _print_json(card_schema())


@card.command()
@click.argument("traces", type=click.Path(path_type=Path))
@_output
@_force
@options.store
@options.debug
def new(traces: Path, output: Path | None, force: bool, store: Path) -> None:
    """Make a card from traces, a folder or a file, which are read into the store.

    What the traces do not tell is marked with `# to fill in: ...`.

    With -o FILE, the card's id is the file's name, and paths start from the folder that holds
    workload_cards/, or else from FILE's own folder.
    """
    from cclbench.card import infer, root_of, rooted
    from cclbench.card_facts import card_facts

    facts = rooted(card_facts(traces, store=store), root_of(output) if output else Path.cwd())
    _write(infer(facts, output.stem if output else None), output, force)


def _say(quiet: bool, *lines: str) -> None:
    if not quiet:
        for line in lines:
            click.echo(line)


def _print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _write(text: str | None, output: Path | None, force: bool) -> None:
    """Write `text` to `output`, whole or not at all; to stdout where there is no `output`."""
    if output is None:
        if text is not None:
            click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise UsageError(
            "exists already", where=str(output), hint="name another file, or replace it with --force"
        )
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        draft.write_text(text or "", encoding="utf-8")
        draft.replace(output)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise InputError(f"cannot be written: {error.strerror}", where=str(output)) from error
    click.echo(f"wrote {output}", err=True)


def _facts(loaded: Card) -> Iterator[tuple[str, str]]:
    """The card's fields as a person reads them, dotted path and text."""
    from cclbench.text import printable
    from cclbench.units import humanise

    rates = {
        "hardware.scale_up.bandwidth": loaded.hardware.scale_up.bytes_per_s,
        "hardware.scale_out.bandwidth": loaded.hardware.scale_out.bytes_per_s,
    }
    for path, value in _flat(loaded.raw, ""):
        text = printable(value if isinstance(value, str) else json.dumps(value))
        if (rate := rates.get(path)) and text != (figure := humanise(rate, "B/s")):
            text += f" = {figure}"
        yield path, text
    for trace in loaded.evidence.traces:
        size = humanise(trace.bytes, "B") if trace.bytes is not None else None
        ranks = f"ranks {', '.join(map(str, trace.ranks))}" if trace.ranks else None
        yield "evidence.traces", printable("; ".join(filter(None, (trace.path, trace.format, ranks, size))))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    for key, below in value.items():
        here = f"{path}.{key}" if path else key
        if here in {"version", "id", "description", "evidence.traces"}:
            continue
        if isinstance(below, dict):
            yield from _flat(below, here)
        else:
            yield here, below

# SPDX-License-Identifier: Apache-2.0
"""`cclbench card`: create, check, upgrade and show workload cards, and fetch their traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cclbench.cli import options
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.ground.file_names import stored_name
from cclbench.present.terminal.streams import say_on_stderr

_output = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout."
)
_force = click.option("--force", is_flag=True, help="Replace an existing output file.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def card() -> None:
    """Create, check, upgrade and show workload cards."""


@card.command()
@click.argument("cards", nargs=-1, required=True, type=click.Path(path_type=Path))
@_json
@options.debug
def validate(cards: Sequence[Path], as_json: bool) -> None:
    """Check cards, and list every problem.

    Checks the schema, the consistency of the fields, and presence and hashes of the files they name.

    Prints every problem with file, line and key.  Exits with 1 if a card is invalid, with 3 if one cannot be
    read as YAML.
    """
    from cclbench.card import validate_card as problems_of
    from cclbench.ground.diagnostics import Problem
    from cclbench.ground.text import printable

    rows: list[dict[str, Any]] = []
    unreadable = 0
    for path in cards:
        try:
            problems = problems_of(path)
            valid = all(problem.severity != "error" for problem in problems)
            lines = [*(f"{problem.severity}: {problem}" for problem in problems)]
            lines.append(f"{printable(str(path))}: {'valid' if valid else 'invalid'}")
        except InputError as error:
            unreadable += 1
            problems, valid, lines = (
                [Problem("error", stored_name(path), None, "", str(error))],
                False,
                [str(error)],
            )
        rows.append(
            {
                "file": stored_name(path),
                "valid": valid,
                "problems": [problem.as_row() for problem in problems],
            }
        )
        if not as_json:
            click.echo("\n".join(lines))
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
    """Convert a version 1 card to version 2.

    What cannot be converted is listed on stderr and marked as a gap in the new card.  If the new card is not
    valid, it is written all the same, its problems are listed, and the exit code is 1.
    """
    from cclbench.card import upgrade_card as upgraded

    result = upgraded(path)
    for warning in result.warnings:
        say_on_stderr(f"warning: {warning}")
    if output is not None or not as_json:
        _write_card(result.text, output, force)
    if as_json:
        _print_json(
            {
                "schema": "card-upgrade.v1",
                "file": stored_name(path),
                "card": result.text,
                "warnings": [warning.as_row() for warning in result.warnings],
                "problems": [problem.as_row() for problem in result.problems],
            }
        )
    if result.problems:
        raise CheckFailed(["the upgraded card is not valid:", *map(str, result.problems)], where=str(path))


@card.command()
@click.argument("path", metavar="CARD", type=click.Path(path_type=Path))
@_json
@options.debug
def show(path: Path, as_json: bool) -> None:
    """Show the fields of a card."""
    from cclbench.card import load_card

    loaded = load_card(path)
    if as_json:
        _print_json({"schema": "card.v2", "file": stored_name(path), "card": loaded.raw})
        return
    from cclbench.ground.text import printable
    from cclbench.present.terminal.card import card_rows
    from cclbench.present.terminal.output import grid_table, terminal_console

    click.echo("\n".join([loaded.id, *map(printable, loaded.description.strip().splitlines()), ""]))
    out = terminal_console()
    for part in grid_table(list(card_rows(loaded)), ("field", "value")):
        out.print(part)


@card.command()
@click.argument("path", metavar="CARD", type=click.Path(path_type=Path))
@options.debug
def fetch(path: Path) -> None:
    """Download a card's traces that are not in their place from their URLs.

    https and public addresses only, never more bytes than the card states, and only with its SHA-256. Copies
    are kept in $CCLBENCH_CACHE (by default in the user's cache folder), from where run, compare and verify
    read them.
    """
    from cclbench.card import load_card
    from cclbench.contribute.remote import fetch_evidence
    from cclbench.ground.text import printable
    from cclbench.present.terminal.output import progress_bar

    with progress_bar(0) as bars:
        fetched = list(fetch_evidence(load_card(path), bars))
    click.echo("\n".join(printable(f"{name}: {copy}") for name, copy in fetched) or "nothing to fetch")


@card.command()
@options.debug
def schema() -> None:
    """Print the JSON Schema of cards.

    Draft 7, for editors that complete and check cards.
    """
    from cclbench.card import card_schema as card_schema

    _print_json(card_schema())


@card.command()
@click.argument("traces", type=click.Path(path_type=Path))
@_output
@_force
@options.store
@options.debug
def new(traces: Path, output: Path | None, force: bool, store: Path) -> None:
    """Create a card from traces, a folder or a file, which are read into the store.

    Fields that the traces do not state are comments, `# key: example  # to fill in: ...`: remove the first
    `# ` and replace the example with your value.

    With -o FILE, the card's id is the file's name, and paths are relative to the folder that holds
    workload_cards/, or else to FILE's folder.
    """
    from cclbench.card import infer_card, relative_to_root, root_of
    from cclbench.card_facts import card_facts

    facts = relative_to_root(card_facts(traces, store=store), root_of(output) if output else Path.cwd())
    _write_card(infer_card(facts, stored_name(output.stem) if output else None), output, force)


def _print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _write_card(text: str, output: Path | None, force: bool) -> None:
    """Write `text` to `output`, whole or not at all; to stdout without one."""
    from cclbench.ground.destination import write_whole

    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise UsageError(
            "exists already", where=str(output), hint="name another file, or replace it with --force"
        )
    try:
        write_whole(text, output)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(output)) from error
    say_on_stderr(f"wrote {output}")

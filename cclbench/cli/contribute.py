# SPDX-License-Identifier: Apache-2.0
"""`cclbench contribute`: a data point from a card, traces and scripts."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import options
from cclbench.ground.errors import CheckFailed
from cclbench.ground.file_names import stored_name

if TYPE_CHECKING:
    from cclbench.contribute.completion import CardGap
    from cclbench.contribute.package import Contribution
    from cclbench.engine import Engine

_NONE: Final = "none"
"""The answer that leaves a field open which only metrics need."""
_COLUMNS: Final = ("file", "place", "kind", "count")


@click.command()
@click.argument("card", required=False, type=click.Path(path_type=Path))
@click.option(
    "--traces",
    required=True,
    type=click.Path(path_type=Path),
    help="The traces and other measurements: a folder, a trace, or an archive (.zip, .tar.gz).",
)
@click.option(
    "--scripts",
    type=click.Path(path_type=Path),
    help="Folder of the scripts that recorded them: without it nobody can record such traces again.",
)
@click.option(
    "--model-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The model's Hugging Face config.json, for its sizes; by default the one beside the traces.",
)
@click.option("--licence", metavar="SPDX", help="Licence of the traces, such as Apache-2.0 or CC-BY-4.0.")
@click.option(
    "--reveal",
    multiple=True,
    metavar="KEY",
    help="Keep the values of a field of the traces or the card.",
)
@click.option(
    "--keep-names",
    "kept_names",
    multiple=True,
    metavar="PATTERN",
    help="Keep names in traces and scripts, such as 'MyModel*', that would become tokens.",
)
@click.option(
    "--no-input", is_flag=True, help="Do not prompt: list the card's missing fields, and exit with 1."
)
@click.option("--allow-gaps", is_flag=True, help="Accept a card without fields that metrics need.")
@click.option("--replace", is_flag=True, help="Replace an existing data point of that id.")
@click.option(
    "--external",
    type=options.Size,
    default="50 MB",
    show_default=True,
    help="Files larger than this are kept outside of the collection.",
)
@click.option(
    "--outside",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for these files, for you to upload.",
)
@click.option("--url", metavar="PREFIX", help="URL that you upload this folder to: https://...")
@options.collection
@options.ingest
@options.engine
@options.page
def contribute(
    card: Path | None,
    traces: Path,
    scripts: Path | None,
    no_input: bool,
    collection: Path,
    allow_truncated: bool,
    step_annotation: str | None,
    inference: bool,
    engine: Engine,
    form: str,
    verbosity: int,
    **arguments: Any,
) -> None:
    """Make a data point from a card, traces and scripts.

    Missing fields of the card, or all without one, are taken from the traces, job logs and the model's
    config.json, or prompted for: those that every card has, and those that metrics of these traces need.
    Redacted copies go into workload_cards/, traces/ID/ and scripts/ID/, with a manifest of every file's
    SHA-256 and the results; the originals are not changed. Nothing is written if redaction changes a
    result. Of texts in traces and scripts only public names are published, such as those of kernels and
    operators; any other becomes a token, except with --keep-names. The review list shows what was
    redacted, and where; --reveal keeps the values of a field.

    \b
    Examples:
      cclbench contribute --traces capture/
      cclbench contribute job.yaml --traces capture/ --scripts launch/
      cclbench contribute job.yaml --traces run.tar.gz --scripts launch/ \\
        --licence CC-BY-4.0 --no-input
      cclbench contribute job.yaml --traces capture/ --scripts launch/ \\
        --outside upload/ --url https://example.org/traces
    """
    from cclbench.contribute.package import PackageOptions, make_data_point
    from cclbench.present.terminal.data_points import contribution_page
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.record.manifest import Options

    reading = Options(allow_truncated=allow_truncated, step_annotation=step_annotation, inference=inference)
    ask = None if no_input or not sys.stdin.isatty() else _prompt_for_gap
    with progress_bar(verbosity if ask is None else -1) as bars:
        contribution = make_data_point(
            card,
            traces,
            scripts,
            collection,
            PackageOptions(reading=reading, **arguments),
            ask=ask,
            engine=engine,
            progress=bars,
        )
    document = _contribution_document(contribution)
    emit_answer(
        form,
        document=document,
        rows=document["redactions"],
        columns=_COLUMNS,
        table=lambda: contribution_page(contribution, document["redactions"] if verbosity > 0 else []),
    )


def _prompt_for_gap(gap: CardGap) -> Any:
    """The contributor's answer on the terminal; None if the field is left open."""
    from cclbench.ground.text import printable

    click.echo(f"  {printable(gap.refused)}" if gap.refused else f"\n{printable(str(gap))}", err=True)
    # A metric may need what the work does not have, such as a length in tokens.
    leave = "" if gap.required else "Enter to skip" if gap.optional else f"{_NONE} if there is none"
    hints = filter(None, [", ".join(gap.choices) or f"like {gap.example}", leave])
    text = f"  {gap.path} ({printable('; '.join(hints))})"
    while True:
        answer = str(click.prompt(text, default="", show_default=False, err=True)).strip()
        if not gap.required and answer == ("" if gap.optional else _NONE):
            return None
        try:
            if answer:
                return gap.parse_answer(answer)
            more = "" if gap.required else f", or {_NONE}"
            click.echo(f"  an answer is needed{more}; Ctrl-C ends and changes nothing", err=True)
        except CheckFailed as error:
            click.echo(f"  {printable(str(error))}", err=True)


def _contribution_document(contribution: Contribution) -> dict[str, Any]:
    return {
        "schema": "contribution.v1",
        "id": contribution.place.id,
        "card": stored_name(contribution.place.card_path),
        "calibration": stored_name(contribution.place.calibration_path) if contribution.calibrated else None,
        "manifest": stored_name(contribution.place.manifest_path),
        "files": [{"path": path, "bytes": size} for path, size in contribution.files],
        "scripts": list(contribution.scripts),
        "uploads": [{"file": stored_name(path), "url": url} for path, url in contribution.uploads],
        "left_out": list(contribution.left_out),
        "renamed": [{"from": old, "to": new} for old, new in contribution.renamed],
        "inferred": list(contribution.inferred),
        "configured": list(contribution.configured),
        "contradictions": list(contribution.contradictions),
        "gaps": [gap.path for gap in contribution.gaps],
        "revealed": list(contribution.revealed),
        "redactions": [asdict(redaction) for redaction in contribution.redactions],
        "sizes": {**asdict(contribution.sizes), "ratio": contribution.sizes.ratio},
        "rows_equal": contribution.rows,
        "metrics_recorded": contribution.recorded,
    }

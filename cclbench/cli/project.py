# SPDX-License-Identifier: Apache-2.0
"""`cclbench project`: the step of one traced rank's job, or of one measured step, on many accelerators."""

from __future__ import annotations

from typing import Any

import click

from cclbench.cli import completion, options


def _parse_step(text: str) -> float:
    """Seconds of a time above zero with its unit, such as `1.23s`."""
    seconds = options.parse_amount(text, "time")
    if not seconds:
        raise ValueError(f"{text!r} is zero")
    return seconds


@click.command()
@options.run
@click.option(
    "--system",
    metavar="ID",
    required=True,
    shell_complete=completion.machines,
    help="Machine of the catalog to project to.",
)
@click.option(
    "--gpus", type=click.IntRange(1), required=True, metavar="N", help="Number of accelerators, one a rank."
)
@click.option(
    "--layout",
    metavar="tp=8,pp=2",
    help="Parallel degrees; the remaining factor is data parallel.  [default: the one with the most samples"
    " per second]",
)
@click.option(
    "--set",
    "sets",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=completion.setting_keys,
    help="A further change, as in `cclbench whatif --set`; repeatable.",
)
@click.option("--per-node", type=click.IntRange(1), help="Ranks per node.  [default: the machine's]")
@click.option(
    "--step",
    "step_s",
    type=options.Parsed("TIME", _parse_step),
    help="Measured step of the card RUN, such as 1.23s: no trace is needed.",
)
@options.opening
@options.page
def project(run: str, form: str, verbosity: int, opening: dict[str, Any], **arguments: Any) -> None:
    """Predict the step time on many accelerators from a job traced on one.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes, with a single
    rank. The collectives that more ranks need are placed where the framework
    calls them; all figures are modelled, with what is assumed. With --step, RUN is
    the card of a job of any number of ranks, and its layout is changed.

    \b
    Examples:
      cclbench project rank0_trace.json.gz --system aws-p5 --gpus 64
      cclbench project card.yaml --system aws-p5 --gpus 64 --layout tp=8
      cclbench project card.yaml --system aws-p5 --gpus 64 --set batch=global
      cclbench project card.yaml --system aws-p5 --gpus 256 --step 1.23s
    """
    from cclbench.api import project as project_job
    from cclbench.ground.schema import RESULTS
    from cclbench.present.terminal.output import emit_answer
    from cclbench.present.terminal.run import run_document
    from cclbench.present.terminal.whatif import whatif_page
    from cclbench.record.results import Results

    projected = project_job(run, **arguments, **opening)
    result = projected.result
    emit_answer(
        form,
        document=run_document(projected.record, Results.from_rows(result.figures), result.figures[0].window),
        rows=result.rows,
        columns=RESULTS.names,
        table=lambda: whatif_page(result, verbosity),
    )

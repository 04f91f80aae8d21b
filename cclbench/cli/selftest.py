# SPDX-License-Identifier: Apache-2.0
"""`cclbench selftest`: findings and metrics on simulated jobs with known causes of slowness."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cclbench.cli import options

if TYPE_CHECKING:
    from cclbench.engine import Engine


@click.command()
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--cause",
    "causes",
    multiple=True,
    default=("all",),
    metavar="NAME",
    help="Only this cause, or the set all, development or held-out; repeatable.  [default: all]",
)
@click.option(
    "--per-cause", type=click.IntRange(0), default=1, show_default=True, help="Number of jobs per cause."
)
@click.option(
    "--equal",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Number of jobs whose ranks share one distribution, so that no rank may be named.",
)
@click.option(
    "--healthy", type=click.IntRange(0), default=3, show_default=True, help="Number of jobs without a cause."
)
@options.file("--output", help="Write the score and the outcome of each job as JSON.")
@options.engine
@options.page
def selftest(
    seed: int,
    causes: tuple[str, ...],
    per_cause: int,
    equal: int,
    healthy: int,
    output: Path | None,
    engine: Engine,
    form: str,
    verbosity: int,
) -> None:
    """Score findings and metrics on simulated jobs with known causes of slowness.

    Each job is simulated with and without its cause, with the same random numbers; the difference is the true
    gain. Its traces are written, read and diagnosed as usual. A finding is correct if it names the cause and,
    where only some ranks have it, these ranks. Differences from the truth are counted; nothing is stored but
    --output. A job takes about two seconds.

    \b
    Examples:
      cclbench selftest
      cclbench selftest --cause slow_device --per-cause 10 --seed 7
      cclbench selftest --per-cause 10 --equal 100 --output score.json
    """
    from cclbench.ground.destination import check_folder
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.selftest import selftest_page
    from cclbench.selftest.exam import chosen_causes, draw_items, examine_item
    from cclbench.selftest.score import COLUMNS, Score, write_score

    if output is not None:
        check_folder(output)
    exam = draw_items(seed, per_cause, chosen_causes(causes), equal, healthy)
    with progress_bar(verbosity) as bars:
        score = Score(seed, engine.map(examine_item, exam, progress=bars, what="jobs"))
    if output is not None:
        write_score(score, output)
    rows = score.cause_rows()
    emit_answer(
        form,
        document={**score.as_document(), "causes": rows},
        rows=rows,
        columns=COLUMNS,
        table=lambda: selftest_page(score, verbosity=verbosity),
    )

# SPDX-License-Identifier: Apache-2.0
"""`cclbench ops`: the cost of operators, and their distance from the roofline."""

from __future__ import annotations

from typing import Any, Final

import click

from cclbench.cli import options

by: Final = click.option(
    "--by",
    type=click.Choice(("op", "shape", "module", "phase", "kernel", "category")),
    default="op",
    show_default=True,
    help="Group rows by this.",
)
sort: Final = click.option(
    "--sort",
    type=click.Choice(("time", "gap", "flops", "bytes", "calls")),
    default="time",
    show_default=True,
    help="Sort rows by this, largest first; gap: time above the roofline.",
)


@click.command()
@options.run
@by
@sort
@click.option(
    "--top", type=click.IntRange(min=1), metavar="K", help="Only the first K rows; a table has 20 without -v."
)
@options.window
@options.steps
@options.ranks
@options.opening
@options.page
def ops(
    run: str,
    form: str,
    verbosity: int,
    opening: dict[str, Any],
    top: int | None,
    **arguments: Any,
) -> None:
    """List operators by cost: time, FLOPs, bytes, and distance from the roofline.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. Device time is attributed to the
    innermost operator around the launch that has a cost model. FLOPs and bytes are computed from the
    recorded arguments (record_shapes); bytes count each operand and each result once. Sort by gap to see what
    is worth optimising.

    \b
    Examples:
      cclbench ops my-job-3f2a91c0
      cclbench ops my-job-3f2a91c0 --by shape --sort gap --top 10
      cclbench ops my-job-3f2a91c0 --by module --format xlsx > operators.xlsx
    """
    from cclbench.operator_table import COLUMNS, operator_costs
    from cclbench.present.terminal.operators import SHOWN, operators_page
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.workspace import workspace

    if top is None and form == "table" and verbosity < 1:
        top = SHOWN
    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        table = operator_costs(work.open_run(run), top=top, engine=work.engine, progress=bars, **arguments)
    emit_answer(
        form, document=table.document, rows=table.table, columns=COLUMNS, table=lambda: operators_page(table)
    )

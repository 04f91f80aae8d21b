# SPDX-License-Identifier: Apache-2.0
"""`cclbench ops`: the cost of operators, and their distance from the roofline."""

from __future__ import annotations

from typing import Any, Final

import click

from cclbench.cli import completion, options

by: Final = click.option(
    "--by",
    metavar="KEYS",
    shell_complete=completion.operator_keys,
    default="op",
    show_default=True,
    help="Group rows by op, shape, module, class (modules that differ in numbers alone), phase, kernel,"
    " category or program (XLA), or by several: op,module.",
)
where: Final = click.option(
    "--where",
    multiple=True,
    metavar="FILTER",
    help="Only work with KEY=VALUE (equal) or KEY~TEXT (contains, in any case), such as phase=backward or"
    " module~attn. Repeatable: all must hold.",
)
tree: Final = click.option(
    "--tree",
    is_flag=True,
    help="With --by module or class: the tree, each with all modules within it; with several keys a level for"
    " each.",
)
sort: Final = click.option(
    "--sort",
    type=click.Choice(("time", "gap", "wasted", "flops", "bytes", "calls")),
    default="time",
    show_default=True,
    help="Sort rows by this, largest first; gap: time above the roofline; wasted: FLOPs that the peak"
    " allows in the time, less those done.",
)


@click.command()
@options.run
@by
@where
@tree
@sort
@click.option(
    "--top", type=click.IntRange(min=1), metavar="K", help="Only the first K rows; a table has 20 without -v."
)
@options.window
@options.steps
@options.ranks
@options.opening
@options.brief
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
    is worth optimising; what has no cost is listed below the table. A terminal shows as many columns as fit,
    -v all of them, and so do csv, xlsx and json.

    \b
    Examples:
      cclbench ops my-job-3f2a91c0
      cclbench ops my-job-3f2a91c0 --by shape --sort gap --top 10
      cclbench ops my-job-3f2a91c0 --by class --tree
      cclbench ops my-job-3f2a91c0 --by program,category,shape --tree
      cclbench ops my-job-3f2a91c0 --by op,phase --where module~attn
      cclbench ops my-job-3f2a91c0 --by module --format xlsx > operators.xlsx
    """
    from cclbench.analyzers.view.work_keys import parse_grouping
    from cclbench.operator_table import operator_costs
    from cclbench.present.terminal.operators import SHOWN_ROWS, operators_page
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.workspace import workspace

    parse_grouping((arguments["by"],), arguments["where"], tree=arguments["tree"])
    if top is None and form == "table" and verbosity < 1 and not arguments["tree"]:
        top = SHOWN_ROWS
    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        table = operator_costs(work.open_run(run), top=top, engine=work.engine, progress=bars, **arguments)
    emit_answer(
        form,
        document=table.document,
        rows=table.table,
        columns=table.columns,
        table=lambda: operators_page(table, verbose=verbosity > 0),
    )

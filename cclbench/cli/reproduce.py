# SPDX-License-Identifier: Apache-2.0
"""`cclbench reproduce`: an operator call of a trace as a micro-benchmark, and its result beside the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import ops, options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@options.run
@click.option("--row", type=click.IntRange(min=1), metavar="N", help="Row of `cclbench ops` to reproduce.")
@click.option(
    "--check",
    "result",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="RESULT",
    help="Compare the trace with this output of a micro-benchmark.",
)
@options.file("-o", "--output", help="The Python file to write.  [default: stdout]")
@click.option(
    "--dtype",
    "stated_dtype",
    metavar="TYPE",
    help="Element type of tensors whose type the trace does not record, such as float32.",
)
@ops.by
@ops.where
@ops.tree
@ops.sort
@options.window
@options.steps
@options.ranks
@options.opening
@options.page
def reproduce(
    run: str,
    row: int | None,
    result: Path | None,
    output: Path | None,
    stated_dtype: str | None,
    by: str,
    where: tuple[str, ...],
    tree: bool,
    sort: str,
    opening: dict[str, Any],
    form: str,
    verbosity: int,
    **selection: Any,
) -> None:
    """Write a micro-benchmark of an operator call, or compare its result with the trace.

    RUN is the id of a run, or any SOURCE that `cclbench run` takes. The row is that of `cclbench ops` with
    the same options; of calls with different arguments in it, those with the most time are chosen. The
    program needs PyTorch alone, repeats the call on random operands of the recorded sizes, types and strides,
    and prints a line of JSON, which --check compares with the trace: time, kernels, device.

    Operators of PyTorch itself (aten::...) with recorded arguments (record_shapes) can be reproduced.

    \b
    Examples:
      cclbench ops traces/my-job --by shape --sort gap
      cclbench reproduce traces/my-job --by shape --sort gap --row 1 -o mm.py
      cclbench reproduce traces/my-job --by op,phase --where module~attn --row 2
      python mm.py > mm.json
      cclbench reproduce traces/my-job --check mm.json
    """
    from cclbench.analyzers.view.work_keys import parse_grouping
    from cclbench.ground.destination import atomic_replacement
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.reproduction import reproduction_page
    from cclbench.reproduction.check import COLUMNS, check_result, read_result
    from cclbench.reproduction.recorded import calls_of_row
    from cclbench.reproduction.script import benchmark_script
    from cclbench.workspace import workspace

    if (row is None) == (result is None):
        raise click.UsageError("give --row N to write a micro-benchmark, or --check RESULT to compare one")
    if row is not None and form != "table":
        raise click.UsageError("--format and --json are for --check: a micro-benchmark is Python")
    if result is not None and (output is not None or stated_dtype is not None):
        raise click.UsageError("-o and --dtype are for --row")
    parse_grouping((by,), where, tree=tree)
    read = None if result is None else read_result(result)
    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        selection |= {"engine": work.engine, "progress": bars}
        opened = work.open_run(run)
        if read is not None:
            check = check_result(opened, read, **selection)
        elif row is not None:
            calls = calls_of_row(opened, row, by, where=where, tree=tree, sort=sort, **selection)
    if read is not None:
        emit_answer(
            form,
            document=check.document,
            rows=check.rows,
            columns=COLUMNS,
            table=lambda: reproduction_page(check),
        )
        return
    script = benchmark_script(calls, stated_dtype)
    if output is None:
        click.echo(script, nl=False)
        return
    with atomic_replacement(output) as unfinished:
        unfinished.write_text(script, "utf-8")
    if verbosity >= 0:
        say_on_stderr(f"wrote {output}: {calls.operator}")

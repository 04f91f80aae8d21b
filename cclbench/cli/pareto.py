# SPDX-License-Identifier: Apache-2.0
"""`cclbench pareto`: throughput against latency of serving benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cclbench.cli import completion, options
from cclbench.present.terminal.streams import say_on_stderr


@click.command()
@click.argument("runs", metavar="RUN [RUN]...", nargs=-1, required=True, shell_complete=completion.run_ids)
@options.file("--plot", help="Also plot throughput against latencies to this .png, .svg or .pdf file.")
@options.opening
@options.page
def pareto(
    runs: tuple[str, ...], plot: Path | None, opening: dict[str, Any], form: str, verbosity: int
) -> None:
    """Show serving benchmarks by throughput and latency, and which ones none beats in both.

    RUN is the id of a run, such as an imported one, or any SOURCE that `cclbench run` takes: results of vLLM,
    SGLang, GuideLLM or InferenceX, each benchmark a point. Throughput is output tokens per second and
    accelerator, or in all if their number is unknown. A point is best for a latency if no other point of the
    same workload has as much throughput and as short a latency, one of them better; this is exact, nothing is
    fitted. Time to first token, between tokens, and end to end are compared at mean, p50, p90 and p99.

    \b
    Examples:
      cclbench pareto results/
      cclbench pareto results/ --plot pareto.svg
      cclbench pareto monday/ tuesday/ --json
    """
    from cclbench.comparison.build import run_subject
    from cclbench.comparison.serving_points import COLUMNS
    from cclbench.ground.errors import UsageError
    from cclbench.present.charts.pareto import plot_points, points_of
    from cclbench.present.picture import check_picture
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.pareto import pareto_page
    from cclbench.workspace import workspace

    if plot is not None:
        check_picture(plot)
    with progress_bar(verbosity) as bars, workspace(progress=bars, **opening) as work:
        subjects = [run_subject("", work.open_run(run), engine=work.engine, progress=bars) for run in runs]
        points = points_of(subjects)
    if not points.points:
        raise UsageError(
            "no serving benchmark states a throughput",
            hint="pass results of vllm bench serve, SGLang, GuideLLM or InferenceX",
        )
    emit_answer(
        form,
        document={
            "schema": "pareto.v1",
            "per_device": points.is_per_device,
            "points": points.table,
            "fronts": {name: list(front) for name, front in points.fronts.items()},
            "notes": points.notes,
        },
        rows=points.table,
        columns=COLUMNS,
        table=lambda: pareto_page(points),
    )
    if plot is not None:
        plot_points(points, plot, title="Throughput against latency")
        say_on_stderr(f"wrote {plot}")

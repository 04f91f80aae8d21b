# SPDX-License-Identifier: Apache-2.0
"""Export of a run's figures in the formats of tools that record metrics."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Literal, get_args

from cclbench.export.figures import figures_of, step_values
from cclbench.ground.destination import write_whole
from cclbench.ground.text import printable
from cclbench.record.run import Run

FigureFormat = Literal["prometheus", "otlp", "mlflow", "wandb"]
FIGURE_FORMATS: Final[tuple[FigureFormat, ...]] = get_args(FigureFormat)


def write_figures(run: Run, path: Path, form: FigureFormat, date: datetime) -> Path:
    """Write the run's figures, dated, and return what was written: the file `path`, or a folder below it."""
    rows = list(run.figures.summary)
    figures, steps = list(figures_of(rows)), step_values(rows)
    seconds, microseconds = int(date.timestamp()), date.microsecond
    time_ns, facts = seconds * 10**9 + microseconds * 1000, _run_facts(run)
    if form == "mlflow":
        from cclbench.export.mlflow import write_mlflow_run

        return write_mlflow_run(path, run.id, run.content[:32], facts, time_ns, figures, steps)
    if form == "wandb":
        from cclbench.export.wandb import write_wandb_run

        return write_wandb_run(path, run.id, facts, figures, steps)
    from cclbench.export.otlp import otlp_text
    from cclbench.export.prometheus import prometheus_text

    text = (
        prometheus_text(run.id, figures)
        if form == "prometheus"
        else otlp_text(run.id, {f"cclbench.{name}": value for name, value in facts.items()}, time_ns, figures)
    )
    write_whole(text, path)
    return path


def _run_facts(run: Run) -> dict[str, str]:
    """Source, card, device and number of ranks of a run, those that are known."""
    record = run.record
    devices = sorted({rank.facts.device_name for rank in record.ranks if rank.facts.device_name})
    facts = {
        "source": record.source,
        "card": record.card.id if record.card else "",
        "device": ", ".join(devices),
        "ranks": str(len(record.ranks)) if record.ranks else "",
    }
    return {name: printable(value) for name, value in facts.items() if value}

# SPDX-License-Identifier: Apache-2.0
"""Predictions, errors and calibrations of `cclbench hardware` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from cclbench.ground.text import printable
from cclbench.ground.units import humanise, size_text
from cclbench.hardware.collectives.open_mpi import OPEN_MPI_NOTE
from cclbench.hardware.describe import entry_summary
from cclbench.hardware.sweep import group_words
from cclbench.present.model_picture import SweepPanel
from cclbench.present.terminal.output import grid_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cclbench.hardware.calibration import Calibration
    from cclbench.hardware.describe import Entry
    from cclbench.hardware.system import System
    from cclbench.hardware.validation import SweepValidation

_LONGEST: Final = 46
"""Most characters of a file's name in a panel's heading."""


FIGURES: Final = ("field", "value", "source")
"""Columns of a catalog entry's figures."""


def entry_page(entry: Entry, figures: Sequence[dict[str, Any]]) -> list[RenderableType]:
    """A catalog entry: every figure with its source, disagreements of sources, and notes."""
    lines = [f"{key}: {source.title}, {source.date}" for key, source in entry.sources.items()]
    lines += [f"{other.source} states for {other.field}: {other.says}" for other in entry.disagreements]
    return [
        f"{entry.id}: {entry_summary(entry)}\n",
        *grid_table([{**row, "value": row["shown"]} for row in figures], FIGURES),
        "\n".join(["", *lines, *filter(None, [entry.notes])]),
    ]


def sweep_panels(validations: Sequence[SweepValidation]) -> list[SweepPanel]:
    """A panel for each sweep for which the model has times."""
    panels = []
    for validation in validations:
        deviations = validation.deviation_summary
        if deviations is not None:
            lines = (
                _shorten_name(validation.sweep.display_name),
                validation.sweep.group_words,
                f"median error {deviations.median:.1%}, {deviations.within:.0%} within",
            )
            panels.append(SweepPanel("\n".join(lines), validation.size_deviations))
    return panels


def _shorten_name(file: str) -> str:
    name = printable(file).replace("$", "\\$")  # matplotlib parses $...$ as mathematics
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 :]}"


def prediction_page(rows: Sequence[dict[str, Any]]) -> list[RenderableType]:
    """Times, bands and bandwidths by size, and the assumptions."""
    first = rows[0]
    basis = ", calibrated by sweeps" if first["basis"] == "calibrated" else " from the catalog alone"
    group = group_words(first["collective"], first["ranks"], first["nodes"])
    chosen = "by its rules" if OPEN_MPI_NOTE in (first["reason"] or "") else "fastest"
    shown = [
        {
            "size": "" if row["bytes"] is None else size_text(row["bytes"]),
            "time": humanise(row["time_s"], "s"),
            "low to high": f"{humanise(row['low_s'], 's')} to {humanise(row['high_s'], 's')}",
            **{name: "" if row[name] is None else humanise(row[name], "B/s") for name in ("algbw", "busbw")},
            chosen: " ".join(dict.fromkeys((row["algorithm"], row["protocol"]))),
        }
        for row in rows
    ]
    notes = [first["reason"], *(row["marks"] for row in rows)]
    lines = [f"- {line}" for line in dict.fromkeys("; ".join(filter(None, notes)).split("; ")) if line]
    return [
        Text(f"{first['system']}: {group}; modelled{basis}\n"),
        *grid_table(shown, list(shown[0])),
        *map(Text, lines),
    ]


def validation_page(rows: Sequence[dict[str, Any]], system: System) -> list[RenderableType]:
    """A table for each sweep, with what is suspicious, then one for all together."""

    def shown_row(row: dict[str, Any]) -> dict[str, str]:
        return {
            "sizes": row["sizes"],
            "rows": f"{row['count']:,}",
            "median error": f"{row['median_error']:.1%}",
            "p90": f"{row['p90_error']:.1%}",
            "within band": f"{row['within_band']:.0%}",
            "measured / model": f"{row['measured_over_model']:.2f}",
        }

    basis = "calibrated by other sweeps" if rows[0]["basis"] == "calibrated" else "from the catalog alone"
    parts: list[RenderableType] = [Text(f"{system.id}: the model {basis}, compared with measured times")]
    for (sweep, kind, ranks, nodes), group in groupby(
        rows, lambda row: (row["sweep"], row["collective"], row["ranks"], row["nodes"])
    ):
        sweep_rows = list(group)
        heading = "all sweeps together" if sweep is None else f"{sweep}: {group_words(kind, ranks, nodes)}"
        parts.append(Text(f"\n{printable(heading)}"))
        if sweep_rows[0]["reason"]:
            parts.append(Text(f"- {printable(sweep_rows[0]['reason'])}"))
        table = [shown_row(row) for row in sweep_rows if row["count"]]
        parts += grid_table(table, list(table[0])) if table else []
    return parts


def calibration_page(calibration: Calibration, rows: Sequence[dict[str, Any]]) -> list[RenderableType]:
    """Errors of the calibration on sweeps that were left out."""
    shown = [
        {
            "left out": row["left_out"],
            "sizes": row["sizes"],
            "median error": f"{row['median_error']:.1%}",
            "p90": f"{row['p90_error']:.1%}",
        }
        for row in rows
    ]
    parts: list[RenderableType] = [
        Text(f"{calibration.system}: {len(calibration.sweeps)} sweep{'s' * (len(calibration.sweeps) > 1)}\n")
    ]
    parts += grid_table(shown, list(shown[0])) if shown else []
    if not calibration.by_nodes:
        parts.append(Text("- only one node count was measured: the error for others is unknown"))
    return parts


def probe_page(
    system: System, commands: Sequence[str], rows: Sequence[dict[str, Any]]
) -> list[RenderableType]:
    """Benchmarks to run, if there are any to, and the bands before and after."""
    shown = [
        {
            "collective": group_words(row["collective"], row["ranks"], row["nodes"]),
            "sizes": row["sizes"],
            "band before": f"{row['before']:.2f} times",
            "band after": f"{row['after']:.2f} times",
        }
        for row in rows
    ]
    # Continued lines, which a shell joins: terminals would fold them anywhere.
    folded = [line.replace(" -x NCCL_DEBUG=VERSION ", " -x NCCL_DEBUG=VERSION \\\n    ") for line in commands]
    heading = "benchmarks that narrow its bands most" if commands else "bands before and after its sweeps"
    return [
        Text(f"{system.id}: {heading}\n"),
        *([Text("\n".join(folded) + "\n")] if commands else []),
        *grid_table(shown, list(shown[0])),
        Text("The band is high / low, the median over its sizes."),
    ]

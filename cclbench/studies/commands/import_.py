# SPDX-License-Identifier: Apache-2.0
"""`cclbench import`: published results, imported as runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cclbench.cli import options
from cclbench.ground.file_names import stored_name

if TYPE_CHECKING:
    from cclbench.studies.published import Imported

_COLUMNS = ("run", "row", "name", "numbers", "flagged", "no_number", "card", "new")


@click.command()
@click.argument("publisher", metavar="SOURCE", type=click.Choice(("ccl-bench", "mlperf", "inferencex")))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@options.store
@options.form
def import_(publisher: str, file: Path, store: Path, form: str) -> None:
    """Import published results into the store, for comparison.

    Each result becomes a run without traces, with numbers in cclbench's names and units, marked as
    published, and flagged with known defects. Results that the store already has are unchanged.

    \b
    SOURCE and FILE:
      ccl-bench   its leaderboard, benchmark_data.json
      mlperf      result_*.txt of Training, mlperf_log_summary.txt of Inference,
                  or a submission's folder: its systems/*.json count accelerators
      inferencex  agg_*.json, one result or an array

    \b
    Examples:
      cclbench import ccl-bench benchmark_data.json
      cclbench import mlperf training_results_v5.1/NVIDIA
      cclbench import inferencex agg_bmk.json --json
    """
    from dataclasses import asdict

    from cclbench.present.terminal.output import emit_answer
    from cclbench.studies.published import import_ccl_bench, import_inferencex, import_mlperf
    from cclbench.studies.published.terminal import imported_page

    importers = {"ccl-bench": import_ccl_bench, "mlperf": import_mlperf, "inferencex": import_inferencex}
    found = importers[publisher](file, store)
    flags = _flags(found)
    rows = [asdict(run) for run in found.runs]
    emit_answer(
        form,
        document={
            "schema": "import.v1",
            "source": publisher,
            "file": stored_name(found.file),
            "generated_at": found.generated_at,
            "flags": flags,
            "unknown_columns": dict(found.unknown_columns),
            "runs": rows,
        },
        rows=rows,
        columns=_COLUMNS,
        table=lambda: imported_page(found, flags),
    )


def _flags(found: Imported) -> list[dict[str, Any]]:
    from cclbench.studies.published.defects import DEFECTS

    return [
        {
            "flag": defect.key,
            "values": found.defects[defect.key],
            "kept": not defect.no_number,
            "words": defect.words,
            "columns": list(defect.columns),
        }
        for defect in DEFECTS
        if found.defects.get(defect.key)
    ]

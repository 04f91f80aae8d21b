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


@click.group()
def import_() -> None:
    """Import published results into the store, for comparison.

    Each row becomes a run without traces, with numbers in cclbench's names and units, marked as
    published, and flagged with known defects. Rows that the store already has are unchanged.
    """


@import_.command("ccl-bench")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@options.store
@options.form
def ccl_bench(file: Path, store: Path, form: str) -> None:
    """Import CCL-Bench's leaderboard.

    FILE is benchmark_data.json, of CCL-Bench's website.

    \b
    Examples:
      cclbench import ccl-bench benchmark_data.json
      cclbench import ccl-bench benchmark_data.json --json
    """
    from cclbench.studies.published import import_ccl_bench

    _emit_imported(import_ccl_bench(file, store), "ccl-bench", form)


@import_.command("ccl-search")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--script",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="Launch script of the trials, from which their batch follows; it is read, not run.",
)
@click.option(
    "--card",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Workload card of the search, version 1, which states model and hardware.",
)
@options.store
@options.form
def ccl_search(file: Path, script: Path, card: Path | None, store: Path, form: str) -> None:
    """Import the trials of a configuration search.

    FILE is results.csv, which a search by CCL-Bench's agent writes. Each trial becomes a run, also one
    that failed. A trial's batch and layout follow from the launch script and the trial's settings.

    \b
    Examples:
      cclbench import ccl-search results.csv --script run.sh
      cclbench import ccl-search results.csv --script run.sh --card card.yaml
    """
    from cclbench.studies.published import import_ccl_search

    _emit_imported(import_ccl_search(file, script, card, store), "ccl-search", form)


@import_.command()
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@options.store
@options.form
def mlperf(path: Path, store: Path, form: str) -> None:
    """Import results of MLPerf Training and Inference.

    PATH is a result_*.txt of Training, a mlperf_log_summary.txt of Inference, or a submission's folder,
    whose systems/*.json count accelerators.

    \b
    Examples:
      cclbench import mlperf training_results_v5.1/NVIDIA
    """
    from cclbench.studies.published import import_mlperf

    _emit_imported(import_mlperf(path, store), "mlperf", form)


@import_.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@options.store
@options.form
def inferencex(file: Path, store: Path, form: str) -> None:
    """Import points of InferenceX.

    FILE is agg_*.json, one result or an array.

    \b
    Examples:
      cclbench import inferencex agg_bmk.json --json
    """
    from cclbench.studies.published import import_inferencex

    _emit_imported(import_inferencex(file, store), "inferencex", form)


def _emit_imported(outcome: Imported, publisher: str, form: str) -> None:
    from dataclasses import asdict

    from cclbench.present.terminal.output import emit_answer
    from cclbench.studies.published.terminal import imported_page

    flags = _flags(outcome)
    rows = [asdict(run) for run in outcome.runs]
    emit_answer(
        form,
        document={
            "schema": "import.v1",
            "source": publisher,
            "file": stored_name(outcome.file),
            "generated_at": outcome.generated_at,
            "remarks": list(outcome.remarks),
            "flags": flags,
            "unknown_columns": dict(outcome.unknown_columns),
            "runs": rows,
        },
        rows=rows,
        columns=_COLUMNS,
        table=lambda: imported_page(outcome, flags),
    )


def _flags(outcome: Imported) -> list[dict[str, Any]]:
    from cclbench.studies.published.defects import DEFECTS

    return [
        {
            "flag": defect.key,
            "values": outcome.defects[defect.key],
            "kept": not defect.no_number,
            "words": defect.words,
            "columns": list(defect.columns),
        }
        for defect in DEFECTS
        if outcome.defects.get(defect.key)
    ]

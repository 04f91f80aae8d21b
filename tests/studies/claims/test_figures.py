# SPDX-License-Identifier: Apache-2.0
"""Figures of the paper stand in the published rows, or do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import row, subject

from cclbench.studies.claims import examine_claims
from cclbench.studies.claims.figures import FIGURES, StatedFigure, examine_figures
from cclbench.studies.published import import_ccl_bench


@pytest.mark.parametrize(
    ("stated", "value", "equal"),
    [
        ("53.65 %", 0.536544, True), ("53.65 %", 0.536551, False), ("81.22 ms", 0.0812249, True),
        ("81.22 ms", 0.0812251, False), ("221.8 ms", 0.22176, True), ("817.9 GB", 817.94e9, True),
        ("817.9 GB", 817.9 * 2**30, False), ("4 %", 0.0449, True),
    ],
)  # fmt: skip
def test_a_value_rounds_to_the_stated_digits_or_not(stated: str, value: float, equal: bool) -> None:
    assert StatedFigure("f", stated).is_rounded(value) == equal


def published(name: str, **values: float) -> Any:
    rows = [
        row(metric.replace("__", "."), value, unit="1", provenance="published")
        for metric, value in values.items()
    ]
    source = {"source": "ccl-bench", "metadata": {"workload_name": name}}
    return subject("A", rows, published=source, ranks=0)


def test_a_figure_is_looked_up_in_its_row_only() -> None:
    """The MoE's 53.65 % in another row or as another metric is not that figure; a share is one anywhere."""
    moe = FIGURES[0].workload or ""
    for run, equal in (
        (published(moe, comm__fraction=0.536544), 1),
        (published(moe, overlap__ratio=0.536544), 0),
        (published("other", comm__fraction=0.536544), 0),
        (published("other", overlap__ratio=0.83674), 1),
    ):
        claim = examine_figures([run])
        assert (claim.counts["equal"], claim.outcome) == (equal, "not shown")
    assert claim.summary[0]["published"] is None
    assert claim.summary[7]["published"] == "83.674 %"
    assert examine_figures([]).outcome == "cannot be examined"
    elsewhere = {"source": "ccl-search", "metadata": {"workload_name": moe}}
    rows = [row("comm.fraction", 0.536544, unit="1", provenance="published")]
    other = subject("A", rows, published=elsewhere, ranks=0)
    assert examine_figures([other]).outcome == "cannot be examined"


PRINTED = "53.6544 %|46.4142 %|81.2221 ms|76.0341 ms|221.814 ms|85.051 ms|97.6773 ms"
STATED = "53.65 %|46.41 %|81.22 ms|76.03 ms|221.8 ms|85.05 ms|97.68 ms"


def test_the_figures_of_the_paper(test_data: Path, tmp_path: Path) -> None:
    """Seven stand in the rows, to the paper's digits; two stand in none."""
    import_ccl_bench(test_data / "ccl_bench" / "benchmark_data.json", tmp_path)
    (claim,) = examine_claims(tmp_path, ["figures"]).claims
    found = {line["stated"]: line["published"] for line in claim.summary if line["equal"]}
    assert found == dict(zip(STATED.split("|"), PRINTED.split("|"), strict=True))
    assert claim.verdict == "7 of 9 figures stand in the rows; in no row: 83.67 %, 817.9 GB"
    assert [line["published"] for line in claim.summary if not line["equal"]] == ["83.9077 %", "776.804 GB"]

# SPDX-License-Identifier: Apache-2.0
"""Random layouts whose every metric is known: exact on true clocks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from helpers.synthetic import Case, Truth, in_layouts, write
from helpers.true_rows import (
    CASES,
    NS,
    PARTS,
    Key,
    Values,
    true_balance,
    true_bandwidths,
    true_phases,
    true_ratios,
    true_skews,
    true_sums,
    values_of,
)

import cclbench
from cclbench.ground.schema import group_id

EXACT = (
    *("comm.wait", "comm.transfer", "comm.skew", "comm.time", "comm.fraction", "comm.count", "comm.volume"),
    *("comm.algbw", "comm.busbw", "comm.windows", "comm.alpha", "comm.beta"),
    *("time.exposed_*", "overlap.*", "balance.*"),
)
PARTLY = {"comm.count", "comm.volume"}
"""Of these the truth is only told of all collectives together."""


def exactly(case: Case) -> None:
    truth = case.simulate()
    with TemporaryDirectory() as folder:
        write(truth, Path(folder) / "traces")
        run = cclbench.run(Path(folder) / "traces", store=Path(folder) / "store", metrics=EXACT)
    found = values_of(run)
    expected: Values = {}
    for of in (true_sums, true_ratios, true_bandwidths, true_phases, true_balance):
        expected |= of(truth)
    expected |= true_skews(truth.instances)
    told = {key[0] for key in expected}
    compared = {k: v for k, v in found.items() if k[0] in told and not _partly_told(k) and not _finer(k)}
    alike(compared, expected)
    hockney(truth, found)
    sum_to_exposed(run)


def _finer(key: Key) -> bool:
    """Whether it is what the truth does not tell: which copies."""
    metric, *_, category, _ = key
    return metric == "time.exposed_copy" and category is not None


def _partly_told(key: Key) -> bool:
    return key[0] in PARTLY and key[2:] != (None,) * 4


def alike(found: Values, expected: Values) -> None:
    assert set(found) == set(expected)
    wrong = {
        key: (value, expected[key])
        for key, value in found.items()
        if not math.isclose(value, expected[key], rel_tol=1e-12, abs_tol=1e-18)
    }
    assert not wrong


def hockney(truth: Truth, found: Values) -> None:
    """α and β of exactly the kinds and groups with 5 points of 2 sizes."""
    fitted = {key: n for key, n in truth.points.items() if n[0] >= 5 and n[1] >= 2}
    assert {key[2:4] for key in found if key[0] == "comm.alpha"} == {
        (kind, group_id(group)) for kind, group in fitted
    }
    for kind, group in fitted:
        link = truth.hockney[kind, group]
        at = (None, kind, group_id(group), None)
        assert found["comm.alpha", *at, None] == pytest.approx(link.alpha_ns / NS, rel=1e-9)
        assert found["comm.beta", *at, None] == pytest.approx(float(link.beta_ns) / NS, rel=1e-9)
        assert found["comm.alpha", *at, "r2"] == pytest.approx(1)
        for metric in ("comm.alpha", "comm.beta"):
            low, high = found[metric, *at, "low"], found[metric, *at, "high"]
            assert low <= found[metric, *at, None] <= high
            assert high - low <= 1e-6 * high


def sum_to_exposed(run: cclbench.Run) -> None:
    """Of each rank and step waiting, transfer and what is not matched sum to the exposed communication."""
    parts: dict[tuple[int | None, int | None], Counter[str]] = defaultdict(Counter)
    for row in run.rows:
        place = row["collective"], row["group"], row["category"], row["stat"]
        if row["metric"].startswith("time.exposed_") and place == (None,) * 4 and row["rank"] is not None:
            parts[row["rank"], row["step"]][row["metric"].removeprefix("time.exposed_")] += row["value"] or 0
    for of in parts.values():
        assert of["wait"] + of["transfer"] + of["unmatched"] == pytest.approx(
            of["comm"], rel=1e-12, abs=1e-15
        )


@pytest.mark.parametrize("part", range(PARTS))
def test_every_metric_is_exact_on_true_clocks(part: int) -> None:
    in_layouts(CASES, part, exactly)

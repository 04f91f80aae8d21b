# SPDX-License-Identifier: Apache-2.0
"""Score of a self-test on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cclbench.present.terminal.output import bullet_lines, grid_table
from cclbench.selftest.exam import TOLERANCE
from cclbench.selftest.score import HEALTHY_SHARE, Score

_COLUMNS = ("cause", "jobs", "first", "first 3", "gains", "within", "width", "true gain")


def selftest_page(score: Score, *, verbosity: int = 0) -> list[RenderableType]:
    """A row for each cause, equal and healthy jobs, metrics; with -v also the failed jobs."""
    parts: list[RenderableType] = [
        *grid_table([_score_cells(row) for row in score.cause_rows()], _COLUMNS),
        Text(),
    ]
    unplanted = score.unplanted_scores()
    lines = [
        "first, first 3: the cause's finding is ranked first, or among the first three",
        "gains, within: findings with a stated gain, and with the true one within its bounds"
        f" ± {TOLERANCE:.0%} of the step",
        "width: median of the most over the least gain stated; true gain: its median share of the step",
    ]
    if unplanted["equal_jobs"]:
        lines.append(
            f"a rank is accused in {unplanted['equal_accused']} of {unplanted['equal_jobs']} equal jobs"
        )
    if unplanted["healthy_jobs"]:
        lines.append(
            f"a gain above {HEALTHY_SHARE:.0%} is stated in {unplanted['healthy_above_limit']} of"
            f" {unplanted['healthy_jobs']} healthy jobs; the largest is"
            f" {unplanted['healthy_largest_gain']:.1%}"
        )
    parts += [bullet_lines(lines), Text()]
    metrics = [
        {
            "metric": row["metric"],
            "jobs": row["jobs"],
            "absent": row["absent"],
            "median error": _share_words(row["median_error"]),
            "largest error": _share_words(row["largest_error"]),
        }
        for row in score.metric_errors()
    ]
    parts += grid_table(metrics, ("metric", "jobs", "absent", "median error", "largest error"))
    if verbosity > 0:
        wrong = [
            outcome
            for outcome in score.outcomes
            if outcome.item.cause and (outcome.place != 1 or outcome.within is False)
        ]
        outcome_lines = [
            f"{outcome.item.cause} seed {outcome.item.seed} ({outcome.layout}, {outcome.ranks} ranks): true"
            f" gain {_share_words(outcome.true_gain_share)}, found "
            + (", ".join(_finding_words(finding) for finding in outcome.found) or "nothing")
            for outcome in wrong
        ]
        parts += [Text(), bullet_lines(outcome_lines)]
    return parts


def _score_cells(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("cause", "jobs", "first", "gains", "within", "width")},
        "first 3": row["first_three"],
        "true gain": _share_words(row["true_gain"]),
    }


def _share_words(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"


def _finding_words(finding: tuple[str, float | None, float | None, list[int]]) -> str:
    name, least, most, ranks = finding
    of_ranks = f" of ranks {', '.join(map(str, ranks))}" if ranks else ""
    return f"{name}{of_ranks}" if least is None else f"{name}{of_ranks} {least:.1%} to {most:.1%}"

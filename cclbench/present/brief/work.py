# SPDX-License-Identifier: Apache-2.0
"""Brief answers of `ops`, `sequences` and `stragglers`."""

from __future__ import annotations

from typing import Final

from cclbench.present.brief.quantities import Brief, Document, quantities, quantity

_OPERATOR: Final = {
    "calls": "",
    "time_s": "s",
    "share": "1",
    "gap_s": "s",
    "peak_share": "1",
    "bound": "",
    "wasted_flops": "FLOP",
    "marked_time_s": "s",
    "why_not": "",
}


def brief_operators(document: Document) -> Brief:
    """Operators with their time and distance from the roofline, as sorted."""
    by = document["by"]
    return {
        "rows": [
            {by: row["key"], **quantities(row | {"marked_time_s": row["marked_time_s"] or None}, _OPERATOR)}
            for row in document["rows"]
        ],
        "run": document["run"],
        **quantities(
            document,
            {"time_s": "s", "gap_s": "s", "unmodelled_s": "s", "linked_share": "1", "modelled_share": "1"},
        ),
        "window": document["window"],
        "where": document["where"],
        "all_rows": document["all_rows"],
        "notes": document["notes"],
    }


def brief_sequences(document: Document) -> Brief:
    """Sequences of kernels, the longest time first."""
    units = {"count": "", "time_s": "s", "share": "1", "gap_s": "s"}
    return {
        "rows": [{"kernels": row["kernels"], **quantities(row, units)} for row in document["rows"]],
        "run": document["run"],
        "length": document["length"],
        "kernel_time": quantity(document["kernel_time_s"], "s"),
        "notes": document["notes"],
    }


def brief_stragglers(document: Document) -> Brief:
    """The verdict on each run, and how late its ranks are."""
    return {
        "answer": document["words"],
        "runs": [
            {
                "words": run["words"],
                "rank": run["named"],
                "cause": run["cause"],
                "pattern": run["pattern"],
                "since_step": run["since"],
                "period": run["period"],
                "p_value": None if run["p_value"] is None else f"{run['p_value']:.2g}",
                "slowdown_of_job": quantity(run["slowdown"], "ratio"),
                "ranks": [
                    {
                        "rank": row["rank"],
                        "late_by": quantity(row["mean_s"], "s"),
                        "max": quantity(row["max_s"], "s"),
                        "in_step": row["max_step"],
                        "latest_in_steps": row["latest"],
                        "cause": row["cause"],
                    }
                    for row in run["ranks"]
                ],
                "run": run["run"],
                "steps": len(run["steps"]),
                "notes": run["notes"],
            }
            for run in document["runs"]
        ],
    }

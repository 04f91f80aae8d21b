# SPDX-License-Identifier: Apache-2.0
"""A micro-benchmark's result beside the trace, on a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import RenderableType
from rich.text import Text

from cclbench.ground.units import humanise
from cclbench.present.terminal.output import grid_table, titled_bullets
from cclbench.reproduction.check import COLUMNS, ReproductionCheck

_QUANTITIES: Final = {"p50_s": "median", "mean_s": "mean", "min_s": "least"}
_KERNELS: Final = {True: "the same kernels", False: "other kernels", None: "kernels not compared"}


def reproduction_page(check: ReproductionCheck) -> list[RenderableType]:
    """The ratio, times per call of both, what differs and what is unknown."""
    result = check.result
    ratio = "no time in the trace" if check.ratio is None else f"{check.ratio:.2f} times the trace's time"
    rows = [
        {
            "quantity": _QUANTITIES[row["quantity"]],
            "trace": humanise(row["trace"], "s"),
            "reproduction": humanise(row["reproduction"], "s"),
            "ratio": None if row["ratio"] is None else f"{row['ratio']:.2f}",
        }
        for row in check.rows
    ]
    if result.kernel_s is not None:
        rows.append(
            {
                "quantity": "kernels",
                "trace": humanise(check.traced["p50_s"], "s"),
                "reproduction": humanise(result.kernel_s, "s"),
                "ratio": None if check.ratio is None else f"{check.ratio:.2f}",
            }
        )
    return [
        Text(f"{result.operator}: {ratio}, {_KERNELS[check.same_kernels]}"),
        Text(
            f"time per call; {check.traced['calls']:,} in {check.run}, {result.repeats:,} by"
            f" {result.timing} in the reproduction"
        ),
        Text(),
        *grid_table(rows, COLUMNS),
        *titled_bullets("Differs", check.differences),
        *titled_bullets("Not known", check.unknown),
    ]

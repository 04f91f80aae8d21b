# SPDX-License-Identifier: Apache-2.0
"""Columns of the operators' table as people read them, on the terminal and on pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cclbench.analyzers.view.operator_rows import COLUMNS, OperatorRow
from cclbench.analyzers.view.operator_sums import SEVERAL_KERNELS
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.operators.cost import PRODUCTS
from cclbench.present.words import joined_operands

NO_MODEL: Final = "no model"
SEVERAL: Final = "several"
"""Of kernels whose calls launched others as well: the cost is of the call."""
PARTLY: Final = "~"
"""Behind figures of a row of which only a part has a cost model."""


@dataclass(frozen=True, slots=True)
class OperatorColumn:
    """A column: its heading, meaning, and a row's cell; `value` sorts it on pages."""

    heading: str
    meaning: str
    text: Callable[[OperatorRow], str]
    value: Callable[[OperatorRow], float | str | None]
    numeric: bool = True


def _quantity(name: str, heading: str, unit: str) -> OperatorColumn:
    """A column of a quantity; 0 and missing values are empty."""

    def value(row: OperatorRow) -> float | None:
        number: float | None = getattr(row, name)
        return number or None

    def text(row: OperatorRow) -> str:
        number = value(row)
        return "" if number is None else humanise(number, unit)

    return OperatorColumn(heading, COLUMNS[name], text, value)


def _achieved(row: OperatorRow) -> str:
    """FLOP/s where arithmetic bounds the row, or of products without a roofline, else B/s."""
    computes = row.bound == "compute" or (row.bound == "unknown" and row.family in PRODUCTS)
    flops = row.flops_per_s and (computes or not row.bytes_per_s)
    rate, unit = (row.flops_per_s, "FLOP/s") if flops else (row.bytes_per_s, "B/s")
    return humanise(rate, unit) if rate else ""


def roofline_words(row: OperatorRow) -> str:
    """`86 % M`: roofline time over time and what bounds it; `121 %*` where all calls are faster."""
    mark = {"cache": "*", "above": "!", None: ""}[row.mark]
    if row.why_not and not row.modelled_share:
        return SEVERAL if row.why_not == SEVERAL_KERNELS else NO_MODEL
    mark += PARTLY if row.modelled_share < 1 and row.why_not else ""
    share = row.roofline_share if row.roofline_share is not None else row.marked_share
    if share is None:
        return mark
    bound = "" if row.bound == "unknown" or row.roofline_share is None else f" {row.bound[0].upper()}"
    return percent(share) + bound + mark


def percent(share: float) -> str:
    """With one decimal, so that shares align."""
    return f"{100 * share:.1f} %" if share >= 5e-4 or not share else "<0.1 %"


def _sizes(row: OperatorRow) -> str:
    """`8192·2688·1024`, of a batch `256 x 512·64·512`."""
    if row.product is None:
        return ""
    batch, *sizes, _ = row.product
    return ("" if batch == 1 else f"{batch} x ") + "·".join(map(str, sizes))


OWN: Final = _quantity("own_s", "own", "s")
"""Of a tree; behind the time."""
SHOWN: Final = (
    OperatorColumn("calls", COLUMNS["calls"], lambda row: f"{row.calls:,}", lambda row: row.calls),
    OperatorColumn("time", COLUMNS["time_s"], lambda row: humanise(row.time_s, "s"), lambda row: row.time_s),
    OperatorColumn("share", COLUMNS["share"], lambda row: percent(row.share), lambda row: row.share),
    OperatorColumn(
        "achieved",
        "of the calls with a cost model: FLOP/s where arithmetic bounds them (of products without a"
        " roofline), else B/s",
        _achieved,
        lambda row: row.roofline_share,
    ),
    OperatorColumn(
        "roofline",
        "roofline time over time; C: bound by compute, M: by memory",
        roofline_words,
        lambda row: row.marked_share if row.roofline_share is None else row.roofline_share,
    ),
    _quantity("gap_s", "gap", "s"),
    OperatorColumn(
        "model",
        COLUMNS["modelled_share"],
        lambda row: _coverage(row),
        lambda row: row.modelled_share,
    ),
    _quantity("mean_s", "mean", "s"),
    _quantity("p50_s", "p50", "s"),
    _quantity("p90_s", "p90", "s"),
    _quantity("max_s", "max", "s"),
    OperatorColumn(
        "type", COLUMNS["precision"], lambda row: row.precision or "", lambda row: row.precision, False
    ),
    OperatorColumn("M·N·K", "sizes of the products, where all calls have the same", _sizes, _sizes, False),
    OperatorColumn(
        "layout",
        COLUMNS["layout"],
        lambda row: (row.product and row.product.layout) or "",
        lambda row: row.product and row.product.layout,
        False,
    ),
    _quantity("flops_per_s", "FLOP/s", "FLOP/s"),
    OperatorColumn(
        "of peak",
        COLUMNS["peak_share"],
        lambda row: percent(row.peak_share) if row.peak_share else "",
        lambda row: row.peak_share,
    ),
    _quantity("wasted_flops", "wasted", "FLOP"),
    _quantity("bytes_per_s", "B/s", "B/s"),
    _quantity("peak_flops_per_s", "peak", "FLOP/s"),
    _quantity("attainable_flops_per_s", "attainable", "FLOP/s"),
)
"""In the order in which a terminal shows as many as fit."""
FIRST: Final = SHOWN[:6]
"""Up to the gap: for them a narrow terminal shortens names."""


def _coverage(row: OperatorRow) -> str:
    """Whole, partial or no coverage by cost models; never rounded to whole."""
    if row.modelled_share >= 1:
        return "100 %"
    return f"{min(100 * row.modelled_share, 99.9):.1f} %" if row.modelled_share else ""


def shown_keys(row: OperatorRow, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys that the row shows: all, in a tree by several the one of its level."""
    return keys[row.depth - 1 : row.depth] if row.depth and len(keys) > 1 else keys


def shown_words(row: OperatorRow, keys: tuple[str, ...]) -> Iterator[str]:
    """The values of `shown_keys`, a line each: of a tree the last part, indented; of equal operands one."""
    shown = shown_keys(row, keys)
    for key, word in zip(shown, row.words[-len(shown) :], strict=True):
        text = printable(word)
        if key == "shape":
            text = joined_operands(text)
            if "op" in keys and row.operator and not row.depth:
                text = text.removeprefix(printable(row.operator)) or "()"
        if row.depth is not None:
            text = "  " * (row.depth - 1) + (text if len(keys) > 1 else text.split("/", row.depth - 1)[-1])
        yield text

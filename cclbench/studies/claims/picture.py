# SPDX-License-Identifier: Apache-2.0
"""The claims as a picture, one panel each: pairs, gains by accelerator, frameworks' best runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.charts.palette import light_colour
from cclbench.studies.claims import Claim
from cclbench.studies.claims.overlap import SAME_STEP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = Mapping[str, Any]

# Outcomes differ in colour and in shape.
_OUTCOMES: Final = {
    "longer": ("transfer", "^", "longer step"),
    "shorter": ("compute", "v", "shorter step"),
    "same": ("muted", "o", "equally long"),
    "equal overlap": ("muted", "x", "equal overlap"),
}
_GPU, _TPU, _MEDIAN, _UNEQUAL, _SAID = map(light_colour, ("compute", "transfer", "ink", "idle", "muted"))
_MARKS: Final[Mapping[str, Any]] = {"published": "full", "modelled": "none"}
_WIDTH_IN: Final = 7.6
_MOST_LINES: Final = 24
_LONGEST: Final = 24


def draw_claims(claims: Sequence[Claim]) -> Figure:
    """One panel per claim, stacked; a panel without data shows the verdict."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9}):
        heights = [_panel_height(claim) for claim in claims]
        figure = Figure(figsize=(_WIDTH_IN, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(claims), 1, height_ratios=heights, squeeze=False)[:, 0]
        for panel, claim in zip(panels, claims, strict=True):
            title = f"{claim.statement}\n{claim.outcome.capitalize()}"
            panel.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
            if claim.summary and claim.key in _PANELS:
                _PANELS[claim.key](panel.add_subplot(), claim)
            else:
                axes = panel.add_subplot()
                axes.set_axis_off()
                axes.text(0, 0.5, fill(_shorten_text(claim.verdict, 300), 100), va="center", color=_SAID)
    return figure


def _panel_height(claim: Claim) -> float:
    if not claim.summary or claim.key not in _PANELS:
        return 1.2
    if claim.key == "overlap":
        return 3.8
    lines = len(_titled_lines(claim)) if claim.key == "frameworks" else min(len(claim.summary), _MOST_LINES)
    return 1.4 + 0.3 * lines


def _draw_pairs(axes: Axes, claim: Claim) -> None:
    """Step ratio over the difference in overlap: above 1 the run with more overlap is slower."""
    for outcome, (colour, marker, label) in _OUTCOMES.items():
        pairs = [row for row in claim.rows if row["outcome"] == outcome]
        if pairs:
            axes.plot(
                [100 * (pair["higher_overlap"] - pair["lower_overlap"]) for pair in pairs],
                [pair["step_ratio"] for pair in pairs],
                color=light_colour(colour),
                marker=marker,
                markersize=5,
                linestyle="none",
                alpha=0.85,
                label=f"{label}: {len(pairs)}",
            )
    axes.axhspan(1 / (1 + SAME_STEP), 1 + SAME_STEP, color=light_colour("muted"), alpha=0.25, linewidth=0)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.1, 1.4 * max(100 * (row["higher_overlap"] - row["lower_overlap"]) for row in claim.rows))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("higher overlap − lower overlap, percentage points")
    axes.set_ylabel("step with the higher overlap\n/ step with the lower")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_gains(axes: Axes, claim: Claim) -> None:
    """Saved share of the step: one mark per run, one line per accelerator and phase, strokes for medians."""
    lines = claim.summary[:_MOST_LINES]
    for place, line in enumerate(lines):
        key = _gain_key(line)
        rows = [row for row in claim.rows if _gain_key(row) == key]
        with_gain = [row for row in rows if row["gain"] is not None]
        bands = [row for row in rows if row["gain_low"] is not None and row["gain_high"] is not None]
        colour = _TPU if line["kind"] == "TPU" else _GPU
        for provenance, fill_style in _MARKS.items():
            gains = [100 * row["gain"] for row in with_gain if row["provenance"] == provenance]
            mark = {"marker": "o", "markersize": 5, "linestyle": "none", "fillstyle": fill_style}
            axes.plot(gains, [place] * len(gains), color=colour, alpha=0.6, **mark)
        for row in bands:
            band = [100 * row["gain_low"], 100 * row["gain_high"]]
            axes.plot(band, [place] * 2, color=colour, linewidth=3, alpha=0.25)
        if with_gain:
            axes.plot([100 * line["median"]] * 2, [place - 0.3, place + 0.3], color=_MEDIAN, linewidth=2)
        elif not bands:
            axes.text(
                0.02, place, "not known", transform=axes.get_yaxis_transform(), va="center", color=_SAID
            )
    names = [
        f"{_shorten_text(line['accelerator'])}, {line['phase'] or 'phase unknown'}:"
        f" {line['known']} of {line['runs']}"
        for line in lines
    ]
    axes.set_yticks(range(len(lines)), names)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    left_out = _left_out(len(claim.summary) - len(lines))
    axes.set_xlabel(f"share of the step saved, % (hollow, bands: by replay){left_out}")


def _gain_key(row: Line) -> tuple[Any, ...]:
    return row["accelerator"], row["phase"], row["basis"]


def _draw_best(axes: Axes, claim: Claim) -> None:
    """How far each framework's best run is behind the overall best, by comparison; 1 is the best."""
    lines = _titled_lines(claim)
    for place, line in enumerate(lines):
        if isinstance(line, str):
            axes.text(0.03, place + 0.2, line, va="center", fontsize=8, fontweight="bold")
            continue
        colour = _GPU if "equal work" in line["basis"] else _UNEQUAL
        axes.barh(place, line["behind"], color=colour, height=0.7)
        figures = f"{humanise(line['step_s'], 's')}, {line['tokens_per_s_per_device']:,.0f} tokens/s/device"
        axes.text(line["behind"], place, f" {line['behind']:.2f}×, {figures}", va="center", fontsize=8)
    names = ["" if isinstance(line, str) else _runner_label(line) for line in lines]
    axes.set_yticks(range(len(lines)), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(0, 1.8 * max(line["behind"] for line in lines if not isinstance(line, str)))
    left_out = _left_out(len(claim.summary) - sum(not isinstance(line, str) for line in lines))
    axes.set_xlabel(f"time / best time (grey: unequal work, or one model's tokens){left_out}")


def _left_out(lines: int) -> str:
    return f"; {lines} more lines in the table" if lines else ""


def _runner_label(line: Line) -> str:
    batch = f"{line['batch']}x{line['sequence_length']}"
    return f"{_shorten_text(line['framework'])}, {_shorten_text(line['model'])} {batch}"


def _titled_lines(claim: Claim) -> list[Line | str]:
    """The summary's lines, each comparison under its title, as many comparisons as fit."""
    titled: list[Line | str] = []
    for title, lines in groupby(
        claim.summary, lambda line: f"{line['basis']}, {line['devices']} {_shorten_text(line['accelerator'])}"
    ):
        comparison = list(lines)
        if titled and len(titled) + 1 + len(comparison) > _MOST_LINES:
            break
        titled += [title, *comparison]
    return titled


def _shorten_text(text: str | None, longest: int = _LONGEST) -> str:
    """Untrusted text, shortened, that matplotlib does not parse as mathematics."""
    return shorten_middle(printable(text or "unknown"), longest).replace("$", "\\$")


_PANELS: Final[Mapping[str, Callable[[Axes, Claim], None]]] = {
    "overlap": _draw_pairs,
    "bandwidth": _draw_gains,
    "frameworks": _draw_best,
}

# SPDX-License-Identifier: Apache-2.0
"""Colours by meaning, and how the parts of a step, changes and subjects look in every medium.

A page has a light and a dark theme; pictures and terminals show the light colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cclbench.record.metric_name import MetricName, metric_name

# Okabe and Ito's palette, which colour-blind people tell apart (jfly.uni-koeln.de/color), in the light theme
# darkened until white text on it has a contrast of 4.5; waiting is the pale sibling of transferring.
COLOURS: Final = {
    "bg": ("#ffffff", "#15171b"),
    "panel": ("#f7f7f4", "#1d2026"),
    "ink": ("#1c2025", "#e7e7e3"),
    "muted": ("#5b646e", "#9ea7b1"),
    "line": ("#dfdfd9", "#343941"),
    "accent": ("#00568a", "#7cc0ee"),
    "compute": ("#0072b2", "#3a97d3"),
    "graphs": ("#6a55a8", "#a493dc"),
    "overlapped": ("#00845e", "#19b389"),
    "transfer": ("#c25500", "#e77a2b"),
    "wait": ("#f7cfa8", "#9c6b3f"),
    "wait-hatch": ("#d98c46", "#dba06a"),
    "unmatched": ("#b05888", "#cf86b0"),
    "copy": ("#e69f00", "#e6ab2e"),
    "idle-host": ("#8f959c", "#7d848d"),
    "idle": ("#d9d9d8", "#474c54"),
    "idle-hatch": ("#fefefe", "#2e3238"),
    "on-dark": ("#fffffe", "#0e1013"),
    "on-pale": ("#333333", "#f1f1ee"),
    "better": ("#00714f", "#4cc9a0"),
    "worse": ("#b34700", "#f09a5c"),
}
"""Name → its value in light and in dark; no two light ones are equal: a drawing tells them apart by them."""


@dataclass(frozen=True, slots=True)
class StepSlice:
    """A part of a step: its metric, label, and the names of its colour and of the ink on it.

    `hatch` is matplotlib's pattern and the name of its colour, `finer` what the part consists of: one of its
    own metric is what the others leave of it. A terminal
    writes `short` and draws `glyphs`, one in Unicode, one in ASCII, of those that have them.
    """

    metric: MetricName
    label: str
    colour: str
    ink: str
    hatch: tuple[str, str] | None = None
    finer: tuple[StepSlice, ...] = ()
    short: str = ""
    glyphs: tuple[str, str] = ("", "")


SLICES: Final = (
    StepSlice(
        metric_name("time.compute_only"),
        "compute only",
        "compute",
        "on-dark",
        finer=(
            StepSlice(
                metric_name("time.compute_only"),
                "compute outside CUDA graphs",
                "compute",
                "on-dark",
                short="outside graphs",
                glyphs=("█", "#"),
            ),
            StepSlice(
                metric_name("time.graph_only"),
                "CUDA graphs, traced whole",
                "graphs",
                "on-dark",
                short="CUDA graphs, unknown inside",
                glyphs=("▤", "@"),
            ),
        ),
        short="compute only",
        glyphs=("█", "#"),
    ),
    StepSlice(
        metric_name("time.overlapped"),
        "overlapped",
        "overlapped",
        "on-dark",
        short="overlapped",
        glyphs=("▓", "%"),
    ),
    StepSlice(
        metric_name("time.exposed_comm"),
        "exposed communication",
        "transfer",
        "on-dark",
        finer=(
            StepSlice(
                metric_name("time.exposed_transfer"),
                "exposed transfer",
                "transfer",
                "on-dark",
                short="transfer",
                glyphs=("▒", "="),
            ),
            StepSlice(
                metric_name("time.exposed_wait"),
                "exposed wait",
                "wait",
                "on-pale",
                ("////", "wait-hatch"),
                short="wait",
                glyphs=("▚", "~"),
            ),
            StepSlice(
                metric_name("time.exposed_unmatched"),
                "exposed unmatched",
                "unmatched",
                "on-dark",
                short="wait or transfer",
                glyphs=("▞", "?"),
            ),
        ),
        short="exposed comm.",
        glyphs=("▒", "="),
    ),
    StepSlice(
        metric_name("time.exposed_copy"),
        "exposed copies",
        "copy",
        "on-pale",
        short="exposed copy",
        glyphs=("░", "-"),
    ),
    StepSlice(
        metric_name("time.idle"),
        "idle",
        "idle",
        "on-pale",
        ("////", "idle-hatch"),
        finer=(
            StepSlice(metric_name("time.idle_host"), "host-bound idle", "idle-host", "on-dark"),
            StepSlice(
                metric_name("time.idle_device"),
                "idle, waits on device",
                "idle",
                "on-pale",
                ("////", "idle-hatch"),
            ),
            StepSlice(
                metric_name("time.idle_unknown"),
                "idle, no launch known",
                "idle",
                "on-pale",
                ("....", "idle-hatch"),
            ),
        ),
        short="idle",
        glyphs=("·", "."),
    ),
)
"""The parts of a step, in the order in which they are stacked."""

LONGER: Final = ("transfer", ("█", "#"))
SHORTER: Final = ("compute", ("░", "-"))
"""Of a change: the name of its colour, its glyph in Unicode and in ASCII."""

SUBJECTS: Final = ("compute", "transfer", "overlapped", "unmatched", "copy", "idle-host")
MARKERS: Final = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}
"""Of subjects in turn, as matplotlib and as a legend write them; each differs in colour and in shape."""


def light_colour(name: str) -> str:
    """The colour to draw with; in a page it is that of the reader's theme."""
    return COLOURS[name][0]


def colour_name(place: int) -> str:
    """The name of the colour of the subject, or the kind, at that place."""
    return SUBJECTS[place % len(SUBJECTS)]


def drawing_colour(place: int) -> str:
    """That colour, to draw with."""
    return light_colour(colour_name(place))


def marker_of(place: int) -> str:
    """The mark of that place, as matplotlib calls it."""
    return list(MARKERS)[place % len(MARKERS)]


def css_classes() -> str:
    """A CSS class for each colour: `c-compute` writes in that of compute."""
    return "".join(f".c-{name}{{color:var(--{name})}}" for name in COLOURS)


def css_variables(theme: int) -> str:
    """CSS custom properties of the light (0) or the dark (1) theme."""
    return "".join(f"--{name}:{pair[theme]};" for name, pair in COLOURS.items())

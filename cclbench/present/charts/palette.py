# SPDX-License-Identifier: Apache-2.0
"""Colours by meaning, and the look of step parts, changes and subjects in every medium.

Pages have a light and a dark theme; pictures and terminals use the light colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cclbench.record.metric_name import MetricName, metric_name

# Okabe and Ito's colour-blind safe palette (jfly.uni-koeln.de/color); in the light theme darkened to a
# contrast of 4.5 for white text.  Waiting is a pale variant of transfer.
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
    "on-copy": ("#323232", "#0e1013"),
    "better": ("#00714f", "#4cc9a0"),
    "worse": ("#b34700", "#f09a5c"),
}
"""Name → (light, dark).  Light values are unique: in a drawing, they identify the name."""


@dataclass(frozen=True, slots=True)
class StepSlice:
    """A part of a step: its metric, label, and the names of its colour and of the ink on it.

    `hatch` is matplotlib's pattern and the name of its colour.  `finer` are the slices it consists of; one
    with the part's own metric is the rest of it.  Terminals use `short` as label and `glyphs`, (Unicode,
    ASCII), for bars.
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
        "on-copy",
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
"""The parts of a step, in stacking order."""

LONGER: Final = ("transfer", ("█", "#"))
SHORTER: Final = ("compute", ("░", "-"))
"""A change's colour name, and its glyphs in Unicode and ASCII."""

SUBJECTS: Final = ("compute", "transfer", "overlapped", "unmatched", "copy", "idle-host")
MARKERS: Final = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}
"""Marks of subjects in turn, in matplotlib and in a legend; subjects differ in colour and shape."""


def light_colour(name: str) -> str:
    """The colour to draw with; pages replace it by the reader's theme."""
    return COLOURS[name][0]


def colour_name(place: int) -> str:
    """The colour name of the subject or kind at this place."""
    return SUBJECTS[place % len(SUBJECTS)]


def drawing_colour(place: int) -> str:
    """The light colour of the subject or kind at this place."""
    return light_colour(colour_name(place))


def marker_of(place: int) -> str:
    """matplotlib's mark of the subject or kind at this place."""
    return list(MARKERS)[place % len(MARKERS)]


def css_classes() -> str:
    """A CSS class for each colour: `c-compute` sets the text colour of compute."""
    return "".join(f".c-{name}{{color:var(--{name})}}" for name in COLOURS)


def css_variables(theme: int) -> str:
    """CSS custom properties of the light (0) or the dark (1) theme."""
    return "".join(f"--{name}:{pair[theme]};" for name, pair in COLOURS.items())

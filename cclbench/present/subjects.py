# SPDX-License-Identifier: Apache-2.0
"""How a page calls and draws its subjects: by letter, colour and mark, in their order."""

from __future__ import annotations

from collections.abc import Iterable

from cclbench.comparison.subject import Subject
from cclbench.present.charts.palette import MARKERS, light, subject_colour
from cclbench.present.charts.palette import marker as nth_marker


def colour(subject: Subject) -> str:
    """The name of its colour."""
    return subject_colour(subject.place)


def ink(subject: Subject) -> str:
    """The colour to draw it in."""
    return light(colour(subject))


def marker(subject: Subject) -> str:
    """Its mark in a scatter, as matplotlib calls it."""
    return nth_marker(subject.place)


def mark(subject: Subject) -> str:
    """Its mark in a legend."""
    return MARKERS[marker(subject)]


def says(subject: Subject, text: str) -> str:
    """`A: text`, without a letter where it stands alone."""
    return f"{subject.letter}: {text}" if subject.letter else text


def together(told: Iterable[tuple[Subject, str]]) -> tuple[str, ...]:
    """`A, B: text`: what several runs say alike, once."""
    by_text: dict[str, list[str]] = {}
    for subject, text in told:
        by_text.setdefault(text, []).append(subject.letter)
    return tuple(
        f"{', '.join(letters)}: {text}" if any(letters) else text for text, letters in by_text.items()
    )

# SPDX-License-Identifier: Apache-2.0
"""How a page calls its subjects: by letter, and in legends by colour and mark."""

from __future__ import annotations

from collections.abc import Iterable

from cclbench.comparison.subject import Subject
from cclbench.present.charts.palette import MARKERS, colour, marker


def legend(subjects: Iterable[Subject]) -> tuple[tuple[str, str, str], ...]:
    """Colour, mark and letter of each, as `Chart.legend`; nothing of one that stands alone."""
    return tuple((colour(s.place), MARKERS[marker(s.place)], s.letter) for s in subjects if s.letter)


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

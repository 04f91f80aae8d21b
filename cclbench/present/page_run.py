# SPDX-License-Identifier: Apache-2.0
"""A subject as a page sees it: its rows, its colour and mark, how the page calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cclbench.comparison.subject import Subject
from cclbench.present.charts.palette import MARKERS, light, marker, subject_colour
from cclbench.present.rows import Rows
from cclbench.present.sections import headline


@dataclass(frozen=True, slots=True, eq=False)
class PageRun:
    """One of the page's runs."""

    subject: Subject
    rows: Rows
    place: int
    alone: bool
    """Whether the page is about this run only, so that it needs no letter."""

    @property
    def letter(self) -> str:
        """How the page calls it; nothing where there is but one."""
        return "" if self.alone else self.subject.letter

    @property
    def colour(self) -> str:
        """The name of its colour."""
        return subject_colour(self.place)

    @property
    def ink(self) -> str:
        """The colour to draw it in."""
        return light(self.colour)

    @property
    def marker(self) -> str:
        """Its mark in a scatter, as matplotlib calls it."""
        return marker(self.place)

    @property
    def mark(self) -> str:
        """Its mark in a legend."""
        return MARKERS[self.marker]

    @property
    def what(self) -> str:
        """Devices, ranks, steps, reader."""
        return headline(self.subject)

    def says(self, text: str) -> str:
        """`A: text`, without a letter where there is but one run."""
        return f"{self.letter}: {text}" if self.letter else text


def together(told: Iterable[tuple[PageRun, str]]) -> tuple[str, ...]:
    """`A, B: text`: what several runs say alike, once."""
    by_text: dict[str, list[str]] = {}
    for run, text in told:
        by_text.setdefault(text, []).append(run.letter)
    return tuple(
        f"{', '.join(letters)}: {text}" if any(letters) else text for text, letters in by_text.items()
    )


def page_runs(subjects: Sequence[Subject]) -> list[PageRun]:
    """The subjects of a page, in their order."""
    alone = len(subjects) == 1
    return [PageRun(one, Rows(one.results), place, alone) for place, one in enumerate(subjects)]

# SPDX-License-Identifier: Apache-2.0
"""Runs and comparisons as Python sessions and notebooks use them: with findings, pictures and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from cclbench import api
from cclbench.comparison import build, comparison
from cclbench.record import run as record

if TYPE_CHECKING:
    from cclbench.findings.finding import Finding
    from cclbench.present.picture import Picture

P = ParamSpec("P")


class Run(record.Run):
    """A run of the store with the metrics computed from it, and what people look at."""

    @cached_property
    def findings(self) -> list[Finding]:
        """What makes it slow, by what a step would gain without each; metrics are computed on demand."""
        return api.diagnose(self).findings

    def plot(self) -> Picture:
        """Where the step goes, a bar a rank; `UsageError` where no rank has the parts of its step."""
        from cclbench.present.charts.partition import picture
        from cclbench.present.picture import Picture

        return Picture(picture(list(self._computed.figures.in_short), title=self.id))

    def timeline(
        self,
        *,
        step: int | None = None,
        ranks: Sequence[int] | None = None,
        from_ms: float | None = None,
        to_ms: float | None = None,
    ) -> Picture:
        """One step, ranks x time, by default the first whole one; `from_ms` and `to_ms` are from its start.

        `UsageError` for a step or a rank that the run lacks.
        """
        from cclbench.present.picture import Picture
        from cclbench.present.timeline import timeline
        from cclbench.present.timeline_picture import draw_timeline, title_of

        shown = timeline(self, step=step, ranks=ranks, from_ms=from_ms, to_ms=to_ms)
        return Picture(draw_timeline(shown, title=title_of(self, shown)))

    def report(self, path: str | Path) -> Path:
        """Write the report, one HTML file that needs nothing else; the file."""
        from cclbench.present.html import check_page, write_page
        from cclbench.present.page import run_page

        target = Path(path)
        check_page(target)
        write_page(run_page(build.subject_of("A", self)), target)
        return target

    @property
    def _computed(self) -> record.Run:
        return self if len(self.figures) else api.metrics(self)

    def _repr_html_(self) -> str:
        from cclbench.present.cell import of_run

        return of_run(self)


class Comparison(comparison.Comparison):
    """Runs against the first of them, and what people look at."""

    __slots__ = ()

    def plot(self) -> Picture:
        """Where the step of each run goes, on one axis; `UsageError` where none has the parts of its step."""
        from cclbench.present.charts.partition import picture_of_runs
        from cclbench.present.picture import Picture

        return Picture(picture_of_runs(self.subjects))

    def report(self, path: str | Path) -> Path:
        """Write the report, one HTML file that needs nothing else; the file."""
        from cclbench.present.html import check_page, write_page
        from cclbench.present.page import comparison_page

        target = Path(path)
        check_page(target)
        write_page(comparison_page(self), target)
        return target

    def __repr__(self) -> str:
        ids = ", ".join(run.id for run in self.subjects)
        return f"<Comparison of {ids}: {' '.join(one.words for one in self.versus)}>"

    def _repr_html_(self) -> str:
        from cclbench.present.cell import of_comparison

        return of_comparison(self)


def _gives_run(make: Callable[P, record.Run]) -> Callable[P, Run]:
    @wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Run:
        found = make(*args, **options)
        run = Run(found.path)
        vars(run).update(vars(found))  # with what is read of its manifest
        return run

    return made


def _gives_comparison(make: Callable[P, comparison.Comparison]) -> Callable[P, Comparison]:
    @wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Comparison:
        found = make(*args, **options)
        return Comparison(**{field.name: getattr(found, field.name) for field in fields(found)})

    return made


run = _gives_run(api.run)
ingest = _gives_run(api.ingest)
metrics = _gives_run(api.metrics)
compare = _gives_comparison(build.compare)
diagnose, runs, search, whatif = api.diagnose, api.runs, api.search, api.whatif

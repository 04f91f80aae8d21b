# SPDX-License-Identifier: Apache-2.0
"""Selection of a part of a run: window policy, steps, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.ground.errors import UsageError, near
from cclbench.ground.text import first_few
from cclbench.normalize.steps import POLICIES
from cclbench.record.run import Run

Steps = tuple[int | None, int | None]
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a run to compute metrics of, and the kinds of metrics.

    `model`: model values that the traces lack; `replay`: compute metrics that replay the run.
    """

    window: str = "steps"
    steps: Steps | None = None
    """First step and end (exclusive), either may be None."""
    ranks: Sequence[int] | None = None
    model: bool = True
    replay: bool = False

    @property
    def is_whole_run(self) -> bool:
        """Whether all steps and ranks are selected."""
        return self.steps is None and self.ranks is None

    def check(self, run: Run) -> None:
        """`UsageError` for an invalid selection, or one without anything of the run."""
        if self.window not in POLICIES:
            raise UsageError(f"unknown window {self.window!r}", hint=near(self.window, POLICIES))
        if self.steps is not None and not (isinstance(self.steps, tuple) and len(self.steps) == 2):
            raise UsageError(f"steps is {self.steps!r}", hint="give (first, last), either of them None")
        if self.ranks is not None and (isinstance(self.ranks, int) or not self.ranks):
            raise UsageError(f"ranks is {self.ranks!r}", hint="give a list of ranks, or None for all")
        for rank in self.ranks or ():
            run.rank(rank)
        if self.steps is not None:
            self._check_steps(run, *self.steps)

    def _check_steps(self, run: Run, first: int | None, last: int | None) -> None:
        steps = {
            step
            for part in (run, *run.sources)
            for step in part.steps()["step"].drop_null().unique().to_pylist()
        }
        least, end = 0 if first is None else first, float("inf") if last is None else last
        if any(least <= step < end for step in steps):
            return
        range_text = f"{'' if first is None else first}:{'' if last is None else last}"
        listed = first_few(list(map(str, sorted(steps))), _LISTED)
        hint = f"the steps are {listed}" if steps else "ask for the whole trace: --window trace"
        message = f"no step lies in {range_text}" if steps else "the trace marks no steps to choose from"
        raise UsageError(message, where=run.id, hint=hint)

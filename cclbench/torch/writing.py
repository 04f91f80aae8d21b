# SPDX-License-Identifier: Apache-2.0
"""Write a rank's trace when it is ready, and on rank 0 a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from cclbench.capture.begun_card import begin_card
from cclbench.ground.destination import atomic_replacement
from cclbench.torch.job import CapturedJob, rank_and_world


class TraceHandler:
    """A callback for the profiler when a trace is ready; see `cclbench.torch.handler`."""

    def __init__(self, folder: Path, job: CapturedJob) -> None:
        self._folder, self._job = folder, job
        self._written = 0
        self._trained = False
        self._hook = register_optimizer_step_post_hook(self._saw_a_step)

    def _saw_a_step(self, *_: object) -> None:
        self._trained = True

    def __call__(self, profiler: Any) -> Path:
        """Write the trace of a `torch.profiler.profile`, and return its folder."""
        self._hook.remove()
        rank, _ = rank_and_world()
        self._written += 1
        folder = self._folder
        if self._written > 1:
            folder = folder.with_name(f"{folder.name}-{self._written}")
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_replacement(folder / f"rank{rank}_trace.json.gz") as unfinished:
            profiler.export_chrome_trace(str(unfinished))
        if rank == 0:
            begin_card(self._job.card_facts(trained=self._trained), folder)
        return folder

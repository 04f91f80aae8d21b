# SPDX-License-Identifier: Apache-2.0
"""Overhead of the profiler: step times written by cclbench.torch.profile and cclbench.jax.profile.

Its facts are a rank's mean step times and, if single steps are listed, their extremes, which show whether the
means differ, their median, percentiles from 20 steps up, and the slow ones, counted from 1 in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cclbench.capture.step_times import SCHEMA, StepTimes
from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.texts import damaged_error, read_whole, reason_of
from cclbench.ground.outliers import slow_limit
from cclbench.ground.units import humanise

_MOST_BYTES: Final = 1 << 24
_FEW: Final = 20
"""Steps from which there are percentiles."""
_MOST_SLOW: Final = 20


class StepTimesFile(EvidenceReader):
    """Reader of a file of step times with and without the profiler."""

    name = "step_times"
    description = "step times with and without the profiler, as cclbench's own capture measures them"
    extensions: tuple[str, ...] = (".json",)
    capture = "`cclbench.torch.profile(folder)`, `cclbench.jax.profile(folder)`"
    versions = SCHEMA
    tested = "real: the data point tiny-llama-profile-ddp2-gloo-cpu"

    def sniff(self, head: bytes) -> float:
        """Certain of its own schema's name."""
        return 1.0 if f'"{SCHEMA}"'.encode() in head[:200] else 0.0

    def read(self, path: Path) -> Evidence:
        """Facts only, in seconds."""
        try:
            times = msgspec.json.decode(read_whole(path, _MOST_BYTES), type=StepTimes)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise damaged_error(path, reason_of(error)) from None
        facts: dict[str, str | int | float | list[str]] = {
            "rank": times.rank,
            "profiler": times.profiler,
            "records": list(times.records),
        }
        warm = times.unprofiled.without_cold_steps()
        cold_steps = times.unprofiled.steps - warm.steps
        for name, phase, skipped in (("unprofiled", warm, cold_steps), ("profiled", times.profiled, 0)):
            facts |= {f"{name}_steps": phase.steps, f"{name}_step_s": phase.mean_s}
            if phase.each:
                facts |= {f"{name}_least_s": min(phase.each), f"{name}_most_s": max(phase.each)}
                facts |= {f"{name}_{fact}": value for fact, value in _spread(phase.each, skipped).items()}
        return Evidence(facts=facts)


def _spread(each: list[float], skipped: int) -> dict[str, int | float | list[str]]:
    """Median and percentiles of step times, s; the slow steps by number, `skipped` steps come before."""
    seconds = np.array(each)
    facts: dict[str, int | float | list[str]] = {"median_s": float(np.median(seconds))}
    if len(seconds) >= _FEW:
        facts |= {f"p{percent}_s": float(np.percentile(seconds, percent)) for percent in (5, 95, 99)}
    slow = np.flatnonzero(seconds > slow_limit(seconds)) + 1 + skipped
    facts["slow_steps"] = len(slow)
    if len(slow):
        listed = slow[:_MOST_SLOW].tolist()
        facts["slow"] = [f"{step}: {humanise(each[step - 1 - skipped], 's')}" for step in listed]
    return facts


READERS.add(StepTimesFile.name, StepTimesFile(), origin=__name__)

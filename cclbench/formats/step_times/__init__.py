# SPDX-License-Identifier: Apache-2.0
"""Overhead of the profiler: step times written by cclbench.torch.profile and cclbench.jax.profile.

Its facts are a rank's mean step times and, if single steps are listed, their extremes, which show whether the
means differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from cclbench.capture.step_times import SCHEMA, StepTimes
from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.texts import damaged_error, read_whole, reason_of

_MOST_BYTES: Final = 1 << 24


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
        for name, phase in (
            ("unprofiled", times.unprofiled.without_cold_steps()),
            ("profiled", times.profiled),
        ):
            facts |= {f"{name}_steps": phase.steps, f"{name}_step_s": phase.mean_s}
            if phase.each:
                facts |= {f"{name}_least_s": min(phase.each), f"{name}_most_s": max(phase.each)}
        return Evidence(facts=facts)


READERS.add(StepTimesFile.name, StepTimesFile(), origin=__name__)

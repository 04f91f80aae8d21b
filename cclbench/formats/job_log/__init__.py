# SPDX-License-Identifier: Apache-2.0
"""Logs of training jobs and inference servers: a row for each line about a step.

What the lines look like is data (`families`); ranks, restarts and times are determined alike for all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.job_log.families import FAMILIES
from cclbench.formats.job_log.reading import LogReading, step_table
from cclbench.formats.texts import damaged_error, strip_decoration

_SURE: Final = 0.7


class JobLog(EvidenceReader):
    """Reader of a job's log, by its lines about steps."""

    name = "job_log"
    description = "logs of training jobs and servers: " + ", ".join(family.name for family in FAMILIES)
    extensions: tuple[str, ...] = (".log", ".txt", ".out", ".err")
    capture = (
        "the output of the job, as a file: `srun --label ... > job.log`, `torchrun ... 2>&1 | tee job.log`"
    )
    versions = "lines as printed in 2025 and 2026"
    tested = "; ".join(f"{family.name}: {family.tested}" for family in FAMILIES)
    after_other_text = True

    def sniff(self, head: bytes) -> float:
        """Sure if a line is about a step."""
        if not any(family.mark in head for family in FAMILIES):
            return 0.0
        text = strip_decoration(head).replace(b"\r", b"\n")
        return _SURE if any(f.mark in text and f.search_line(text) for f in FAMILIES) else 0.0

    def read(self, path: Path) -> Evidence:
        """Rows of `log_steps`, and the settings that the log states."""
        log = LogReading()
        log.read(path)
        lines = log.chosen_family()
        if not lines.count:
            raise damaged_error(path, "has no line about a step", hint="pass the output of the whole job")
        table, repeated = step_table(lines, log.facts)
        left_out = {
            "lines that repeat a step, or have none": repeated,
        }
        return Evidence(
            log_steps=table,
            facts={"producer": lines.family.name, **log.facts},
            left_out={reason: count for reason, count in left_out.items() if count},
        )


READERS.add(JobLog.name, JobLog(), origin=__name__)

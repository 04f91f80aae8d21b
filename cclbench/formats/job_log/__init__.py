# SPDX-License-Identifier: Apache-2.0
"""Logs of training jobs and inference servers: a row for each line about a step.

What the lines look like is data (`families`); ranks, restarts and times are determined alike for all.
What reads and rewrites them is loaded for a log only: each command loads all readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.job_log.families import FAMILIES
from cclbench.formats.rewriting import CAPTURED, Redactor
from cclbench.formats.texts import damaged_error, line_blocks, strip_decoration

_SURE: Final = 0.7


def _tested_families() -> dict[str, list[str]]:
    """The families by the kind of evidence that each was tested on."""
    by_kind: dict[str, list[str]] = {}
    for family in FAMILIES:
        kind, _, what = family.tested.partition(": ")
        by_kind.setdefault(kind, []).append(f"{family.name} ({what})")
    return by_kind


class JobLog(EvidenceReader):
    """Reader of a job's log, by its lines about steps."""

    name = "job_log"
    description = "logs of training jobs and servers: " + ", ".join(family.name for family in FAMILIES)
    extensions: tuple[str, ...] = (".log", ".txt", ".out", ".err")
    capture = "the output of a training job or server, as a file: `srun --label ... > job.log`"
    versions = "lines as printed in 2025 and 2026"
    tested = "; ".join(f"{kind}: {', '.join(listed)}" for kind, listed in _tested_families().items())
    after_other_text = True
    lists_calls = True
    withheld: Mapping[str, str] = {
        "lines that are not about steps or settings, and words that are not theirs": CAPTURED
    }

    def sniff(self, head: bytes) -> float:
        """Sure if a line is about a step."""
        if not any(family.mark in head for family in FAMILIES):
            return 0.0
        text = strip_decoration(head).replace(b"\r", b"\n")
        return _SURE if any(f.mark in text and f.search_line(text) for f in FAMILIES) else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Lines about steps and settings, without other words; all other lines are left empty."""
        from cclbench.formats.job_log.publishing import published_line
        from cclbench.formats.job_log.reading import MOST_BYTES

        with open_output(path, target) as write:
            for block in line_blocks(path, MOST_BYTES):
                kept = []
                for line in block.split(b"\n"):
                    published = published_line(line)
                    redactor.count("lines", {CAPTURED: int(published is None and bool(line.strip()))})
                    kept.append(published or b"")
                write(b"\n".join([*kept, b""]))
        return True

    def read(self, path: Path) -> Evidence:
        """Rows of `log_steps`, the settings that the log states, and what NCCL's lines in it tell."""
        from cclbench.formats.job_log.reading import StepLogReading
        from cclbench.formats.job_log.step_table import step_table
        from cclbench.formats.nccl_log import NcclLog

        log = StepLogReading()
        log.read(path)
        lines = log.chosen_family()
        if not lines.count:
            raise damaged_error(path, "has no line about a step", hint="pass the output of the whole job")
        clock = {"clock": "utc"} if lines.has_column("time_ms") else {}
        table, repeated = step_table(lines, log.facts)
        library = NcclLog().read(path) if log.has_library_lines else Evidence()
        repeats = {"lines that repeat a step, or have none": repeated} if repeated else {}
        return Evidence(
            log_steps=table,
            timings=library.timings,
            communicators=library.communicators,
            facts={**library.facts, "producer": lines.producer, **clock, **log.facts},
            left_out={**library.left_out, **repeats},
            notes=library.notes,
        )


READERS.add(JobLog.name, JobLog(), origin=__name__)

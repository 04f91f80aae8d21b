# SPDX-License-Identifier: Apache-2.0
"""Logs of NCCL and RCCL (`NCCL_DEBUG=INFO`): library, network, transports, channels, and every call.

A log has no times that a metric could use.  Its facts are the run's provenance; with
NCCL_DEBUG_SUBSYS=INIT,COLL it lists all calls of its processes, in order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.nccl_lines import LineFacts, is_private_setting
from cclbench.formats.nccl_log.calls import CALL, LogReading
from cclbench.formats.rewriting import CAPTURED, ENVIRONMENT
from cclbench.formats.texts import raw_lines, strip_decoration

_MOST_BYTES: Final = 1 << 34
_LINE = re.compile(
    rb"\[\d+\] (?:\d{1,20} )?NCCL (?:INFO|WARN) |\bRCCL version : \d|^NCCL version \d", re.MULTILINE
)


# Header of nccl-tests, after more of the library's lines than are searched to recognise a file.
_TABLE = re.compile(r"# +size +count +type .* busbw ")
_OWN: Final = re.compile(
    r"\b[NR]CCL (?:INFO|WARN|TRACE|ABORT|VERSION|version)\b|^#|\[\d+\] (?:transport|graph|misc|init)"
)


class NcclLog(EvidenceReader):
    """Reader of a job's log that contains lines of `NCCL_DEBUG=INFO`."""

    name = "nccl_log"
    description = "NCCL and RCCL debug logs (NCCL_DEBUG=INFO): library, network, transports, every call"
    extensions: tuple[str, ...] = (".log", ".txt", ".out", ".err")
    capture = (
        "the output of a job with `NCCL_DEBUG=INFO`; its calls with"
        " `NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV,COLL`, and a file a process with"
        " `NCCL_DEBUG_FILE=nccl-%h-%p.log`"
    )
    versions = "NCCL 2.12 to 2.30, RCCL 2.18 to 2.30, aws-ofi-nccl 1.4 to 1.18"
    figures = re.compile(
        r":\d{1,7}:\d{1,7} \[-?\d{1,4}\] (?:\d{1,13} )?"
        r"|\b(?:opCount|count|datatype|op|root|rank|n[rR]anks|cudaDev|nvmlDev|busId|task|globalrank|[A-Za-z]+Count"
        r"|color|nranks=)"
        r"[ =]-?[0-9a-f]{1,19}\b|\b(?:sendbuff|recvbuff|acc|comm|commId|parent|stream) 0x[0-9a-f]{1,16}"
        r"|\b(?:[NR]CCL version ?:? ?|cudaDriverVersion |(?:HIP|ROCm) version ?: ?)"
        r"[\d.]{3,20}(?:\+cuda[\d.]{2,9})?"
        r"|\bChannel \d{2,3}/(?:0x)?\d{1,3}(?: :(?: +\d{1,7}\b)+)?"
        r"|\b\d{1,13} Bytes -> Algo (?:[A-Za-z_]{1,20}|\d) proto (?:[A-Za-z_]{1,20}(?:128)?|\d)"
        r"|(?<!\w)\d{1,4}(?:\[\d{1,7}\])? -> \d{1,4}(?:\[\d{1,7}\])?"
    )
    tested = (
        "real: calls of an FSDP job on 8 GPUs, NCCL 2.28; documentation: logs in public repositories, layouts"
        " only"
    )
    lists_calls = True
    precedence = 1
    after_other_text = True
    withheld: Mapping[str, str] = {
        "lines that are not the library's": CAPTURED,
        "lines that state a variable, but those that steer performance": ENVIRONMENT,
    }

    def sniff(self, head: bytes) -> float:
        """Likely if lines begin as the library's do; a benchmark's reader is surer of its own output."""
        # Most files are of other formats: a substring search rejects them much faster than a pattern.
        return 0.5 if b"CCL " in head and _LINE.search(strip_decoration(head)) else 0.0

    def withheld_line(self, line: str) -> str | None:
        """Variables other than performance settings, and output of the program between the lines."""
        if is_private_setting(line):
            return ENVIRONMENT
        if _OWN.search(line) or _TABLE.search(line):
            return None
        facts = LineFacts()
        facts.read_line(line)
        return None if facts.collected_facts() else CAPTURED

    def read(self, path: Path) -> Evidence:
        """Facts, as lists if ranks or communicators differ, and a row for each call."""
        library_facts, calls = LineFacts(), LogReading()
        notes = list[str]()
        for at, raw in raw_lines(path, _MOST_BYTES):
            if CALL in raw:
                calls.see_calls(raw)
                continue
            line = raw.decode(errors="replace").rstrip()
            library_facts.read_line(line)
            if b" comm 0x" in raw:
                calls.see_communicator(raw)
            if not notes and _TABLE.search(line):
                notes.append(f"a benchmark's table on line {at:,} is not read: put it in a file of its own")
        if library_facts.warnings:
            notes.append(f"the library warned {library_facts.warnings:,} times: search the log for NCCL WARN")
        facts = library_facts.collected_facts()
        if not calls.has_calls:
            return Evidence(facts=facts, notes=notes)
        if calls.torn:
            notes.append(f"{calls.torn:,} calls are not counted: their lines are torn or cut")
        library = "rccl" if calls.of_rccl or facts.get("library") == "rccl" else "nccl"
        communicators = calls.logged_communicators()
        return Evidence(
            timings=calls.timing_table(library),
            communicators=communicators,
            facts=facts | {"communicators": len(communicators)},
            left_out={"calls on torn lines": calls.torn} if calls.torn else {},
            notes=[*notes, *calls.missing_notes()],
        )


READERS.add(NcclLog.name, NcclLog(), origin=__name__)

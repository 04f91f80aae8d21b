# SPDX-License-Identifier: Apache-2.0
"""Call a command or a source's readers in this process, and check how it ended."""

from __future__ import annotations

import io
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cclbench.cli
from cclbench.cli.options import Session
from cclbench.contribute import archive
from cclbench.engine import SERIAL
from cclbench.formats import execution_trace_reader
from cclbench.ground.errors import CclbenchError
from cclbench.ingestion.evidence import ingest_evidence
from cclbench.ingestion.part import PartTask, parts_of, read_parts
from cclbench.ingestion.source import Listed, SourceFile, find_source
from cclbench.record.manifest import Options


def _without_hashes(listed: Sequence[Listed]) -> list[SourceFile]:
    return [SourceFile(path, name, reader, 0, "", ranks) for path, name, reader, ranks in listed]


def read_source(path: Path) -> None:
    """Run the readers of a source's files, and write what they give to tables that are then removed."""
    source = find_source(path, hashing=_without_hashes)
    with TemporaryDirectory() as folder:
        for number, file in enumerate(source.files):
            for index, part in enumerate(parts_of(file)):
                read_parts(PartTask(file, part, index, Path(folder, str(number)), Options()))
        ingest_evidence(source.evidence, Path(folder), engine=SERIAL, progress=None)
    for file in source.beside:
        execution_trace_reader(file.reader).read(file.path)


def call(words: list[str]) -> tuple[int, BaseException | None, str]:
    """Exit code, exception and stderr of a command; `read` and `unpack` are functions, not commands."""
    raised: list[Exception] = []

    def record_error(error: Exception, session: Any) -> int:
        raised.append(error)
        return report_error(error, session)

    report_error, errors = cclbench.cli.report_error, io.StringIO()
    cclbench.cli.report_error = record_error
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            code = _call_function(words) if words[0] in ("read", "unpack") else cclbench.cli.main(words)
        return code, raised[0] if raised else None, errors.getvalue()
    except BaseException as error:  # noqa: BLE001 - a traceback is what the campaign looks for
        return -1, error, errors.getvalue()
    finally:
        cclbench.cli.report_error = report_error


def _call_function(words: list[str]) -> int:
    """Call a function, and report its error as the command line does."""
    try:
        if words[0] == "read":
            read_source(Path(words[1]))
        else:
            archive.unpack_archive(Path(words[1]), Path(words[2]))
    except CclbenchError as error:
        return cclbench.cli.report_error(error, Session())
    return 0


def broken_promises(code: int, error: BaseException | None, stderr: str) -> Iterator[tuple[str, str]]:
    """Kind and description of each guarantee that the end of a command violates."""
    if code not in range(4):
        where = (
            [
                f
                for f in traceback.extract_tb(error.__traceback__)
                if f"{os.sep}cclbench{os.sep}" in f.filename
            ]
            if error
            else []
        )
        last = f" at {'/'.join(Path(where[-1].filename).parts[-2:])}:{where[-1].lineno}" if where else ""
        yield ("exit 4" if code == 4 else "traceback"), f"{type(error).__name__}{last}: {str(error)[:200]}"
    # A failed check (1) may list any number of differences.
    lines = stderr[max(stderr.find("error: "), 0) :].strip().splitlines() if code in (2, 3) else []
    if len(lines) > 3 or any(len(line) > 2_000 for line in lines):
        yield "message", f"{len(lines)} lines of up to {max(map(len, lines))} characters: {lines[0][:200]}"
    if "Traceback (most recent" in stderr:
        yield "traceback", stderr[-200:]

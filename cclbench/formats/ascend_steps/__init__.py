# SPDX-License-Identifier: Apache-2.0
"""Ascend's tables of steps: `step_trace_time.csv` of a rank, `cluster_step_trace_time.csv` of a cluster.

A row is of one step on one device, its columns are µs (torch_npu, `_trace_step_time_parser.py`): sums of the
intervals that msprof lists as "Overlap Analysis", each in the step in which it begins.  Computing +
Communication(Not Overlapped) + Free = Stage + Bubble, the time from the first interval to the end of the
last; Bubble is the time of `hcom_receive`.  Preparing, from the step's begin on the host to the first task,
is beside them.  Without steps the profiler writes one row for everything.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.csv_tables import heading_of
from cclbench.formats.texts import damaged_error, numbered_lines
from cclbench.formats.timing_rows import exact_nanoseconds
from cclbench.ground.evidence_schema import STATED_PARTS

_MOST_BYTES: Final = 1 << 32
_PARTS: Final = {
    "Computing": "compute",
    "Communication(Not Overlapped)": "exposed_comm",
    "Overlapped": "overlapped",
    "Communication": "communication",
    "Free": "free",
    "Stage": "stage",
    "Bubble": "bubble",
    "Communication(Not Overlapped and Exclude Receive)": "exposed_comm_without_receive",
    "Preparing": "preparing",
}
"""Parts by column."""
_REQUIRED: Final = ("Step", *list(_PARTS)[:5])
_DEVICE, _TYPE, _INDEX = "Device_id", "Type", "Index"
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
_AGAIN: Final = "write it again: torch_npu.profiler.analyse(FOLDER), or msprof-analyze cluster"


class AscendSteps(EvidenceReader):
    """Reader of tables of steps."""

    name = "ascend_steps"
    description = "Ascend step_trace_time.csv and cluster_step_trace_time.csv: parts of each step"
    extensions: tuple[str, ...] = (".csv",)
    capture = "`step_trace_time.csv` of ASCEND_PROFILER_OUTPUT, or `cluster_step_trace_time.csv` of "
    capture += "`msprof-analyze cluster`"
    versions = "CANN 7 to 8"
    figures = re.compile("|".join(re.escape(name) for name in ("Step", _DEVICE, _INDEX, *_PARTS)))
    tested = "real: a cluster of eight ranks; documentation: tables of one rank"

    def sniff(self, head: bytes) -> float:
        """Sure of the names of the columns."""
        return 0.95 if set(_REQUIRED) <= set(heading_of(head)) else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each part of each step."""
        rows, left_out = list[dict[str, Any]](), Counter[str]()
        for entry, (line, row) in enumerate(_table_rows(path)):
            if row.get(_TYPE, "rank") != "rank":
                left_out["rows of stages, which are made of their ranks' rows"] += 1
                continue
            about = {
                "entry": entry,
                "rank": _number(path, line, row, _INDEX),
                # A device without a number is -1, or not applicable.
                "device": _number(path, line, row, _DEVICE),
                "step": _number(path, line, row, "Step"),
            }
            for column, part in _PARTS.items():
                if column not in row:
                    continue
                time = _nanoseconds(row[column])
                if time is None:
                    left_out[f"{column}: negative, or no time"] += 1
                else:
                    rows.append({**about, "part": part, "dur_ns": time})
        if not rows:
            raise damaged_error(path, "has no times of a step", hint=_AGAIN)
        return Evidence(stated_parts=pa.Table.from_pylist(rows, schema=STATED_PARTS), left_out=dict(left_out))


def _table_rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Each row by column, with the number of its line; `InputError` if it has another number of cells."""
    names: list[str] = []
    for number, text in numbered_lines(path, _MOST_BYTES):
        if not text:
            continue
        try:
            # The index of a stage is quoted: it lists its ranks.
            cells = [cell.strip() for cell in next(csv.reader([text.removeprefix("\ufeff")]))]
        except csv.Error as error:
            raise damaged_error(path, f"is no row of a table: {error}", line=number, hint=_AGAIN) from None
        if not names:
            names = cells
        elif len(cells) != len(names):
            raise damaged_error(path, f"{len(cells)} cells, not {len(names)}", line=number, hint=_AGAIN)
        else:
            yield number, dict(zip(names, cells, strict=True))


def _number(path: Path, line: int, row: Mapping[str, str], column: str) -> int | None:
    """A whole number; None where the column or its cell is not there."""
    text = row.get(column, "")
    if text in ("", "None", "N/A", "-1"):
        return None
    if not _NUMBER.fullmatch(text):
        raise damaged_error(path, f"has a {column} that is no number", line=line, hint=_AGAIN)
    return int(text)


def _nanoseconds(text: str) -> int | None:
    try:
        return exact_nanoseconds(Decimal(text), per_unit=1000)
    except InvalidOperation:
        return None


READERS.add(AscendSteps.name, AscendSteps(), origin=__name__)

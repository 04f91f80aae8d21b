# SPDX-License-Identifier: Apache-2.0
"""Times of phases by step, as verl's trainer logs them: on the console, or as JSON lines (its file logger).

A console's line is `step:7 - actor/lr:1e-06 - timing_s/gen:16.2 - timing_s/step:48.7 - ...`, a line of
metrics.jsonl `{"step": 7, "data": {"timing_s/gen": 16.2, ...}}`.  Only `timing_s/` is read, in seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.classify.rl_phases import NOT_ALWAYS_WITHIN, TIMERS, WITHIN_GENERATION
from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import CAPTURED, Redactor
from cclbench.formats.texts import damaged_error, exact_number, raw_lines, reason_of, strip_decoration
from cclbench.formats.timing_rows import exact_nanoseconds
from cclbench.ground.evidence_schema import PHASE_TIMES

_MOST_BYTES: Final = 1 << 34
_MOST_STEP: Final = 1 << 53
_PREFIX: Final = "timing_s/"
_LINE: Final = re.compile(rb"\bstep:(\d{1,15}) - (?=[^\n]*\btiming_s/)")
_TIMER: Final = re.compile(rb"\btiming_s/([\w./-]{1,80}):(?:np\.float(?:32|64)\()?([-+\w.]{1,40})", re.ASCII)
_PUBLIC: Final = frozenset(("step", *TIMERS, *WITHIN_GENERATION, *NOT_ALWAYS_WITHIN))
_NO_TIME: Final = "times that are negative or no numbers"


class _Step(msgspec.Struct, omit_defaults=True):
    step: int
    data: dict[str, Any]


class VerlTimings(EvidenceReader):
    """Reader of the times that verl's trainer logs."""

    name = "verl_timings"
    description = "times of phases by step of verl's trainer: its console, or metrics.jsonl"
    extensions: tuple[str, ...] = (".log", ".txt", ".out", ".err", ".jsonl")
    capture = "the output of a job with `trainer.logger=[console]`, or `VERL_FILE_LOGGER_PATH=metrics.jsonl`"
    versions = "verl 0.4 to 0.7"
    tested = "documentation: verl's sources, and lines of published logs; no file"
    after_other_text = True
    withheld: Mapping[str, str] = {"lines and metrics other than times": CAPTURED}

    def sniff(self, head: bytes) -> float:
        """Sure of a step's line with its times."""
        if b"timing_s/" not in head:
            return 0.0
        text = strip_decoration(head)
        return 0.9 if _LINE.search(text) or re.match(rb'\s*\{"step": ?\d', text) else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each phase of each step."""
        rows, left_out = list[dict[str, Any]](), Counter[str]()
        for entry, (_, step, times) in enumerate(_steps(path)):
            for phase, text in times.items():
                time = _nanoseconds(text)
                if time is None:
                    left_out[_NO_TIME] += 1
                else:
                    rows.append({"entry": entry, "step": step, "phase": phase, "dur_ns": time})
        if not rows:
            raise damaged_error(path, "has no times of a step", hint="pass the output of the whole job")
        return Evidence(phase_times=pa.Table.from_pylist(rows, schema=PHASE_TIMES), left_out=dict(left_out))

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Steps and the times of their phases; all else goes."""
        with open_output(path, target) as write:
            for as_json, step, times in _steps(path):
                shown = {}
                for phase, text in times.items():
                    new, counts = (phase, Counter[str]()) if phase in _PUBLIC else redactor.text(phase)
                    redactor.count("timers", counts)
                    if (time := _nanoseconds(text)) is not None:
                        shown[_PREFIX + new] = f"{Decimal(time).scaleb(-9):f}"
                redactor.count("lines", Counter({CAPTURED: 1}))
                if as_json:
                    write(msgspec.json.encode(_Step(step, {key: float(text) for key, text in shown.items()})))
                else:
                    pairs = (f"step:{step}", *(f"{key}:{text}" for key, text in shown.items()))
                    write(" - ".join(pairs).encode())
                write(b"\n")
        return True


def _steps(path: Path) -> Iterator[tuple[bool, int, dict[str, str]]]:
    """Of each step whether its line is JSON, its number, and its times as they are written, by phase."""
    decoder = msgspec.json.Decoder(_Step, float_hook=exact_number)
    for number, line in raw_lines(path, _MOST_BYTES):
        if b"timing_s/" not in line:
            continue
        text = strip_decoration(line)
        if text.lstrip().startswith(b"{"):
            try:
                entry = decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                what = f"is no line of verl's metrics: {reason_of(error)}"
                hint = "write it again, or remove this line"
                raise damaged_error(path, what, line=number, hint=hint) from None
            if not 0 <= entry.step < _MOST_STEP:
                raise damaged_error(path, "has a step that is no number of a step", line=number)
            times = {
                key.removeprefix(_PREFIX): str(value)
                for key, value in entry.data.items()
                if key.startswith(_PREFIX)
            }
            yield True, entry.step, times
        elif match := _LINE.search(text):
            pairs = _TIMER.findall(text, match.end())
            yield False, int(match[1]), {key.decode(): value.decode() for key, value in pairs}


def _nanoseconds(text: str) -> int | None:
    try:
        return exact_nanoseconds(Decimal(text), per_unit=10**9)
    except InvalidOperation:
        return None


READERS.add(VerlTimings.name, VerlTimings(), origin=__name__)

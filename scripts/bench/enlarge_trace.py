# SPDX-License-Identifier: Apache-2.0
"""Enlarge a Kineto trace by repetition, with later times and new ids and step numbers.

Only these numbers change in the text of the rows: spelling, precision and layout are those of the source.
Memory depends on the size of the source, not of the output.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

GAP_US = 1000
IDS = (
    "id",
    "correlation",
    "wait_on_cuda_event_record_corr_id",
    "External id",
    "external id",
    "Ev Idx",
    "Record function id",
    "Sequence number",
    "Python id",
    "Python parent id",
)
NUMBER = re.compile(rf'"(ts|{"|".join(IDS)})"\s*:\s*(\d+)(?:\.(\d+))?|"name"\s*:\s*"(ProfilerStep#)(\d+)"')


@dataclass(frozen=True)
class Increment:
    """Increments of a repetition: µs for times, a stride for ids, a count for step numbers."""

    time_us: int
    ids: int
    steps: int


@dataclass(frozen=True)
class Row:
    """Texts around a row's numbers; for each number its digits, their increment and number of decimals."""

    texts: tuple[str, ...]
    numbers: tuple[tuple[int, int, int], ...]

    def repeated(self, repetition: int) -> str:
        """The row's text in a repetition; 0 is the source itself."""
        parts = [self.texts[0]]
        for (value, growth, decimals), text in zip(self.numbers, self.texts[1:], strict=True):
            digits = str(value + repetition * growth).rjust(decimals + 1, "0")
            parts += (f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits, text)
        return "".join(parts)


def parse_row(text: str, increment: Increment) -> Row:
    """Split a row's text at the numbers that a repetition changes; an id of 0 stands for none and stays."""
    texts, numbers, end = [], [], 0
    for found in NUMBER.finditer(text):
        key, whole, fraction, _, step = found.groups()
        place, decimals = found.span(2) if key else found.span(5), len(fraction or "")
        if key == "ts":
            place = (place[0], found.end())
            numbers.append((int(whole + (fraction or "")), increment.time_us * 10**decimals, decimals))
        elif key:
            numbers.append((int(whole), increment.ids if int(whole) else 0, 0))
        else:
            numbers.append((int(step), increment.steps, 0))
        texts.append(text[end : place[0]])
        end = place[1]
    return Row((*texts, text[end:]), tuple(numbers))


def split(text: str) -> tuple[str, list[tuple[dict[str, Any], str]], str]:
    """The text before the first row, each row with its text, and the text after the last."""
    opening = re.search(r'"traceEvents"\s*:\s*\[|\A\s*\[', text)
    if opening is None:
        raise SystemExit("not a Kineto trace: no traceEvents array")
    decoder, separator = json.JSONDecoder(), re.compile(r"[^\s,]")
    rows: list[tuple[dict[str, Any], str]] = []
    after = opening.end()
    while found := separator.search(text, after):
        begin = found.start()
        if text[begin] == "]":
            return text[: opening.end()], rows, text[begin:]
        event, after = decoder.raw_decode(text, begin)
        rows.append((event, text[begin:after]))
    raise SystemExit("not a whole Kineto trace: the traceEvents array has no end")


def repeats(event: dict[str, Any]) -> bool:
    """Whether a row is of the workload; rows that describe processes and the capture are written once."""
    return event.get("ph") != "M" and "ts" in event and event.get("cat", "Trace") != "Trace"


def increment_of(rows: list[tuple[dict[str, Any], str]]) -> Increment:
    """The smallest increments that keep repetitions apart, in time and in ids."""
    start = min(float(event["ts"]) for event, _ in rows)
    end = max(float(event["ts"]) + float(event.get("dur", 0)) for event, _ in rows)
    largest, steps = 0, set()
    for _, text in rows:
        for key, whole, _, _, step in NUMBER.findall(text):
            if step:
                steps.add(int(step))
            elif key != "ts":
                largest = max(largest, int(whole))
    return Increment(ceil(end - start) + GAP_US, largest + 1, max(steps) - min(steps) + 1 if steps else 0)


def write_enlarged(source: Path, out: Path, megabytes: float) -> int:
    """Write whole repetitions of `source` (.json, .json.gz) to `out` until it has `megabytes` (of 1e6 bytes).

    Returns the number of repetitions; the first has the numbers of the source.
    """
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    opening, rows, closing = split(raw.decode())
    work = [(event, text) for event, text in rows if repeats(event)]
    if not work:
        raise SystemExit(f"{source}: no rows with a time and a category to repeat")
    increment = increment_of(work)
    once = [text for event, text in rows if not repeats(event)]
    templates = [parse_row(text, increment) for _, text in work]
    target, written, repetition = int(megabytes * 1e6) - len(closing), 0, 0
    with out.open("wb") as file:
        written += file.write(opening.encode())
        while written < target or not repetition:
            separator = ",\n  " if repetition else "\n  "
            texts = ",\n  ".join(row.repeated(repetition) for row in templates)
            written += file.write((separator + texts).encode())
            repetition += 1
        file.write(("".join(f",\n  {text}" for text in once) + "\n  " + closing).encode())
    return repetition

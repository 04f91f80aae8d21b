# SPDX-License-Identifier: Apache-2.0
"""One catalog file: read strictly, checked against the schema and for contradictions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cclbench.ground.diagnostics import Path, Problem, dotted_path
from cclbench.ground.errors import InputError, near
from cclbench.ground.json_schema import packaged_schema, schema_problems
from cclbench.ground.text import listed, quoted_value
from cclbench.ground.yaml_file import Document
from cclbench.hardware.figure import UNVERIFIED, parse_figures, written_leaves

KINDS: Final = ("accelerator", "fabric", "system")
_KEY: Final = re.compile(r".* \(([^)]*)\)")
_MOST_SHOWN: Final = 2
_LARGEST: Final[Mapping[str, tuple[float, str]]] = {
    "flops_per_s": (1e18, "1,000 PFLOP/s"),
    "bytes_per_s": (1e14, "100 TB/s"),
    "bytes": (1e14, "100 TB"),
    "latency_s": (1.0, "1 s"),
}
"""No device, link or transport exceeds these; a larger figure has the wrong unit."""
_FASTEST_INTERFACE: Final = 2e11
"""1.6 Tb/s in B/s: twice the line rate of the fastest network interface in use."""


def entry_problems(document: Document) -> list[Problem]:
    """All problems of one file, in the order of its lines, except references to other entries."""
    if document.problems:
        return list(document.problems)
    kind = document.value.get("kind")
    if kind not in KINDS:
        mismatch = f"is {quoted_value(kind)}; {near(str(kind), KINDS)}"
        message = mismatch if "kind" in document.value else f"is missing: {' or '.join(KINDS)}"
        return [field_problem(document, ("kind",), message)]
    problems = schema_problems(document, packaged_schema("hardware")["definitions"][kind])
    if not problems:
        problems = [
            field_problem(document, path, message) for path, message in _entry_contradictions(document.value)
        ]
    return sorted(problems, key=lambda each: each.line or 0)


def check_entry(document: Document) -> None:
    """Raise one `InputError` with the file and line of the first problems, if there are any."""
    raise_problems(entry_problems(document))


def raise_problems(problems: list[Problem]) -> None:
    """Raise one `InputError` that lists the first of the problems, if there are any."""
    if problems:
        raise InputError(listed([str(problem) for problem in problems], _MOST_SHOWN))


def field_problem(document: Document, path: Path, message: str) -> Problem:
    """A problem with a field of a file, with its line."""
    return Problem("error", document.file, document.line(path), dotted_path(path), message)


def _entry_contradictions(entry: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    sources = {*entry.get("sources", {}), UNVERIFIED}
    for path, text in written_leaves(entry):
        match = _KEY.fullmatch(text)
        if match and match[1] not in sources:
            yield path, f"cites {match[1]!r}, which is not among sources; {near(match[1], sources)}"
    for index, disagreement in enumerate(entry.get("disagreements", ())):
        entry_path = ("disagreements", index)
        if disagreement["source"] not in sources:
            yield (*entry_path, "source"), f"is not among sources; {near(disagreement['source'], sources)}"
        if disagreement["field"] not in _dotted_fields(entry):
            yield (
                (*entry_path, "field"),
                f"is not a field of the entry; {near(disagreement['field'], _dotted_fields(entry))}",
            )
    for index, pattern in enumerate(entry.get("names", ())):
        try:
            re.compile(pattern)
        except re.error as error:
            yield ("names", index), f"is not a regular expression: {error}"
    figures, _ = parse_figures(entry)
    yield from _absurd_figures(entry, figures)
    up = figures.get("scale_up")
    if up and up.get("dims") and math.prod(up["dims"]) != up["domain"]:
        yield ("scale_up", "dims"), f"has {math.prod(up['dims'])} positions, but domain is {up['domain']}"


def _dotted_fields(entry: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in entry.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from _dotted_fields(value, f"{prefix}{key}.")


def _absurd_figures(entry: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for path, text in written_leaves(entry):
        value: Any = figures
        for key in path:
            value = value[key]
        for end, (most, words) in _LARGEST.items():
            if isinstance(value, int | float) and any(key.endswith(end) for key in path) and value > most:
                yield path, f"is {text}, above the plausible maximum of {words}; is the unit right?"
                break
    rate = figures.get("link_bytes_per_s")
    if entry.get("tier") == "scale_out" and rate is not None and rate >= _FASTEST_INTERFACE:
        message = f"is {entry['link_bytes_per_s']}, faster than any interface: are bits meant, not bytes?"
        yield ("link_bytes_per_s",), message

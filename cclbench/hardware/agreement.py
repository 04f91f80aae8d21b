# SPDX-License-Identifier: Apache-2.0
"""Consistency of catalog entries: a system with its parts, a user's fabric with the one it replaces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cclbench.ground.errors import near
from cclbench.ground.units import humanise
from cclbench.ground.yaml_file import Document
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.entry import field_problem, raise_problems
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.figure import parse_figures

_APART: Final = 2.0
"""Rates that differ by a larger factor cannot both be right: a unit or a count is wrong."""

Finding = tuple[tuple[str, ...], str]
"""A field's path and the problem with it."""


def refuse_all(read: Document, findings: Iterable[Finding]) -> None:
    """Raise one `InputError` that lists a file's problems with their lines, if there are any."""
    raise_problems([field_problem(read, path, why) for path, why in findings])


def tier_contradictions(
    tier: str, part: Mapping[str, Any], used: Fabric, machine: Accelerator | None
) -> Iterator[Finding]:
    """Statements of a system's tier that its fabric or its accelerator contradicts."""
    if used.tier != tier:
        yield (tier, "fabric"), f"is {used.id}, a {used.tier} fabric"
    transport = part.get("transport")
    if transport is not None and transport not in used.transports:
        yield (tier, "transport"), f"is not a transport of {used.id}; {near(transport, used.transports)}"
    rate, line = part.get("bytes_per_s"), used.link_bytes_per_s
    others = {}
    if tier == "scale_out" and line:
        others[f"the line rate of {used.id}"] = line
    elif tier == "scale_up" and line and part.get("links"):
        others[f"{part['links']} links of {used.id}"] = part["links"] * line
    if tier == "scale_up" and machine and machine.scale_up_bytes_per_s:
        others[f"the scale-up rate of {machine.id}"] = machine.scale_up_bytes_per_s
    for words, other in others.items():
        if rate and (reason := _rate_contradiction(rate, other, words)):
            yield (tier, "bytes_per_s"), reason
            break


def check_replacement(read: Document, replaced: Fabric | None) -> None:
    """Refuse a replacement fabric of the other tier, or with a rate in the wrong unit."""
    if replaced is None or read.value["kind"] != "fabric":
        return
    figures, _ = parse_figures(read.value)
    rate, old_rate = figures["link_bytes_per_s"], replaced.link_bytes_per_s
    findings: list[Finding] = []
    if figures["tier"] != replaced.tier:
        findings.append((("tier",), f"is {figures['tier']}, but {replaced.id} is a {replaced.tier} fabric"))
    if rate and old_rate and math.isclose(max(rate / old_rate, old_rate / rate), 8, rel_tol=0.02):
        reason = _rate_contradiction(rate, old_rate, f"{replaced.id} in the catalog")
        findings.append((("link_bytes_per_s",), reason or ""))
    refuse_all(read, findings)


def _rate_contradiction(rate: float, other: float, words: str) -> str | None:
    ratio = max(rate / other, other / rate)
    if ratio <= _APART:
        return None
    hint = ": are bits and bytes confused?" if 4 <= ratio <= 16 else ""
    return f"is {humanise(rate, 'B/s')}, against {humanise(other, 'B/s')} ({words}){hint}"

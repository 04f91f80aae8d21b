# SPDX-License-Identifier: Apache-2.0
"""Brief answers: the JSON document of a command in at most 2 kB, what matters most first.

A brief answer is a projection of the document that `--json` prints; nothing is computed for it.  Numbers are
texts with their units, missing values are left out, and `next` says how to ask for more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from cclbench.ground.text import printable, shorten_middle
from cclbench.present.brief.comparisons import brief_comparison, brief_history
from cclbench.present.brief.memory import brief_memory
from cclbench.present.brief.quantities import Brief, Document
from cclbench.present.brief.runs import brief_findings, brief_result
from cclbench.present.brief.work import brief_operators, brief_sequences, brief_stragglers

BRIEF_BYTES: Final = 2_000
"""Maximum bytes of a brief answer's JSON, in UTF-8."""
_ROOMS: Final = (
    (800, 8),
    (500, 6),
    (400, 5),
    (300, 5),
    (240, 4),
    (180, 3),
    (120, 3),
    (80, 2),
    (50, 1),
    (20, 1),
)
"""Characters of a text and entries of a list: the first pair with which the answer fits."""
_FIGURES: Final = 3
"""Figures of an object for each entry of a list."""


def brief_answer(
    document: Document, all_of_it: str = "--json without --brief", limit: int = BRIEF_BYTES
) -> Brief:
    """The brief answer of a command's JSON document, in at most `limit` bytes of `brief_text`.

    `all_of_it` are the words for how the whole document is requested.  Texts and lists that do not fit are
    shortened; `left_out` counts the entries of each list that are left out.
    """
    project, further = _PROJECTIONS[document["schema"]]
    answer = _without_missing(project(document))
    following = [*further, f"{all_of_it}: the whole document"]
    for longest, most in _ROOMS:
        brief = _shortened(answer, longest, most) | {"next": following}
        if len(brief_text(brief).encode()) <= limit:
            return brief
    return {"next": following}


def brief_text(brief: Brief) -> str:
    """A brief answer as JSON, a field a line."""
    fields = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in brief.items())
    return "{" + ",\n ".join(fields) + "}"


def _shortened(answer: Brief, longest: int, most: int) -> Brief:
    """The answer with shorter texts and lists, and the number of entries that each list lacks."""
    left_out = {
        name: len(value) - kept
        for name, value in answer.items()
        if isinstance(value, list | dict) and len(value) > (kept := _entries(value, most))
    }
    brief = {name: _shorten(value, longest, most) for name, value in answer.items()}
    return brief | ({"left_out": left_out} if left_out else {})


def _entries(value: list[Any] | dict[str, Any], most: int) -> int:
    return most if isinstance(value, list) else most * _FIGURES


def _shorten(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, str):
        return shorten_middle(printable(value), longest)
    if isinstance(value, list):
        return [_shorten(item, longest, most) for item in value[: _entries(value, most)]]
    if isinstance(value, dict):
        chosen = list(value.items())[: _entries(value, most)]
        return {
            shorten_middle(printable(key), longest): _shorten(item, longest, most) for key, item in chosen
        }
    return value


def _without_missing(value: Any) -> Any:
    """The value without nulls and empty texts, lists and objects, at any depth."""
    if isinstance(value, Mapping):
        cleaned = {key: _without_missing(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in (None, "", [], {})}
    return [_without_missing(item) for item in value] if isinstance(value, list | tuple) else value


_DIAGNOSE: Final = "diagnose RUN: evidence, a query for sql, and more to try"
_PROJECTIONS: Final[Mapping[str, tuple[Callable[[Document], Brief], tuple[str, ...]]]] = {
    "result.v1": (brief_result, (_DIAGNOSE, "metrics RUN with a pattern such as 'comm.*': other figures")),
    "findings.v1": (
        brief_findings,
        (
            "explain NAME: the rule of a finding",
            "stragglers RUN, ops RUN, memory RUN: which rank, operator, owner",
            "whatif RUN with the settings of `whatif`: the step without it",
        ),
    ),
    "operators.v1": (brief_operators, ("ops RUN by shape, module, phase or kernel, sorted by gap",)),
    "sequences.v1": (brief_sequences, ("sequences RUN with another length",)),
    "stragglers.v2": (brief_stragglers, ("diagnose RUN: what the waiting costs",)),
    "memory.v1": (brief_memory, ("memory RUN with settings such as batch=9: the modelled peak",)),
    "comparison.v3": (brief_comparison, ("diagnose RUN, ops RUN: one of them alone",)),
    "history.v1": (brief_history, ("compare A B: the runs on both sides of a change",)),
}
"""The projection of each document, by its schema, and further questions."""

# SPDX-License-Identifier: Apache-2.0
"""Pages of answers as JSON of bounded size, with text from traces escaped and marked as untrusted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable, shorten_middle
from cclbench.present.brief import BRIEF_BYTES, brief_answer
from cclbench.present.brief.quantities import Brief

PAGE: Final = 50
"""Rows per answer."""
ANSWER_BYTES: Final = 256_000
"""Maximum bytes of the JSON of a full answer; that of others is `BRIEF_BYTES`."""
LONGEST: Final = 4_000
"""Maximum characters of a text, and items of a list."""
LARGEST_OFFSET: Final = 1_000_000_000
_SHORTER: Final = (LONGEST, 1_000, 250, 60, 15)
"""Lengths to which texts and lists are truncated, in turn, until one row fits into an answer."""
_LONGEST_PLACE: Final = 80
_OWN: Final = ("next", "left_out")
"""Fields of a brief answer that are by cclbench."""
_ENVELOPE_BYTES: Final = 300
"""Room for `untrusted` in a brief answer."""
_REST: Final = (
    "`cut` lists truncated texts and lists. Get the rest from the run's tables with `sql`:"
    " substr(column, given + 1) of a text, column[given + 1:] of a list."
)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """One page of rows from `offset` on, and further fields.

    `more`: whether further rows follow; `all_rows`: the total number of rows, if known.  `fields` are
    specific to the tool; like the rows they are from traces, unless `trusted`.  `notes` are by cclbench.
    The JSON has at most `most_bytes`.
    """

    rows: Sequence[Mapping[str, Any]]
    offset: int = 0
    more: bool = False
    all_rows: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    trusted: bool = False
    most_bytes: int = BRIEF_BYTES


def answer_document(document: Mapping[str, Any]) -> Brief:
    """The brief answer of a document, with the fields that contain text from traces."""
    brief = brief_answer(document, "full=true", BRIEF_BYTES - _ENVELOPE_BYTES)
    return {**brief, "untrusted": [name for name in brief if name not in _OWN]}


def check_offset(offset: int) -> None:
    """`UsageError` for an offset out of range."""
    if not 0 <= offset <= LARGEST_OFFSET:
        raise UsageError(
            f"offset {offset}: must be from 0 to {LARGEST_OFFSET:,}",
            hint="use next_offset of the last answer",
        )


def check_page(rows: int, offset: int) -> None:
    """`UsageError` if a page other than the first has no rows."""
    if offset and not rows:
        raise UsageError(f"offset {offset} is beyond the last row", hint="begin at offset 0")


def answer_page(
    rows: Sequence[Mapping[str, Any]],
    offset: int,
    *,
    full: bool = True,
    trusted: bool = False,
    **fields: Any,
) -> ToolAnswer:
    """The page that begins at `offset` of all rows, small unless `full`; `UsageError` if there is none."""
    check_offset(offset)
    chosen = rows[offset : offset + PAGE]
    check_page(len(chosen), offset)
    more = offset + PAGE < len(rows)
    return ToolAnswer(
        chosen, offset, more, len(rows), fields, trusted=trusted, most_bytes=bytes_of(full=full)
    )


def bytes_of(*, full: bool) -> int:
    """The maximum bytes of an answer's JSON."""
    return ANSWER_BYTES if full else BRIEF_BYTES


def encode_answer(answer: ToolAnswer | Brief) -> bytes:
    """The answer as JSON of at most its bytes; `UsageError` if a single row cannot be made to fit.

    Texts and lists are truncated after `LONGEST` characters or items, or after fewer if a row does not fit;
    `cut` lists them with their lengths, and a note says how to get the rest.
    """
    if not isinstance(answer, ToolAnswer):
        return _json_bytes(answer)
    for longest in _SHORTER:
        encoded = _encode_cut_to(answer, longest)
        if encoded is not None:
            return encoded
    raise UsageError(
        f"row {answer.offset} has more than {answer.most_bytes:,} bytes of JSON even with its texts truncated"
        f" to {_SHORTER[-1]} characters",
        hint="select fewer columns, or shorter lists"
        + ", or set full=true" * (answer.most_bytes < ANSWER_BYTES),
    )


def _encode_cut_to(answer: ToolAnswer, longest: int) -> bytes | None:
    """As `encode_answer`, with texts and lists truncated to `longest`; None if not even one row fits."""
    cut: list[dict[str, Any]] = []
    fields = {name: _json_value(value, longest, name, cut) for name, value in answer.fields.items()}
    envelope: dict[str, Any] = {
        **fields,
        "rows": [],
        "untrusted": [] if answer.trusted else [*fields, "rows"],
        "more": answer.more,
        "next_offset": answer.offset + PAGE,
        "all_rows": answer.all_rows,
        "cut": [],
        "notes": [*answer.notes, _REST],
    }
    left = answer.most_bytes - _json_size(envelope) - sum(_json_size(place) + 1 for place in cut)
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(answer.rows):
        places: list[dict[str, Any]] = []
        shown = {printable(name): _json_value(value, longest, name, places) for name, value in row.items()}
        places = [{"row": number, **place} for place in places]
        left -= _json_size(shown) + 1 + sum(_json_size(place) + 1 for place in places)
        if left < 0:
            break
        rows.append(shown)
        cut += places
    if left < 0 and not rows:
        return None
    end = answer.offset + len(rows)
    more = answer.more or len(rows) < len(answer.rows)
    document = {
        **envelope,
        "rows": rows,
        "more": more,
        "next_offset": end if more else None,
        "cut": cut,
        "notes": [*answer.notes, *([_REST] if cut else [])],
    }
    return _json_bytes(
        {name: value for name, value in document.items() if value is not None or name in fields}
    )


def _json_value(value: Any, longest: int, place: str, cut: list[dict[str, Any]]) -> Any:
    """A value as JSON, escaped and truncated; truncations are added to `cut`.

    Non-finite floats become null, types that JSON lacks become text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, Mapping | list | tuple):
        text: str = _cut_to(str(value), longest, place, cut)
        return printable(text)
    if isinstance(value, Mapping):
        chosen = _cut_to([*value.items()], longest, place, cut)
        return {printable(str(k)): _json_value(item, longest, f"{place}.{k}", cut) for k, item in chosen}
    chosen = _cut_to(value, longest, place, cut)
    return [_json_value(item, longest, f"{place}[{i}]", cut) for i, item in enumerate(chosen)]


def _cut_to(value: Any, longest: int, place: str, cut: list[dict[str, Any]]) -> Any:
    """The first `longest` characters or items; a truncation is added to `cut`."""
    if len(value) > longest:
        cut.append(
            {"at": printable(shorten_middle(place, _LONGEST_PLACE)), "length": len(value), "given": longest}
        )
        return value[:longest]
    return value


def _json_size(value: Any) -> int:
    return len(_json_bytes(value))


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

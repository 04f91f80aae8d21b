# SPDX-License-Identifier: Apache-2.0
"""A page of an answer as JSON of bounded size, with the text of traces escaped and set apart."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable, shorten_middle

PAGE: Final = 50
"""Rows of an answer."""
ANSWER_BYTES: Final = 256_000
"""Bytes of an answer's JSON."""
LONGEST: Final = 4_000
"""Characters of a text, and items of a list, that are given."""
LARGEST_OFFSET: Final = 1_000_000_000
_SHORTER: Final = (LONGEST, 1_000, 250, 60, 15)
"""What texts and lists are cut to until one row fits into an answer."""
_LONGEST_PLACE: Final = 80
_REST: Final = (
    "`cut` lists texts and lists that are longer than given. The rest is in the run's tables: by `sql`,"
    " substr(column, given + 1) of a text, column[given + 1:] of a list."
)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """One page of rows from `offset` on, and what stands beside them.

    `more`: rows follow after these; `all_rows`: how many there are, where that is known.  `fields` are the
    tool's own, from the trace as the rows are unless `trusted`.  `notes` are sentences of cclbench.
    """

    rows: Sequence[Mapping[str, Any]]
    offset: int = 0
    more: bool = False
    all_rows: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    trusted: bool = False


def check_offset(offset: int) -> None:
    """`UsageError` for an offset that no page begins at."""
    if not 0 <= offset <= LARGEST_OFFSET:
        raise UsageError(
            f"offset {offset}: must be from 0 to {LARGEST_OFFSET:,}",
            hint="use next_offset of the last answer",
        )


def check_page(rows: int, offset: int) -> None:
    """`UsageError` where a page other than the first has no rows."""
    if offset and not rows:
        raise UsageError(f"offset {offset}: there are not so many rows", hint="begin at offset 0")


def answer_page(
    rows: Sequence[Mapping[str, Any]], offset: int, *, trusted: bool = False, **fields: Any
) -> ToolAnswer:
    """The page of all rows that begins at `offset`; `UsageError` where none does."""
    check_offset(offset)
    chosen = rows[offset : offset + PAGE]
    check_page(len(chosen), offset)
    return ToolAnswer(chosen, offset, offset + PAGE < len(rows), len(rows), fields, trusted=trusted)


def encode_answer(answer: ToolAnswer) -> bytes:
    """The answer as JSON of at most `ANSWER_BYTES`; `UsageError` where one row cannot be made to fit.

    Texts and lists are cut after `LONGEST` characters or items, in a row that does not fit even so after
    fewer; `cut` says which and how long they were, a note how to get the rest.
    """
    for longest in _SHORTER:
        encoded = _encode_cut_to(answer, longest)
        if encoded is not None:
            return encoded
    raise UsageError(
        f"row {answer.offset} alone has more than {ANSWER_BYTES:,} bytes of JSON, with its texts cut to"
        f" {_SHORTER[-1]} characters",
        hint="select fewer columns, or shorter lists",
    )


def _encode_cut_to(answer: ToolAnswer, longest: int) -> bytes | None:
    """As `encode_answer`, with texts and lists cut to `longest`; None where not even one row fits."""
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
    left = ANSWER_BYTES - _json_size(envelope) - sum(_json_size(place) + 1 for place in cut)
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
    given = {
        **envelope,
        "rows": rows,
        "more": more,
        "next_offset": end if more else None,
        "cut": cut,
        "notes": [*answer.notes, *([_REST] if cut else [])],
    }
    return _json_bytes({name: value for name, value in given.items() if value is not None or name in fields})


def _json_value(value: Any, longest: int, place: str, cut: list[dict[str, Any]]) -> Any:
    """A value as JSON holds it, escaped and cut; what was cut is added to `cut`.

    A float that is no number is null, what JSON has no type for is text.
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
    """The first `longest` characters or items."""
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

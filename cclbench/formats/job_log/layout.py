# SPDX-License-Identifier: Apache-2.0
"""Step lines of one layout, as most of a log's are: split at their separator, a block at a time.

This takes a third of the time of the family's pattern, which reads all other lines.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats.job_log.columns import Float64, clock_ns
from cclbench.formats.job_log.families import NUMBER, STAMP, Family
from cclbench.ground.intervals import Int64

_PRINTED: Final = re.compile(rb" *[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?| +")
_MOST_BYTES: Final = np.iinfo(np.int32).max


def literal_pattern(match: re.Match[bytes]) -> re.Pattern[bytes]:
    """The pattern of lines that differ from the matched one in their numbers only, with the same groups.

    It searches several times faster than that of the family.
    """
    names = sorted(match.re.groupindex, key=match.re.groupindex.__getitem__)
    parts, at = list[bytes](), match.start()
    for name in names:
        begin, end = match.span(name)
        if begin < 0:
            parts.append(b"()")
            continue
        texts = _PRINTED.split(match.string[at:begin])
        between = _PRINTED.findall(match.string[at:begin])
        printed = [rb" *+[-+\d.,eE]++" if text.strip() else b" +" for text in between]
        parts += [re.escape(texts[0])]
        parts += [p + re.escape(text) for p, text in zip(printed, texts[1:], strict=True)]
        number = STAMP.replace(b"?P<stamp>", b"") if name == "stamp" else rb"([-+\d.,eE]++[KMBGT]?)"
        parts.append(number)
        at = end
    return re.compile(b"".join(parts))


class _Pieces:
    """A block cut after each separator and each line end."""

    def __init__(self, block: bytes, separator: bytes) -> None:
        text = np.frombuffer(block, np.uint8)
        cuts = np.flatnonzero((text == separator[0]) | (text == ord("\n")))
        last = text[cuts] == ord("\n")
        if not block.endswith(b"\n"):
            cuts, last = np.append(cuts, len(block) - 1), np.append(last, True)
        self.block, self._cuts = block, cuts
        self._ends = np.flatnonzero(last)
        """The last piece of each line."""
        self._sizes = np.diff(self._ends, prepend=-1)
        offsets = np.concatenate([[0], cuts + 1]).astype(np.int32)
        self._texts = pa.StringArray.from_buffers(len(cuts), pa.py_buffer(offsets), pa.py_buffer(block))

    def piece_at(self, byte: int) -> int:
        """The piece that has a byte of the block."""
        return int(np.searchsorted(self._cuts, byte))

    def begin_of(self, piece: int) -> int:
        """The piece's first byte."""
        return int(self._cuts[piece - 1]) + 1 if piece else 0

    def other_lines(self, firsts: Int64) -> bytes:
        """The lines that begin with none of these pieces."""
        other = ~np.isin(self._ends - self._sizes + 1, firsts)
        ends = self._cuts[self._ends] + 1
        bounds = zip(np.concatenate([[0], ends])[:-1][other].tolist(), ends[other].tolist(), strict=True)
        return b"\n".join(self.block[begin:end] for begin, end in bounds)

    def lines_like(self, piece: int) -> tuple[int, Int64]:
        """The first piece of a piece's line, and those of all lines of as many pieces."""
        line = int(np.searchsorted(self._ends, piece))
        firsts = self._ends - self._sizes + 1
        return int(firsts[line]), firsts[self._sizes == self._sizes[line]]

    def texts(self, pieces: Int64) -> pa.StringArray:
        """Pieces as texts, not validated as UTF-8."""
        return self._texts.take(pa.array(pieces.astype(np.int32)))


def _template(family: Family, block: bytes) -> re.Match[bytes] | None:
    """The first step line, if no line of the block has a field that it lacks."""
    match = family.pattern.search(block)
    if match is None or any(match[name] is None for name in _head_groups(family)):
        return None
    lacking = (field for field in family.fields if match[field.column] is None)
    return None if any(re.search(field.key + NUMBER, block) for field in lacking) else match


def _head_groups(family: Family) -> list[str]:
    """Groups of the head, which every line has but for the time."""
    return [name for name in family.pattern.groupindex if name not in family.factors]


def alike_lines(family: Family, block: bytes) -> list[tuple[bytes, ...]] | None:
    """The groups of all step lines of a block, if they differ in their numbers only."""
    match = _template(family, block)
    if match is None or family.at_line_begin or family.separator:
        return None
    pattern = literal_pattern(match)
    lines: list[tuple[bytes, ...]] = pattern.findall(block)
    has_others = len(lines) <= block.count(b"\n") and family.pattern.search(pattern.sub(b"", block))
    return None if has_others else lines


def separated_columns(family: Family, block: bytes) -> dict[str, Float64 | Int64] | None:
    """The groups of the lines as numbers, as they are printed, and stamps in ns.

    None if the block's step lines do not all have the fields of the first one, each with one number.
    """
    match = _template(family, block) if family.separator and len(block) < _MOST_BYTES else None
    head = match and re.compile(family.head).match(block, match.start())
    if match is None or head is None:
        return None
    pieces = _Pieces(block, family.separator)
    head_piece = pieces.piece_at(head.start())
    first, firsts = pieces.lines_like(head_piece)
    line, _, _ = block[head.start() :].partition(b"\n")
    if pieces.piece_at(head.end() - 1) != head_piece or len(family.pattern.findall(line)) > 1:
        return None
    texts, alike = dict[str, pa.StringArray](), np.ones(len(firsts), np.bool_)
    for name in family.factors:
        if match[name] is not None:
            piece = pieces.piece_at(match.start(name))
            key = block[pieces.begin_of(piece) : match.start(name)].rstrip(b" ")
            text = pieces.texts(firsts + (piece - first))
            alike &= pc.starts_with(text, key).to_numpy(zero_copy_only=False)
            texts[name] = pc.ascii_trim(_sliced(text, len(key)), " \n" + family.separator.decode())
    firsts = firsts[alike]
    if not texts or family.pattern.search(pieces.other_lines(firsts)):
        return None
    try:
        columns = {
            name: text.filter(pa.array(alike)).cast(pa.float64()).to_numpy() for name, text in texts.items()
        }
        heads = _head_columns(head, pieces.begin_of(head_piece), pieces.texts(firsts + (head_piece - first)))
    except pa.ArrowInvalid:
        return None
    return columns | heads if heads else None


def _head_columns(
    head: re.Match[bytes], begin: int, rest: pa.StringArray
) -> dict[str, Float64 | Int64] | None:
    """The groups of heads like the matched one, which begins its line at a byte: a stamp, then a number.

    `pa.ArrowInvalid` if one is impossible.
    """
    columns, at = dict[str, Float64 | Int64](), begin
    for name in sorted(head.re.groupindex, key=head.re.groupindex.__getitem__):
        key, at = head.string[at : head.start(name)], head.end(name)
        key = key if name == "stamp" else key.rstrip(b" ")
        if not pc.all(pc.starts_with(rest, key)).as_py():
            return None
        rest = _sliced(rest, len(key))
        if name == "stamp":
            times = _sliced(rest, 0, len(head[name]))
            times = pc.replace_substring(times, ",", ".") if b"," in head[name] else times
            columns[name] = clock_ns(times.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy())
            rest = _sliced(rest, len(head[name]))
        else:
            end = head.string[at : head.end()]
            text = pc.ascii_ltrim(_sliced(rest, 0, -len(end)), " ")
            if not pc.all(pc.and_(pc.ends_with(rest, end), pc.ascii_is_decimal(text))).as_py():
                return None
            columns[name] = text.cast(pa.float64()).to_numpy()
            rest = rest.slice(0, 0)
    return columns


def _sliced(texts: pa.StringArray, begin: int, end: int = _MOST_BYTES) -> pa.StringArray:
    """Bytes of each text, from the end if negative."""
    return pc.binary_slice(texts.view(pa.binary()), begin, end).view(pa.string())

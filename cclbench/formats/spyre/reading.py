# SPDX-License-Identifier: Apache-2.0
"""Rows of Flex's Chrome JSON.

A row's name ends with what the card does (IBM/aiu-trace-analyzer, `types.py`, `pipeline/categorize.py`):
`Cmpt Prep` and `Cmpt Exec` of a computation, `DmaI` and `DmaO` of a copy to or from the card; those with
`CollGroup` or `Rdma` are transfers between cards.  `ts` is µs, which Flex converts from the card's cycles
(`TS1` to `TS5`) by a nominal frequency.  `pid` is the rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.formats import Names, Rows, Trace
from cclbench.formats.json_events import JsonEvents
from cclbench.formats.kineto.kinds import track_number
from cclbench.formats.texts import exact_number
from cclbench.formats.timeline.chrome_rows import ChromeRow, row_nanoseconds
from cclbench.formats.timing_rows import MOST_BYTES
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.record.facts import TraceFacts

_AGAIN: Final = "give the file of one card, as Flex wrote it"
_MOST_OPEN: Final = 1 << 16
_RANKS: Final = range(1 << 16)
_SUFFIX: Final = re.compile(r" (Cmpt Prep|Cmpt Exec|Dma[IO])$")
# `SenRdmaSend_82237 [sync=...]`, `add_11`: like operations are one name.
_NUMBERED: Final = re.compile(r"_\d+(?=$|[ \[])|(?:(?<= )| )\[[^\]]*\]")
_SIZE: Final = re.compile(r"\d{1,19}", re.ASCII)
_COPIES: Final = {"DmaI": "h2d", "DmaO": "d2h"}


class _JobAttributes(msgspec.Struct, gc=False):
    begin: Any = msgspec.field(name="TS1", default=None)
    bytes: Any = msgspec.field(name="Bytes", default=None)
    collective: Any = msgspec.field(name="CollGroup", default=None)


class _SpyreEvent(ChromeRow, gc=False):
    attr: _JobAttributes | None = None
    args: _JobAttributes | None = None


_Row = tuple[_SpyreEvent, Any, Any]
"""A row, its begin, and its end or its length."""
_DECODER: Final = msgspec.json.Decoder(list[_SpyreEvent], float_hook=exact_number)


def read_trace(path: Path, allow_truncated: bool) -> Trace:
    """All rows; `InputError` if they are of several cards."""
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.facts = TraceFacts(producer="Flex", vendor="ibm", works_on="device")
    trace.batches = _CardReading(path, trace).batches(allow_truncated)
    return trace


class _CardReading:
    def __init__(self, path: Path, trace: Trace) -> None:
        self.path, self.trace = path, trace
        self.names: dict[str, Names] = defaultdict(Names)
        self.dropped: Counter[str] = Counter()
        self.open: dict[tuple[Any, ...], _SpyreEvent] = {}
        self.cards: set[int | str | None] = set()
        self.computations: list[tuple[Int64, Int64, Int64]] = []
        """Begin, length and name of computations."""

    def batches(self, allow_truncated: bool) -> Iterator[Rows]:
        """Rows of each chunk by kind; `trace` is complete after the last batch."""
        stream = JsonEvents(self.path, _DECODER, allow_truncated=allow_truncated)
        for _, events in stream:
            groups: dict[str, list[_Row]] = defaultdict(list)
            for row in filter(None, map(self._complete, events)):
                if kind := self._kind_of(row[0]):
                    groups[kind].append(row)
            where = f"{self.path}: near byte {stream.position:,}"
            for kind, rows in groups.items():
                yield self._rows(kind, rows, where)
        self.dropped["begin without an end"] += len(self.open)
        self._refuse_several_cards()
        if len(self.cards) == 1 and (card := next(iter(self.cards))) in _RANKS:
            self.trace.facts = msgspec.structs.replace(self.trace.facts, rank=card, rank_source="pid")
        self.trace.dropped, self.trace.cut = +self.dropped, stream.cut

    def _complete(self, event: _SpyreEvent) -> _Row | None:
        """A row with its begin and end; None for a begin, and for what is left out, which is counted."""
        if event.ph == "X" and event.ts is not None and event.dur is not None:
            return event, event.ts, event.dur
        attributes = event.attr or event.args
        key = (event.pid, event.tid, event.name, str(attributes and attributes.begin))
        if event.ph == "B" and event.ts is not None:
            if len(self.open) == _MOST_OPEN:
                where = str(self.path)
                raise InputError(f"has {_MOST_OPEN:,} rows without an end", where=where, hint=_AGAIN)
            self.dropped["begin without an end"] += self.open.pop(key, None) is not None
            self.open[key] = event
        elif event.ph == "E" and event.ts is not None and (begin := self.open.pop(key, None)) is not None:
            return begin, begin.ts, event.ts
        else:
            self.dropped["label" if event.ph == "M" else "row without a begin, or a length"] += 1
        return None

    def _kind_of(self, event: _SpyreEvent) -> str | None:
        attributes, suffix = event.attr or event.args, _SUFFIX.search(event.name)
        if suffix is None or attributes is None or attributes.begin is None:
            self.dropped["row of the runtime on the host"] += 1
            return None
        if suffix[1] == "Cmpt Prep":
            self.dropped["preparation of a computation"] += 1
            return None
        self.cards.add(event.pid)
        if suffix[1] == "Cmpt Exec":
            return "kernel"
        return "transfer" if attributes.collective is not None or "Rdma" in event.name else "copy"

    def _rows(self, kind: str, rows: list[_Row], where: str) -> Rows:
        start = row_nanoseconds([begin for _, begin, _ in rows], where, _AGAIN)
        last = row_nanoseconds([end for _, _, end in rows], where, _AGAIN)
        paired = np.array([event.ph == "B" for event, _, _ in rows], np.bool_)
        duration = np.where(paired, last - start, last)
        wrong = (start < 0) | (duration < 0) | (start + duration > LATEST_NS)
        if wrong.any():
            i = int(np.argmax(wrong))
            what = f"time: {rows[i][0].name[:60]!r} from {start[i]} ns, {duration[i]} ns long"
            raise impossible_value(what, where, _AGAIN)
        table = self.names[kind]
        codes = np.array([table[_plain_name(event)] for event, _, _ in rows], np.int32)
        track = np.array([track_number(str(event.tid)) for event, _, _ in rows], np.int64)
        if kind == "kernel":
            self.computations.append((start, duration, codes.astype(np.int64)))
        columns: dict[str, Any] = {}
        if kind == "copy":
            columns["bytes"] = [_bytes_of(event) for event, _, _ in rows]
            columns["copy_direction"] = [_COPIES[event.name[-4:]] for event, _, _ in rows]
        return Rows(
            kind="copy" if kind == "copy" else "kernel",
            side="device",
            names=table,
            codes=codes,
            start_ns=start,
            dur_ns=duration,
            track=track,
            **columns,
        )

    def _refuse_several_cards(self) -> None:
        """`InputError` if a card would run one operation twice at once, or rows state several ranks.

        Two computations in a row may overlap a little: the frequency behind their times is nominal.
        """
        several = len(self.cards) > 1
        if self.computations and not several:
            columns = np.concatenate([np.stack(batch) for batch in self.computations], axis=1)
            # A row may be listed twice, which is no second card's.
            start, duration, name = np.unique(columns, axis=1)
            order = np.lexsort((start, name))
            start, end, name = start[order], (start + duration)[order], name[order]
            common = np.minimum(end[:-1], end[1:]) - start[1:]
            shorter = np.minimum(end[:-1] - start[:-1], end[1:] - start[1:])
            several = bool(((name[1:] == name[:-1]) & (2 * common > shorter) & (shorter > 0)).any())
        if several:
            what = "holds rows of several cards: an operation runs more than once at a time"
            raise InputError(what, where=str(self.path), hint=_AGAIN)


def _plain_name(event: _SpyreEvent) -> str:
    """`add` for `add_11 Cmpt Exec`; the computation of a collective is called by what it computes."""
    name = _SUFFIX.sub("", event.name)
    attributes = event.attr or event.args
    if attributes is not None and isinstance(attributes.collective, str):
        name = name.removeprefix(f"{attributes.collective}_")
    return _NUMBERED.sub("", name).strip() or "(no name)"


def _bytes_of(event: _SpyreEvent) -> int | None:
    attributes = event.attr or event.args
    text = str(attributes.bytes) if attributes is not None else ""
    return int(text) if _SIZE.fullmatch(text) and int(text) <= MOST_BYTES else None

# SPDX-License-Identifier: Apache-2.0
"""Ascend's analyses of HCCL: `communication.json` of a rank, `cluster_communication.json` of a cluster.

An operation is called `hcom_<kind>__<digits of the group>_<number in the group>_...@<group>`.  Of each, the
files state begin, elapsed time, and the bytes that went over each kind of link, where 1 MB is 10^6 bytes and
`SDMA` is the sum of the links within a node.  They do not state the payload.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import Redactor
from cclbench.formats.timing_rows import MOST_BYTES, Timings, exact_nanoseconds
from cclbench.formats.trace import LATEST_NS
from cclbench.record.facts import ProcessGroup

_AGAIN: Final = "write it again: torch_npu.profiler.analyse(FOLDER), or msprof-analyze cluster"
_MOST_BYTES: Final = 1 << 30
_TIME, _LINKS = "Communication Time Info", "Communication Bandwidth Info"
_BEGIN, _ELAPSED, _SIZE = "Start Timestamp(us)", "Elapse Time(ms)", "Transit Size(MB)"
_TOTAL: Final = "Total Op Info"
_RANKS: Final = re.compile(r"\(\d{1,7}(?:, ?\d{1,7})*,?\)")
_OPERATION: Final = re.compile(r"(?P<name>[^@]{1,300}?)(?:@(?P<group>.{1,64}))?")
_NUMBER: Final = re.compile(r"__\d+_(\d{1,18})(?:_|$)")
_ROUNDING: Final = Decimal("1e-6")
"""Relative difference of a sum of floating-point numbers from its parts."""
Place = tuple[str, ...]
"""Keys that lead to an operation: of a rank step, class and name; of a cluster group, step, name and rank."""


class AscendCommunication(EvidenceReader):
    """Reader of HCCL's operations as Ascend's tools list them."""

    name = "ascend_communication"
    description = "Ascend communication.json and cluster_communication.json: HCCL's calls, bytes by link"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = (
        "`communication.json` of ASCEND_PROFILER_OUTPUT, or `cluster_communication.json` of "
        "`msprof-analyze cluster`"
    )
    versions = "CANN 7 to 8"
    tested = "real: the broadcasts of two ranks of a cluster; documentation: files of one rank"

    def sniff(self, head: bytes) -> float:
        """Sure of the key of an operation's times within an object."""
        return 0.95 if head.lstrip().startswith(b"{") and f'"{_TIME}"'.encode() in head else 0.0

    def read(self, path: Path) -> Evidence:
        """A timing for each operation and rank, and a counter for each link that moved bytes."""
        operations = _Operations(path)
        for place, entry in _operations(_document(path)):
            operations.add_operation(place, entry)
        return operations.evidence()

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Times and bytes of operations, whose names, groups and links are redacted."""
        new: dict[str, Any] = {}
        for place, entry in _operations(_document(path)):
            *above, last = (_publish_key(key, redactor) for key in place or ("",))
            within = new
            for key in above:
                within = within.setdefault(key, {})
            within[last] = _publish_entry(entry, redactor)
        with open_output(path, target) as write:
            write(msgspec.json.Encoder(decimal_format="number").encode(new))
        return True


def _document(path: Path) -> dict[str, Any]:
    # Not needed to recognise a file.
    from cclbench.formats.texts import damaged_error, exact_number, read_whole, reason_of

    text = read_whole(path, _MOST_BYTES, hint=_AGAIN)
    try:
        return msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, reason_of(error), hint=_AGAIN) from None


def _publish_key(key: str, redactor: Redactor) -> str:
    """A key with its parts redacted one by one: an operation's name and its group."""
    parts = []
    for part in key.split("@", 1):
        text, counts = redactor.text(part)
        redactor.count("a key", counts)
        parts.append(text)
    return "@".join(parts)


def _publish_entry(entry: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """What is read of an operation."""
    times = {key: _number(entry, _TIME, key) for key in (_BEGIN, _ELAPSED)}
    links = entry.get(_LINKS)
    sizes = {
        _publish_key(link, redactor): {_SIZE: _number(entry, _LINKS, link, _SIZE)}
        for link in (links if isinstance(links, dict) else ())
    }
    return {_TIME: times, _LINKS: sizes}


def _operations(value: dict[str, Any], place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """All entries with times, and the keys that lead to them."""
    if _TIME in value:
        yield place, value
        return
    for key, child in value.items():
        if isinstance(child, dict) and len(place) < 4:
            yield from _operations(child, (*place, key))


@dataclass(slots=True)
class _Operations:
    path: Path
    timings: Timings = field(init=False)
    counters: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[ProcessGroup, None] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    sums: dict[Place, Decimal] = field(default_factory=dict)
    totals: dict[Place, Decimal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timings = Timings(self.path)

    def add_operation(self, place: Place, entry: dict[str, Any]) -> None:
        """The rows of an operation of a rank; of a total its time, to compare it with the sum."""
        from cclbench.classify import collective_name
        from cclbench.ground.schema import group_id

        ranks, name, group, rank = _parse_place(place)
        begin, elapsed = (_number(entry, _TIME, key) for key in (_BEGIN, _ELAPSED))
        duration = None if elapsed is None else exact_nanoseconds(elapsed, per_unit=10**6)
        if elapsed is None or duration is None:
            self.left_out["without a time"] += 1
            return
        at = 2 if rank is not None else len(place) - 1
        context = (*place[:at], *place[at + 1 :])
        if name == _TOTAL:
            self.totals[*context, group or ""] = elapsed
            return
        for total_key in dict.fromkeys(((*context, ""), (*context, group or ""))):
            self.sums[total_key] = self.sums.get(total_key, Decimal()) + elapsed
        start = round(begin * 1000) if begin and 0 < begin < LATEST_NS // 1000 else None
        named, number = collective_name(name), _NUMBER.search(name)
        if ranks:
            self.groups[ProcessGroup(name=group or "", ranks=ranks)] = None
        self.timings.add_row(
            rank=rank,
            kind=named.kind if named else None,
            library="hccl",
            group=group_id(ranks) if ranks else None,
            group_size=len(ranks) if ranks else None,
            seq=int(number[1]) if number else None,
            start_ns=start,
            dur_ns=duration,
        )
        links = entry.get(_LINKS)
        for link in links if isinstance(links, dict) else ():
            self._add_link(str(link), _number(entry, _LINKS, link, _SIZE), rank, start, duration)

    def _add_link(
        self, link: str, megabytes: Decimal | None, rank: int | None, start: int | None, duration: int
    ) -> None:
        if megabytes is None or not 0 <= megabytes <= MOST_BYTES // 10**6:
            self.left_out["link without a size"] += 1
        elif megabytes:
            end = None if start is None else start + duration
            size = float(round(megabytes * 10**6))
            row = {"rank": rank, "port": link[:40], "counter": "hccl_bytes", "unit": "B", "value": size}
            self.counters.append({**row, "start_ns": start, "end_ns": end})

    def evidence(self) -> Evidence:
        """All rows, with a note on totals that differ from the sum of what they are of."""
        from cclbench.ground.evidence_schema import COUNTERS

        notes = []
        wrong = [
            place
            for place, total in self.totals.items()
            if abs(total - self.sums.get(place, Decimal())) > _ROUNDING * max(total, Decimal(1))
        ]
        if wrong:
            notes.append(f"{len(wrong)} of {len(self.totals)} totals differ from the sum of their operations")
        if self.totals:
            self.left_out["totals, which are sums of others"] = len(self.totals)
        return Evidence(
            timings=self.timings.timing_table(),
            counters=pa.Table.from_pylist(self.counters, COUNTERS),
            groups=list(self.groups),
            left_out=dict(self.left_out),
            notes=notes,
        )


def _parse_place(place: Place) -> tuple[tuple[int, ...] | None, str, str | None, int | None]:
    """Ranks of the group, name of the operation, name of the group, and rank, as far as keys state them."""
    of_cluster = len(place) == 4 and place[3].isdecimal() and len(place[3]) < 8
    operation = _OPERATION.fullmatch(place[2 if of_cluster else -1]) if place else None
    name, group = (operation["name"], operation["group"]) if operation else ("", None)
    ranks = None
    if of_cluster and _RANKS.fullmatch(place[0]):
        ranks = tuple(sorted({int(number) for number in re.findall(r"\d+", place[0])}))
    return ranks, name, group, int(place[3]) if of_cluster else None


def _number(entry: dict[str, Any], *keys: str) -> Decimal | None:
    value: Any = entry
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


READERS.add(AscendCommunication.name, AscendCommunication(), origin=__name__)

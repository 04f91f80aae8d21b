# SPDX-License-Identifier: Apache-2.0
"""Host rows of a process that drives accelerators: launches, step annotations, all others.

A launch belongs to the device with the same correlation id, a step annotation to every device; all other rows
belong to the process and are read once, with the first device that was active.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.formats import Rows, Trace
from cclbench.formats.xplane import proto
from cclbench.formats.xplane.host_events import step_name
from cclbench.formats.xplane.rows import LineEvents, kind_rows

_LAUNCH: Final = re.compile(r"Launch|Memcpy|Memset|memcpy|memset")
_SYNCHRONIZE: Final = re.compile(r"(?:cu|hip)\w*Synchronize")
_MARKS: Final = ("ThreadpoolListener::", "end: ")
_PROGRAM: Final = ("python", "main")
"""Prefixes of the names of threads that run the program rather than the runtime."""
_KINDS: Final = ("launch", "sync", "annotation", "python", "other")


def process_batches(
    trace: Trace, message: Any, path: Path, epoch_ns: int, *, own: Set[int], elsewhere: Set[int] | None
) -> Iterator[Rows]:
    """The host rows of a device; `own` are the correlation ids of its executions.

    `elsewhere` are those of all other devices if this one also gets the process's rows, else None.
    """
    titles = {key: metadata.name for key, metadata in proto.event_metadata(message).items()}
    stat_names = proto.stat_names(message)
    keys = {key for key, name in stat_names.items() if name in ("correlation_id", "step_num")}
    codes: dict[tuple[str, str, int | None], int] = {}
    lines: list[LineEvents] = []
    marks = 0
    for line in message.lines:
        events: list[Any] = []
        code: list[int] = []
        of_program = line.name.startswith(_PROGRAM)
        for event in line.events:
            title = titles.get(event.metadata_id, "")
            stats = [stat for stat in event.stats if stat.metadata_id in keys] if event.stats else []
            decoded = proto.decode_stats(stat_names, stats)
            link = decoded.get("correlation_id")
            link = link if isinstance(link, int) and 0 < link < 1 << 63 else None
            is_process_row = elsewhere is not None and link not in elsewhere
            entry: tuple[str, str, int | None]
            if "step_num" in decoded:
                entry = "annotation", step_name(title, decoded["step_num"]), None
            elif not (is_process_row or link in own):
                continue
            elif title.startswith(_MARKS):
                marks += 1
                continue
            else:
                entry = _row_kind(title, of_program, link is not None), title, link
            events.append(event)
            code.append(codes.setdefault(entry, len(codes)))
        start, dur = proto.event_times(line, events, path, epoch_ns)
        lines.append(LineEvents(line.name, line.id, np.array(code, np.int64), start, dur))
    if marks:
        trace.dropped["mark of the thread pool"] = marks
    kinds = np.array([kind for kind, _, _ in codes], np.str_)
    names = [name for _, name, _ in codes]
    links = {"correlation": pa.array([link for _, _, link in codes], pa.int64())}
    for kind in _KINDS:
        chosen = [line.take_events(kinds[line.code] == kind) for line in lines if len(line)]
        if result := kind_rows(
            kind, "host", chosen, names, columns=links if kind in ("launch", "other") else None
        ):
            yield result[0]


@lru_cache(maxsize=1 << 12)
def _row_kind(title: str, of_program: bool, linked: bool) -> str:
    if linked and _LAUNCH.search(title):
        return "launch"
    if _SYNCHRONIZE.match(title):
        return "sync"
    if title.startswith("$"):
        return "python"
    return "annotation" if of_program else "other"

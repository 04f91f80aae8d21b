# SPDX-License-Identifier: Apache-2.0
"""Rows of one process from a rocpd database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import Names, Rows, Trace
from cclbench.formats.rocpd.schemas import RowQuery, find_captures
from cclbench.formats.rocprofv3.reading import BOOT_TIME, COPY_KINDS, call_kind
from cclbench.formats.sqlite_file import SqliteFile
from cclbench.formats.trace import LATEST_NS, check_devices, grid_columns, impossible_value
from cclbench.ground.errors import InputError

NO_NAME: Final = "(no name)"


class RocpdFile(SqliteFile):
    """A rocpd database opened for reading."""

    hint = "write it again: rocprofv3 --output-format rocpd, or runTracer.sh -o job.rpd"


@contextmanager
def open_captures(path: Path) -> Iterator[Mapping[str, Any]]:
    """The file's processes by name, while it is open; `InputError` without any."""
    with RocpdFile(path) as file:
        captures = find_captures(file)
        if not captures:
            raise InputError("has no process with rows", where=str(path), hint=RocpdFile.hint)
        yield captures


def read_member(path: Path, member: str) -> Trace:
    """One process of a file."""
    with open_captures(path) as captures:
        if member not in captures:
            raise InputError(f"has no process {member!r}", where=str(path))
        capture = captures[member]
    trace = Trace(batches=iter(()), device_rows_in_order=False, facts=capture.facts)
    trace.dropped = Counter({reason: count for reason, count in capture.unread.items() if count})
    trace.notes.append(BOOT_TIME)
    trace.batches = _member_rows(path, capture.queries, trace)
    return trace


def _member_rows(path: Path, queries: tuple[RowQuery, ...], trace: Trace) -> Iterator[Rows]:
    with RocpdFile(path) as file:
        names: dict[str, Names] = {}
        for query in queries:
            text = ("name",) if query.names is None else ()
            for batch in file.query_batches(
                query.source, query.columns, query.where, what=f"{query.kind} rows", text=text
            ):
                timed = batch.filter(pc.and_(batch["start"].is_valid(), batch["end"].is_valid()))
                trace.dropped["row without a time"] += len(batch) - len(timed)
                if len(timed):
                    yield from _convert_batch(file, query, timed, names)
        trace.dropped = +trace.dropped


def _convert_batch(
    file: SqliteFile, query: RowQuery, batch: pa.RecordBatch, names: dict[str, Names]
) -> Iterator[Rows]:
    words, word = _words(file, query, batch)
    if query.kind == "call":
        kinds = [call_kind(name) for name in words]
        for kind in dict.fromkeys(kinds):
            chosen = np.array([other == kind for other in kinds], np.bool_)[word]
            if chosen.any():
                part = batch.filter(pa.array(chosen))
                yield _make_rows(file, kind, "host", part, words, word[chosen], names, {})
        return
    side = "host" if query.kind == "annotation" else "device"
    columns: dict[str, Any] = {}
    if query.kind == "kernel":
        sides = np.stack([np.asarray(batch[f"grid_{axis}"].fill_null(0), np.int64) for axis in "xyz"], axis=1)
        columns = grid_columns(sides, str(file.path))
    elif query.kind == "copy":
        copies = [_copy_kind(name) for name in words]
        peer = np.asarray(batch["peer"].fill_null(0)) == 1 if "peer" in batch.schema.names else None
        ways = pa.array([way for _, way in copies], pa.string()).take(pa.array(word))
        words = [name for name, _ in copies]
        if peer is not None:
            ways = pc.if_else(pa.array(peer), "p2p", ways)
            words, word = [*words, "Memcpy PtoP"], np.where(peer, len(words), word)
        columns = {"bytes": batch["bytes"], "copy_direction": ways}
    yield _make_rows(file, query.kind, side, batch, words, word, names, columns)


def _words(
    file: SqliteFile, query: RowQuery, batch: pa.RecordBatch
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The names of a batch's rows, and which each row has, shape (rows,)."""
    if query.names is None:
        texts = batch["name"].cast(pa.string()).fill_null(NO_NAME).dictionary_encode()
        return texts.dictionary.to_pylist(), np.asarray(texts.indices, np.int64)
    ids, word = np.unique(np.asarray(batch["name"].fill_null(-1), np.int64), return_inverse=True)
    texts_by_id = file.texts_by_id(*query.names, ids.tolist())
    return [texts_by_id.get(i) or NO_NAME for i in ids.tolist()], word


def _copy_kind(name: str) -> tuple[str, str | None]:
    """Name and direction of a copy called `MEMORY_COPY_HOST_TO_DEVICE` or `CopyHostToDevice`."""
    plain = name.upper().replace("_", "")
    for kind, named in COPY_KINDS.items():
        if kind.replace("_", "") in plain:
            return named
    return "Memcpy", None


def _make_rows(
    file: SqliteFile,
    kind: str,
    side: str,
    batch: pa.RecordBatch,
    words: list[str],
    word: npt.NDArray[np.int64],
    names: dict[str, Names],
    columns: dict[str, Any],
) -> Rows:
    table = names.setdefault(kind, Names())
    start, end = (np.asarray(batch[name], np.int64) for name in ("start", "end"))
    wrong = (start <= 0) | (end < start) | (end > LATEST_NS)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise impossible_value(
            f"time: {words[word[i]][:60]!r} from {start[i]} to {end[i]} ns", file.path, RocpdFile.hint
        )
    if side == "device":
        check_devices(batch["device"], file.path)
        columns = {**columns, "device": batch["device"]}
    return Rows(
        kind=kind,
        side=side,
        names=table,
        codes=np.array([table[name] for name in words], np.int32)[word],
        start_ns=start,
        dur_ns=end - start,
        track=np.asarray(batch["track"].fill_null(-1), np.int64),
        correlation=None if kind == "annotation" else batch["correlation"],
        **columns,
    )

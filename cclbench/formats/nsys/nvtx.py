# SPDX-License-Identifier: Apache-2.0
"""Ranges of the host: NVTX (frameworks' operators, people's annotations) and calls of MPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench import classify
from cclbench.formats import Payload, Rows, StatedPayloads
from cclbench.formats.nsys.capture import MPI, NVTX, RANGES
from cclbench.formats.nsys.rows import NO_NAME, Codes, Columns, TableReader
from cclbench.intervals import Int64, Mask

_SUFFIX: Final = r", (?:seq|op_id) = -?\d+(?:, .*)?$"
"""What PyTorch's emit_nvtx appends to an operator's name: its numbers in the graph, and its shapes."""
_INSTANTS: Final = (34, 65)
_LABELS: Final = (33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)
_FRAMEWORK: Final = re.compile(r"[^\s:]+::?\S+$|record_param_comms$")
_OPERATOR: Final = re.compile(r"(?:aten|autograd)::")
_MPI: Final = re.compile(r"P?MPI_[A-Z]")


def ranges(reader: TableReader) -> Iterator[Rows]:
    """Rows of NVTX ranges: operators and MPI calls as ops, all others as annotations."""
    _count_others(reader)
    columns: Columns = {"name": ("textId",), "track": ("globalTid",), "domain": ("domainId",)}
    text = {"text": f"coalesce({reader.database.column(NVTX, 'text')}, '')"}
    for batch in reader.batches(NVTX, columns, f"eventType IN {RANGES}", texts=text):
        names, coded, suffixed, numbered = _named(reader, batch)
        framework, operator, mpi = (
            np.array([bool(pattern.match(name)) for name in names], np.bool_)[coded]
            for pattern in (_FRAMEWORK, _OPERATOR, _MPI)
        )
        own = np.asarray(batch["domain"].fill_null(0), np.int64) == 0
        op = (own & (operator | (suffixed & (framework | numbered)))) | (~own & mpi)
        for kind, chosen in (("op", op), ("annotation", ~op)):
            if chosen.any():
                rows = batch.filter(pa.array(chosen))
                codes = reader.recoded(kind, names, coded[chosen])
                made = reader.made(kind, "host", rows, codes)
                if kind == "op":
                    _count_mpi(reader, made)
                yield made


def mpi_calls(reader: TableReader, told: StatedPayloads) -> Iterator[Rows]:
    """Rows of the tables of MPI calls, and the sizes that they tell."""
    columns: Columns = {"name": ("textId",), "track": ("globalTid",)}
    columns |= {"size": ("size",), "received": ("recvSize",)}
    for table in MPI:
        for batch in reader.batches(table, columns):
            rows = reader.made("op", "host", batch, reader.codes("op", batch["name"]))
            _tell(rows, batch, told)
            _count_mpi(reader, rows)
            yield rows


def _named(reader: TableReader, batch: pa.RecordBatch) -> tuple[list[str], Codes, Mask, Mask]:
    """Names, from the range's own text, else from its registered one, without PyTorch's numbers.

    Then each range's code, whether it had such numbers, and one of autograd's, which only operators get.
    """
    text = batch["text"]
    short = pc.replace_substring_regex(text, _SUFFIX, "")
    coded = short.dictionary_encode()
    names: list[str] = coded.dictionary.to_pylist()
    codes = np.asarray(coded.indices, np.int32)
    suffixed = np.asarray(pc.not_equal(short, text))
    numbered = suffixed & np.asarray(pc.match_substring(text, ", seq = "))
    registered = np.asarray(pc.and_(pc.equal(text, ""), batch["name"].is_valid()))
    if registered.any():
        ids: Int64 = np.asarray(batch["name"].fill_null(-1), np.int64)[registered]
        unique, inverse = np.unique(ids, return_inverse=True)
        known = reader.database.strings(unique.tolist())
        full = [known.get(i, NO_NAME) for i in unique.tolist()]
        cut = [re.sub(_SUFFIX, "", name) for name in full]
        codes = codes.copy()
        codes[registered] = len(names) + inverse
        suffixed[registered] = np.array([a != b for a, b in zip(full, cut, strict=True)])[inverse]
        numbered[registered] = np.array(
            [", seq = " in name[len(c) :] for name, c in zip(full, cut, strict=True)]
        )[inverse]
        names += cut
    return [name or NO_NAME for name in names], codes, suffixed, numbered


def _count_others(reader: TableReader) -> None:
    """NVTX events that are no ranges, by what they are."""
    database = reader.database
    mine = reader.capture.of_process(reader.member, NVTX)
    where = f"eventType NOT IN {RANGES}{f' AND {mine}' if mine else ''}"
    told = database.select(NVTX, "eventType, count(*)", where, "GROUP BY 1", needs=["eventType"])
    for kind, count in told:
        reason = f"NVTX event type {kind}"
        reader.dropped["instant" if kind in _INSTANTS else "label" if kind in _LABELS else reason] += count


def _count_mpi(reader: TableReader, rows: Rows) -> None:
    """Count the rows that are communication by MPI."""
    told = [classify.collective(name) for name in rows.names]
    mpi = np.array([one is not None and one.library == "mpi" for one in told], np.bool_)
    reader.mpi_calls += int(mpi[rows.codes].sum())


def _tell(rows: Rows, batch: pa.RecordBatch, told: StatedPayloads) -> None:
    """The sizes of calls of MPI, each about its own row; peers count within unknown communicators."""
    names = list(rows.names)
    sizes = zip(batch["size"].to_pylist(), batch["received"].to_pylist(), strict=True)
    for i, (size, received) in enumerate(sizes):
        if size is None and received is None:
            continue
        name = names[rows.codes[i]]
        receives = "recv" in name.lower() and "send" not in name.lower()
        payload = Payload(
            source="annotation",
            in_bytes=None if receives else _size(size),
            out_bytes=_size(size if receives else received),
        )
        begin = int(rows.start_ns[i])
        told.add(payload, track=int(rows.track[i]), start_ns=begin, end_ns=begin + int(rows.dur_ns[i]))


def _size(told: int | None) -> int | None:
    return told if told is not None and 0 <= told < 1 << 56 else None

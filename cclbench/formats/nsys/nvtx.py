# SPDX-License-Identifier: Apache-2.0
"""Host ranges: NVTX (operators of frameworks, annotations) and MPI calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench import classify
from cclbench.formats import Payload, Rows, StatedPayloads
from cclbench.formats.nsys.capture import MPI, NVTX, RANGES
from cclbench.formats.nsys.rows import NO_NAME, Codes, Columns, TableReader
from cclbench.ground.intervals import Int64

_SIZES: Final = r"\[[\[\]\d, ]*\]"
_SEQUENCE: Final = r"(?:seq = |(?:stashed )?seq=)"
"""`seq = 3`; until torch 1.1 `seq=3`, and `stashed seq=3` for a node of the backward graph."""
_SUFFIX: Final = rf", (?:(?:{_SEQUENCE}|op_id = )-?\d+(?:, .*)?|sizes = {_SIZES}(?:, input_op_ids = .*)?)$"
"""Appended to an operator's name by PyTorch's emit_nvtx: sequence number, operator id, sizes of inputs."""
_TOLD: Final = (
    rf"(?:, {_SEQUENCE}(?P<sequence>\d{{1,18}}))?(?:, op_id = (?P<operator>\d{{1,18}}))?"
    rf"(?:, sizes = (?P<shapes>{_SIZES}))?(?:, (?:sizes|input_op_ids) = .*)?$"
)
"""The same with its optional parts, as torch/csrc/profiler/util.cpp writes it (until torch 1.1
torch/csrc/autograd/profiler.cpp)."""
_INSTANTS: Final = (34, 65)
_LABELS: Final = (33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99)
_FRAMEWORK: Final = re.compile(r"[^\s:]+::?\S+$|record_param_comms$")
_OPERATOR: Final = re.compile(r"(?:aten|autograd)::")
_MPI: Final = re.compile(r"P?MPI_[A-Z]")


def nvtx_rows(reader: TableReader) -> Iterator[Rows]:
    """Rows of NVTX ranges: operators and MPI calls as ops, all others as annotations."""
    _count_others(reader)
    columns: Columns = {"name": ("textId",), "track": ("globalTid",), "domain": ("domainId",)}
    text = {"text": f"coalesce({reader.database.first_column_sql(NVTX, 'text')}, '')"}
    for batch in reader.member_batches(NVTX, columns, f"eventType IN {RANGES}", texts=text):
        texts = _range_texts(reader, batch)
        short = pc.replace_substring_regex(texts, _SUFFIX, "")
        suffixed = np.asarray(pc.not_equal(short, texts))
        parsed = _parse_texts(texts) if suffixed.any() else {}
        coded = short.dictionary_encode()
        names: list[str] = [name or NO_NAME for name in coded.dictionary.to_pylist()]
        codes: Codes = np.asarray(coded.indices, np.int32)
        framework, operator, mpi = (
            np.array([bool(pattern.match(name)) for name in names], np.bool_)[codes]
            for pattern in (_FRAMEWORK, _OPERATOR, _MPI)
        )
        # Only operators have a sequence number of autograd.
        numbered = np.asarray(pc.match_substring_regex(texts, f", {_SEQUENCE}"))
        default_domain = np.asarray(batch["domain"].fill_null(0), np.int64) == 0
        op = (default_domain & (operator | (suffixed & (framework | numbered)))) | (~default_domain & mpi)
        for kind, chosen in (("op", op), ("annotation", ~op)):
            if chosen.any():
                mask = pa.array(chosen)
                recoded = reader.recode_names(kind, names, codes[chosen])
                columns_of_kind = {
                    name: column.filter(mask) for name, column in parsed.items() if kind == "op"
                }
                rows = reader.make_rows(kind, "host", batch.filter(mask), recoded, **columns_of_kind)
                if kind == "op":
                    _count_mpi(reader, rows)
                yield rows


def mpi_calls(reader: TableReader, stated: StatedPayloads) -> Iterator[Rows]:
    """Rows of MPI calls; adds the sizes that they state to `stated`."""
    columns: Columns = {"name": ("textId",), "track": ("globalTid",)}
    columns |= {"size": ("size",), "received": ("recvSize",)}
    for table in MPI:
        for batch in reader.member_batches(table, columns):
            rows = reader.make_rows("op", "host", batch, reader.name_codes("op", batch["name"]))
            _add_mpi_sizes(rows, batch, stated)
            _count_mpi(reader, rows)
            yield rows


def _range_texts(reader: TableReader, batch: pa.RecordBatch) -> pa.Array:
    """Each range's text, else its registered name."""
    text = batch["text"]
    registered = pc.and_(pc.equal(text, ""), batch["name"].is_valid())
    ids: Int64 = np.asarray(batch["name"].filter(registered), np.int64)
    if not len(ids):
        return text
    unique, inverse = np.unique(ids, return_inverse=True)
    strings = reader.database.string_ids(unique.tolist())
    words = pa.array([strings.get(i, NO_NAME) for i in unique.tolist()], text.type)
    return pc.replace_with_mask(text, registered, words.take(pa.array(inverse)))


def _parse_texts(texts: pa.Array) -> dict[str, pa.Array]:
    """Autograd's sequence number, the operator id and the input sizes, null if the text does not have them.

    Tensors of a list are separate inputs.
    """
    parts = pc.extract_regex(texts, _TOLD)
    columns = {name: parts.field(name) for name in ("sequence", "operator", "shapes")}
    columns = {name: pc.if_else(pc.equal(column, ""), None, column) for name, column in columns.items()}
    shapes = columns["shapes"].dictionary_encode()
    valid = pa.array(
        [text if _is_sizes(text) else None for text in shapes.dictionary.to_pylist()], pa.string()
    )
    return {
        "sequence": columns["sequence"].cast(pa.int64()),
        "operator": columns["operator"].cast(pa.int64()),
        "shapes": valid.take(shapes.indices).dictionary_encode(),
    }


def _is_sizes(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=list[list[int]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
    return True


def _count_others(reader: TableReader) -> None:
    """Count NVTX events other than ranges as dropped, by type."""
    database = reader.database
    mine = reader.capture.process_condition(reader.member, NVTX)
    where = f"eventType NOT IN {RANGES}{f' AND {mine}' if mine else ''}"
    rows = database.select_rows(NVTX, "eventType, count(*)", where, "GROUP BY 1", needs=["eventType"])
    for kind, count in rows:
        reason = f"NVTX event type {kind}"
        reader.dropped["instant" if kind in _INSTANTS else "label" if kind in _LABELS else reason] += count


def _count_mpi(reader: TableReader, rows: Rows) -> None:
    """Count the rows of MPI communication."""
    collectives = [classify.collective_name(name) for name in rows.names]
    mpi = np.array(
        [collective is not None and collective.library == "mpi" for collective in collectives], np.bool_
    )
    reader.mpi_calls += int(mpi[rows.codes].sum())


def _add_mpi_sizes(rows: Rows, batch: pa.RecordBatch, stated: StatedPayloads) -> None:
    """Add the sizes of MPI calls, each for its own row; peers are not recorded: communicators are unknown."""
    names = list(rows.names)
    sizes = zip(batch["size"].to_pylist(), batch["received"].to_pylist(), strict=True)
    for i, (size, received) in enumerate(sizes):
        if size is None and received is None:
            continue
        name = names[rows.codes[i]]
        receives = "recv" in name.lower() and "send" not in name.lower()
        payload = Payload(
            source="annotation",
            in_bytes=None if receives else _plausible_size(size),
            out_bytes=_plausible_size(size if receives else received),
        )
        begin = int(rows.start_ns[i])
        stated.add_payload(
            payload, track=int(rows.track[i]), start_ns=begin, end_ns=begin + int(rows.dur_ns[i])
        )


def _plausible_size(size: int | None) -> int | None:
    return size if size is not None and 0 <= size < 1 << 56 else None

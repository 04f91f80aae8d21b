# SPDX-License-Identifier: Apache-2.0
"""Host rows that enclose a launch, from a rank's events: operator calls and the ranges around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.formats import Names
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ingestion.part import ROW_GROUP
from cclbench.normalize.operators import Ranges, count_launches, join_ranges
from cclbench.normalize.phases import Named, Vocabulary, is_among
from cclbench.operators.cost import MODELS, model_of
from cclbench.record.files import parquet_file

ARGUMENTS: Final = ("shapes", "dtypes", "strides", "values")
SPANS: Final = ("track", "start_ns", "dur_ns", "name")
_Kinds = dict[str, type[np.generic]]
_RANGES: Final[_Kinds] = {**dict.fromkeys(("track", "start_ns", "end_ns"), np.int64), "name": np.int32}
_CALLS: Final[_Kinds] = {
    **_RANGES,
    "id": np.int64,
    "sequence": np.int64,
    "in_backward": np.bool_,
    **dict.fromkeys(ARGUMENTS, np.int32),
}
_ACCUMULATION: Final = "torch::autograd::AccumulateGrad"
_GRADIENTS: Final[_Kinds] = {"start_ns": np.int64, "shapes": np.int32}
Columns = dict[str, npt.NDArray[Any]]
EventTables = Path | Mapping[str, pa.Table]
"""A rank's events: the folder of its files, or a table for each kind of the host's rows, in memory."""
CALL_COLUMNS: Final = (*SPANS, "operator", "sequence", "forward_thread", *ARGUMENTS)


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts by code, −1 for none, shape (rows,)."""

    codes: Index
    words: Sequence[str]

    def texts_of_rows(self, kind: pa.DataType, rows: slice = slice(None)) -> pa.DictionaryArray:
        """The texts of `rows` as a dictionary array; `kind` is the type of its indices."""
        codes = pa.array(self.codes[rows], mask=self.codes[rows] < 0)
        return pa.DictionaryArray.from_arrays(codes.cast(kind), pa.array(list(self.words), pa.string()))


@dataclass(frozen=True, eq=False)
class HostRows:
    """Host rows in the order of `Ranges.order_of`, columns of shape (rows,).

    `words` are the texts of the coded columns, in which −1 is none.
    """

    columns: Columns
    words: Mapping[str, Sequence[str]]
    gradients: Columns = field(default_factory=dict)
    """Start and coded shapes of autograd's accumulations of gradients, of calls of a rank with a device."""

    def __len__(self) -> int:
        return len(self.columns["track"])

    def texts_of(self, column: str) -> Texts:
        """The texts of a coded column."""
        return Texts(self.columns[column], self.words[column])

    @cached_property
    def named_ranges(self) -> Named:
        """Times and names of the rows."""
        ranges = Ranges(self.columns["track"], self.columns["start_ns"], self.columns["end_ns"])
        return Named(ranges, self.columns["name"], Vocabulary(self.words["name"]))

    @property
    def ranges(self) -> Ranges:
        """Times of the rows."""
        return self.named_ranges.ranges


def read_calls(events: EventTables, launched: Mapping[int, Int64] | None, stated: Int64) -> HostRows:
    """Calls that enclose a launch or whose id is in `stated`; all calls of a rank without a device.

    Also calls inside of them that a cost model reads.  Calls without an id are numbered from the largest id
    on.  `launched` has the sorted launch times of each thread, ns; `stated` is sorted, too.
    """
    names = {column: Names() for column in ("name", *ARGUMENTS)}
    parts: list[Columns] = []
    others: list[Columns] = []
    gradients: list[Columns] = []
    read_inside = frozenset[str]().union(*(MODELS.get(name).reads_inner for name in MODELS))
    read = 0
    for batch in _host_batches(events, "op", CALL_COLUMNS):
        track, start, duration = (batch[name].to_numpy() for name in SPANS[:3])
        unknown = batch["operator"].is_null().to_numpy(zero_copy_only=False)
        place = np.arange(read, read + len(batch))
        read += len(batch)
        calls: Columns = {
            "track": track,
            "start_ns": start,
            "end_ns": start + duration,
            "id": np.where(unknown, -1 - place, batch["operator"].fill_null(0).to_numpy()),
            "sequence": batch["sequence"].fill_null(-1).to_numpy(),
            "in_backward": batch["forward_thread"].is_valid().to_numpy(zero_copy_only=False),
            **{column: _text_codes(batch[column], texts) for column, texts in names.items()},
        }
        if launched is not None:
            accumulates = np.array([word == _ACCUMULATION for word in names["name"]], np.bool_)
            gradients.append(
                _select_rows({name: calls[name] for name in _GRADIENTS}, accumulates[calls["name"]])
            )
            launches = count_launches(track, start, start + duration, launched) > 0
            kept = launches | is_among(calls["id"], stated)
            may_be_read = np.array([word in read_inside for word in names["name"]], np.bool_)
            others.append(_select_rows(calls, may_be_read[calls["name"]] & ~kept))
            calls = _select_rows(calls | {"launches": launches}, kept)
        parts.append(calls)
    if launched is not None:
        parts += _calls_read_inside(parts, others, names["name"])
    columns = _concatenate_columns(parts, _CALLS)
    last = max(int(stated.max(initial=-1)), int(columns["id"].max(initial=-1)))
    columns["id"] = np.where(columns["id"] < 0, last - columns["id"], columns["id"])
    rows = _sort_columns(columns, columns["id"], {name: list(texts) for name, texts in names.items()})
    return replace(rows, gradients=_concatenate_columns(gradients, _GRADIENTS))


def _calls_read_inside(
    parts: Sequence[Columns], others: Sequence[Columns], words: Iterable[str]
) -> list[Columns]:
    """Those of `others` that the cost model of a call around them reads, if that call encloses a launch."""
    models = [model_of(word) for word in words]
    reads = np.array([bool(model and model.reads_inner) for model in models], np.bool_)
    inner = {name for model in models if model for name in model.reads_inner}
    is_inner = np.array([word in inner for word in words], np.bool_)
    readers = join_ranges(
        *(
            Ranges(calls["track"], calls["start_ns"], calls["end_ns"]).select_ranges(
                calls.pop("launches") & reads[calls["name"]]
            )
            for calls in parts
        )
    )[0]
    inner_calls = []
    for calls in others:
        is_read = is_inner[calls["name"]]
        is_read[is_read] = readers.is_inside(calls["track"][is_read], calls["start_ns"][is_read])
        inner_calls.append(_select_rows(calls, is_read))
    return inner_calls


def _select_rows(columns: Columns, chosen: Mask) -> Columns:
    return {name: values[chosen] for name, values in columns.items()}


def read_named(
    events: EventTables, kind: str, launched: Mapping[int, Int64] | None, predicate: Callable[[str], bool]
) -> HostRows:
    """Host rows of a kind whose names fulfil `predicate`, all if `launched` is None, else around a launch."""
    names = Names()
    parts: list[Columns] = []
    for batch in _host_batches(events, kind, SPANS):
        words = batch["name"].dictionary.to_pylist()
        is_match = np.array([predicate(word) for word in words], np.bool_)[batch["name"].indices.to_numpy()]
        batch = batch.filter(pa.array(is_match))
        track, start, duration = (batch[name].to_numpy() for name in SPANS[:3])
        rows: Columns = {"track": track, "start_ns": start, "end_ns": start + duration}
        rows["name"] = _text_codes(batch["name"], names)
        if launched is not None:
            kept = count_launches(track, start, start + duration, launched) > 0
            rows = _select_rows(rows, kept)
        parts.append(rows)
    columns = _concatenate_columns(parts, _RANGES)
    return _sort_columns(columns, np.arange(len(columns["track"])), {"name": list(names)})


def _concatenate_columns(parts: Sequence[Columns], kinds: _Kinds) -> Columns:
    return {
        name: np.concatenate([np.empty(0, kind), *(part.pop(name) for part in parts)], dtype=kind)
        for name, kind in kinds.items()
    }


def _sort_columns(columns: Columns, number: Int64, words: Mapping[str, Sequence[str]]) -> HostRows:
    order = Ranges.order_of(columns["track"], columns["start_ns"], columns["end_ns"], number).astype(np.int32)
    return HostRows({name: columns.pop(name)[order] for name in list(columns)}, words)


def _host_batches(events: EventTables, kind: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Host rows of a kind, file by file, on this thread: each Arrow thread keeps memory."""
    if isinstance(events, Mapping):
        if kind in events:
            yield from events[kind].select(list(columns)).to_batches(ROW_GROUP)
        return
    for path in sorted(events.glob(f"{kind}-[0-9][0-9][0-9].parquet")):
        with parquet_file(path) as file:
            yield from file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False)


def _text_codes(column: pa.DictionaryArray, names: Names) -> Index:
    """The code of each text, −1 for none."""
    codes = np.array([*(names[word] for word in column.dictionary.to_pylist()), -1], np.int32)
    return np.asarray(codes[column.indices.fill_null(-1).to_numpy()])

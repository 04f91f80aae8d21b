# SPDX-License-Identifier: Apache-2.0
"""One rank's rows of a timeline's table, and its process groups."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import Names, Part, Payload, Rows, Trace
from cclbench.formats.timeline.mapping import COMPUTE, COPY, IGNORE, PAIRS
from cclbench.formats.timeline.survey import Survey, survey_beside
from cclbench.formats.timeline.tables import table_batches
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.record.facts import ProcessGroup, TraceFacts

_SHIFT: Final = 24
"""Bits of a row's sequence number in the number that also contains its operator and step."""
_MOST_STEPS: Final = 1 << 26
_UNKNOWN: Final = -1


def rank_parts(path: Path) -> list[Part]:
    """One part for each rank of the file."""
    return [Part(str(rank)) for rank in sorted(survey_beside(path).files[path.name])]


def read_rank(path: Path, rank: int) -> Trace:
    """Read one rank of the file."""
    survey = survey_beside(path)
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.facts = TraceFacts(
        rank=rank,
        rank_source=f"column {survey.mapping.columns.rank}",
        world_size=survey.mapping.ranks,
        groups=_dimension_groups(survey, rank),
    )
    trace.device_steps = survey.rank_steps(rank)
    if not survey.is_complete:
        there = f"{len(survey.places)} of {survey.mapping.ranks} ranks"
        trace.notes.append(f"tables of {there}: process groups by place are unknown")
    trace.batches = _RankRows(survey, rank, trace).row_batches(path)
    return trace


def _dimension_groups(survey: Survey, rank: int) -> tuple[ProcessGroup, ...]:
    """The rank's process group in each dimension."""
    if not survey.is_complete:
        return ()
    return tuple(
        ProcessGroup(name=f"{dimension}: {ranks[0]}", description=dimension, ranks=ranks)
        for dimension in survey.mapping.place
        if len(ranks := survey.ranks_along(dimension, rank)) > 1
    )


class _RankRows:
    """Reads one rank's rows of a table."""

    def __init__(self, survey: Survey, rank: int, trace: Trace) -> None:
        self.survey, self.rank, self.trace = survey, rank, trace
        self.names = {"kernel": Names(), "copy": Names()}
        self.categories: dict[int, str] = {}
        self.kernels = 0
        """Number of kernels before the current batch."""
        mapping = survey.mapping
        self.origins = survey.step_origins() if mapping.time.origin == "step" else {}
        self.place_of_step = {step: i for i, step in enumerate(sorted(survey.spans))}
        if len(self.place_of_step) >= _MOST_STEPS:
            raise InputError(f"has more than {_MOST_STEPS:,} steps")
        self.number = {name: i for i, name in enumerate(survey.operators)}
        steps = sorted(trace.device_steps, key=attrgetter("start_ns"))
        self.begins = np.array([step.start_ns for step in steps], np.int64)
        self.steps = np.array([step.number for step in steps], np.int64)
        self.elsewhere = 0
        """Number of rows that begin during another step than their own."""

    def row_batches(self, path: Path) -> Iterator[Rows]:
        """For each batch of the file: rows that compute or communicate, then copies."""
        for batch in table_batches(path, self.survey.mapping):
            rows = batch.filter(pc.equal(batch["rank"], self.rank))
            if not len(rows):
                continue
            texts = rows["operator"].dictionary_encode()
            words, word = texts.dictionary.to_pylist(), texts.indices.to_numpy()
            does = np.array([self.survey.operators[name].does for name in words], np.str_)[word]
            self.trace.dropped["rows of operators that the mapping ignores"] += int((does == IGNORE).sum())
            yield from self._rows_of_kind("kernel", rows, words, word, (does != COPY) & (does != IGNORE))
            yield from self._rows_of_kind("copy", rows, words, word, does == COPY)
        self.trace.dropped = +self.trace.dropped
        if self.elsewhere:
            self.trace.notes.append(
                f"{self.elsewhere:,} rows begin during another step than their own, and count there"
            )

    def _rows_of_kind(
        self,
        kind: str,
        batch: pa.RecordBatch,
        words: list[str],
        word: npt.NDArray[np.int32],
        chosen: npt.NDArray[np.bool_],
    ) -> Iterator[Rows]:
        if not chosen.any():
            return
        batch, word = batch.filter(pa.array(chosen)), word[chosen]
        names = self.names[kind]
        codes = np.array([names[name] for name in words], np.int32)
        start = batch["start"].to_numpy().copy()
        if self.origins:
            start += self._step_values(batch, self.origins)
        if "step" in batch.schema.names and len(self.steps):
            at = np.maximum(np.searchsorted(self.begins, start, side="right") - 1, 0)
            stated_step = batch["step"].fill_null(-1).to_numpy(zero_copy_only=False)
            self.elsewhere += int(((stated_step >= 0) & (stated_step != self.steps[at])).sum())
        if kind == "kernel":
            for name in words:
                operator = self.survey.operators[name]
                self.categories[names[name]] = "communication" if operator.communicates else operator.category
            self._add_payloads(batch, words, word)
            self.kernels += len(batch)
        yield Rows(
            kind=kind,
            side="device",
            names=names,
            codes=codes[word],
            start_ns=start,
            dur_ns=batch["duration"].to_numpy(),
            track=self._row_tracks(batch, words, word),
            name_categories=self.categories if kind == "kernel" else None,
            bytes=batch["bytes"] if kind == "copy" and "bytes" in batch.schema.names else None,
        )

    def _step_values(self, batch: pa.RecordBatch, value_of: dict[int, int]) -> Int64:
        """The value of each row's step, shape (rows,); `InputError` for a row without a step."""
        if batch["step"].null_count:
            raise InputError("rows have no step, to which times are relative", where=f"rank {self.rank}")
        steps, at = np.unique(batch["step"].to_numpy(), return_inverse=True)
        return np.array([value_of[step] for step in steps.tolist()], np.int64)[at]

    def _row_tracks(self, batch: pa.RecordBatch, words: list[str], word: npt.NDArray[np.int32]) -> Int64:
        """The stream; if the table has none, 0 for compute and one stream for each other operator."""
        computes = [self.survey.operators[name].does == COMPUTE for name in words]
        track_of_word = [
            0 if is_compute else self.number[name] + 1
            for name, is_compute in zip(words, computes, strict=True)
        ]
        tracks = np.array(track_of_word, np.int64)[word]
        if "stream" not in batch.schema.names:
            return tracks
        return np.asarray(
            pc.coalesce(batch["stream"], pa.array(tracks)).to_numpy(zero_copy_only=False), np.int64
        )

    def _add_payloads(self, batch: pa.RecordBatch, words: list[str], word: npt.NDArray[np.int32]) -> None:
        """Add the payload of each row that communicates, from the table and the mapping."""
        communicates = np.array([self.survey.operators[name].communicates for name in words], np.bool_)
        rows = np.flatnonzero(communicates[word])
        if not len(rows):
            return
        communication = batch.take(pa.array(rows))
        groups = self._column_or_nulls(communication, "group", pa.string()).dictionary_encode()
        keys = np.stack(
            [
                word[rows].astype(np.int64),
                groups.indices.fill_null(_UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64),
                self._column_or_nulls(communication, "peer", pa.int64())
                .fill_null(_UNKNOWN)
                .to_numpy(zero_copy_only=False),
                self._column_or_nulls(communication, "bytes", pa.int64())
                .fill_null(_UNKNOWN)
                .to_numpy(zero_copy_only=False),
            ]
        )
        kinds, kind = np.unique(keys, axis=1, return_inverse=True)
        group_names = groups.dictionary.to_pylist()
        payloads = [
            self._row_payload(words[name], group_names[group] if group >= 0 else None, peer, size)
            for name, group, peer, size in kinds.T.tolist()
        ]
        sequence = self._sequence_numbers(
            communication, np.array([self.number[name] for name in words], np.int64)[word[rows]]
        )
        self.trace.stated_payloads.add_rows(payloads, kind.ravel(), self.kernels + rows, sequence)

    def _column_or_nulls(self, batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
        return batch[name] if name in batch.schema.names else pa.nulls(len(batch), kind)

    def _sequence_numbers(self, batch: pa.RecordBatch, operator: Int64) -> Int64:
        """A number that is unique in the job, −1 if the table has none, shape (rows,).

        The table's numbers may restart in each step and for each operator.
        """
        column = self._column_or_nulls(batch, "sequence", pa.int64()).fill_null(_UNKNOWN)
        number = column.to_numpy(zero_copy_only=False)
        if (number >= 1 << _SHIFT).any():
            raise InputError(f"has a sequence number of 2^{_SHIFT} or more", where=f"rank {self.rank}")
        step = np.zeros(len(batch), np.int64)
        if self.place_of_step and not batch["step"].null_count:
            step = self._step_values(batch, self.place_of_step)
        unique_number = ((step * len(self.number) + operator) << _SHIFT) + number
        return np.where(number >= 0, unique_number, _UNKNOWN)

    def _row_payload(self, name: str, group: str | None, peer: int, size: int) -> Payload:
        operator, survey = self.survey.operators[name], self.survey
        pair = operator.does in PAIRS
        peer_rank = survey.peer_rank(name, self.rank) if peer < 0 else peer
        dimensions = operator.peer if pair else operator.over
        ranks = None if pair else survey.operator_members(name, self.rank, group)
        return Payload(
            source="kernel",
            collective=operator.does,
            library="custom",
            in_bytes=size if size >= 0 else None,
            # A name, so that the group is not identified with the only listed one.
            group_name=group or name,
            group_description="_".join(dimensions or ()) or None,
            group_size=len(ranks) if ranks else None,
            ranks=ranks,
            src_rank=None if not pair else self.rank if operator.does == "send" else peer_rank,
            dst_rank=None if not pair else peer_rank if operator.does == "send" else self.rank,
        )

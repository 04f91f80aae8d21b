# SPDX-License-Identifier: Apache-2.0
"""What ranks answer to their metrics on its way to the run: all ranks' values of one metric at a time."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np

from cclbench.analyzers.metric import Value
from cclbench.disk_columns import DiskColumn

_IN_MEMORY: Final = 32 << 20
"""Bytes of answers beyond which they are on disk."""


class Pickled(NamedTuple):
    """A rank's values of one metric, and the bytes of the arrays in them."""

    values: bytes
    arrays: list[bytes]


class Answer(NamedTuple):
    """A rank's window policy, and its values of each metric, in the order in which it was asked."""

    policy: str
    pickled: list[Pickled]

    @classmethod
    def of(cls, policy: str, values: Iterable[Sequence[Value]]) -> Answer:
        """From each metric's values."""
        return cls(policy, [_pickled(own) for own in values])


def _pickled(values: Sequence[Value]) -> Pickled:
    arrays: list[pickle.PickleBuffer] = []
    text = pickle.dumps(values, pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append)
    return Pickled(text, [array.raw().tobytes() for array in arrays])


class Answers:
    """All ranks' answers to the same metrics; a context, at whose end they are gone.

    Arrays stay on disk, where they are many: those of a metric's values are read-only, and valid for good.
    """

    def __init__(self, metrics: Iterable[str]) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - it is closed with this context
        self._places = {name: array("q") for name in metrics}
        self._arrays: DiskColumn[np.uint8] = DiskColumn(np.uint8)
        self._ends = array("q")
        """Where each array ends; the next one begins behind it, where a number may."""
        self._first = {name: array("q") for name in self._places}
        """The first array of each rank."""
        self.policies: dict[int, str] = {}
        """Each rank's window policy."""

    def add(self, rank: int, answer: Answer) -> None:
        """The answer of a further rank."""
        self.policies[rank] = answer.policy
        for name, pickled in zip(self._places, answer.pickled, strict=True):
            self._places[name].append(self._file.tell())
            self._file.write(pickled.values)
            self._first[name].append(len(self._ends))
            for own in pickled.arrays:
                begin = _aligned(len(self._arrays))
                self._arrays.append(np.frombuffer(bytes(begin - len(self._arrays)) + own, np.uint8))
                self._ends.append(len(self._arrays))

    def of(self, metric: str) -> Mapping[int, Sequence[Value]]:
        """Each rank's values of that metric."""
        found = {}
        arrays = self._arrays.values().data
        for rank, place, first in zip(self.policies, self._places[metric], self._first[metric], strict=True):
            self._file.seek(place)
            found[rank] = pickle.load(  # noqa: S301 - what `add` wrote there
                self._file, buffers=self._from(first, arrays)
            )
        return found

    def _from(self, first: int, arrays: memoryview) -> Iterator[memoryview]:
        """The arrays from that one on, as many as are asked for."""
        begin = _aligned(self._ends[first - 1]) if first else 0
        for own in range(first, len(self._ends)):
            yield arrays[begin : self._ends[own]]
            begin = _aligned(self._ends[own])

    def release(self) -> None:
        """Let go of what was read of arrays: they stay valid, and are read again where they are used."""
        self._arrays.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _aligned(place: int) -> int:
    """The first place from there on at which a number of eight bytes may begin."""
    return -(-place // 8) * 8

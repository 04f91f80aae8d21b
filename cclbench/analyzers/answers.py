# SPDX-License-Identifier: Apache-2.0
"""What ranks answer to their metrics on its way to the run: all ranks' values of one metric at a time."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import Value
from cclbench.disk_columns import DiskColumn

_RANKS: Final = 256
"""Ranks whose values are read before what was read of the disk is let go."""


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
    """All ranks' answers to the same metrics, on disk where they are many.

    Arrays in a metric's values are read-only, and stay there.
    """

    def __init__(self, metrics: Iterable[str]) -> None:
        self._values: DiskColumn[np.uint8] = DiskColumn(np.uint8)
        self._places = {name: array("q") for name in metrics}
        """Where each rank's values begin: a rank's stand one after another."""
        self._arrays: DiskColumn[np.uint8] = DiskColumn(np.uint8)
        self._first = {name: array("q") for name in self._places}
        """The first array of each rank."""
        self._ends = array("q")
        """Where each array ends; the next one begins behind it, where a number may."""
        self.policies: dict[int, str] = {}
        """Each rank's window policy."""

    def add(self, rank: int, answer: Answer) -> None:
        """The answer of a further rank."""
        self.policies[rank] = answer.policy
        place = len(self._values)
        for name, pickled in zip(self._places, answer.pickled, strict=True):
            self._places[name].append(place)
            place += len(pickled.values)
            self._first[name].append(len(self._ends))
            for own in pickled.arrays:
                begin = _aligned(len(self._arrays))
                self._arrays.append(_bytes(bytes(begin - len(self._arrays)) + own))
                self._ends.append(len(self._arrays))
        self._values.append(_bytes(b"".join(pickled.values for pickled in answer.pickled)))

    def of(self, metric: str) -> Mapping[int, Sequence[Value]]:
        """Each rank's values of that metric."""
        names = list(self._places)
        behind = names.index(metric) + 1
        ends = self._places[names[behind]] if behind < len(names) else self._places[names[0]][1:]
        values, arrays = self._values.values().data, self._arrays.values().data
        found = {}
        for number, (rank, place, end, first) in enumerate(
            zip(
                self.policies,
                self._places[metric],
                chain(ends, [len(values)]),
                self._first[metric],
                strict=False,
            )
        ):
            found[rank] = pickle.loads(  # noqa: S301 - what `add` wrote there
                values[place:end], buffers=self._from(first, arrays)
            )
            if not number % _RANKS:
                self._values.release()
        self._values.release()
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


def _bytes(content: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def _aligned(place: int) -> int:
    """The first place from there on at which a number of eight bytes may begin."""
    return -(-place // 8) * 8

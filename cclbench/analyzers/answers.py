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

_ALIGNED: Final = 8
"""Bytes of which a number's place is a multiple."""
_RANKS: Final = 256
"""Ranks whose values are read before what was read of the disk is let go."""


class Pickled(NamedTuple):
    """A rank's values of one metric, and the bytes of the arrays in them."""

    values: bytes
    arrays: list[bytes]


class RankAnswers(NamedTuple):
    """A rank's window policy, and its values of each metric, in the order in which it was asked."""

    policy: str
    pickled: list[Pickled]

    @classmethod
    def of(cls, policy: str, values: Iterable[Sequence[Value]]) -> RankAnswers:
        """From each metric's values."""
        return cls(policy, [_pickled(own) for own in values])


def _pickled(values: Sequence[Value]) -> Pickled:
    arrays: list[pickle.PickleBuffer] = []
    text = pickle.dumps(values, pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append)
    return Pickled(text, [own.raw().tobytes() for own in arrays])


class Answers:
    """All ranks' answers to the same metrics, on disk where they are many.

    Arrays in a metric's values are read-only, and stay there.
    """

    def __init__(self, metrics: Iterable[str]) -> None:
        self._values: DiskColumn[np.uint8] = DiskColumn(np.uint8)
        self._places = {name: array("q") for name in metrics}
        """Where each rank's values begin: a rank's stand one after another."""
        self._arrays = {name: _Arrays() for name in self._places}
        self.policies: dict[int, str] = {}
        """Each rank's window policy."""

    def add(self, rank: int, answer: RankAnswers) -> None:
        """The answer of a further rank."""
        self.policies[rank] = answer.policy
        place = len(self._values)
        for name, pickled in zip(self._places, answer.pickled, strict=True):
            self._places[name].append(place)
            place += len(pickled.values)
            self._arrays[name].add(pickled.arrays)
        self._values.append(_bytes(b"".join(pickled.values for pickled in answer.pickled)))

    def of(self, metric: str) -> Mapping[int, Sequence[Value]]:
        """Each rank's values of that metric."""
        names = list(self._places)
        behind = names.index(metric) + 1
        ends = self._places[names[behind]] if behind < len(names) else self._places[names[0]][1:]
        values, arrays = self._values.values().data, self._arrays[metric].all()
        found = {}
        places = zip(self.policies, self._places[metric], chain(ends, [len(values)]), strict=False)
        for number, (rank, place, end) in enumerate(places):
            found[rank] = pickle.loads(values[place:end], buffers=arrays)  # noqa: S301 - what `add` wrote there
            if not number % _RANKS:
                self._values.release()
        self._values.release()
        return found

    def release(self, metric: str) -> None:
        """Let go of what was read of a metric's arrays: they stay valid, and are read again where used."""
        self._arrays[metric].release()


class _Arrays:
    """Arrays one after another, each where numbers may begin."""

    def __init__(self) -> None:
        self._content: DiskColumn[np.uint8] = DiskColumn(np.uint8)
        self._lengths = array("q")

    def add(self, arrays: Iterable[bytes]) -> None:
        """Further ones."""
        for own in arrays:
            self._lengths.append(len(own))
            self._content.append(_bytes(own + bytes(-len(own) % _ALIGNED)))

    def all(self) -> Iterator[memoryview]:
        """All of them, in order."""
        content, begin = self._content.values().data, 0
        for length in self._lengths:
            yield content[begin : begin + length]
            begin += length + -length % _ALIGNED

    def release(self) -> None:
        """Let go of what was read."""
        self._content.release()


def _bytes(content: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)

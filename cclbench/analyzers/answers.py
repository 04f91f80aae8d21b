# SPDX-License-Identifier: Apache-2.0
"""What ranks answer to their metrics on its way to the run: all ranks' values of one metric at a time."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Mapping, Sequence
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, NamedTuple, Self

from cclbench.analyzers.metric import Value

_IN_MEMORY: Final = 32 << 20
"""Bytes of answers beyond which they are on disk."""


class Answer(NamedTuple):
    """A rank's window policy, and its values of each metric, in the order in which it was asked."""

    policy: str
    pickled: list[bytes]

    @classmethod
    def of(cls, policy: str, values: Iterable[Sequence[Value]]) -> Answer:
        """From each metric's values."""
        return cls(policy, [pickle.dumps(own, pickle.HIGHEST_PROTOCOL) for own in values])


class Answers:
    """All ranks' answers to the same metrics; a context, at whose end they are gone."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - it is closed with this context
        self._places = {name: array("q") for name in metrics}
        self.policies: dict[int, str] = {}
        """Each rank's window policy."""

    def add(self, rank: int, answer: Answer) -> None:
        """The answer of a further rank."""
        self.policies[rank] = answer.policy
        for places, values in zip(self._places.values(), answer.pickled, strict=True):
            places.append(self._file.tell())
            self._file.write(values)

    def of(self, metric: str) -> Mapping[int, Sequence[Value]]:
        """Each rank's values of that metric."""
        found = {}
        for rank, place in zip(self.policies, self._places[metric], strict=True):
            self._file.seek(place)
            found[rank] = pickle.load(self._file)  # noqa: S301 - what `add` wrote there
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

# SPDX-License-Identifier: Apache-2.0
"""What ranks answer to their metrics on its way to the run: all ranks' values of one metric at a time."""

from __future__ import annotations

import os
import pickle
from array import array
from collections.abc import Iterable, Mapping, Sequence
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple
from weakref import finalize

from cclbench.analyzers.metric import Value
from cclbench.ground.scratch import no_space_error

IN_MEMORY: Final = 1 << 24
"""Bytes of answers up to which they are held in memory."""


class RankAnswers(NamedTuple):
    """A rank's window policy, and its values of metrics, pickled, by name."""

    policy: str
    pickled: dict[str, bytes]

    @classmethod
    def from_values(cls, policy: str, values: Mapping[str, Sequence[Value]]) -> RankAnswers:
        """From each metric's values."""
        return cls(
            policy,
            {
                name: pickle.dumps(metric_values, pickle.HIGHEST_PROTOCOL)
                for name, metric_values in values.items()
            },
        )


class Answers:
    """All ranks' answers to the same metrics: more than `IN_MEMORY` bytes lie in a temporary file."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - it is closed with this object
        finalize(self, self._file.close)
        self._places = {name: array("q") for name in metrics}
        """Where each rank's values begin in the file."""
        self.policies: dict[int, str] = {}
        """Each rank's window policy."""

    def add_answer(self, rank: int, answer: RankAnswers) -> None:
        """The answer of a further rank, or of the last one to further metrics; `InputError` without room."""
        self.policies[rank] = answer.policy
        self._file.seek(0, os.SEEK_END)
        try:
            for name, pickled in answer.pickled.items():
                self._places[name].append(self._file.tell())
                self._file.write(pickled)
            self._file.flush()
        except OSError as error:
            raise no_space_error(error) from None

    def values_of(self, metric: str) -> Mapping[int, Sequence[Value]]:
        """Each rank's values of that metric."""
        values_by_rank = {}
        for rank, place in zip(self.policies, self._places[metric], strict=True):
            self._file.seek(place)
            values_by_rank[rank] = pickle.load(self._file)  # noqa: S301 - what `add_answer` wrote there
        return values_by_rank

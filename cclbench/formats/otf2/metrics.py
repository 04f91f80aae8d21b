# SPDX-License-Identifier: Apache-2.0
"""Values of metrics in an OTF2 archive as rows of the table `counters`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.formats.otf2.definitions import Definitions
from cclbench.formats.otf2.process import Block
from cclbench.ground.evidence_schema import COUNTERS
from cclbench.ground.intervals import Int64

_SINCE_START, _LAST, _NEXT = 0, 2, 3
"""What a value is about, by the upper four bits of the mode / 16: 0 since the start of the measurement, 1 its
own time, 2 the time since the previous value, 3 until the next one."""
_UNITS: Final = {"#": "count", "bytes": "B", "B": "B", "s": "s", "J": "J", "W": "W", "Hz": "Hz"}
_BASES: Final = (2, 10)


@dataclass(slots=True)
class MetricSamples:
    """Converts values; of each metric of a location the previous one is kept."""

    definitions: Definitions
    dropped: Counter[str]
    _last: dict[tuple[int, int, int], tuple[int, float]] = field(default_factory=dict)

    def convert_values(self, block: Block, rows: Int64, at_ns: Int64) -> Iterator[pa.Table]:
        """A table for each metric and location; a total since the start becomes differences."""
        columns = [block[name][rows] for name in ("location", "what", "nth")]
        keys, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        values = block["value"].view(np.float64)
        for number, key in enumerate(keys.tolist()):
            location, metric, nth = key
            members = self.definitions.metric_members(metric)
            key_rows = rows[which.ravel() == number]
            if nth >= len(members):
                self.dropped["values of metrics that the archive does not define"] += len(key_rows)
                continue
            member = members[nth]
            scale = float(_BASES[member.base]) ** member.exponent if member.base < len(_BASES) else 1.0
            yield from self._table(
                (location, metric, nth),
                member.name,
                member.unit,
                member.mode >> 4,
                at_ns[key_rows],
                values[key_rows] * scale,
            )

    def _table(
        self,
        key: tuple[int, int, int],
        name: str,
        unit: str,
        mode: int,
        at: Int64,
        value: npt.NDArray[np.float64],
    ) -> Iterator[pa.Table]:
        begin = at
        if mode in (_SINCE_START, _LAST, _NEXT):
            before = self._last.get(key)
            self._last[key] = int(at[-1]), float(value[-1])
            if before is not None:
                at, value = np.insert(at, 0, before[0]), np.insert(value, 0, before[1])
            begin, at = at[:-1], at[1:]
            value = {_SINCE_START: np.diff(value), _LAST: value[1:], _NEXT: value[:-1]}[mode]
        good = np.isfinite(value)
        if lost := int((~good).sum()):
            self.dropped["values of metrics that are no number"] += lost
        rows = int(good.sum())
        columns = {
            "counter": pa.repeat(pa.scalar(name or "metric"), rows).dictionary_encode(),
            "unit": pa.repeat(pa.scalar(_UNITS.get(unit), pa.string()), rows).dictionary_encode(),
            "start_ns": pa.array(begin[good]),
            "end_ns": pa.array(at[good]),
            "value": pa.array(value[good]),
        }
        yield pa.table(
            [
                columns[column.name].cast(column.type)
                if column.name in columns
                else pa.nulls(rows, column.type)
                for column in COUNTERS
            ],
            schema=COUNTERS,
        )

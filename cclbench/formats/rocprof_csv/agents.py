# SPDX-License-Identifier: Apache-2.0
"""The CPUs and GPUs of `agent_info.csv`, and which GPU a table's text means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from cclbench.formats.csv_tables import read_csv

_COLUMNS: Final = ("Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Name", "Product_Name")
_TEXT: Final = re.compile(r"(?:(Agent|GPU|CPU)[ -])?(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the process could see."""

    name: str | None
    compute_units: int | None


@dataclass(frozen=True, slots=True)
class Agents:
    """GPUs in order, and the index of each by either number of its node."""

    gpus: tuple[Gpu, ...] = ()
    numberings: tuple[Mapping[int, int], ...] = field(default=({}, {}))

    def gpu_index(self, text: str | None) -> int | None:
        """Index of the GPU that a text means, `GPU 0`, `Agent 4` or `4`; None if it is no GPU or unclear.

        `--agent-index` decides whether `Agent 4` is a node of the machine or of those that the process
        could see; no table states which.
        """
        match = _TEXT.fullmatch(text or "")
        if match is None or match[1] == "CPU":
            return None
        number = int(match[2])
        if match[1] == "GPU":
            return number
        indices = {numbering[number] for numbering in self.numberings if number in numbering}
        return indices.pop() if len(indices) == 1 else None


def read_agents(path: Path, *, hint: str) -> Agents:
    """The agents of a process; `InputError` if the table is damaged."""
    gpus: list[Gpu] = []
    by_node, by_logical = dict[int, int](), dict[int, int]()

    def rows(batch: pa.RecordBatch, _: int) -> list[dict[str, str | None]]:
        columns = [name for name in _COLUMNS if name in batch.schema.names]
        return list(batch.select(columns).to_pylist())

    for row in read_csv(path, _COLUMNS, _COLUMNS[:3], rows, hint=hint):
        if row["Agent_Type"] != "GPU":
            continue
        for numbering, column in ((by_node, "Node_Id"), (by_logical, "Logical_Node_Id")):
            if (number := _number(row[column])) is not None:
                numbering[number] = len(gpus)
        name = row.get("Product_Name") or row.get("Name")
        gpus.append(Gpu(name[:200] if name else None, _number(row.get("Cu_Count"))))
    return Agents(tuple(gpus), (by_node, by_logical))


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else None

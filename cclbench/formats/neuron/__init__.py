# SPDX-License-Identifier: Apache-2.0
"""AWS Neuron Explorer's device profiles: a folder of Parquet tables of one NeuronCore."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

_MARK: Final = "Metadata.parquet"
_INSTRUCTIONS: Final = ("Instruction.parquet", "Instruction_0.parquet")
"""The table that stands for the profile; large tables are split into numbered files."""


class Neuron(Reader):
    """Reader of device profiles; system profiles, of the host, have no such tables."""

    name = "neuron"
    precedence = 24
    description = "AWS Neuron Explorer device profiles (Parquet): instructions, DMA transfers, collectives"
    extensions: tuple[str, ...] = (".parquet",)
    described_by = _MARK
    read_with = ("CcOp.parquet", "DmaPacketAggregated.parquet", _MARK)
    capture = "the folder of Parquet tables that `neuron-explorer view` writes of an `.ntff` and its `.neff`"
    versions = "profile schema 7 to 12 (Neuron SDK 2.31 to 2.33)"
    tested = "documentation: the profile schema reference of the Neuron SDK"

    def sniff(self, head: bytes) -> float:
        """Always 0: the tables are recognised by their names."""
        del head
        return 0.0

    def is_described(self, path: Path) -> bool:
        """Whether the file is the (first) table of instructions beside the profile's metadata."""
        if path.name not in _INSTRUCTIONS or not path.with_name(_MARK).is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"

    def companions(self, path: Path) -> tuple[Path, ...]:
        """The folder's other tables."""
        tables = sorted(path.parent.glob("*.parquet"))
        return tuple(table for table in tables if table.is_file() and table.name != path.name)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: a data point would contain one table of several."""
        del target, redactor
        raise InputError("one table of a profile of Neuron Explorer cannot be redacted", where=str(path))

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream all rows; of a damaged table none are read."""
        # Not needed to recognise a file.
        from cclbench.formats.neuron.reading import read_profile

        del part, allow_truncated
        return read_profile(path)


READERS.add(Neuron.name, Neuron(), origin=__name__)

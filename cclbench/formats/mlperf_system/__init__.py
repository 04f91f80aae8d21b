# SPDX-License-Identifier: Apache-2.0
"""System descriptions of MLPerf submissions: how many accelerators the results of a system are from.

A submission has a file `systems/NAME.json` for the logs in `results/NAME` (MLPerf's submission rules).
Counts are written as numbers or as texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.texts import damaged_error, read_whole, reason_of, strip_decoration

_MOST_BYTES: Final = 1 << 20
_MOST: Final = 1 << 20
_COUNTS: Final = ("number_of_nodes", "accelerators_per_node")


class _System(msgspec.Struct):
    number_of_nodes: int | str
    accelerators_per_node: int | str


class MlperfSystem(EvidenceReader):
    """Reader of MLPerf's system descriptions."""

    name = "mlperf_system"
    description = "system descriptions of MLPerf submissions (JSON): number of accelerators"
    extensions: tuple[str, ...] = (".json",)
    capture = "`systems/NAME.json` of the submission whose logs are in `results/NAME`"
    versions = "MLPerf Training v4 and v5, MLPerf Inference v5"
    tested = "documentation: MLPerf's submission rules, and six published descriptions of Training v5.1"
    published_keys = _COUNTS

    withheld: Mapping[str, str] = {}

    def sniff(self, head: bytes) -> float:
        """Sure of an object with both counts."""
        head = strip_decoration(head).lstrip()
        return 0.9 if head[:1] == b"{" and all(b'"%b"' % key.encode() in head for key in _COUNTS) else 0.0

    def read(self, path: Path) -> Evidence:
        """Facts only: nodes, accelerators of a node, and of the system."""
        try:
            system = msgspec.json.decode(read_whole(path, _MOST_BYTES), type=_System)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise damaged_error(path, reason_of(error)) from None
        nodes, each = (_count(getattr(system, name)) for name in _COUNTS)
        if nodes is None or each is None:
            return Evidence(notes=["it does not state how many accelerators the system has"])
        return Evidence(facts={"nodes": nodes, "accelerators_per_node": each, "system_devices": nodes * each})


def _count(value: int | str) -> int | None:
    """A positive count; None for a text that is none, such as `N/A`."""
    if isinstance(value, str):
        value = int(value) if value.strip().isascii() and value.strip().isdigit() and len(value) < 8 else 0
    return value if 0 < value <= _MOST else None


READERS.add(MlperfSystem.name, MlperfSystem(), origin=__name__)

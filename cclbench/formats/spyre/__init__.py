# SPDX-License-Identifier: Apache-2.0
"""IBM Spyre: the Chrome JSON of Flex, its runtime, of one job on one card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace

_CYCLES: Final = re.compile(rb'"TS1"\s*:\s*"[^"]*"\s*,\s*"TS2"')


class Spyre(Reader):
    """Reader of Flex's traces."""

    name = "spyre"
    precedence = 20
    description = "IBM Spyre (AIU) Chrome JSON of Flex: computations, copies, transfers between cards"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = "Flex's own trace of a job, one file a card; with PyTorch's profiler the `kineto` reader"
    versions = "Flex of 2024 to 2025"
    figures = re.compile(r"ts|dur|Bytes")
    tested = "real: a job on one card (17 operations)"

    def sniff(self, head: bytes) -> float:
        """Sure of the cycle counters in rows of Chrome JSON."""
        return 0.9 if head.lstrip()[:1] in (b"{", b"[") and b'"ph"' in head and _CYCLES.search(head) else 0.0

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream the file."""
        # Not needed to recognise a file.
        from cclbench.formats.spyre.reading import read_trace

        del part
        return read_trace(path, allow_truncated)


READERS.add(Spyre.name, Spyre(), origin=__name__)

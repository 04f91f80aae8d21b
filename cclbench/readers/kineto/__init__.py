# SPDX-License-Identifier: Apache-2.0
"""PyTorch Profiler (Kineto) Chrome JSON: every variant since torch 1.8, CUDA, ROCm, MTIA and CPU."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Literal

from cclbench.readers import READERS, Part, Trace
from cclbench.readers.json_events import compressed, first_event
from cclbench.readers.kineto.reading import KinetoFile

PART_BYTES = 192 << 20
"""Larger uncompressed files are read in parts of about this size, side by side."""


class Kineto:
    """Reader of PyTorch Profiler traces."""

    name = "kineto"
    description = "PyTorch Profiler (Kineto) Chrome JSON: CUDA, ROCm, MTIA, CPU"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    versions = "torch 1.8 (2021) to 2.13"
    tested = "real: CUDA (V100, A100, H100), ROCm (MI210, MI300X), CPU with gloo; documentation: MTIA, XPU"
    reads: Literal["trace"] = "trace"

    def sniff(self, head: bytes) -> float:
        """Sure of Kineto's own keys; an array of events in its layout is likely one."""
        text = head.lstrip()
        if text[:1] == b"{":
            own = any(key in head for key in (b'"schemaVersion"', b'"deviceProperties"', b'"cpu_op"'))
            return 0.9 if own else 0.4 if b'"traceEvents"' in head else 0.0
        if text[:1] == b"[" and b'"ph"' in head:
            return 0.6 if b'"Operator"' in head or b'"cpu_op"' in head else 0.3
        return 0.0

    def parts(self, path: Path) -> list[Part]:
        """Ranges of about `PART_BYTES` of an uncompressed file, cut where an event begins; else the whole."""
        size = path.stat().st_size
        count = 1 if compressed(path) else size // PART_BYTES
        begins = {at for i in range(1, count) if (at := first_event(path, size * i // count)) is not None}
        if not begins:
            return [Part()]
        return [Part(begin=begin, end=end) for begin, end in pairwise([0, *sorted(begins), size])]

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one rank's trace, or one of its parts."""
        trace = Trace(batches=iter(()))
        trace.batches = KinetoFile(path, trace, part, allow_truncated).batches()
        return trace


READERS.add(Kineto.name, Kineto(), origin=__name__)

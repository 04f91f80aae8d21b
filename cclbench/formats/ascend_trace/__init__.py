# SPDX-License-Identifier: Apache-2.0
"""Ascend's Chrome JSON of one rank, `trace_view.json` of torch_npu or `msprof_*.json`: times are texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace

_PROCESS: Final = re.compile(rb'"name"\s*:\s*"Ascend Hardware"')
_TEXT_TIME: Final = re.compile(rb'"ts"\s*:\s*"\d{10,}(?:\.\d+)?"')
_OF_PYTORCH: Final = re.compile(rb'"cat"\s*:\s*"(?:cpu_op|python_function|async_npu|async_task_queue)"')


class AscendTrace(Reader):
    """Reader of Ascend's Chrome JSON."""

    name = "ascend_trace"
    precedence = 20
    description = "Ascend trace_view.json: NPU tasks, HCCL, CANN and PyTorch calls"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = "`torch_npu.profiler`, then `trace_view.json` of each rank's ASCEND_PROFILER_OUTPUT"
    versions = "CANN 7 to 8"
    figures = re.compile(r"ts|dur")
    tested = "documentation: torch_npu and msprof"
    after_other_text = True

    def sniff(self, head: bytes) -> float:
        """Sure of the NPU's process, likely with text times of PyTorch's rows: the process may come later."""
        if head.lstrip()[:1] not in (b"{", b"[") or b'"ph"' not in head:
            return 0.0
        if _PROCESS.search(head):
            return 0.95
        return 0.7 if _TEXT_TIME.search(head) and _OF_PYTORCH.search(head) else 0.0

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream the file twice: for the names of processes, then for rows."""
        # Not needed to recognise a file.
        from cclbench.formats.ascend_trace.reading import read_trace

        del part
        return read_trace(path, allow_truncated)


READERS.add(AscendTrace.name, AscendTrace(), origin=__name__)

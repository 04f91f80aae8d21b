# SPDX-License-Identifier: Apache-2.0
"""PyTorch Profiler (Kineto) Chrome JSON: every variant since torch 1.8, CUDA, ROCm, MTIA and CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.json_events import JsonEvents, first_event
from cclbench.formats.rewriting import METADATA
from cclbench.formats.streams import LARGEST_RATIO, is_compressed

PART_BYTES = 32 << 20
"""Files of at least twice this size are read in parts of about this size, in parallel."""
_MOST_PARTS = 999
_USUAL_RATIO = 15
"""Lowest usual compression ratio of Kineto JSON, to estimate a file's size before it is inflated."""

_HEADER = (b'"schemaVersion"', b'"deviceProperties"')
# Categories of rows by kineto's ActivityType.cpp, with the names of 2021 (torch 1.8) and those of flows.
_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|(?:gpu_)?user_annotation|kernel|gpu_mem(?:cpy|set)|python_function'
    rb"|(?:cuda|xpu|mtia|glow|privateuse1)_(?:runtime|driver)|(?:cuda|xpu)_sync|mtia_ccp_events|hpu_op"
    rb'|cpu_instant_event|ac2g|fwdbwd|async_cpu_to_gpu|Operator|Runtime|Kernel|Mem(?:cpy|set))"'
)

# Keys of the outermost object about the profiler, the device and the job's layout; any other key was added
# by the program with `add_metadata`.
_METADATA = frozenset(
    (
        *(
            "schemaVersion",
            "deviceProperties",
            "distributedInfo",
            "traceEvents",
            "traceName",
            "displayTimeUnit",
        ),
        *(
            "baseTimeNanoseconds",
            "rank",
            "metadata",
            "pytorch_version",
            "trace_id",
            "record_shapes",
            "with_stack",
        ),
        *("with_flops", "with_modules", "profile_memory", "cuda_driver_version", "cuda_runtime_version"),
        *("cupti_version", "hip_driver_version", "hip_runtime_version", "roctracer_version", "xpu_version"),
        *("nccl_version", "systemTraceEvents", "otherData"),
    )
)
# File names of tensorboard_trace_handler: host, process, time.


class Kineto(Reader):
    """Reader of PyTorch Profiler traces."""

    name = "kineto"
    precedence = 40
    frameworks: Mapping[str, str] = {"PyTorch Profiler": "pytorch"}
    description = "PyTorch Profiler (Kineto) Chrome JSON: CUDA, ROCm, XPU, MTIA, CPU"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = (
        "`torch.profiler`, exported with `export_chrome_trace` or `tensorboard_trace_handler`;"
        " one file a rank"
    )
    versions = "torch 1.8 (2021) to 2.13"
    figures = re.compile(r"Concrete Inputs|Process Group Ranks")
    tested = (
        "real: CUDA (V100, A100, H100), ROCm (MI210, MI300X), CPU with gloo, rows of MTIA;"
        " documentation: XPU, and what kineto writes since March 2026: sequence numbers, rows of stream"
        " syncs, 64-bit stream ids"
    )
    after_other_text = True
    published_keys = _METADATA
    withheld: Mapping[str, str] = {"all keys of the outermost object but the profiler's own": METADATA}

    def sniff(self, head: bytes) -> float:
        """Sure of Kineto's own header, likely with rows of its categories."""
        text = head.lstrip()
        if text[:1] not in (b"{", b"["):
            return 0.0
        if text[:1] == b"{" and any(key in head for key in _HEADER):
            return 0.9
        return 0.6 if _CATEGORY.search(head) and (text[:1] == b"[" or b'"traceEvents"' in head) else 0.0

    def parts(self, path: Path) -> list[Part]:
        """Ranges of about `PART_BYTES`, cut where an event begins; a large compressed file is a stream."""
        size = path.stat().st_size
        if is_compressed(path):
            return [Part(stream=size * _USUAL_RATIO >= 2 * PART_BYTES)]
        count = min(size // PART_BYTES, _MOST_PARTS)
        begins = {at for i in range(1, count) if (at := first_event(path, size * i // count)) is not None}
        if not begins:
            return [Part()]
        return [Part(begin=begin, end=end) for begin, end in pairwise([0, *sorted(begins), size])]

    def inflate_parts(self, path: Path, folder: Path) -> Iterator[Part]:
        """Parts of about `PART_BYTES`, or larger to limit their number."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.kineto.events import DECODER

        size = max(PART_BYTES, path.stat().st_size * LARGEST_RATIO // _MOST_PARTS)
        return JsonEvents(path, DECODER).inflated_parts(folder, size)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream a rank's trace, or one part of it."""
        from cclbench.formats.kineto.reading import KinetoFile

        trace = Trace(batches=iter(()))
        trace.batches = KinetoFile(path, trace, part, allow_truncated).read_batches()
        return trace


READERS.add(Kineto.name, Kineto(), origin=__name__)

# SPDX-License-Identifier: Apache-2.0
"""Traces of known formats that are not supported: what they are, and what to use instead.

Dozens of tools write Chrome JSON: a file that no reader recognises is identified by its rows, and never
mistaken for a rank of PyTorch.  Files of other kinds are identified by their first bytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cclbench.ground.errors import InputError
from cclbench.ground.text import first_few, printable


class UnreadFormatError(InputError):
    """A file of a known format that no reader supports."""


_OWN_TRACES: Final = "give each rank's own trace of PyTorch's profiler, Nsight Systems or XLA"
_ROWS: Final = re.compile(rb'\s*\[.{0,1024}?"ph"\s*:\s*"[A-Za-z]"', re.DOTALL)
_EVENTS: Final = re.compile(rb'\s*\{.*"traceEvents"', re.DOTALL)
# A row a line, without commas between them: dftracer's src/dftracer/writer/chrome_writer.cpp.
_ROW_A_LINE: Final = re.compile(rb"\s*\[\s*\{[^\n]*\}[ \t\r]*\n\s*\{")
_CATEGORY: Final = re.compile(rb'"cat"\s*:\s*"([^"\\]{1,40})"')
_CONTENTS: Final = (
    (rb"version https://git-lfs", "a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`"),
    (
        rb"\s*<(?:!doctype html|html|head)",
        "an HTML page, such as a login or an error",
        "download the file again",
    ),
    (rb"\s*<\?xml", "an XML file", None),
    (rb"PK\x03\x04|7z\xbc\xaf|Rar!", "an archive", "unpack it, and give the folder"),
    (rb"BZh|\xfd7zXZ|\x28\xb5\x2f\xfd", "compressed (bzip2, xz or zstd)", "decompress it, or use gzip"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF", "a picture or a PDF", None),
    (rb"PAR1", "a Parquet table", None),
    (rb"\x80[\x02-\x05]", "a Python pickle, but no memory snapshot", None),
    (rb"\x7fELF", "a program or a library", None),
)
"""How files that are no traces begin, what they are, and what to do."""
_TAR: Final = (257, b"ustar")
"""Place and bytes of the mark of a tar archive."""
_KEY: Final = re.compile(rb'\s*\{\s*"([^"\\]{1,40})"')
_BEGINNING: Final = 30
_TOOLS: Final = (
    (
        rb'"pid"\s*:\s*"CPU [Ff]unctions"',
        "a trace of PyTorch's former autograd profiler, without streams and launches",
        "capture with torch.profiler.profile",
    ),
    (
        rb'"NEGOTIATE_[A-Z]+',
        "a Horovod timeline: its processes are tensors, and it has no kernels",
        _OWN_TRACES,
    ),
    (rb'"cat"\s*:\s*"FEE"', "a VizTracer trace: Python functions and no kernels", _OWN_TRACES),
    (
        rb'"cat"\s*:\s*"[^"]*(?:devtools\.timeline|\bv8\b|\bblink\b)',
        "a trace of Chrome or Node.js: their own functions and no kernels",
        _OWN_TRACES,
    ),
    (
        rb'"cat"\s*:\s*"(?:forward|backward)-(?:compute|send|recv)"',
        "an operator timeline (forward-compute, backward-compute, ...): stages of the job, no kernels",
        _OWN_TRACES,
    ),
)
"""Marks of tools that write Chrome JSON, what their files are, and what to do instead."""
_OTHERS: Final = (
    (rb"\x03B[\x00\x01]", "part of an OTF2 archive", "give the folder that holds its traces.otf2"),
    (
        rb'\s*\{.{0,4096}"train_(?:num_accelerators|throughput_mean)',
        "a report of MLPerf Storage over several runs",
        "give the summary.json of each run",
    ),
    (
        rb"(?:NCCL version[^\n]*\n|[^\n]{0,200}\n){0,4}?\s*Job summary\s+={5,}",
        "NCCL's RAS as text",
        "write it as JSON: ncclras -f json (NCCL 2.28.7 and later)",
    ),
    (
        rb'\s*\{"sysstat"',
        "the output of a tool of sysstat, without devices",
        "give that of `iostat -x -t -o JSON 1`",
    ),
    (
        rb'.{0,3}"?ID"?,"?Process ID"?,"?Process Name"?,"?Host Name"?,"?Kernel Name"?,.{0,200}"?Metric Name',
        "a table of kernels' counters, as Nsight Compute prints it: it has no times",
        _OWN_TRACES,
    ),
    (
        rb'"?Domain"?,"?Function"?,"?Process_Id',
        "a table of calls of rocprofv3",
        "give the folder, with kernel_trace.csv",
    ),
    (
        rb'"?Kind"?,"?(?:Direction|Operation)"?,',
        "a table of copies or memory of rocprofv3",
        "give the folder, with kernel_trace.csv",
    ),
    (
        rb"Index,KernelName,gpu-id,queue-id",
        "a table of kernels' counters, as rocprof prints it: it has no times",
        "trace with rocprof --timestamp on",
    ),
    (
        rb'(?:#[^\n]*\n|\s|=[^\n]*\n)*\{[^}]{0,512}"(?:round_index|sessionId)"\s*:',
        "a session of a coding agent: its rounds and calls of tools",
        _OWN_TRACES,
    ),
)
"""Files that are no Chrome JSON: how they begin, what they are, and what to do instead."""


def refuse_unread(path: Path, head: bytes) -> None:
    """`UnreadFormatError` if a file that begins with these bytes is a trace of an unsupported format."""
    if not (_ROWS.match(head) or _EVENTS.match(head)):
        for mark, kind, hint in _OTHERS:
            if re.match(mark, head, re.DOTALL):
                raise UnreadFormatError(f"is {kind}", where=str(path), hint=hint)
        return
    if _ROW_A_LINE.match(head):
        message = (
            "is a trace with a row a line, as DFTracer's, but without calls for files, and without kernels"
        )
        raise UnreadFormatError(message, where=str(path), hint=_OWN_TRACES)
    for mark, tool, hint in _TOOLS:
        if re.search(mark, head):
            raise UnreadFormatError(f"is {tool}", where=str(path), hint=hint)
    categories = list(dict.fromkeys(c.decode(errors="replace") for c in _CATEGORY.findall(head)))
    message = "is a Chrome trace without rows of PyTorch's profiler"
    if categories:
        message += f": they are of {first_few(categories)}"
    raise UnreadFormatError(message, where=str(path), hint=_OWN_TRACES)


def content_words(head: bytes) -> tuple[str, str | None]:
    """What a file is by its first bytes, and what to do, if that is known."""
    if head[_TAR[0] :].startswith(_TAR[1]):
        return "an archive", "unpack it, and give the folder"
    for mark, words, hint in _CONTENTS:
        if re.match(mark, head, re.IGNORECASE):
            return words, hint
    if (key := _KEY.match(head)) is not None:
        return f"JSON, an object that begins with {printable(key[1].decode(errors='replace'))!r}", None
    if head.lstrip().startswith((b"[", b"{")):
        return "JSON", None
    if b"\0" in head:
        return f"binary, and begins with {head[:8].hex(' ')}", None
    line = head.lstrip()[:_BEGINNING].decode(errors="replace").partition("\n")[0]
    return f"a text that begins with {printable(line)!r}", None

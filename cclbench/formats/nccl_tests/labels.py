# SPDX-License-Identifier: Apache-2.0
"""Labels that launchers put before each line, and the start of library lines that interrupt other output.

`srun --label` writes `12: `, `mpirun --tag-output` `[1,0]<stdout>:`, others the pod, the container or the
process, with or without the time.  The benchmark's own lines are recognised by their content, so the text
before one of them is a label, whichever launcher wrote it.
"""

from __future__ import annotations

import re
from typing import Final

_STAMP: Final = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? "
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(?=[\[<])",
    re.ASCII,
)
_OWN: Final = re.compile(
    r"# (?:[nr]ccl-tests:? [Vv]ersion|Collective test starting:|nThread +\d|Using devices| *Rank +\d+ "
    r"| *size +count +type |Out of bounds values )",
    re.ASCII,
)
_LIBRARY: Final = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?([\w.-]{1,255}):\d+:\d+ \[-?\d+\] (?:\S{1,80} )?NCCL [A-Z]+",
    re.ASCII,
)
_FIGURE: Final = re.compile(r"[\d.e+-]*", re.ASCII)
_LONGEST: Final = 120
_MOST: Final = 1 << 12


class Labels:
    """The labels of the benchmark's processes, learnt from its own lines; `""` without a label."""

    def __init__(self) -> None:
        self._labels: set[str] = set()
        self._lengths: list[int] = []
        """Lengths of the labels, the longest first."""

    def split_label(self, line: str) -> tuple[str, str]:
        """A line's label and its text, both without the time."""
        if stamp := _STAMP.match(line):
            line = line[stamp.end() :]
        length = next((n for n in self._lengths if line[:n] in self._labels), 0)
        if (
            not length
            and "#" in line
            and (benchmark_line := _OWN.search(line))
            and 0 < benchmark_line.start() <= _LONGEST
        ):
            length = benchmark_line.start()
            if len(self._labels) < _MOST:
                self._labels.add(line[:length])
                self._lengths = sorted({*self._lengths, length}, reverse=True)
        return line[:length], line[length:]


class LibraryLines:
    """Finds the start of NCCL debug output, `host:pid:thread [device] NCCL INFO`, behind other text.

    A number may directly precede the host's name (`-1` and `38dcf168f605`): they are separated by known
    hosts, first those in the list of devices, then those of other lines.
    """

    def __init__(self) -> None:
        self._of_devices: set[str] = set()
        self._of_lines: set[str] = set()

    def add_host(self, host: str) -> None:
        """Add a host from the benchmark's list of devices."""
        if len(self._of_devices) < _MOST:
            self._of_devices.add(host)

    def library_line_start(self, text: str) -> int | None:
        """Offset of the library's line in a line; None if there is none."""
        match = _LIBRARY.search(text) if "] " in text else None
        if match is None:
            return None
        name = match[1]
        if not match.start() and len(self._of_lines) < _MOST:
            self._of_lines.add(name)
        for hosts in (self._of_devices, self._of_lines):
            ends = [len(h) for h in hosts if name.endswith(h) and _FIGURE.fullmatch(name[: -len(h)])]
            if ends:
                return match.start() if max(ends) == len(name) else match.end(1) - max(ends)
        return match.start()

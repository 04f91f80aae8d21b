# SPDX-License-Identifier: Apache-2.0
"""What a Perfetto trace is of: its tracks, the categories of its slices, the processes that ran kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cclbench.formats.perfetto.sequences import Slice, SliceStream, Track
from cclbench.formats.unread import UnreadFormatError
from cclbench.formats.xplane.device import remember_last
from cclbench.ground.errors import InputError
from cclbench.ground.text import first_few

_PREFIX: Final = "rocm_"
"""What rocprof-sys puts before rocprofv3's categories."""
_COPY: Final = "MEMORY_COPY_"
_DOMAINS: Final = {
    "kernel_dispatch": "kernel",
    "memory_copy": "copy",
    "marker_api": "annotation",
    **dict.fromkeys(("hip_api", "hsa_api", "rccl_api"), "call"),
}
_STREAM: Final = "hip_stream"
"""Category of kernels and copies of HIP's streams in traces of rocprof-sys."""
_MOST_CATEGORIES: Final = 1000
_MOST_PARENTS: Final = 16
_HINT: Final = (
    "export its slices as a table, SELECT ... FROM slice in trace_processor, with a timeline.yaml beside it"
)
_AGAIN: Final = "trace kernels, too: rocprofv3 --runtime-trace"


def slice_kind(trace_slice: Slice) -> str | None:
    """`kernel`, `copy`, `call` or `annotation` by the slice's category; None for any other."""
    category = trace_slice.category.removeprefix(_PREFIX)
    if category == _STREAM:
        return "copy" if trace_slice.name.startswith(_COPY) else "kernel"
    return _DOMAINS.get(category)


class TraceSurvey:
    """What a pass over all packets shows."""

    def __init__(self, path: Path) -> None:
        stream = SliceStream(path, details=False)
        self.path, self.damaged = path, False
        self.tracks: Mapping[int, Track] = stream.tracks
        self.categories = dict[str, None]()
        self._process_of: dict[tuple[int, int], str] = {}
        kernels: dict[tuple[int, int], Slice] = {}
        try:
            for trace_slice in stream.slices():
                if len(self.categories) < _MOST_CATEGORIES:
                    self.categories[trace_slice.category] = None
                if slice_kind(trace_slice) == "kernel":
                    kernels.setdefault((trace_slice.track, trace_slice.producer), trace_slice)
        except InputError:  # reading reports it
            self.damaged = True
        self.ftrace = stream.ftrace
        self.members = tuple(dict.fromkeys(map(self.process_of, kernels.values())))
        """Ids of processes with kernels, in the order of their kernels."""

    def process_of(self, trace_slice: Slice) -> str:
        """The process id of a slice's track or of one above it, else that of its writer."""
        key = trace_slice.track, trace_slice.producer
        if key not in self._process_of:
            pid, uuid, threads = 0, trace_slice.track, 0
            for _ in range(_MOST_PARENTS):
                track = self.tracks.get(uuid)
                if track is None or pid:
                    break
                pid, threads, uuid = track.pid, threads or track.thread_pid, track.parent
            self._process_of[key] = str(max(pid or threads or trace_slice.producer, 0))
        return self._process_of[key]

    def processes(self) -> tuple[str, ...]:
        """The members; `InputError` if two of a merged trace have the same process id."""
        pids = Counter(track.pid for track in self.tracks.values() if track.pid)
        twice = next((pid for pid in self.members if pids[int(pid)] > 1), None)
        if twice is not None:
            what = f"was merged from processes of several machines with the same id, {twice}"
            raise InputError(what, where=str(self.path), hint="convert the database of each alone")
        # A file that is damaged before any kernel is refused by reading, which states where.
        return self.members or ("0",)


survey_of = remember_last(TraceSurvey)


def refuse_without_kernels(path: Path) -> None:
    """`UnreadFormatError` for an undamaged trace without kernels."""
    survey = survey_of(path)
    if survey.members or survey.damaged:
        return
    named = [category for category in survey.categories if category]
    what = "a Perfetto trace without kernels: "
    if named:
        what += f"its slices are of {first_few(named)}"
    else:
        what += "scheduling of Linux or Android" if survey.ftrace else "none of its slices has a category"
    ours = {category.removeprefix(_PREFIX) for category in named} & _DOMAINS.keys()
    raise UnreadFormatError(f"is {what}", where=str(path), hint=_AGAIN if ours else _HINT)

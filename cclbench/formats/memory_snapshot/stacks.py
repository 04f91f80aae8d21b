# SPDX-License-Identifier: Apache-2.0
"""Call stacks of allocations as one line of text, innermost frame first.

A stack mixes the program's frames with those of C++, the interpreter and the allocator.  If it has Python
frames, the line consists of the innermost operator and these; otherwise of the C++ frames that belong to
the program.  Of a path only the part within its package, or the file name, is kept: the rest may name users.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from cclbench.formats import Names
from cclbench.ground.text import printable

MOST_FRAMES: Final = 12
"""Most frames in a line; outer ones are left out."""
_MOST_READ: Final = 1 << 12
"""Most frames of a stack that are read."""
_LONGEST_NAME: Final = 60
_BETWEEN: Final = " < "
_PACKAGES: Final = re.compile(r".*[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]")
_AHEAD: Final = re.compile(r".*(?=[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\])")
_OPERATOR: Final = re.compile(r"at::_ops::(\w{1,80})::")
_WRAPPERS: Final = {"_call_impl", "_wrapped_call_impl"}
"""Calls between any `torch.nn.Module` and its `forward`."""
_NOISE: Final = re.compile(
    r"unwind::unwind|CapturedTraceback|gather_with_cpp|CachingAllocator|^_*Py|^_object|^_start$|^__libc|^clone"
    r"|wrap_kernel_functor_|wrapper_CUDA|set_output_raw_strided|create_out|^at::(?:detail|meta|impl|native)::"
    r"|^at::TensorIterator|^c10::|^torch::autograd::(?:Engine|Node|python)::|^\?\?$|^$"
)
"""C++ functions of the allocator, the dispatcher and the interpreter."""
_RUNTIME: Final = "the runtime alone"
"""The line of a stack of only such functions."""
_ANONYMOUS: Final = "(anonymous namespace)::"
_CALLED: Final = re.compile(r"(?:[\w*&]+ )?([\w:~]+)")


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class Stacks:
    """Codes of stack lines; each distinct stack and frame is converted once."""

    def __init__(self) -> None:
        self.names = Names()
        self._of_list: dict[int, int | None] = {}
        self._of_frames: dict[tuple[int, ...], int | None] = {}
        self._frames: dict[int, tuple[str, bool, str | None] | None] = {}

    def stack_code(self, frames: Any) -> int | None:
        """The code of a stack's line, None without frames; `msgspec.ValidationError` if it is not a stack.

        Stacks are identified by `id`: `frames` must outlive this object.
        """
        if id(frames) in self._of_list:
            return self._of_list[id(frames)]
        read = msgspec.convert(frames, list[Any] | None) or []
        key = tuple(map(id, read[:_MOST_READ]))
        if key not in self._of_frames:
            line = self._stack_line([self._frame_text(frame) for frame in read[:_MOST_READ]])
            self._of_frames[key] = self.names[line] if line else None
        self._of_list[id(frames)] = self._of_frames[key]
        return self._of_list[id(frames)]

    def _frame_text(self, frame: Any) -> tuple[str, bool, str | None] | None:
        """A frame's text, whether it is Python, and its operator; None for a frame that is not shown."""
        if id(frame) not in self._frames:
            self._frames[id(frame)] = _python_frame(msgspec.convert(frame, _Frame))
        return self._frames[id(frame)]

    @staticmethod
    def _stack_line(frames: list[tuple[str, bool, str | None] | None]) -> str:
        resolved_frames = [frame for frame in frames if frame is not None]
        python = [text for text, is_python, _ in resolved_frames if is_python]
        operator = next((name for _, _, name in resolved_frames if name), None)
        shown = (
            python or list(dict.fromkeys(text for text, _, _ in resolved_frames)) or [_RUNTIME] * bool(frames)
        )
        ellipsis = ["…"] if len(shown) > MOST_FRAMES else []
        first = [operator] if operator and python else []
        return _BETWEEN.join([*first, *shown[:MOST_FRAMES], *ellipsis])


def _python_frame(frame: _Frame) -> tuple[str, bool, str | None] | None:
    name, file = frame.name[: 1 << 12], frame.filename[-(1 << 12) :]
    if file.endswith(".py") or file.startswith("<"):
        if name in _WRAPPERS:
            return None
        return f"{_shorten_name(name)} {_shorten_name(path_in_package(file))}:{frame.line}", True, None
    operator = _OPERATOR.match(name)
    if operator is None and _NOISE.search(name):
        return None
    if operator is not None:
        return f"at::{operator[1]}", False, f"at::{operator[1]}"
    function = _CALLED.match(name.replace(_ANONYMOUS, ""))
    return None if function is None else (_shorten_name(function[1]), False, None)


def path_in_package(file: str) -> str:
    """A source file's path within its package, else its name."""
    path = _PACKAGES.sub("", file)
    return path if path != file else re.split(r"[/\\]", file)[-1]


def published_file(file: str) -> str:
    """A source file's path from `site-packages` or the like on, else its name."""
    ahead = _AHEAD.match(file)
    return file[ahead.end() :] if ahead else re.split(r"[/\\]", file)[-1]


def _shorten_name(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"

# SPDX-License-Identifier: Apache-2.0
"""Stacks of frames as one line of text: who asked for the memory, innermost first.

Frames of C++, of the interpreter and of the allocator lie between those that a person wrote.  Where a stack
has frames of Python, these make the line, after the innermost operator; else those of C++ that tell of the
program do.  Of a path only what is a package's own stays, or the file's name: the rest names people.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from cclbench.formats import Names
from cclbench.ground.text import printable

MOST_FRAMES: Final = 12
"""Of a line; outer ones are left out."""
_MOST_READ: Final = 1 << 12
"""Frames of a stack that are looked at."""
_LONGEST_NAME: Final = 60
_BETWEEN: Final = " < "
_PACKAGES: Final = re.compile(r".*[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]")
_AHEAD: Final = re.compile(r".*(?=[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\])")
_OPERATOR: Final = re.compile(r"at::_ops::(\w{1,80})::")
_WRAPPERS: Final = {"_call_impl", "_wrapped_call_impl"}
"""What `torch.nn.Module` puts between any module and its `forward`."""
_NOISE: Final = re.compile(
    r"unwind::unwind|CapturedTraceback|gather_with_cpp|CachingAllocator|^_*Py|^_object|^_start$|^__libc|^clone"
    r"|wrap_kernel_functor_|wrapper_CUDA|set_output_raw_strided|create_out|^at::(?:detail|meta|impl|native)::"
    r"|^at::TensorIterator|^c10::|^torch::autograd::(?:Engine|Node|python)::|^\?\?$|^$"
)
"""Functions of C++ that are in many stacks: the allocator's, the dispatcher's, the interpreter's."""
_RUNTIME: Final = "the runtime alone"
"""What is said of a stack of nothing but those."""
_ANONYMOUS: Final = "(anonymous namespace)::"
_CALLED: Final = re.compile(r"(?:[\w*&]+ )?([\w:~]+)")


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class Stacks:
    """Codes of stacks' lines, each stack and each frame looked at once however many refer to it."""

    def __init__(self) -> None:
        self.names = Names()
        self._of_list: dict[int, int | None] = {}
        self._of_frames: dict[tuple[int, ...], int | None] = {}
        self._frames: dict[int, tuple[str, bool, str | None] | None] = {}

    def stack_code(self, frames: Any) -> int | None:
        """The code of a stack's line, None without frames; `msgspec.ValidationError` where it is no stack.

        `frames` is alive as long as this is: stacks are told apart by identity.
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
        """A frame's text, whether it is Python's, and the operator that it is of; None of what is noise."""
        if id(frame) not in self._frames:
            self._frames[id(frame)] = _python_frame(msgspec.convert(frame, _Frame))
        return self._frames[id(frame)]

    @staticmethod
    def _stack_line(frames: list[tuple[str, bool, str | None] | None]) -> str:
        told = [frame for frame in frames if frame is not None]
        python = [text for text, is_python, _ in told if is_python]
        operator = next((found for _, _, found in told if found), None)
        shown = python or list(dict.fromkeys(text for text, _, _ in told)) or [_RUNTIME] * bool(frames)
        more = ["…"] if len(shown) > MOST_FRAMES else []
        first = [operator] if operator and python else []
        return _BETWEEN.join([*first, *shown[:MOST_FRAMES], *more])


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
    """A source file's path within its package, else its name alone."""
    within = _PACKAGES.sub("", file)
    return within if within != file else re.split(r"[/\\]", file)[-1]


def published_file(file: str) -> str:
    """A source file without the folders ahead of its package, else its name alone."""
    ahead = _AHEAD.match(file)
    return file[ahead.end() :] if ahead else re.split(r"[/\\]", file)[-1]


def _shorten_name(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"

# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain data, read without pickle (nothing that runs) and written again with other texts.

A pickle is a program for a stack machine; `pickle.load` runs whatever it names.  This machine knows the
instructions that build plain data and refuses the file at the first other one.

`pickle.Unpickler` with a `find_class` that refuses everything would not do: in CPython 3.11 to 3.13 ten bytes
that store a value far away in the memo take gigabytes, and a key of 200,000 nested tuples (200 KB) ends the
process while it is hashed.  To see either beforehand takes a machine like this one.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from pickletools import genops
from typing import Any, Final

from cclbench.formats.files import output, shown
from cclbench.formats.rewriting import ENVIRONMENT, JOB, Redactor
from cclbench.formats.texts import damaged, whole

_EMPTY: Final[dict[str, Callable[[], object]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_VALUES: Final = {*("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), *("BINUNICODE", "SHORT_BINUNICODE")}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MOST_INSTRUCTIONS: Final = 10_000_000
MOST_FILE_BYTES: Final = 1 << 28
"""Of a dump; a ring buffer of 2,000 collectives with their stack frames takes about 20 MB."""
_PROTOCOL = 2  # the recorder's own


class NotPlainError(ValueError):
    """The pickle is damaged, or holds more than plain data."""


def plain(data: bytes) -> Any:
    """What a pickle of plain data holds; `NotPlainError` otherwise, before anything of it has run.

    Keys of dictionaries are texts or integers.  What a pickle refers to twice counts twice: one that refers
    to itself, or unfolds beyond any memory, is refused.
    """
    machine, left = _Machine(), _MOST_INSTRUCTIONS
    try:
        for opcode, argument, at in genops(data):
            if opcode.name == "STOP":
                return machine.result()
            machine.do(opcode.name, argument, at or 0)
            left -= 1
            if not left:
                raise NotPlainError(f"pickle has more than {_MOST_INSTRUCTIONS:,} instructions")
    except NotPlainError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise NotPlainError(f"pickle is damaged ({type(error).__name__})") from None
    raise NotPlainError("pickle is cut: it has no end")


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        (value,) = self._stack
        rest, left = [value], _MOST_INSTRUCTIONS
        while rest:
            within = rest.pop()
            if isinstance(within, (dict, list, tuple)):
                left -= len(within)
                if left < 0:
                    raise NotPlainError("pickle unfolds to more than any dump holds")
                rest.extend(within.values() if isinstance(within, dict) else within)
        return value

    def do(self, name: str, argument: Any, at: int) -> None:  # noqa: C901 (one case an instruction)
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name == "APPEND":
            value = stack.pop()
            self._list().append(value)
        elif name == "APPENDS":
            values = self._since_mark()
            self._list().extend(values)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._set([key, value])
        elif name == "SETITEMS":
            self._set(self._since_mark())
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in _TUPLES:
            values = [stack.pop() for _ in range(_TUPLES[name])]
            stack.append(tuple(reversed(values)))
        elif name not in ("PROTO", "FRAME"):
            raise NotPlainError(f"pickle holds more than data: instruction {name} at byte {at:,}")

    def _since_mark(self) -> list[Any]:
        at = self._marks.pop()
        values = self._stack[at:]
        del self._stack[at:]
        return values

    def _list(self) -> list[Any]:
        top = self._stack[-1]
        if not isinstance(top, list):
            raise NotPlainError("pickle is damaged (items without a list)")
        return top

    def _set(self, items: list[Any]) -> None:
        top = self._stack[-1]
        keys, values = items[::2], items[1::2]
        if not isinstance(top, dict) or not all(isinstance(key, (str, int)) for key in keys):
            raise NotPlainError("pickle is damaged (items without a dictionary)")
        top.update(zip(keys, values, strict=True))


def rewrite_pickle(path: Path, target: Path | None, redactor: Redactor) -> None:
    """Rewrite a pickle as `Format.rewrite` does; `InputError` where it is damaged or holds more than data."""
    try:
        new = _rewritten(plain(whole(path, MOST_FILE_BYTES)), "", redactor)
    except NotPlainError as error:
        raise damaged(Path(shown(path)), str(error)) from None
    except RecursionError:
        raise damaged(Path(shown(path)), "is nested too deeply") from None
    with output(path, target) as write:
        write(pickle.dumps(new, protocol=_PROTOCOL))


def _rewritten(value: Any, place: str, redactor: Redactor, kind: str | None = None, name: str = "") -> Any:
    """The same data with other texts; `place` is the key whose value it is in, `kind` what that key says.

    `name` is a variable's, within an environment.
    """
    new: str | None
    match value:
        case str() if kind is not None:
            new, counts = redactor.field(kind, value, name=name)
        case str():
            new, counts = redactor.text(value, place)
        case int() if kind == JOB:
            new, counts = None, Counter({JOB: 1})
        case list() | tuple():
            return type(value)(_rewritten(each, place, redactor, kind, name) for each in value)
        case dict():
            return {
                _rewritten(key, "", redactor): _of_key(str(key), held, redactor, kind)
                for key, held in value.items()
            }
        case _:
            return value
    redactor.count(place or "a key", counts)
    return new


def _of_key(key: str, value: Any, redactor: Redactor, within: str | None) -> Any:
    """The value of a key; `within` is what a key around all of it says."""
    if within is None:
        return _rewritten(value, key, redactor, redactor.kind_of_field(key))
    return _rewritten(value, key, redactor, within, key if within == ENVIRONMENT else "")

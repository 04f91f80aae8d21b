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
from typing import Any, Final, cast

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
_AGAIN: Final = ("BINGET", "LONG_BINGET")
_MOST_INSTRUCTIONS: Final = 10_000_000
"""Those that refer to an object made before are not among them: stacks of frames are mostly made of them."""
MOST_FILE_BYTES: Final = 1 << 28
"""Of a dump; a ring buffer of 2,000 collectives with their stack frames takes about 20 MB, a snapshot of
100,000 allocations as much."""
_PROTOCOL: Final = 2  # the recorder's own; every reader of pickles knows it


class NotPlainError(ValueError):
    """The pickle is damaged, or holds more than plain data."""


def plain(data: bytes, *, unfolded: int = _MOST_INSTRUCTIONS) -> Any:
    """What a pickle of plain data holds; `NotPlainError` otherwise, before anything of it has run.

    Keys of dictionaries are texts or integers.  What a pickle refers to twice counts twice: one that refers
    to itself, or unfolds to more than `unfolded` entries, is refused.
    """
    machine, left = _Machine(), _MOST_INSTRUCTIONS
    try:
        for opcode, argument, at in genops(data):
            if opcode.name in _AGAIN:
                machine.again(cast("int", argument))
                continue
            if opcode.name == "STOP":
                return machine.result(unfolded)
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

    def result(self, most: int) -> Any:
        """The only value left, once it is known to unfold to at most so many entries."""
        (value,) = self._stack
        if _unfolded(value) > most:
            raise NotPlainError("pickle unfolds to more than any dump holds")
        return value

    def again(self, place: int) -> None:
        """Push what was made before."""
        self._stack.append(self._memo[place])

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


def _unfolded(value: Any) -> int:
    """Entries of a container and of all within it, each as often as it is referred to.

    `NotPlainError` where one holds itself.
    """
    sizes: dict[int, int | None] = {}  # of containers by their ids; None of one whose parts are being counted
    rest = [value]
    while rest:
        within = rest[-1]
        known = sizes.get(id(within), -1)
        if not isinstance(within, (dict, list, tuple)) or (known is not None and known >= 0):
            rest.pop()
            continue
        parts = [
            part
            for part in (within.values() if isinstance(within, dict) else within)
            if isinstance(part, (dict, list, tuple))
        ]
        if known is None:
            rest.pop()
            sizes[id(within)] = len(within) + sum(sizes[id(part)] or 0 for part in parts)
            continue
        sizes[id(within)] = None
        for part in parts:
            if sizes.get(id(part), -1) is None:
                raise NotPlainError("pickle holds an object that refers to itself")
            if id(part) not in sizes:
                rest.append(part)
    return sizes.get(id(value)) or 0


def rewrite_pickle(
    path: Path, target: Path | None, redactor: Redactor, *, unfolded: int = _MOST_INSTRUCTIONS
) -> None:
    """Rewrite a pickle as `Format.rewrite` does; `InputError` where it is damaged or holds more than data.

    What it refers to several times is rewritten and counted once for each key that it is the value of.
    """
    try:
        data = plain(whole(path, MOST_FILE_BYTES), unfolded=unfolded)
        new = _Rewriting(redactor).of(data, "")
    except NotPlainError as error:
        raise damaged(Path(shown(path)), str(error)) from None
    except RecursionError:
        raise damaged(Path(shown(path)), "is nested too deeply") from None
    with output(path, target) as write:
        write(pickle.dumps(new, protocol=_PROTOCOL))


class _Rewriting:
    """The same data with other texts, what was shared still shared."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._done: dict[tuple[int, str, str | None, str], Any] = {}

    def of(self, value: Any, place: str, kind: str | None = None, name: str = "") -> Any:
        """The value rewritten; `place` is the key whose value it is in, `kind` what that key says.

        `name` is a variable's, within an environment.
        """
        if not isinstance(value, (str, list, tuple, dict)):
            return self._rewritten(value, place, kind, name)
        key = (id(value), place, kind, name)
        if key not in self._done:
            self._done[key] = self._rewritten(value, place, kind, name)
        return self._done[key]

    def _rewritten(self, value: Any, place: str, kind: str | None, name: str) -> Any:
        new: str | None
        match value:
            case str() if kind is not None:
                new, counts = self._redactor.field(kind, value, name=name)
            case str():
                new, counts = self._redactor.text(value, place)
            case int() if kind == JOB:
                new, counts = None, Counter({JOB: 1})
            case list() | tuple():
                return type(value)(self.of(each, place, kind, name) for each in value)
            case dict():
                return {self.of(key, ""): self._of_key(str(key), held, kind) for key, held in value.items()}
            case _:
                return value
        self._redactor.count(place or "a key", counts)
        return new

    def _of_key(self, key: str, value: Any, within: str | None) -> Any:
        """The value of a key; `within` is what a key around all of it says."""
        if within is None:
            return self.of(value, key, self._redactor.kind_of_field(key))
        return self.of(value, key, within, key if within == ENVIRONMENT else "")

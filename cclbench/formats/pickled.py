# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain data: read without running anything, and rewritten with redacted texts.

A pickle is a program for a stack machine; `pickle.load` runs whatever it names.  This machine has only the
instructions that build plain data, and rejects the file at any other.

`pickle.Unpickler` with a `find_class` that rejects everything is not enough: in CPython 3.11 to 3.13 ten
bytes that store a value far away in the memo take gigabytes, and hashing a key of 200,000 nested tuples
(200 KB) crashes the process.  Detecting either beforehand takes a machine like this one.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pickletools import opcodes
from struct import Struct, error
from typing import Any, Final

from cclbench.formats.files import display_path, open_output
from cclbench.formats.rewriting import SOURCE_PATH, UNREAD, Redactor
from cclbench.formats.texts import damaged_error, read_whole

_NAMES: Final = {ord(opcode.code): opcode.name for opcode in opcodes}
_BYTE: Final = Struct("<B")
_NUMBERS: Final = {"BININT": "<i", "BININT1": "<B", "BININT2": "<H", "BINFLOAT": ">d"}
_PLACES: Final = {"BINPUT": _BYTE, "LONG_BINPUT": Struct("<I")}
_LEFT_OUT: Final = {"PROTO": 1, "FRAME": 8}
"""Instructions without data, and the bytes of their arguments."""
_GET: Final = b"h"
_LONG_GET: Final = b"j"
_GETS: Final = frozenset(_GET + _LONG_GET)
_AGAIN: Final = re.compile(rb"h.|j.{4}", re.DOTALL)
"""An instruction that pushes an object of the memo by its index: `BINGET`, `LONG_BINGET`."""
_RUN: Final = re.compile(rb"(?:h.|j.{4}){1,128}+", re.DOTALL)
"""A run of such instructions."""
_RUNS: Final = 1 << 16
"""Number of runs that are cached: stacks repeat."""
_STOP: Final = ord(".")
_KEYS: Final = {str, int, bool}
_CONTAINERS: Final = frozenset((dict, list, tuple))
_FEW: Final = 1000
"""Containers and memo entries that a pickle of any size may have."""
_CONTAINER_BYTES: Final = 16
"""Fewest bytes of a pickle for each further container; snapshots and dumps take 45 to 170.  In memory a
container takes up to 250 bytes, and as much while it is counted."""
_PLACE_BYTES: Final = 6
"""Fewest bytes of a pickle for each further memo entry; snapshots and dumps take 12 to 100."""
_UNFOLDED_SHARE: Final = 8
"""Most entries that a byte may unfold to; a stack of shared frames, two bytes, unfolds to five."""
_LEAST_UNFOLDED: Final = 100_000
_KEY_BITS: Final = 63
"""Longest integer key: any number of longer integers can have the same hash."""
_MOST_INSTRUCTIONS: Final = 10_000_000
"""Memo reads are not counted: stacks of frames consist mostly of them."""
BEGIN: Final = b"\x80"
"""The first byte of a pickle of protocol 2 and later."""
MOST_FILE_BYTES: Final = 1 << 28
"""A ring buffer of 2,000 collectives with stack frames takes about 20 MB, a snapshot of 100,000 allocations
as much."""
_CUT: Final = "pickle is cut: it has no end"
_PROTOCOL: Final = 2  # the recorder's own; every reader of pickles knows it


class NotPlainError(ValueError):
    """The pickle is damaged, or contains more than plain data."""


def most_containers(size: int) -> int:
    """Most lists, tuples and dictionaries that a pickle of this many bytes may contain."""
    return _FEW + size // _CONTAINER_BYTES


def load_plain(data: bytes, *, unfolded: int | None = None) -> Any:
    """The value of a pickle of plain data; `NotPlainError` for any other, before anything of it has run.

    Time and memory are bounded by its size: it has at most `most_containers`.  Keys of dictionaries are
    strings or integers of 64 bits.  An object that is referred to twice counts twice: a pickle that contains
    itself, or unfolds to more than `unfolded` entries (default: a number for each byte), is rejected.
    """
    if unfolded is None:
        unfolded = _LEAST_UNFOLDED + _UNFOLDED_SHARE * len(data)
    try:
        value = _Machine(data).run_pickle()
    except NotPlainError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError, error) as why:
        raise NotPlainError(f"pickle is damaged ({type(why).__name__})") from None
    _require_unfolded(value, unfolded)
    return value


def _decode_text(written: bytes) -> str:
    return written.decode("utf-8", "surrogatepass")


def _decode_integer(written: bytes) -> int:
    return int.from_bytes(written, "little", signed=True)


_Act = Callable[[int], int]
"""An instruction: from the offset of its argument to the offset of the next instruction."""


class _Machine:
    """Runs the instructions of a pickle on a stack and a memo."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[bytes, Any] = {}
        """Objects by the instructions that push them."""
        self._places = 0
        self._most_places = _FEW + len(data) // _PLACE_BYTES
        self._containers_left = most_containers(len(data))
        self._runs: dict[bytes, list[Any]] = {}

    def _instruction_table(self) -> dict[int, _Act]:
        """Instructions by their code."""
        acts: dict[str, _Act] = {
            **{name: self._number_operand(Struct(layout)) for name, layout in _NUMBERS.items()},
            "LONG1": self._sized_operand(_BYTE, _decode_integer),
            "SHORT_BINUNICODE": self._sized_operand(_BYTE, _decode_text),
            "BINUNICODE": self._sized_operand(Struct("<I"), _decode_text),
            "NONE": self._without_operand(lambda: self._stack.append(None)),
            "NEWTRUE": self._without_operand(lambda: self._stack.append(True)),
            "NEWFALSE": self._without_operand(lambda: self._stack.append(False)),
            "EMPTY_DICT": self._without_operand(lambda: self._push_container({})),
            "EMPTY_LIST": self._without_operand(lambda: self._push_container([])),
            "EMPTY_TUPLE": self._without_operand(lambda: self._stack.append(())),
            **{name: self._memo_operand(layout) for name, layout in _PLACES.items()},
            "MEMOIZE": self._without_operand(lambda: self._store_memo(self._places)),
            "BINGET": self._push_memo,
            "LONG_BINGET": self._push_memo,
            "MARK": self._without_operand(lambda: self._marks.append(len(self._stack))),
            "APPEND": self._without_operand(lambda: self._append_values(self._pop_values(1))),
            "APPENDS": self._without_operand(lambda: self._append_values(self._since_mark())),
            "SETITEM": self._without_operand(lambda: self._set_items(self._pop_values(2))),
            "SETITEMS": self._without_operand(lambda: self._set_items(self._since_mark())),
            "TUPLE": self._without_operand(lambda: self._push_container(tuple(self._since_mark()))),
            **{f"TUPLE{n}": self._without_operand(partial(self._push_tuple, n)) for n in (1, 2, 3)},
            **{name: partial(int.__add__, size) for name, size in _LEFT_OUT.items()},
        }
        return {code: acts[name] for code, name in _NAMES.items() if name in acts}

    def run_pickle(self) -> Any:
        """The value left on the stack; `NotPlainError` at an instruction that plain data does not use."""
        acts, at, budget = self._instruction_table(), 0, _MOST_INSTRUCTIONS
        while at < len(self._data):
            code = self._data[at]
            if code == _STOP:
                (value,) = self._stack
                return value
            act = acts.get(code)
            if act is None:
                raise NotPlainError(f"pickle holds more than data: instruction {_NAMES[code]} at byte {at:,}")
            at = act(at + 1)
            budget -= code not in _GETS
            if not budget:
                raise NotPlainError(f"pickle has more than {_MOST_INSTRUCTIONS:,} instructions")
        raise NotPlainError(_CUT)

    @staticmethod
    def _without_operand(do: Callable[[], object]) -> _Act:
        def run_act(at: int) -> int:
            do()
            return at

        return run_act

    def _number_operand(self, layout: Struct) -> _Act:
        def run_act(at: int) -> int:
            self._stack += layout.unpack_from(self._data, at)
            return at + layout.size

        return run_act

    def _sized_operand(self, layout: Struct, decode: Callable[[bytes], Any]) -> _Act:
        def run_act(at: int) -> int:
            (size,) = layout.unpack_from(self._data, at)
            begin = at + layout.size
            self._stack.append(decode(self._data[begin : begin + size]))
            return int(begin + size)

        return run_act

    def _memo_operand(self, layout: Struct) -> _Act:
        def run_act(at: int) -> int:
            self._store_memo(*layout.unpack_from(self._data, at))
            return at + layout.size

        return run_act

    def _push_memo(self, at: int) -> int:
        """Push objects of the memo, for this instruction and all such instructions that follow it."""
        run = _RUN.match(self._data, at - 1)
        if run is None:
            raise NotPlainError(_CUT)
        objects = self._runs.get(run[0])
        if objects is None:
            if len(self._runs) == _RUNS:
                self._runs.clear()
            objects = self._runs[run[0]] = [self._memo[get] for get in _AGAIN.findall(run[0])]
        self._stack += objects
        return run.end()

    def _push_container(self, container: Any) -> None:
        """Push a new container."""
        self._containers_left -= 1
        if self._containers_left < 0:
            raise NotPlainError("pickle has more lists and dictionaries than data of its size")
        self._stack.append(container)

    def _push_tuple(self, length: int) -> None:
        self._push_container(tuple(self._pop_values(length)))

    def _store_memo(self, place: int) -> None:
        """Store the top of the stack in the memo, for instructions of either length."""
        key = _LONG_GET + place.to_bytes(4, "little")
        if key in self._memo:
            self._runs.clear()
        else:
            self._places += 1
            if self._places > self._most_places:
                raise NotPlainError("pickle keeps more objects than data of its size")
        self._memo[key] = self._stack[-1]
        if place < 1 << 8:
            self._memo[_GET + place.to_bytes(1, "little")] = self._stack[-1]

    def _pop_values(self, count: int) -> list[Any]:
        """Remove and return the last `count` values."""
        if len(self._stack) < count:
            raise IndexError(count)
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def _since_mark(self) -> list[Any]:
        at = self._marks.pop()
        values = self._stack[at:]
        del self._stack[at:]
        return values

    def _append_values(self, values: list[Any]) -> None:
        top = self._stack[-1]
        if not isinstance(top, list):
            raise NotPlainError("pickle is damaged (items without a list)")
        top += values

    def _set_items(self, items: list[Any]) -> None:
        top = self._stack[-1]
        keys, values = items[::2], items[1::2]
        kinds = set(map(type, keys))
        if not isinstance(top, dict) or not kinds <= _KEYS:
            raise NotPlainError("pickle is damaged (items without a dictionary)")
        if int in kinds and any(type(key) is int and key.bit_length() > _KEY_BITS for key in keys):
            raise NotPlainError("pickle has an integer of more than 64 bits as a key")
        top.update(zip(keys, values, strict=True))


def _require_unfolded(value: Any, most: int) -> None:
    """`NotPlainError` if a container, or one in it, has more than `most` entries or contains itself.

    Entries of inner containers count as often as they are referred to.
    """
    sizes: dict[int, int] = {}  # of containers whose parts are counted, by their ids
    begun: set[int] = set()  # those whose parts are being counted
    pending = [value]
    while pending:
        container = pending[-1]
        if type(container) not in _CONTAINERS or id(container) in sizes:
            pending.pop()
            continue
        entries = container.values() if type(container) is dict else container
        parts = [part for part in entries if type(part) in _CONTAINERS]
        try:
            size = len(container) + sum(map(sizes.__getitem__, map(id, parts)))
        except KeyError:
            begun.add(id(container))
            unknown = [part for part in parts if id(part) not in sizes]
            if not begun.isdisjoint(map(id, unknown)):
                raise NotPlainError("pickle holds an object that refers to itself") from None
            pending += unknown
        else:
            if size > most:  # at once: sizes would grow without bound
                raise NotPlainError("pickle unfolds to more than any dump holds")
            sizes[id(container)] = size
            begun.discard(id(container))
            pending.pop()


def rewrite_pickle(
    path: Path,
    target: Path | None,
    redactor: Redactor,
    *,
    unfolded: int | None = None,
    withheld: Mapping[str, str] | None = None,
    shortened: Mapping[str, Callable[[str], str]] | None = None,
) -> None:
    """Rewrite a pickle as `Format.rewrite` does; `InputError` if it is damaged or more than plain data.

    Values of the keys in `withheld` become empty, texts of those in `shortened` are shortened.  An object
    that is referred to several times is rewritten and counted once for each key that it is the value of.
    """
    try:
        data = load_plain(read_whole(path, MOST_FILE_BYTES), unfolded=unfolded)
        new = _Rewriting(redactor, withheld or {}, shortened or {}).rewrite_value(data, "")
    except NotPlainError as error:
        raise damaged_error(Path(display_path(path)), str(error)) from None
    except RecursionError:
        raise damaged_error(Path(display_path(path)), "is nested too deeply") from None
    with open_output(path, target) as write:
        write(pickle.dumps(new, protocol=_PROTOCOL))


class _Rewriting:
    """Rewrites the texts of plain data; shared objects stay shared."""

    def __init__(
        self,
        redactor: Redactor,
        withheld: Mapping[str, str],
        shortened: Mapping[str, Callable[[str], str]],
    ) -> None:
        self._redactor, self._withheld, self._shortened = redactor, withheld, shortened
        self._done: dict[tuple[int, str], Any] = {}

    def rewrite_value(self, value: Any, place: str) -> Any:
        """The value rewritten; `place` is the key whose value contains it."""
        if not isinstance(value, (str, list, tuple, dict)):
            return value
        key = (id(value), place)
        if key not in self._done:
            self._done[key] = self._rewrite_new(value, place)
        return self._done[key]

    def _rewrite_new(self, value: str | list[Any] | tuple[Any, ...] | dict[Any, Any], place: str) -> Any:
        if isinstance(value, str):
            new, counts = self._redactor.text(value, place)
            self._redactor.count(place or "a key", counts)
            return new
        if isinstance(value, dict):
            return {
                self.rewrite_value(key, ""): self._rewrite_keyed_value(str(key), item)
                for key, item in value.items()
            }
        return type(value)(self.rewrite_value(item, place) for item in value)

    def _rewrite_keyed_value(self, key: str, value: Any) -> Any:
        """The value of a key rewritten."""
        holds = self._withheld.get(key) or (None if self._redactor.publishes(key) else UNREAD)
        if holds is not None and not self._redactor.reveals(key):
            if value:
                self._redactor.count(self._redactor.text(key)[0], {holds: 1})
            return type(value)() if isinstance(value, str | list | tuple | dict) else None
        if key in self._shortened and isinstance(value, str):
            short = self._shortened[key](value)
            self._redactor.count(key, {SOURCE_PATH: int(short != value)})
            value = short
        return self.rewrite_value(value, key)

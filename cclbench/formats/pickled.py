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
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pickletools import opcodes
from struct import Struct, error
from typing import Any, Final

from cclbench.formats.files import output, shown
from cclbench.formats.rewriting import ENVIRONMENT, JOB, SOURCE_PATH, Redactor
from cclbench.formats.texts import damaged, whole

_NAMES: Final = {ord(opcode.code): opcode.name for opcode in opcodes}
_BYTE: Final = Struct("<B")
_NUMBERS: Final = {"BININT": "<i", "BININT1": "<B", "BININT2": "<H", "BINFLOAT": ">d"}
_PLACES: Final = {"BINPUT": _BYTE, "LONG_BINPUT": Struct("<I")}
_LEFT_OUT: Final = {"PROTO": 1, "FRAME": 8}
"""Bytes of their arguments, which tell nothing of the data."""
_GET: Final = b"h"
_LONG_GET: Final = b"j"
_GETS: Final = frozenset(_GET + _LONG_GET)
_AGAIN: Final = re.compile(rb"h.|j.{4}", re.DOTALL)
"""An instruction that refers to an object made before, by its place in the memo: `BINGET`, `LONG_BINGET`."""
_RUN: Final = re.compile(rb"(?:h.|j.{4}){1,128}+", re.DOTALL)
"""Several of them."""
_RUNS: Final = 1 << 16
"""Of these, how many are remembered: stacks repeat."""
_STOP: Final = ord(".")
_KEYS: Final = {str, int, bool}
_CONTAINERS: Final = frozenset((dict, list, tuple))
_FEW: Final = 1000
"""Containers and references that a pickle of any size may have."""
_CONTAINER_BYTES: Final = 16
"""Of a pickle, at least, for each further container in it; snapshots and dumps take 45 to 170.  In memory one
takes up to 250, and as much while it is counted."""
_PLACE_BYTES: Final = 6
"""Of a pickle, at least, for each further object that is kept; snapshots and dumps take 12 to 100."""
_UNFOLDED_SHARE: Final = 8
"""Entries that each byte may unfold to; one of a stack of shared frames, of two bytes, does to five."""
_LEAST_UNFOLDED: Final = 100_000
_KEY_BITS: Final = 63
"""Of longer integers as many as one likes have the same hash."""
_MOST_INSTRUCTIONS: Final = 10_000_000
"""Those that refer to an object made before are not among them: stacks of frames are mostly made of them."""
BEGIN: Final = b"\x80"
"""The first byte of a pickle of protocol 2 and later."""
MOST_FILE_BYTES: Final = 1 << 28
"""Of a dump; a ring buffer of 2,000 collectives with their stack frames takes about 20 MB, a snapshot of
100,000 allocations as much."""
_CUT: Final = "pickle is cut: it has no end"
_PROTOCOL: Final = 2  # the recorder's own; every reader of pickles knows it


class NotPlainError(ValueError):
    """The pickle is damaged, or holds more than plain data."""


def most_containers(size: int) -> int:
    """How many lists, tuples and dictionaries a pickle of so many bytes may have."""
    return _FEW + size // _CONTAINER_BYTES


def plain(data: bytes, *, unfolded: int | None = None) -> Any:
    """What a pickle of plain data holds; `NotPlainError` otherwise, before anything of it has run.

    Time and memory are bounded by the bytes: there are `most_containers` of them.  Keys of dictionaries are
    texts or integers of 64 bits.  What a pickle refers to twice counts twice: one that refers to itself, or
    unfolds to more than `unfolded` entries (default: some for each byte), is refused.
    """
    if unfolded is None:
        unfolded = _LEAST_UNFOLDED + _UNFOLDED_SHARE * len(data)
    try:
        value = _Machine(data).run()
    except NotPlainError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError, error) as why:
        raise NotPlainError(f"pickle is damaged ({type(why).__name__})") from None
    _require_unfolded(value, unfolded)
    return value


def _text(written: bytes) -> str:
    return written.decode("utf-8", "surrogatepass")


def _integer(written: bytes) -> int:
    return int.from_bytes(written, "little", signed=True)


_Act = Callable[[int], int]
"""What an instruction does: from where its argument begins to where the next instruction does."""


class _Machine:
    """The instructions of a pickle, on a stack and a memo of what they made."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[bytes, Any] = {}
        """Objects by the instructions that refer to them."""
        self._places = 0
        self._most_places = _FEW + len(data) // _PLACE_BYTES
        self._containers_left = most_containers(len(data))
        self._runs: dict[bytes, list[Any]] = {}

    def _acts(self) -> dict[int, _Act]:
        """By the code of the instruction."""
        acts: dict[str, _Act] = {
            **{name: self._number(Struct(layout)) for name, layout in _NUMBERS.items()},
            "LONG1": self._sized(_BYTE, _integer),
            "SHORT_BINUNICODE": self._sized(_BYTE, _text),
            "BINUNICODE": self._sized(Struct("<I"), _text),
            "NONE": self._plain(lambda: self._stack.append(None)),
            "NEWTRUE": self._plain(lambda: self._stack.append(True)),
            "NEWFALSE": self._plain(lambda: self._stack.append(False)),
            "EMPTY_DICT": self._plain(lambda: self._hold({})),
            "EMPTY_LIST": self._plain(lambda: self._hold([])),
            "EMPTY_TUPLE": self._plain(lambda: self._stack.append(())),
            **{name: self._kept(layout) for name, layout in _PLACES.items()},
            "MEMOIZE": self._plain(lambda: self._keep(self._places)),
            "BINGET": self._again,
            "LONG_BINGET": self._again,
            "MARK": self._plain(lambda: self._marks.append(len(self._stack))),
            "APPEND": self._plain(lambda: self._append(self._top(1))),
            "APPENDS": self._plain(lambda: self._append(self._since_mark())),
            "SETITEM": self._plain(lambda: self._set(self._top(2))),
            "SETITEMS": self._plain(lambda: self._set(self._since_mark())),
            "TUPLE": self._plain(lambda: self._hold(tuple(self._since_mark()))),
            **{f"TUPLE{n}": self._plain(partial(self._tuple, n)) for n in (1, 2, 3)},
            **{name: partial(int.__add__, size) for name, size in _LEFT_OUT.items()},
        }
        return {code: acts[name] for code, name in _NAMES.items() if name in acts}

    def run(self) -> Any:
        """The only value left; `NotPlainError` at the first instruction that plain data has no use for."""
        acts, at, left = self._acts(), 0, _MOST_INSTRUCTIONS
        while at < len(self._data):
            code = self._data[at]
            if code == _STOP:
                (value,) = self._stack
                return value
            act = acts.get(code)
            if act is None:
                raise NotPlainError(f"pickle holds more than data: instruction {_NAMES[code]} at byte {at:,}")
            at = act(at + 1)
            left -= code not in _GETS
            if not left:
                raise NotPlainError(f"pickle has more than {_MOST_INSTRUCTIONS:,} instructions")
        raise NotPlainError(_CUT)

    @staticmethod
    def _plain(do: Callable[[], object]) -> _Act:
        def act(at: int) -> int:
            do()
            return at

        return act

    def _number(self, layout: Struct) -> _Act:
        def act(at: int) -> int:
            self._stack += layout.unpack_from(self._data, at)
            return at + layout.size

        return act

    def _sized(self, layout: Struct, made: Callable[[bytes], Any]) -> _Act:
        def act(at: int) -> int:
            (size,) = layout.unpack_from(self._data, at)
            begin = at + layout.size
            self._stack.append(made(self._data[begin : begin + size]))
            return int(begin + size)

        return act

    def _kept(self, layout: Struct) -> _Act:
        def act(at: int) -> int:
            self._keep(*layout.unpack_from(self._data, at))
            return at + layout.size

        return act

    def _again(self, at: int) -> int:
        """Push what was made before, for this instruction and all such ones that follow it."""
        run = _RUN.match(self._data, at - 1)
        if run is None:
            raise NotPlainError(_CUT)
        found = self._runs.get(run[0])
        if found is None:
            if len(self._runs) == _RUNS:
                self._runs.clear()
            found = self._runs[run[0]] = [self._memo[one] for one in _AGAIN.findall(run[0])]
        self._stack += found
        return run.end()

    def _hold(self, container: Any) -> None:
        """Push a new container."""
        self._containers_left -= 1
        if self._containers_left < 0:
            raise NotPlainError("pickle has more lists and dictionaries than data of its size")
        self._stack.append(container)

    def _tuple(self, length: int) -> None:
        self._hold(tuple(self._top(length)))

    def _keep(self, place: int) -> None:
        """Keep what was made last, for instructions of either length."""
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

    def _top(self, count: int) -> list[Any]:
        """The last so many values, taken."""
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

    def _append(self, values: list[Any]) -> None:
        top = self._stack[-1]
        if not isinstance(top, list):
            raise NotPlainError("pickle is damaged (items without a list)")
        top += values

    def _set(self, items: list[Any]) -> None:
        top = self._stack[-1]
        keys, values = items[::2], items[1::2]
        kinds = set(map(type, keys))
        if not isinstance(top, dict) or not kinds <= _KEYS:
            raise NotPlainError("pickle is damaged (items without a dictionary)")
        if int in kinds and any(type(key) is int and key.bit_length() > _KEY_BITS for key in keys):
            raise NotPlainError("pickle has an integer of more than 64 bits as a key")
        top.update(zip(keys, values, strict=True))


def _require_unfolded(value: Any, most: int) -> None:
    """`NotPlainError` where a container, or one within it, has more than so many entries, or holds itself.

    Entries of containers within count as often as they are referred to.
    """
    sizes: dict[int, int] = {}  # of containers whose parts are counted, by their ids
    begun: set[int] = set()  # those whose parts are being counted
    rest = [value]
    while rest:
        within = rest[-1]
        if type(within) not in _CONTAINERS or id(within) in sizes:
            rest.pop()
            continue
        held = within.values() if type(within) is dict else within
        parts = [part for part in held if type(part) in _CONTAINERS]
        try:
            size = len(within) + sum(map(sizes.__getitem__, map(id, parts)))
        except KeyError:
            begun.add(id(within))
            unknown = [part for part in parts if id(part) not in sizes]
            if not begun.isdisjoint(map(id, unknown)):
                raise NotPlainError("pickle holds an object that refers to itself") from None
            rest += unknown
        else:
            if size > most:  # at once: sizes of what unfolds without end have any number of digits
                raise NotPlainError("pickle unfolds to more than any dump holds")
            sizes[id(within)] = size
            begun.discard(id(within))
            rest.pop()


def rewrite_pickle(
    path: Path,
    target: Path | None,
    redactor: Redactor,
    *,
    unfolded: int | None = None,
    withheld: Mapping[str, str] | None = None,
    shortened: Mapping[str, Callable[[str], str]] | None = None,
) -> None:
    """Rewrite a pickle as `Format.rewrite` does; `InputError` where it is damaged or holds more than data.

    Values of the keys in `withheld` become empty, texts of those in `shortened` shorter.  What it refers to
    several times is rewritten and counted once for each key that it is the value of.
    """
    try:
        data = plain(whole(path, MOST_FILE_BYTES), unfolded=unfolded)
        new = _Rewriting(redactor, withheld or {}, shortened or {}).of(data, "")
    except NotPlainError as error:
        raise damaged(Path(shown(path)), str(error)) from None
    except RecursionError:
        raise damaged(Path(shown(path)), "is nested too deeply") from None
    with output(path, target) as write:
        write(pickle.dumps(new, protocol=_PROTOCOL))


class _Rewriting:
    """The same data with other texts, what was shared still shared."""

    def __init__(
        self,
        redactor: Redactor,
        withheld: Mapping[str, str],
        shortened: Mapping[str, Callable[[str], str]],
    ) -> None:
        self._redactor, self._withheld, self._shortened = redactor, withheld, shortened
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
        if key in self._withheld and not self._redactor.learns:
            if value:
                self._redactor.count(key, {self._withheld[key]: 1})
            return type(value)() if isinstance(value, str | list | tuple | dict) else None
        if within is None:
            new = self.of(value, key, self._redactor.kind_of_field(key))
        else:
            new = self.of(value, key, within, key if within == ENVIRONMENT else "")
        if key not in self._shortened or not isinstance(new, str):
            return new
        # What the folders tell of people is learnt before they are cut.
        short = self._shortened[key](new)
        self._redactor.count(key, {SOURCE_PATH: int(short != new)})
        return short

# SPDX-License-Identifier: Apache-2.0
"""Structure-aware damage to files: each mutator takes random numbers and bytes, and returns other bytes.

`mutate` draws from the `MUTATORS` of the file's kind and of any bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import pickletools
import re
import sqlite3
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

Mutator = Callable[[Random, bytes], bytes]

INTEGERS: Final = (
    0,
    -1,
    1,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
)
FLOATS: Final = (0.5, -0.0, 1e-320, 1e19, 1.7e308, float("inf"), float("-inf"), float("nan"))
TEXTS: Final = (
    "",
    "0",
    "-1",
    "NaN",
    "1e999",
    "\0",
    "../../x",
    "/etc/x",
    "a'b\"c;--",
    "=1+1",
    "\x1b[31m",
    "\u202e",
)
TEXTS_BEYOND: Final = ("é" * 300, "n" * 70_000, "\ud800", "9" * 5_000, "[" * 3_000, "%s{0}\r\n\u2028")
OTHERS: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], {"": None}, [1, "x"])
STRANGE: Final[tuple[Any, ...]] = (*INTEGERS, *FLOATS, *TEXTS, *TEXTS_BEYOND, *OTHERS)
PIECES: Final = (
    b"\0",
    b"\xff\xfe",
    b"\n",
    b'"',
    b"{",
    b"]",
    b",",
    b":",
    b"-",
    b"1e999",
    b"\x1f\x8b\x08",
    b"\xed\xa0\x80",
)


# --------------------------------------------------------------------------------------- any bytes


def flip(chance: Random, data: bytes) -> bytes:
    """A few bytes become others."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4) if changed else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(chance: Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: chance.randint(0, len(data))]


def remove(chance: Random, data: bytes) -> bytes:
    """A stretch is missing."""
    begin = chance.randint(0, len(data))
    return data[:begin] + data[begin + chance.randint(1, 64) :]


def repeat(chance: Random, data: bytes) -> bytes:
    """A stretch stands twice."""
    begin = chance.randint(0, len(data))
    end = begin + chance.randint(1, 2_000)
    return data[:end] + data[begin:end] + data[end:]


def insert(chance: Random, data: bytes) -> bytes:
    """Something is put in."""
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(PIECES) * chance.choice((1, 1, 1, 500)) + data[at:]


# -------------------------------------------------------------------------- trees: JSON and YAML


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value of a tree; of one that anchors share, once."""
    waiting, known = [tree], set[int]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict | list) and id(node) not in known:
            known.add(id(node))
            listed = list(node) if isinstance(node, dict) else range(len(node))
            yield from ((node, key) for key in listed)
            waiting += node.values() if isinstance(node, dict) else node


def _other(chance: Random, value: Any) -> Any:
    """A value near the old one, or a strange one."""
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.4:
        return chance.choice(
            (-value, value + 1, value - 1, value * 2, value * 1_000_000, value / 3, str(value))
        )
    return chance.choice(STRANGE)


def change_tree(chance: Random, tree: Any) -> Any:
    """One value of a tree changes, goes, stands twice, moves under another key or sinks deep."""
    places = list(_places(tree))
    if not places:
        return chance.choice(STRANGE)
    within, key = chance.choice(places)
    match chance.randrange(7):
        case 0 | 1 | 2:
            within[key] = _other(chance, within[key])
        case 3:
            del within[key]
        case 4 if isinstance(within, list):
            within[key:key] = [within[key]] * chance.choice((1, 1, 50))
        case 5 if isinstance(within, dict):
            within[chance.choice((*map(str, within), *TEXTS))] = within.pop(key)
        case _:
            other, place = chance.choice(places)
            within[key] = json.loads(json.dumps(other.get(place) if isinstance(other, dict) else other[:3]))
    return tree


def change_json(chance: Random, data: bytes) -> bytes:
    """A value of a JSON document."""
    return json.dumps(change_tree(chance, json.loads(data))).encode()


def change_yaml(chance: Random, data: bytes) -> bytes:
    """A value of a YAML document."""
    if b"*" in data:  # written out, what aliases stand for may not fit into memory
        raise ValueError("a document with aliases")
    changed = change_tree(chance, yaml.safe_load(data))
    return yaml.safe_dump(changed, sort_keys=False, allow_unicode=True).encode("utf-8", "replace")


def twist_yaml(chance: Random, data: bytes) -> bytes:
    """Notation that only YAML has: anchors, tags, merges, several documents, keys twice, tabs."""
    bomb = b"a: &a [x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 8)) for c in range(98, 106)
    )
    first = data.split(b"\n", 1)[0]
    tricks = (
        bomb,
        b"---\n",
        first + b"\n",
        b"<<: *x\n",
        b"x: !!python/object:os.system [ls]\n",
        b"\tx: 1\n",
        b"? [a]\n: 1\n",
        b"x: 0o17\n",
        b"x: 1:30\n",
        b"x: &x [*x]\n",
        b"? " * 900 + b"\n",
    )
    lines = data.split(b"\n")
    lines.insert(chance.randint(0, len(lines)), chance.choice(tricks).rstrip(b"\n"))
    return b"\n".join(lines)


def change_json_lines(chance: Random, data: bytes) -> bytes:
    """A value of one of several JSON documents."""
    lines = data.splitlines()
    at = chance.randrange(len(lines))
    lines[at] = change_json(chance, lines[at])
    return b"\n".join(lines) + b"\n"


# ------------------------------------------------------------------------------------------- text


def change_lines(chance: Random, data: bytes) -> bytes:
    """Lines go, stand twice, change places, or lose what ends them."""
    lines = data.splitlines(keepends=True) or [b""]
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[one]
        case 1:
            lines[one:one] = [lines[other]] * chance.choice((1, 1, 300))
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case 3:
            lines[one] = lines[one].rstrip()
        case _:
            lines[one] = lines[one][: chance.randint(0, len(lines[one]))]
    return b"".join(lines)


def change_word(chance: Random, data: bytes) -> bytes:
    """A word or number of a text becomes another, often a number beyond reason."""
    separator = chance.choice((b" ", b",", b":", b"="))
    words = data.split(separator)
    words[chance.randrange(len(words))] = str(
        chance.choice((*INTEGERS, *FLOATS, *TEXTS, "9" * 5_000))
    ).encode()
    return separator.join(words)


# ----------------------------------------------------------------------------------------- SQLite


def change_database(chance: Random, data: bytes) -> bytes:
    """A cell, row, column, table or index of a database."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(data)
        kinds = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        table = _quoted(chance.choice(sorted(kinds))[0])
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = _quoted(chance.choice(columns))
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")] or [0]  # noqa: S608
        at = (chance.choice(rows),)
        value = chance.choice((*INTEGERS, *FLOATS, *TEXTS, *TEXTS_BEYOND[:2], b"\0\xff", None))
        value = float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value
        chosen = chance.choice(
            (
                (f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, *at)),  # noqa: S608
                (f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, *at)),  # noqa: S608
                (f"UPDATE {table} SET {column} = -{column} WHERE rowid = ?", at),  # noqa: S608
                (f"UPDATE {table} SET {column} = ?", (value,)),  # noqa: S608
                (f"DELETE FROM {table} WHERE rowid = ?", at),  # noqa: S608
                (f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = ?", at),  # noqa: S608
                (f"ALTER TABLE {table} DROP COLUMN {column}", ()),
                (f"ALTER TABLE {table} RENAME COLUMN {column} TO {_quoted(chance.choice(TEXTS[1:]))}", ()),
                (f"DROP TABLE {table}", ()),
            )
        )
        connection.execute(*chosen)
        return connection.serialize()


def table_becomes_view(chance: Random, data: bytes) -> bytes:
    """A table that never ends stands in for one of a database."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(data)
        kinds = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        table = chance.choice(sorted(kinds))[0]
        connection.execute(f"ALTER TABLE {_quoted(table)} RENAME TO was")
        body = (
            "SELECT * FROM was"
            if chance.random() < 0.5
            else ("WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT was.* FROM was, r")
        )
        connection.execute(f"CREATE VIEW {_quoted(table)} AS {body}")
        return connection.serialize()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


# --------------------------------------------------------------------------------------- protobuf

Field = tuple[int, int, Any]
"""Number, wire type, value: an integer, or bytes."""


def varint(value: int) -> bytes:
    """Protobuf's encoding of an integer."""
    value &= 2**64 - 1
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def fields(message: bytes) -> list[Field]:
    """The fields of a message; `ValueError` where it is none."""
    found: list[Field] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError("no varint")
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value

    while at < len(message):
        tag = number()
        wire, size = tag & 7, {1: 8, 5: 4}.get(tag & 7)
        if wire == 0:
            found.append((tag >> 3, wire, number()))
            continue
        size = number() if wire == 2 else size
        if size is None or tag >> 3 == 0 or at + size > len(message):
            raise ValueError("no message")
        found.append((tag >> 3, wire, message[at : at + size]))
        at += size
    return found


def message_of(listed: list[Field]) -> bytes:
    """The bytes of a message with those fields."""
    parts = []
    for number, wire, value in listed:
        tag = varint(number << 3 | wire)
        parts.append(
            tag + (varint(value) if wire == 0 else varint(len(value)) + value if wire == 2 else value)
        )
    return b"".join(parts)


def change_message(chance: Random, data: bytes) -> bytes:
    """A field of a protobuf message, at any depth."""
    listed = fields(data)
    at = chance.randrange(len(listed))
    number, wire, value = listed[at]
    if wire == 2 and value and chance.random() < 0.85:
        try:
            listed[at] = (number, wire, change_message(chance, value))
            return message_of(listed)
        except (ValueError, IndexError):
            pass  # a text, or packed numbers
    match chance.randrange(6):
        case 0:
            del listed[at]
        case 1:
            listed[at:at] = [listed[at]] * chance.choice((1, 1, 200))
        case 2:
            listed[at] = (chance.choice((number + 1, max(number - 1, 1), 2**28)), wire, value)
        case 3 if wire == 0:
            listed[at] = (number, wire, chance.choice((*INTEGERS, value + 1, value - 1, value * 1_000_000)))
        case 4 if wire == 0:
            listed[at] = (number, 2, varint(value))
        case _:
            text = chance.choice((*TEXTS, *TEXTS_BEYOND[:2])).encode() + b"\xff" * chance.randrange(2)
            listed[at] = (number, 2, text)
    return message_of(listed)


# ------------------------------------------------------------------------ Parquet, gzip, archives


def change_table(chance: Random, data: bytes) -> bytes:
    """A value, column, type or row of a Parquet table."""
    table = pq.read_table(io.BytesIO(data))
    at = chance.randrange(table.num_columns)
    field, column = table.schema.field(at), table.column(at)
    match chance.randrange(7):
        case 0:
            table = table.remove_column(at)
        case 1:
            table = table.rename_columns(
                [*table.column_names[:at], chance.choice(TEXTS), *table.column_names[at + 1 :]]
            )
        case 2:
            table = table.set_column(at, field.name, pa.nulls(len(table), field.type))
        case 3:
            table = table.set_column(
                at, field.name, pa.array(list(map(str, column.to_pylist())), pa.string())
            )
        case 4:
            table = pa.concat_tables([table] * 2) if chance.random() < 0.7 else table.slice(0, 0)
        case 5:
            table = table.append_column(chance.choice((field.name, "x")), column)
        case _:
            values = column.to_pylist() or [None]
            values[chance.randrange(len(values))] = chance.choice((*INTEGERS[:9], *FLOATS, *TEXTS, None))
            table = table.set_column(at, field.name, pa.array(values, field.type))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def inside_gzip(chance: Random, data: bytes) -> bytes:
    """What a gzip stream holds, as a file of the kind that it is."""
    content = gzip.decompress(data)
    kind = change_json if content[:1] in b"[{" else change_lines
    return gzip.compress(kind(chance, content), 1)


def around_gzip(chance: Random, data: bytes) -> bytes:
    """A second stream, a comment, zeros or rubbish about a gzip stream."""
    more = chance.choice(
        (gzip.compress(b"{}"), b"\0" * 100, b"rubbish", data, gzip.compress(b"x" * 3_000_000))
    )
    return chance.choice((data + more, more + data, data[:3] + bytes([chance.randrange(256)]) + data[4:]))


NAMES: Final = (
    "../x",
    "/x",
    "a/../../x",
    "",
    ".",
    "a\\b",
    "C:x",
    "n" * 300,
    "d/" * 40 + "x",
    "\u202ex",
    "manifest.json",
    "a\nb",
)


def change_zip(chance: Random, data: bytes) -> bytes:
    """A member's name, kind, size or number of copies in a ZIP archive."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as new:
        members = old.infolist()
        odd = chance.randrange(len(members))
        for at, member in enumerate(members):
            told, content = zipfile.ZipInfo(member.filename), old.read(member)
            if at == odd:
                told.filename = chance.choice((*NAMES, member.filename))
                told.external_attr = (
                    chance.choice((stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, 0, 0xFFFF)) << 16
                )
                told.extra, told.comment = (
                    chance.choice((b"", b"\1\0\2\0xy")),
                    b"c" * chance.choice((0, 60_000)),
                )
                content = chance.choice((content, b"", b"\0" * 20_000_000, content * 3))
            with warnings.catch_warnings(action="ignore"):  # of a name that is there twice
                new.writestr(told, content, zipfile.ZIP_DEFLATED)
    return sink.getvalue()


def change_tar(chance: Random, data: bytes) -> bytes:
    """A member's name, kind or size in a tar archive."""
    sink = io.BytesIO()
    form = chance.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=sink, mode="w", format=form) as new,
    ):
        members = old.getmembers()
        odd = chance.randrange(len(members))
        for at, member in enumerate(members):
            content = old.extractfile(member)
            if at == odd:
                member.name = chance.choice((*NAMES, member.name))
                member.type = chance.choice(
                    (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.REGTYPE, b"S", b"z")
                )
                member.linkname = chance.choice(NAMES)
                member.pax_headers = chance.choice(
                    ({}, {"size": "9" * 30}, {"path": "../x"}, {"GNU.sparse.map": "1,x"})
                )
            new.addfile(member, content)
    return sink.getvalue()


_MOST_SWOLLEN: Final = 4 << 20
"""Bytes of those."""
_MARK: Final = "<varied>"
_LARGE: Final = 1 << 19
"""Bytes from which a file is not mutated further."""
SWOLLEN: Final = 20_000
"""How many of a thing a mutator makes: what takes time or memory by its square takes too much of either."""


def swell_json(chance: Random, data: bytes) -> bytes:
    """One row of a document's longest list many times, each with another value of some of its fields."""
    tree = json.loads(data)
    lists = [tree, *(held[key] for held, key in _places(tree))]
    rows = max((one for one in lists if isinstance(one, list)), key=len)
    row = json.loads(json.dumps(chance.choice([one for one in rows if isinstance(one, dict)])))
    size, places = len(json.dumps(row)), list(_places(row))
    varied = chance.sample(places, min(len(places), chance.choice((1, 1, 2, 3))))
    starts = [held[key] for held, key in varied]
    for mark, (held, key) in enumerate(varied):
        held[key] = f"{_MARK}{mark}"
    rows.append(_MARK)
    before, after = json.dumps(tree).split(f'"{_MARK}"')
    # The row's text is cut once where a value varies: to encode every copy takes a hundred times as long.
    parts = re.split(f'"{_MARK}([012])"', json.dumps(row))
    copies = []
    for number in range(min(SWOLLEN, _MOST_SWOLLEN // size)):
        values = [json.dumps(_numbered(start, number)) for start in starts]
        copies.append("".join(values[int(part)] if at % 2 else part for at, part in enumerate(parts)))
    return f"{before}{', '.join(copies)}{after}".encode()


def _numbered(value: Any, number: int) -> Any:
    """Another value for each number, if it is a text or a number."""
    if isinstance(value, str):
        return f"{value}{number}"
    return value + number if isinstance(value, int | float) else value


def swell_pickle(chance: Random, data: bytes) -> bytes:
    """A value of a pickle becomes one of many containers: nested, side by side, shared or doubled."""
    kept = b"]q\xff"
    value = chance.choice(
        (
            b"]" * SWOLLEN + b"a" * (SWOLLEN - 1),
            b"(" + b"}" * SWOLLEN + b"t",
            b"N" + b"\x85" * SWOLLEN,
            (b"](" + b"N" * 16) * SWOLLEN + b"e" * SWOLLEN,
            b"N" + b"\x94" * SWOLLEN,
            b"](" + kept + (b"h\xff\x86q\xff" * SWOLLEN) + b"e",
            b"](" + kept + b"h\xff" * SWOLLEN + b"e",
            b"}("
            + b"".join(b"\x8a\x0b" + (n * (2**61 - 1)).to_bytes(11, "little") + b"N" for n in range(SWOLLEN))
            + b"u",
        )
    )
    codes = list(pickletools.genops(data))
    scalars = [
        at for at, (code, _, _) in enumerate(codes) if code.name in ("NONE", "NEWTRUE", "BININT1", "BININT")
    ]
    at = chance.choice(scalars)
    return data[: codes[at][2]] + value + data[codes[at + 1][2] :]


MUTATORS: Final[dict[str, tuple[Mutator, ...]]] = {
    "bytes": (flip, cut, remove, repeat, insert),
    "json": (*[change_json] * 31, swell_json),
    "pickle": (swell_pickle, flip, repeat, insert),
    "jsonl": (change_json_lines, change_lines),
    "yaml": (change_yaml, twist_yaml, change_lines),
    "text": (change_lines, change_word),
    "sqlite": (change_database, change_database, change_database, table_becomes_view),
    "pb": (change_message,),
    "parquet": (change_table,),
    "gz": (inside_gzip, inside_gzip, around_gzip),
    "zip": (change_zip,),
    "tar": (change_tar,),
}
"""Mutators by kind of file."""


BEGINNINGS: Final = {
    b"SQLite format 3\0": "sqlite",
    b"[\n{": "json",
    b'{"': "jsonl",
    b"\x80": "pickle",
    b"\n": "pb",
}
"""Kind of a file without a suffix of its kind, by its first bytes; a protobuf's first field is a message."""


def kind_of(name: str, data: bytes) -> str:
    """The kind of a file, by its name or its first bytes."""
    suffix = name.rpartition(".")[2]
    known = (kind for begin, kind in BEGINNINGS.items() if data.startswith(begin))
    return suffix if suffix in MUTATORS else next(known, "text")


def mutate(chance: Random, name: str, data: bytes) -> bytes:
    """The file after one to four mutations; what its kind's mutators cannot parse is mutated as bytes."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        if len(data) > _LARGE:
            break
        kind = kind_of(name, data) if chance.random() < 0.85 else "bytes"
        state = chance.getrandbits(64)
        try:
            data = chance.choice(MUTATORS[kind])(Random(state), data)  # noqa: S311
        except Exception:  # noqa: BLE001 - what earlier mutations left fits no structure
            data = chance.choice(MUTATORS["bytes"])(Random(state), data)  # noqa: S311
    return data

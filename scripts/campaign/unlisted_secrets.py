# SPDX-License-Identifier: Apache-2.0
"""Plant secrets of kinds that no rule names in every text position of a file of every reader.

`unlisted_secrets.py --seed 1` takes small files of every registered reader, puts a secret into, behind and
before texts of each (keys, values, names, columns, cells, comments, bytes that no reader sees, the file's
name), redacts each variant, and searches it in plain and encoded forms.  It prints what survived; the exit
code is 1 if anything did, or a reader has no file here.  `--half` takes one of two parts of the kinds,
`--kinds` another list of them.

Two outcomes are counted apart.  "replaced a figure": a secret of digits alone was written over a number in a
text, so that it is the value of a figure that a reader reads, such as a time or a count of bytes; nothing can
tell it from one, and it is published.  "refused by its reader": the copy has it, but the reader refuses the
original, such as a table whose row has a cell too many; `contribute` reads all originals first and publishes
nothing.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import importlib
import json
import pickle
import random
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

FOLDER: Final = Path(__file__).resolve().parent
sys.path.append(str(FOLDER))
from secret_classes import draw  # noqa: E402
from seeds import event_file, seeds, wandb_file  # noqa: E402

sys.path.remove(str(FOLDER))
if str(FOLDER) in sys.path:  # this folder's files are called like modules that Python has
    sys.path.remove(str(FOLDER))

from cclbench.contribute import redaction  # noqa: E402
from cclbench.formats import READERS  # noqa: E402
from cclbench.formats.files import read_head  # noqa: E402
from cclbench.formats.pickled import load_plain  # noqa: E402
from cclbench.formats.recognition import recognise_head  # noqa: E402
from cclbench.formats.xplane.proto import find_planes, message_class, parse_plane  # noqa: E402
from cclbench.ground.errors import InputError  # noqa: E402

REFUSED: Final = ("timeline", "nsys_tables", "otf2", "neuron", "perfetto", "xla_json")
"""Readers whose files a data point cannot contain."""
_SHORTEST_PIECE: Final = 5
_BY_HALVES: Final = 20261127
_TEXT: Final = re.compile(r"[^\s,;=()\[\]{}\"]+")
_FIGURE: Final = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?", re.ASCII)
Planting = Callable[[str, str], str]
PLANTINGS: Final[tuple[Planting, ...]] = (
    lambda _, secret: secret,
    lambda text, secret: f"{text} {secret}",
    lambda text, secret: f"{text}_{secret}",
    lambda text, secret: f"{secret}/{text}",
    lambda text, secret: f"{text} {base64.b64encode(secret.encode()).decode()}",
)


_BEGINNINGS: Final = (
    *("", "", "", "", "gs://", "s3://", "https://", "/scratch/", "~/", "@", "node-", "hdfs://", "C:\\\\"),
    *("user=", "+", "#", "by ", "exp ", "von ", "проект "),
)
_SEPARATORS: Final = ("-", "_", ".", "/", ":", " ", "@", "::", "", ", ")
_PARTS: Final = (
    *("<letters:{}>", "<digit:{}>", "<alnum:{}>", "<hex:{}>", "<upper:{}>", "<loweralnum:{}>", "<base32:{}>"),
    *("<name>", "<Name>", "kernel", "fused_attention", "gemm", "sm90", "step", "forward", "straße", "研究"),
    *("данные", "año", "rank0", "void", "train", "128x128", "v2", "com", "internal", "home"),
)
"""What a composed kind has: drawn parts, and words as kernels, steps, hosts and other languages have them."""


def kinds(half: str | None = None, listing: Path = FOLDER / "secret_kinds.txt") -> dict[str, str]:
    """Templates by kind: all, or those `held-back` (60 of them) or not (`building`)."""
    lines = listing.read_text(encoding="utf-8").splitlines()
    listed = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
    if half is None:
        return listed
    held_back = set(random.Random(_BY_HALVES).sample(sorted(listed), 60))  # noqa: S311 - no real secrets
    return {kind: t for kind, t in listed.items() if (kind in held_back) is (half == "held-back")}


def composed_kinds(seed: int, count: int) -> dict[str, str]:
    """Templates composed by chance of a beginning, 1 to 4 parts and a separator: nobody has seen them."""
    rng = random.Random(seed)  # noqa: S311 - no real secrets
    composed = {}
    while len(composed) < count:
        parts = [rng.choice(_PARTS) for _ in range(rng.randint(1, 4))]
        filled = [part.format(rng.randint(5, 12)) if "{" in part else part for part in parts]
        template = rng.choice(_BEGINNINGS) + rng.choice(_SEPARATORS).join(filled)
        if "<" in template:
            composed[f"composed {template}"] = template
    return composed


def drawn(template: str, rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """A secret of a template, and the parts of it that were drawn: those may be found nowhere."""
    parts = list[str]()

    def draw_part(match: re.Match[str]) -> str:
        parts.append(draw(match[0], rng))
        return parts[-1]

    text = re.sub(
        r"<\w+(?::\d+)?>",
        draw_part,
        template.encode().decode("unicode_escape") if "\\" in template else template,
    )
    telling = tuple(part for part in parts if len(part) >= _SHORTEST_PIECE)
    return text, telling or (text,)


def forms(piece: str) -> Iterator[bytes]:
    """A piece of a secret as other programs write it."""
    raw = piece.encode()
    yield from (raw, raw.hex().encode(), quote(piece, safe="").encode(), raw[::-1])
    yield from (piece.encode("utf-16-le"), json.dumps(piece)[1:-1].encode())
    for by, skip in ((0, 0), (1, 4), (2, 4)):
        encoded = base64.b64encode(bytes(by) + raw)[skip:-4]
        if len(encoded) > _SHORTEST_PIECE:
            yield encoded


def is_in(pieces: tuple[str, ...], data: bytes, name: str) -> bool:
    """Whether any piece is in a file's bytes, decompressed, or in its name."""
    data += gzip.decompress(data) if data[:2] == b"\x1f\x8b" else b""
    data = (data + name.encode()).lower()
    return any(form.lower() in data for piece in pieces for form in forms(piece))


def samples() -> dict[str, list[tuple[str, bytes]]]:
    """Small files by the reader that recognises them."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    listed = [s.files for name, all_ in seeds().items() if name not in _NO_EVIDENCE for s in all_]
    with tempfile.TemporaryDirectory() as folder:
        for files in listed:
            for name, content in files.items():
                path = Path(folder) / Path(name).name
                path.write_bytes(content)
                reader = _recognised(path)
                if reader is not None and len(content) < 100_000 and len(found.get(reader, [])) < 4:
                    found.setdefault(reader, []).append((path.name, content))
    return found


_NO_EVIDENCE: Final = ("card", "catalog", "stored-run", "zip", "tar", "tar.gz", "mlperf", "leaderboard")


def _recognised(path: Path) -> str | None:
    try:
        reader, _ = recognise_head(path, read_head(path))
    except InputError:
        return None
    return None if reader is None else reader.name


def variants(content: bytes) -> Iterator[Callable[[str, Planting], bytes]]:  # noqa: C901 - by kind of file
    """Writers of the file with a secret at one position each."""
    if content[:2] == b"\x1f\x8b":
        for write in variants(gzip.decompress(content)):
            yield lambda secret, plant, write=write: gzip.compress(write(secret, plant))
    elif content == event_file("loss"):
        yield lambda secret, plant: event_file(plant("loss", secret))
    elif content == wandb_file("train/loss", 2.0):
        yield lambda secret, plant: wandb_file(plant("loss", secret), 2.0)
        yield lambda secret, plant: wandb_file("note", plant("loss", secret))
    elif content[:6] == b"SQLite":
        yield from _database_plantings(content)
    elif content[:1] == b"\x80":
        value = load_plain(content)
        for i in range(_count_texts(value)):
            yield lambda secret, plant, i=i: pickle.dumps(_planted(value, i, secret, plant), 2)
        yield lambda secret, _: content + secret.encode()
    elif (planes := _planes_of(content)) is not None:
        yield from _plane_plantings(content, planes)
    elif (documents := _documents(content)) is not None:
        for at, document in enumerate(documents[:3]):
            for i in range(_count_texts(document)):
                yield lambda secret, plant, at=at, i=i: b"\n".join(
                    json.dumps(
                        _planted(d, i, secret, plant) if n == at else d, ensure_ascii=bool(i % 2)
                    ).encode()
                    for n, d in enumerate(documents)
                )
    elif b"\0" in content:
        for match in re.finditer(rb"[ -~]{3,}", content):
            yield lambda secret, _, m=match: content[: m.start()] + secret.encode() + content[m.end() :]
    else:
        text = content.decode()
        for match in _TEXT.finditer(text):
            yield lambda secret, plant, m=match: (
                text[: m.start()] + plant(m[0], secret) + text[m.end() :]
            ).encode()
        for match in re.finditer(r"^", text, re.MULTILINE):
            for begin in ("", "# ", "// "):
                yield lambda secret, _, m=match, begin=begin: (
                    text[: m.start()] + f"{begin}{secret}\n" + text[m.start() :]
                ).encode()


def _documents(content: bytes) -> list[Any] | None:
    try:
        return [json.loads(content)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except ValueError:
        return None


def _count_texts(value: Any) -> int:
    """Places of a value: its texts, its keys, and a new key for each object."""
    if isinstance(value, dict):
        return 2 + sum(1 + _count_texts(item) for item in value.values())
    if isinstance(value, list | tuple):
        return 1 + sum(map(_count_texts, value))
    return int(isinstance(value, str))


def _planted(value: Any, at: int, secret: str, plant: Planting) -> Any:
    """The value with a secret at its place number `at`."""
    if isinstance(value, dict):
        if at == 0:
            return {**value, "note": plant("a note", secret), "notes": [secret, {"deep": {"er": secret}}]}
        if at == 1:
            return {**value, secret: 1}
        at -= 2
        new = {}
        for key, item in value.items():
            count = 1 + _count_texts(item)
            if at == 0 and isinstance(key, str):
                new[plant(key, secret)] = item
            else:
                new[key] = _planted(item, at - 1, secret, plant) if 0 < at < count else item
            at -= count
        return new
    if isinstance(value, list | tuple):
        if at == 0:
            return type(value)([*value, secret])
        at, items = at - 1, []
        for item in value:
            count = _count_texts(item)
            items.append(_planted(item, at, secret, plant) if 0 <= at < count else item)
            at -= count
        return type(value)(items)
    return plant(value, secret) if isinstance(value, str) else value


def _database_plantings(content: bytes) -> Iterator[Callable[[str, Planting], bytes]]:
    def changed(*statements: tuple[str, tuple[object, ...]]) -> bytes:
        with closing(sqlite3.connect(":memory:")) as base:
            base.deserialize(content)
            for sql, values in statements:
                base.execute(sql, values)
            base.commit()
            return bytes(base.serialize())

    with closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(content)
        tables = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            yield lambda s, _, t=table: changed(
                (f'ALTER TABLE "{t}" ADD COLUMN "{s.replace(chr(34), "")}" TEXT', ())
            )
            yield lambda s, _, t=table: changed(
                (f'ALTER TABLE "{t}" ADD COLUMN note TEXT', ()),
                (f'UPDATE "{t}" SET note = ?', (s,)),  # noqa: S608 - own names
            )
            for column in [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]:
                kind = f"typeof(\"{column}\") IN ('text', 'blob')"
                sql = f'SELECT rowid, "{column}" FROM "{table}" WHERE {kind} LIMIT 12'  # noqa: S608 - own names
                for row, old in base.execute(sql).fetchall():
                    yield lambda s, p, t=table, c=column, r=row, o=old: changed(
                        (
                            f'UPDATE "{t}" SET "{c}" = ? WHERE rowid = ?',  # noqa: S608 - own names
                            (p(o, s) if isinstance(o, str) else b"\0\1" + s.encode() + b"\xff", r),
                        )
                    )
    yield lambda s, _: changed((f'CREATE TABLE "{s.replace(chr(34), "")}" (a TEXT)', ()))
    yield lambda s, _: changed((f"CREATE TABLE NOTES (a TEXT DEFAULT '{s.replace(chr(39), '')}')", ()))
    yield lambda s, _: changed(
        ("PRAGMA secure_delete = OFF", ()),
        ("CREATE TABLE GONE (a)", ()),
        ("INSERT INTO GONE VALUES (?)", (s,)),
        ("DROP TABLE GONE", ()),
    )


def _planes_of(content: bytes) -> list[Any] | None:
    with tempfile.NamedTemporaryFile(suffix=".pb") as file:
        file.write(content)
        file.flush()
        try:
            return [parse_plane(Path(file.name), plane) for plane in find_planes(Path(file.name)).planes]
        except InputError:
            return None


def _plane_plantings(content: bytes, planes: list[Any]) -> Iterator[Callable[[str, Planting], bytes]]:
    files = importlib.import_module("helpers.xplane_files")

    def sized(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2]) + files.varint(len(value)) + value

    for number, plane in enumerate(planes):
        for i in range(len(list(_holders(plane)))):

            def write(secret: str, plant: Planting, i: int = i, number: int = number) -> bytes:
                copies = [message_class().FromString(p.SerializeToString()) for p in planes]
                holder, field = list(_holders(copies[number]))[i]
                old = getattr(holder, field)
                new = secret.encode() + old if isinstance(old, bytes) else plant(old, secret)
                setattr(holder, field, new)
                return b"".join(sized(1, p.SerializeToString()) for p in copies)

            yield write
    for number in (2, 3, 4, 15):
        yield lambda secret, _, number=number: content + sized(number, secret.encode())


def _holders(plane: Any) -> Iterator[tuple[Any, str]]:
    """Every message with a text, and the text's field."""
    yield plane, "name"
    stats = [*plane.stats]
    for entry in plane.stat_metadata:
        yield from ((entry.value, field) for field in ("name", "description"))
    for entry in plane.event_metadata:
        yield from ((entry.value, field) for field in ("name", "display_name", "metadata"))
        stats += entry.value.stats
    for line in plane.lines:
        yield from ((line, field) for field in ("name", "display_name"))
        stats += (stat for event in line.events for stat in event.stats)
    for stat in stats:
        if (value := stat.WhichOneof("value")) in ("str_value", "bytes_value"):
            yield stat, value


class Exam:
    """Plants secrets of `templates`: `counts` by what became of them, a line for each of `survivors`."""

    def __init__(self, templates: dict[str, str], seed: int) -> None:
        self._templates, self._rng = templates, random.Random(seed)  # noqa: S311 - no real secrets
        self.counts, self.survivors = Counter[str](), list[str]()

    def run(self, most: int) -> None:
        """Of each reader's file at most `most` positions, and at least one for each kind."""
        files, rng = samples(), self._rng
        self.survivors += [f"{name}: has no file here" for name in READERS if name not in (*files, *REFUSED)]
        for _, examples in sorted(files.items()):
            order = sorted(self._templates)
            rng.shuffle(order)
            turn, plantings = cycle(order), cycle(PLANTINGS)
            for name, content in examples:
                writers = list(variants(content))
                for write in rng.sample(writers, most) if len(writers) > most else writers:
                    self._plant(name, content, write, next(turn), next(plantings))
            name, content = examples[0]
            writers = list(variants(content))
            for kind in order:  # each kind through each reader at least once, and in the name
                self._plant(name, content, rng.choice(writers), kind, next(plantings))
                self._plant_in_name(kind)

    def _plant_in_name(self, kind: str) -> None:
        secret, pieces = drawn(self._templates[kind], self._rng)
        new = redaction.PublicNames().publish_file_name(f"{secret.replace('/', '-')}_rank0.json").lower()
        self.counts["names"] += 1
        if any(form.decode(errors="replace").lower() in new for piece in pieces for form in forms(piece)):
            self.survivors.append(f"{kind}: in the name of a file: {secret!r} -> {new!r}")

    def _plant(
        self, name: str, content: bytes, write: Callable[[str, Planting], bytes], kind: str, plant: Planting
    ) -> None:
        secret, pieces = drawn(self._templates[kind], self._rng)
        while is_in(pieces, content, name):  # what stands in the file anyway tells nothing
            secret, pieces = drawn(self._templates[kind], self._rng)
        figures = list[bool]()

        def planting(text: str, secret: str) -> str:
            new = plant(text, secret)
            figures.append(_FIGURE.fullmatch(text) is not None and _FIGURE.fullmatch(new) is not None)
            return new

        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, name), Path(folder, "copy", name)
            target.parent.mkdir()
            try:
                source.write_bytes(write(secret, planting))
            except (sqlite3.Error, UnicodeEncodeError, TypeError):
                self.counts["not written"] += 1
                return
            reader = _recognised(source)
            if reader is None:
                self.counts["not recognised, so not published"] += 1
                return
            try:
                redaction.redact_evidence(source, target)
            except InputError:
                self.counts["refused"] += 1
                return
            if not is_in(pieces, target.read_bytes(), target.name):
                self.counts["published without it"] += 1
            elif any(figures):
                self.counts["replaced a figure"] += 1
            elif _is_refused(reader, source):
                self.counts["refused by its reader"] += 1
            else:
                self.survivors.append(f"{kind}: {reader}: {name}: {secret!r}")
                print(self.survivors[-1], flush=True)


def _is_refused(reader: str, path: Path) -> bool:
    """Whether the reader refuses the file, and so does `contribute`, which reads all files first."""
    try:
        read: Any = READERS.get(reader)
        for part in read.parts(path) if read.reads == "trace" else ():
            for _ in read.read(path, part=part, allow_truncated=False).batches:
                pass
        if read.reads != "trace":
            read.read(path)
    except InputError:
        return True
    return False


def main() -> int:
    """Print what survived; 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--half", choices=("building", "held-back"), help="of the kinds (default: all)")
    parser.add_argument("--kinds", type=Path, default=FOLDER / "secret_kinds.txt", help="list of kinds")
    parser.add_argument("--composed", type=int, help="number of kinds composed by chance instead")
    parser.add_argument("--most", type=int, default=200, help="positions of a file")
    asked = parser.parse_args()
    listed = kinds(asked.half, asked.kinds)
    exam = Exam(composed_kinds(asked.seed, asked.composed) if asked.composed else listed, asked.seed)
    exam.run(asked.most)
    for line in exam.survivors:
        print(line)
    told = ", ".join(f"{count:,} {what}" for what, count in exam.counts.items())
    print(f"{len(listed)} kinds, {len(list(READERS))} readers: {told}; {len(exam.survivors)} survived")
    return 1 if exam.survivors else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""What a SOURCE holds: a card, its trace files, and a fingerprint of them all."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cclbench.errors import InputError, near
from cclbench.readers import HEAD_BYTES, READERS, recognise
from cclbench.readers.json_events import open_bytes

_CARD_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One trace file: `name` is its path within the source."""

    path: Path
    name: str
    reader: str
    bytes: int
    sha256: str
    rank_by_card: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Everything a run is made from."""

    path: Path
    card: Path | None
    files: tuple[SourceFile, ...]
    ignored: tuple[str, ...]
    """Files of a folder that no reader recognises."""

    @property
    def name(self) -> str:
        """What people call it: the card's or folder's name, or the file's without its suffixes."""
        path = self.card if self.card is not None and self.card == self.path else self.path.resolve()
        stem = re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?$", "", path.name) if path.is_file() else path.name
        stem = stem.removesuffix(".yaml").removesuffix(".yml")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:80] or "run"

    def fingerprint(self, *options: object) -> str:
        """SHA-256 over the names and contents of card and files, and whatever else shapes the run."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{file.name}\0{file.sha256}\0{file.rank_by_card}\0".encode())
        if self.card is not None:
            digest.update(self.card.read_bytes())
        digest.update(repr(options).encode())
        return digest.hexdigest()


def find(source: str | Path) -> Source:
    """Look at SOURCE: a card, a folder of traces (with or without a card in it), or one trace."""
    path = Path(source)
    if not path.exists():
        raise InputError("no such file or folder", where=str(path), hint=_beside(path))
    if path.is_file():
        return _of_card(path) if path.suffix.lower() in _CARD_SUFFIXES else _of_file(path)
    return _of_folder(path)


def _beside(path: Path) -> str:
    folder = path.parent
    return (
        near(path.name, [p.name for p in folder.iterdir()])
        if folder.is_dir()
        else f"there is no {folder} either"
    )


def _of_file(path: Path) -> Source:
    return Source(path, None, tuple(_hashed([(path, path.name, _required(path), None)])), ())


def _of_card(path: Path) -> Source:
    from cclbench import card

    loaded = card.load(path)
    if not loaded.evidence.traces:
        hint = "add them, or run the folder they lie in"
        raise InputError("lists no traces under evidence.traces", where=str(path), hint=hint)
    found = []
    for trace in loaded.evidence.traces:
        file = loaded.root / trace.path
        if not file.is_file():
            raise InputError(
                "the card names this trace, and it is missing", where=str(file), hint=f"card: {path}"
            )
        rank = trace.ranks[0] if len(trace.ranks) == 1 else None
        found.append((file, trace.path, _required(file), rank))
    files = tuple(_hashed(found))
    for present, trace in zip(files, loaded.evidence.traces, strict=True):
        if trace.sha256 is not None and trace.sha256 != present.sha256:
            hint = f"it is not the evidence {path} was written for"
            raise InputError("its SHA-256 differs from the card's", where=str(present.path), hint=hint)
    return Source(path, path, files, ())


def _of_folder(folder: Path) -> Source:
    cards, found, ignored = [], [], []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix.lower() in _CARD_SUFFIXES:
            cards.append(path)
        elif reader := _recognised(path):
            found.append((path, name, reader, None))
        else:
            ignored.append(name)
    if len(cards) > 1:
        names = " and ".join(c.name for c in cards[:3])
        raise InputError(
            f"holds {len(cards)} cards ({names})", where=str(folder), hint="run the one you mean"
        )
    if not found:
        what = "none of its files is a trace" if ignored else "the folder is empty"
        raise InputError(what, where=str(folder), hint=f"readers: {', '.join(READERS)}")
    return Source(folder, cards[0] if cards else None, tuple(_hashed(found)), tuple(ignored))


def _required(path: Path) -> str:
    reader = _recognised(path)
    if reader is None:
        raise InputError(
            "is no trace of a known format", where=str(path), hint=f"readers: {', '.join(READERS)}"
        )
    return reader


def _recognised(path: Path) -> str | None:
    """The name of the reader for a file, None where no reader knows it."""
    try:
        with open_bytes(path) as file:
            head = file.read(HEAD_BYTES)
    except PermissionError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (EOFError, zlib.error, OSError):
        head = _whole_part(path)
    if not head.strip():
        raise InputError("the file is empty", where=str(path), hint="capture the trace again")
    reader = recognise(path, head)
    return None if reader is None else reader.name


def _whole_part(path: Path) -> bytes:
    """What a damaged gzip file still gives at its beginning."""
    with path.open("rb") as file:
        raw = file.read(HEAD_BYTES)
    try:
        return zlib.decompressobj(31).decompress(raw, HEAD_BYTES)
    except zlib.error as error:
        raise InputError(
            f"gzip stream is damaged at its beginning ({error})", where=f"{path}: byte 0"
        ) from None


def _hashed(found: Sequence[tuple[Path, str, str, int | None]]) -> list[SourceFile]:
    def entry(item: tuple[Path, str, str, int | None]) -> SourceFile:
        path, name, reader, rank = item
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
        return SourceFile(path, name, reader, path.stat().st_size, digest, rank)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(entry, found))

# SPDX-License-Identifier: Apache-2.0
"""The content of a SOURCE: a card, trace files, and a fingerprint of them all."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cclbench.formats import READERS
from cclbench.formats.recognition import CARD_SUFFIXES, is_card
from cclbench.formats.source_files import (
    CAPTURES,
    LIST_READERS,
    looks_like_a_trace,
    reader_of,
    required_reader,
)
from cclbench.formats.unread import UnreadFormatError
from cclbench.ground.code_hash import code_hash, module_files
from cclbench.ground.errors import InputError, UsageError, near
from cclbench.ground.file_names import path_of, stored_name
from cclbench.ground.scratch import stamp_of

if TYPE_CHECKING:
    from cclbench.card import Card

_SUFFIX = re.compile(
    r"(\.pt)?(\.trace)?\.json(\.gz)?$|\.xplane\.pb$|\.(sqlite|txt|log|parquet)$|\.(jsonl|csv)(\.gz)?$"
)

Listed = tuple[Path, str, str, tuple[int, ...]]
"""A file whose content is not read yet: path, name within the source, reader, ranks by the card."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One trace file: `name` is its path within the source, from `stored_name`."""

    path: Path
    name: str
    reader: str
    bytes: int
    sha256: str
    ranks_by_card: tuple[int, ...] = ()
    stamp: tuple[int, ...] = ()
    """Inode, size and times of change when the hash was taken."""

    def require_unchanged(self) -> None:
        """`InputError` if the file has changed since its hash was taken."""
        try:
            if stamp_of(self.path.stat()) == self.stamp:
                return
            with self.path.open("rb") as file:
                changed = hashlib.file_digest(file, "sha256").hexdigest() != self.sha256
        except OSError as error:
            raise _unreadable_error(self.path, error) from None
        if changed:
            raise InputError("changed while it was read", where=str(self.path), hint="wait for its writer")


class _Captured(msgspec.Struct):
    file: str
    batch_size: int | None = None


_LONGEST_LIST: Final = 1 << 20
_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Everything a run is made from."""

    path: Path
    card: Path | None
    files: tuple[SourceFile, ...]
    ignored: tuple[str, ...]
    """Files of a folder that no reader recognises."""
    beside: tuple[SourceFile, ...] = ()
    """Execution traces, which add details of the collectives in `files`."""
    captures: tuple[SourceFile, ...] = ()
    """Traces of graph captures, which state the operators of the graphs' kernels in `files`."""
    evidence: tuple[SourceFile, ...] = ()
    """Evidence other than traces: benchmarks, sweeps, counters, logs."""
    notes: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the `ignored` files of a known but unsupported format, by name."""
    as_named: Callable[[str], str] = str
    """Maps a local path to the URL it was fetched from."""
    read_card: Card | None = None
    """The card's content, if it was read for the files that it names."""

    def load_card(self) -> Card | None:
        """The card's content, None without a card; see `card.load`."""
        if self.read_card is not None or self.card is None:
            return self.read_card
        from cclbench import card

        return card.load_card(self.card)

    def display_path(self, path: Path) -> str:
        """A path of the source for display."""
        return self.as_named(stored_name(path))

    @property
    def name(self) -> str:
        """Name for display: the card's or folder's name, or the file's without its suffixes."""
        path = self.card if self.card is not None and self.card == self.path else self.path.resolve()
        stem = _SUFFIX.sub("", path.name) if path.is_file() else path.name
        stem = stem.removesuffix(".yaml").removesuffix(".yml")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:80] or "run"

    @property
    def description_files(self) -> tuple[Path, ...]:
        """Files that describe other files of the source, or are read with them."""
        return tuple(_companions((file.path, file.reader) for file in self.files))

    def require_unchanged(self) -> None:
        """`InputError` if any file has changed since its hash was taken."""
        for file in (*self.files, *self.beside, *self.captures, *self.evidence):
            file.require_unchanged()

    def fingerprint(self, *options: object) -> str:
        """SHA-256 of the names and contents of card and files, `options`, and the code of outside readers."""
        digest = hashlib.sha256()
        read = (*self.files, *self.beside, *self.captures, *self.evidence)
        for file in read:
            digest.update(f"{file.name}\0{file.sha256}\0{file.ranks_by_card}\0".encode())
        for path in (*([self.card] if self.card is not None else []), *self.description_files):
            try:
                with path.open("rb") as content:
                    while block := content.read(_BLOCK_BYTES):
                        digest.update(block)
            except OSError as error:
                raise _unreadable_error(path, error) from None
        digest.update(repr(options).encode())
        origins = {type(READERS.get(file.reader)).__module__ for file in read}
        outside = module_files(name for name in origins if name.partition(".")[0] != "cclbench")
        if outside:  # an outside reader may change without a new version
            digest.update(code_hash(outside).encode())
        return digest.hexdigest()


_Hashing = Callable[[Sequence[Listed]], list[SourceFile]]


def find_source(
    source: str | Path,
    *,
    elsewhere: Mapping[str, Path] | None = None,
    hashing: _Hashing | None = None,
) -> Source:
    """List the files of SOURCE: a card, a folder of traces (with or without a card in it), or one trace.

    `elsewhere` maps paths in a card to files that are not below the card's folder; `hashing` replaces
    `hash_files`, which reads every file in full.  Raises `InputError` naming the file that is missing,
    unreadable or not a trace.
    """
    if not str(source):
        raise UsageError("the source's name is empty", hint="name a card, a folder of traces or a trace")
    path, hashing = Path(source).expanduser(), hashing or hash_files
    try:
        path.stat()
    except FileNotFoundError:
        raise InputError("no such file or folder", where=str(path), hint=_near_names(path)) from None
    except (OSError, ValueError) as error:
        raise _unreadable_error(path, error) from None
    if path.is_dir():
        return _folder_source(path, hashing)
    if not path.is_file():
        raise InputError("is neither a file nor a folder", where=str(path))
    if path.suffix.lower() in CARD_SUFFIXES:
        return _card_source(path, elsewhere or {}, hashing)
    return _make_source(path, None, hashing([(path, stored_name(path.name), required_reader(path), ())]))


def _unreadable_error(path: Path, error: OSError | ValueError) -> InputError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(f"cannot be read: {reason}", where=str(path)[:200])


def _near_names(path: Path) -> str | None:
    """Hint with the nearest name in the folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no {folder} either"
    try:
        hint = near(path.name, [e.name for e in folder.iterdir() if not e.name.startswith(".")])
    except OSError:
        return None
    return hint if hint.startswith("did you mean") and len(hint) <= 200 else None


def _card_source(path: Path, elsewhere: Mapping[str, Path], hashing: _Hashing) -> Source:
    from cclbench import card
    from cclbench.card.evidence import fetched_copy

    loaded = card.load_card(path)
    if not loaded.evidence.traces:
        hint = "add them, or run the folder they lie in"
        raise InputError("lists no traces under evidence.traces", where=str(path), hint=hint)
    entries = []
    for trace in loaded.evidence.traces:
        file = elsewhere.get(trace.path, loaded.root / path_of(trace.path))
        if not file.is_file() and trace.url and trace.sha256:
            fetched = fetched_copy(trace.path, trace.sha256)  # its hash is compared below
            file = fetched if fetched.is_file() else file
        if not file.is_file():
            fetch = f"cclbench card fetch {shlex.quote(str(path))} downloads it from {trace.url}"
            hint = fetch if trace.url else f"card: {path}"
            raise InputError("the card names this trace, and it is missing", where=str(file), hint=hint)
        entries.append((file, trace.path, required_reader(file), trace.ranks))
    files = hashing(entries)
    for present, trace in zip(files, loaded.evidence.traces, strict=True):
        if trace.sha256 is not None and trace.sha256 != present.sha256:
            hint = f"it is not the evidence {path} was written for"
            raise InputError("its SHA-256 differs from the card's", where=str(present.path), hint=hint)
    return replace(_make_source(path, path, files), read_card=loaded)


def _folder_source(folder: Path, hashing: _Hashing) -> Source:
    cards, ignored, unread = list[str](), list[str](), dict[str, UnreadFormatError]()
    entries: list[Listed] = []
    for path in files_within(folder):
        name = stored_name(path.relative_to(folder))
        if path.suffix.lower() in CARD_SUFFIXES:
            (cards if is_card(path) else ignored).append(name)
            continue
        try:
            reader = reader_of(path, lenient=not looks_like_a_trace(path))
        except UnreadFormatError as error:
            reader, unread[name] = None, error
        if reader:
            entries.append((path, name, reader, ()))
        else:
            ignored.append(name)
    companions = _companions((path, reader) for path, _, reader, _ in entries)
    names = {stored_name(path.relative_to(folder)) for path in companions}
    ignored = [name for name in ignored if name not in names]
    unread = {name: error for name, error in unread.items() if name not in names}
    if len(cards) > 1:
        listed = " and ".join(cards[:3]) + (" ..." if len(cards) > 3 else "")
        raise InputError(
            f"holds {len(cards)} cards ({listed})", where=str(folder), hint="run the one you mean"
        )
    if unread and not entries:
        raise next(iter(unread.values()))
    if not entries:
        what = "none of its files is a trace" if ignored or cards else "the folder is empty"
        raise InputError(what, where=str(folder), hint=LIST_READERS)
    source = _make_source(
        folder, folder / path_of(cards[0]) if cards else None, hashing(entries), tuple(ignored)
    )
    return replace(source, unread={name: error.what for name, error in unread.items()})


def _companions(files: Iterable[tuple[Path, str]]) -> dict[Path, None]:
    """Files that are read with others, each given with its reader."""
    return dict.fromkeys(file for path, reader in files for file in READERS.get(reader).companions(path))


def _make_source(
    path: Path, card: Path | None, all_files: list[SourceFile], ignored: tuple[str, ...] = ()
) -> Source:
    """Sort the files into traces, execution traces, graph captures and other evidence."""
    derived = _converted_files(all_files)
    files, beside, evidence = (
        tuple(file for file in all_files if file not in derived and READERS.get(file.reader).reads == reads)
        for reads in ("trace", "execution_trace", "evidence")
    )
    if not files and not evidence:
        hint = "it has no times; run the folder of the profiler's traces beside which it lies"
        raise InputError("is an execution trace only", where=str(all_files[0].path), hint=hint)
    folders = {
        folder for folder in {file.path.parent for file in files} if _listed_captures(folder) is not None
    }
    captures = tuple(file for file in files if file.path.parent in folders)
    files = tuple(file for file in files if file not in captures)
    if captures and not files:
        hint = "they run nothing; run the folder of the traces in which their graphs are launched"
        raise InputError("holds captures of graphs only", where=str(path), hint=hint)
    if captures:
        ignored = tuple(name for name in ignored if Path(name).name != CAPTURES)
    notes = [
        f"{file.name} was derived from the {ending} beside it and was not read"
        for file, ending in derived.items()
    ]
    return Source(path, card, files, ignored, beside, captures, evidence, tuple(notes))


def captured_batch(path: Path) -> int | None:
    """Batch size that a graph was captured for, from the list in the file's folder; None if not listed."""
    listed = _listed_captures(path.parent) or []
    matches = [entry for entry in listed if entry.file == path.name]
    # Files may have been renamed when they were collected.
    (entry,) = matches or listed if len(matches or listed) == 1 else (None,)
    return entry.batch_size if entry else None


def _listed_captures(folder: Path) -> list[_Captured] | None:
    """The list of captures in `folder`; None if it has no valid list."""
    try:
        with (folder / CAPTURES).open("rb") as file:
            return msgspec.json.decode(file.read(_LONGEST_LIST), type=list[_Captured])
    except (OSError, msgspec.DecodeError):
        return None


def _converted_files(files: Sequence[SourceFile]) -> dict[SourceFile, str]:
    """Files that were converted from another file in the same folder, and its usual extension."""
    originals = {(file.reader, _path_stem(file)) for file in files}
    return {
        file: READERS.get(original).extensions[0]
        for file in files
        if (original := READERS.get(file.reader).derived_from) and (original, _path_stem(file)) in originals
    }


def _path_stem(file: SourceFile) -> Path:
    """A file's path without the extension of its format."""
    name = file.path.name
    endings = (ending for ending in READERS.get(file.reader).extensions if name.endswith(ending))
    return file.path.with_name(name.removesuffix(max(endings, key=len, default="")) or name)


def files_within(folder: Path) -> Iterator[Path]:
    """All files below a folder, sorted, except those in hidden folders and stored runs."""

    def refuse(error: OSError) -> None:
        raise _unreadable_error(Path(error.filename), error) from None

    paths = []
    for place, folders, files in os.walk(folder, onerror=refuse):
        is_run = "manifest.json" in files and {"events", "steps"} <= set(folders)
        folders[:] = [] if is_run else [name for name in folders if not name.startswith(".")]
        paths += [] if is_run else [Path(place, name) for name in files]
    return iter(sorted(path for path in paths if path.is_file()))


def hash_files(entries: Sequence[Listed]) -> list[SourceFile]:
    """The files with their hashes, each read once; `InputError` if two have the same content."""

    def hash_file(entry: Listed) -> SourceFile:
        path, name, reader, ranks = entry
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                stat = os.fstat(file.fileno())
        except OSError as error:
            raise _unreadable_error(path, error) from None
        return SourceFile(path, name, reader, stat.st_size, digest, ranks, stamp_of(stat))

    with ThreadPoolExecutor(4) as pool:
        files = list(pool.map(hash_file, entries))
    names: dict[tuple[str, str], str] = {}
    for file in files:
        first = names.setdefault((file.reader, file.sha256), file.name)
        if first != file.name:
            hint = f"everything would count twice: remove one of {first} and {file.name}"
            raise InputError(f"has the same content as {first}", where=str(file.path), hint=hint)
    return files

# SPDX-License-Identifier: Apache-2.0
"""Check the files that a card names: within their folder, present and unchanged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from os.path import realpath
from pathlib import Path as FilePath
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from cclbench.card.consistency import Finding
from cclbench.card.fields import card_field
from cclbench.ground.diagnostics import Problem, dotted_path
from cclbench.ground.file_names import path_of
from cclbench.ground.scratch import cache_folder
from cclbench.ground.yaml_file import Document

SHA256: Final = re.compile("[0-9a-f]{64}")
_ELSEWHERE = "the file is not here: `cclbench card fetch` downloads it"


def root_of(card: FilePath) -> FilePath:
    """The folder that a card's paths are relative to: that of `workload_cards/`, else the card's own."""
    folder = card.absolute().parent
    return folder.parent if folder.name == "workload_cards" else folder


def fetched_copy(path: str, sha256: str) -> FilePath:
    """Where the cache keeps the file of a card, by its hash, once it was fetched from its URL."""
    return cache_folder() / "evidence" / sha256 / PurePosixPath(path).name


def evidence_problems(document: Document, root: FilePath, *, contents: bool) -> list[Problem]:
    """Problems of the card's paths; with `contents`, also of the files' presence, size and SHA-256.

    A missing file with a `url` is a warning.
    """
    findings: list[Finding] = []
    traces = card_field(document.value, "evidence", "traces", kind=list) or []
    for i, trace in enumerate(traces):
        if isinstance(trace, Mapping):
            findings += [
                (("evidence", "traces", i, key), m) for key, m in _file_problems(trace, root, contents)
            ]
    launch = card_field(document.value, "evidence", "launch", kind=str)
    if launch is not None:
        findings += [
            (("evidence", "launch"), text) for _, text in _file_problems({"path": launch}, root, contents)
        ]
    return [
        Problem("warning" if m == _ELSEWHERE else "error", document.file, document.line(p), dotted_path(p), m)
        for p, m in findings
    ]


def _file_problems(entry: Mapping[str, Any], root: FilePath, contents: bool) -> Iterator[tuple[str, str]]:
    path = card_field(entry, "path", kind=str)
    if path is None:
        return
    if reason := _path_problem(path, root):
        yield "path", reason
    elif "url" in entry and not {"sha256", "bytes"} <= entry.keys():
        yield "url", "requires sha256 and bytes, which identify the file there"
    elif not contents:
        return
    elif (file := _evidence_file(entry, root / path_of(path))) is None:
        yield "url", _ELSEWHERE
    else:
        try:
            yield from _content_problems(entry, file)
        except OSError as error:
            yield "path", f"cannot be read: {error.strerror}"


def _evidence_file(entry: Mapping[str, Any], file: FilePath) -> FilePath | None:
    """The file, or its fetched copy; None if it has a URL and is in neither place."""
    if "url" not in entry or file.exists():
        return file
    sha256, path = (card_field(entry, key, kind=str) for key in ("sha256", "path"))
    copy = fetched_copy(path, sha256) if sha256 and SHA256.fullmatch(sha256) else None
    return copy if copy is not None and copy.is_file() else None


def _path_problem(path: str, root: FilePath) -> str | None:
    """Why `path` is not a path inside `root`, or None."""
    path = path_of(path)
    pure = PurePosixPath(path)
    if pure.is_absolute() or PureWindowsPath(path).anchor or "\\" in path or "\0" in path:
        return "must be a relative path with forward slashes"
    if ".." in pure.parts:
        return "must not lead upwards with .."
    if not FilePath(realpath(root / pure)).is_relative_to(realpath(root)):
        return "leads out of the card's folder through a link"
    return None


def _content_problems(entry: Mapping[str, Any], file: FilePath) -> Iterator[tuple[str, str]]:
    if not file.is_file():
        yield "path", "is a folder; name its files" if file.is_dir() else f"no such file: {file}"
        return
    size, expected = card_field(entry, "bytes"), card_field(entry, "sha256", kind=str)
    actual = file.stat().st_size
    if size is not None and size != actual:
        yield "bytes", f"is {size:,}, but the file has {actual:,} bytes"
    if expected is not None:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != expected:
            yield "sha256", f"does not match: the file's is {digest}"

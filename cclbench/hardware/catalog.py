# SPDX-License-Identifier: Apache-2.0
"""The catalog of accelerators, fabrics and systems: one YAML file per entry, a source for each figure.

Files and folders listed in `CCLBENCH_HARDWARE` (separated as in PATH) are added; an entry replaces another
with the same id.  A figure without a source is null, and metrics that need it do not apply.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from cclbench.ground import yaml_file
from cclbench.ground.errors import InputError, UsageError, near
from cclbench.ground.yaml_file import Document
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.agreement import Finding, check_replacement, refuse_all, tier_contradictions
from cclbench.hardware.entry import check_entry
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.figure import parse_figures
from cclbench.hardware.system import System

VARIABLE: Final = "CCLBENCH_HARDWARE"
_NOUN: Final = "hardware file"
_MOST_FILES: Final = 1000
_KIND = re.compile(r"^kind: (\w+)", re.MULTILINE)

T = TypeVar("T", Accelerator, Fabric, System)


def accelerators() -> Mapping[str, Accelerator]:
    """All accelerators by id, sorted."""
    return _load_accelerators(os.environ.get(VARIABLE, ""))


def fabrics() -> Mapping[str, Fabric]:
    """All fabrics by id, sorted."""
    return _load_fabrics(os.environ.get(VARIABLE, ""))


def systems() -> Mapping[str, System]:
    """All systems by id, sorted."""
    return _load_systems(os.environ.get(VARIABLE, ""))


def accelerator(id: str) -> Accelerator:  # noqa: A002 - the catalog's word for it
    """The accelerator with that id; `UsageError` with near matches if there is none."""
    return _entry_of_kind("accelerator", id, accelerators())


def fabric(id: str) -> Fabric:  # noqa: A002
    """The fabric with that id; `UsageError` with near matches if there is none."""
    return _entry_of_kind("fabric", id, fabrics())


def system(id: str) -> System:  # noqa: A002
    """The system with that id; `UsageError` with near matches if there is none."""
    return _entry_of_kind("system", id, systems())


def catalog_entries() -> Mapping[str, Accelerator | Fabric | System]:
    """The whole catalog by id: accelerators, then fabrics, then systems."""
    return {**accelerators(), **fabrics(), **systems()}


def entry_of(id: str) -> Accelerator | Fabric | System:  # noqa: A002
    """The entry with that id, of any kind; `UsageError` with near matches if there is none."""
    entries = catalog_entries()
    if id not in entries:
        raise UsageError(f"the catalog has no {id!r}", hint=near(id, entries))
    return entries[id]


@contextmanager
def extended_catalog(paths: Iterable[Path]) -> Iterator[None]:
    """Add files and folders to the catalog, in this process and in worker processes started meanwhile."""
    before = os.environ.get(VARIABLE)
    parts = [*filter(None, [before]), *map(str, paths)]
    if not parts:
        yield
        return
    os.environ[VARIABLE] = os.pathsep.join(parts)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def user_entries_hash() -> str:
    """SHA-256 of the entries that the user added, equal for equal figures."""
    user_entries = [read.value for read in _user_documents(os.environ.get(VARIABLE, ""))]
    return sha256(repr(user_entries).encode()).hexdigest()


def by_device_name(name: str, memory_bytes: int | None = None) -> Accelerator | None:
    """The accelerator for which profilers print `name`, with that much memory if it is known.

    None if the name is unknown, the memory contradicts it, or several accelerators match.
    """
    named = [entry for entry in accelerators().values() if entry.has_name(name)]
    if memory_bytes is not None:
        named = [entry for entry in named if entry.has_memory(memory_bytes)]
    return named[0] if len(named) == 1 else None


def _entry_of_kind(kind: str, name: str, entries: Mapping[str, T]) -> T:
    try:
        return entries[name]
    except KeyError:
        raise UsageError(f"the catalog has no {kind} {name!r}", hint=near(name, entries)) from None


@cache
def _load_accelerators(more: str) -> Mapping[str, Accelerator]:
    return _load_entries("accelerator", more, lambda read: _convert_entry(read, Accelerator))


@cache
def _load_fabrics(more: str) -> Mapping[str, Fabric]:
    for read in _user_documents(more) if more else ():
        check_replacement(read, _load_fabrics("").get(read.value["id"]))
    return _load_entries("fabric", more, lambda read: _convert_entry(read, Fabric))


@cache
def _load_systems(more: str) -> Mapping[str, System]:
    return _load_entries("system", more, lambda read: _build_system(read, more))


def _load_entries(kind: str, more: str, build: Callable[[Document], T]) -> Mapping[str, T]:
    documents = [
        *_package_documents(kind),
        *(read for read in _user_documents(more) if read.value["kind"] == kind),
    ]
    entries = {read.value["id"]: build(read) for read in documents}
    return MappingProxyType(dict(sorted(entries.items())))


@cache
def _package_documents(kind: str) -> tuple[Document, ...]:
    """The package's own files of one kind; tests check them."""
    return tuple(
        yaml_file.parse(text, name, _NOUN)
        for name, text in _package_texts()
        if (match := _KIND.search(text)) and match[1] == kind
    )


@cache
def _package_texts() -> tuple[tuple[str, str], ...]:
    """Names and texts of all the package's own files, sorted by name."""
    folder = files("cclbench.hardware") / "data"
    data_files = (file for file in folder.iterdir() if file.name.endswith(".yaml"))
    return tuple(sorted((file.name, file.read_text("utf-8")) for file in data_files))


@cache
def _user_documents(more: str) -> tuple[Document, ...]:
    documents: dict[tuple[str, str], Document] = {}
    for path in (Path(part) for part in more.split(os.pathsep) if part):
        for file in _yaml_files(path) if path.is_dir() else [path]:
            read = yaml_file.read(file, _NOUN)
            check_entry(read)
            documents[read.value["kind"], read.value["id"]] = read
    return tuple(documents.values())


def _yaml_files(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.iterdir() if path.suffix in {".yaml", ".yml"})
    if not paths or len(paths) > _MOST_FILES:
        what = f"contains more than {_MOST_FILES:,} YAML files" if paths else "contains no YAML file"
        raise InputError(what, where=str(folder), hint=f"{VARIABLE} names folders of hardware files")
    return paths


def _convert_entry(read: Document, as_type: type[T], **resolved: Any) -> T:
    figures, cited = parse_figures(read.value)
    try:
        return msgspec.convert({**figures, **resolved, "cited": cited}, as_type)
    except msgspec.ValidationError as error:
        raise InputError(f"is not a catalog entry: {error}", where=read.file) from None


def _build_system(read: Document, more: str) -> System:
    """A system with its fabrics resolved; refused if a reference is unknown or rates contradict."""
    figures, _ = parse_figures(read.value)
    machines, fabric_by_id = _load_accelerators(more), _load_fabrics(more)
    machine = machines.get(figures["accelerator"])
    findings: list[Finding] = []
    if machine is None:
        message = f"is not an accelerator in the catalog; {near(figures['accelerator'], machines)}"
        findings.append((("accelerator",), message))
    resolved: dict[str, Any] = {}
    for tier in ("scale_up", "scale_out"):
        if (part := figures[tier]) is None:
            continue
        if (used := fabric_by_id.get(part["fabric"])) is None:
            findings.append(
                ((tier, "fabric"), f"is not a fabric in the catalog; {near(part['fabric'], fabric_by_id)}")
            )
            continue
        if read in _user_documents(more):  # the package's own agree; a fabric that a user replaced need not
            findings += tier_contradictions(tier, part, used, machine)
        resolved[tier] = {**part, "fabric": used}
    refuse_all(read, findings)
    return _convert_entry(read, System, **resolved)

# SPDX-License-Identifier: Apache-2.0
"""Paths of a data point in a collection: workload_cards/<id>.yaml, traces/<id>/, scripts/<id>/."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cclbench.card.json_schema import value_misfit
from cclbench.ground.errors import InputError, UsageError, near
from cclbench.ground.file_names import stored_name
from cclbench.ground.text import quoted_value

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
CALIBRATION = ".calibration.yml"
"""Not `.yaml`: in workload_cards/ those are cards."""
LONGEST_NAME: Final = 120
_STRANGE = re.compile(r"[^A-Za-z0-9._+=@-]+")

Redact = Callable[[str], str]
"""Redacts the name of a file or folder."""


@dataclass(frozen=True)
class DataPointPlace:
    """One data point's files; `collection` is the folder that holds workload_cards/, traces/, scripts/."""

    collection: Path
    id: str

    @property
    def card_path(self) -> Path:
        """The workload card."""
        return self.collection / "workload_cards" / f"{self.id}.yaml"

    @property
    def calibration_path(self) -> Path:
        """The calibration of the machine, in the card's folder, if the card names one."""
        return self.card_path.with_name(f"{self.id}{CALIBRATION}")

    @property
    def traces_folder(self) -> Path:
        """The folder of its traces."""
        return self.collection / "traces" / self.id

    @property
    def scripts_folder(self) -> Path:
        """The folder of the scripts that made them."""
        return self.collection / "scripts" / self.id

    @property
    def manifest_path(self) -> Path:
        """The manifest of the evidence and its recorded results."""
        return self.traces_folder / MANIFEST

    @property
    def signature_path(self) -> Path:
        """The signature of the manifest, if it is signed."""
        return self.traces_folder / SIGNATURE


def place_of(collection: Path, identity: str) -> DataPointPlace:
    """Place of a data point of that id, existing or new; `UsageError` if the id is invalid."""
    if reason := value_misfit(identity, "id"):
        raise UsageError(f"the id {reason}")
    return DataPointPlace(collection, identity)


def data_point_ids(collection: Path) -> list[str]:
    """Ids of the collection's data points, sorted: of every card, and of every folder of traces."""
    cards = {path.stem for path in (collection / "workload_cards").glob("*.yaml")}
    folders = {path.name for path in (collection / "traces").glob("*") if path.is_dir()}
    return sorted(name for name in cards | folders if not name.startswith("."))


def existing_place(collection: Path, identity: str) -> DataPointPlace:
    """Place of an existing data point; `UsageError` with near matches if there is none."""
    ids = data_point_ids(collection)
    if identity not in ids:
        hint = near(identity, ids) if ids else "it has neither workload_cards/ nor traces/"
        raise UsageError(f"no data point {identity!r} in {collection}", hint=hint)
    return place_of(collection, identity)


def file_names(folder: Path) -> Iterator[str]:
    """Names of all files below a folder, sorted, as in a card or manifest: see `stored_name`.

    Raises `InputError` for a link: its target is not in the folder.
    """
    names = []
    for top, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(top, name)
            if path.is_symlink():
                raise InputError("is a link", where=str(path), hint="put the file itself there")
            if name in files:
                names.append(stored_name(path.relative_to(folder)))
    return iter(sorted(names))


def safe_names(names: Iterable[str], redact: Redact) -> dict[str, str]:
    """The collection's name of each relative path: redacted, with portable characters only.

    A run of characters other than letters, digits and `._+=@-` becomes a hyphen; leading hyphens and dots
    are removed.  Raises `UsageError` if two files would share a name, or a name would be empty or too long.
    """
    new_names: dict[str, str] = {}
    owners = {MANIFEST: "the manifest", SIGNATURE: "its signature"}
    for name in names:
        new = "/".join(_STRANGE.sub("-", redact(part)).lstrip("-.") for part in name.split("/"))
        if any(not 0 < len(part) <= LONGEST_NAME for part in new.split("/")):
            hint = f"rename it: up to {LONGEST_NAME} letters, digits and . _ + = @ -"
            raise UsageError(f"the name {quoted_value(name)} cannot be converted", hint=hint)
        if new.lower() in owners:
            other = quoted_value(owners[new.lower()])
            raise UsageError(f"{quoted_value(name)} and {other} would both be named {new}", hint="rename one")
        new_names[name] = new
        owners[new.lower()] = name
    return new_names


def is_inside(name: str) -> bool:
    """Whether a manifest's name of a file stays below its folder and is in normal form."""
    pure = PurePosixPath(name)
    return not (pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name) and name == str(
        pure
    )


def file_digest(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file; `InputError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None

# SPDX-License-Identifier: Apache-2.0
"""Locations of sources and stores, paths or URLs, and checks of the names of remote objects."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from cclbench.ground.destination import why_outside
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.text import printable, quoted_value

WEB: Final = ("http", "https")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^?#]*)(.*)", re.DOTALL)
_COLLAPSED: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
"""A URL after `pathlib` collapsed its slashes."""
_LONGEST_NAME: Final = 255
"""Maximum bytes of a file's name."""


@dataclass(frozen=True, slots=True)
class Url:
    """A remote folder or file; its text leaves out the query, which may be a signature."""

    scheme: str
    path: str
    """Bucket or host, and what follows, without a slash at the end."""
    query: str = field(default="", repr=False)

    def __str__(self) -> str:
        return printable(f"{self.scheme}://{self.path}")

    @property
    def full(self) -> str:
        """The URL with its query, for requests; never shown."""
        return f"{self.scheme}://{self.path}{self.query}"

    @property
    def name(self) -> str:
        """The last part of its path."""
        name = self.path.rpartition("/")[2]
        return unquote(name) if self.scheme in WEB else name

    @property
    def parent(self) -> Url:
        """The folder that contains it."""
        return Url(self.scheme, self.path.rpartition("/")[0])

    def below(self, name: str) -> Url:
        """The object of that relative name below it."""
        return Url(self.scheme, f"{self.path}/{quote(name) if self.scheme in WEB else name}")


Location = Path | Url
"""Where a source or a store is, local or remote."""


def location_of(place: str | Path) -> Location:
    """The path or URL of a SOURCE or a store.

    Raises `UsageError` for a URL that cannot be used: with credentials in it, chained, without a bucket, or
    converted to a `Path`, which drops one of its slashes.
    """
    text = str(place)
    match = _URL.match(text)
    if match is None:
        if _COLLAPSED.match(text) and not Path(text.partition("/")[0]).exists():
            raise UsageError(f"{printable(text)} is a URL converted to a path", hint="pass it as text")
        return Path(place)
    scheme, path, query = match[1].lower(), match[2], match[3]
    bare = f"{scheme}://{printable(path.rpartition('@')[2])}"
    user, at, _ = path.partition("/")[0].rpartition("@")
    if at and (scheme in WEB or ":" in user):
        hint = "set up credentials as for the service's own tools, such as AWS_PROFILE"
        raise UsageError(f"{bare}: the URL contains a user name or password", hint=hint)
    if "::" in text:
        raise UsageError(f"{bare}: chained URLs are not supported", hint="name the folder or file itself")
    if scheme in WEB and path.endswith("/"):
        raise UsageError(f"{bare}: folders of web servers cannot be listed", hint="name a trace or a card")
    path = path.rstrip("/")
    if not path.strip("/"):
        raise UsageError(f"{bare} has no bucket or host", hint=f"such as {scheme}://bucket/folder")
    return Url(scheme, path, query)


def check_names(names: Iterable[str], where: Url) -> None:
    """`InputError` unless the names, with / between their parts, are distinct files within a folder.

    Names that lead out of it or contain control characters are refused, and pairs that some file systems do
    not distinguish.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        if why := _name_fault(name):
            raise _refused_name_error(where, name, why)
        parts = name.split("/")
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folders.setdefault(_collision_key(folder), folder) != folder:
                raise _refused_name_error(
                    where, name, "another folder's name differs only in case or Unicode form"
                )
        if files.setdefault(_collision_key(name), name) != name:
            raise _refused_name_error(where, name, "another name differs only in case or Unicode form")
    for key in files.keys() & folders.keys():
        raise _refused_name_error(where, files[key], "there is also a folder of that name")


def _name_fault(name: str) -> str | None:
    """Why a name is not a relative path of a file, or None."""
    if not name.isprintable():
        return "its name has control characters"
    if "" in (parts := name.split("/")) or "." in parts:
        return "its name has empty parts"
    if any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in parts):
        return f"its name has a part of more than {_LONGEST_NAME} bytes"
    return why_outside(name)


def _collision_key(name: str) -> str:
    """A key that is equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _refused_name_error(where: Url, name: str, why: str) -> InputError:
    hint = "rename it, or name a narrower folder"
    return InputError(f"holds {quoted_value(name)}, and {why}", where=str(where), hint=hint)

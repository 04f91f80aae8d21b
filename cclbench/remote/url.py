# SPDX-License-Identifier: Apache-2.0
"""Where sources and stores lie, as people name them, and the names that the other side gives its objects."""

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
from cclbench.ground.text import printable, shown

WEB: Final = ("http", "https")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^?#]*)(.*)", re.DOTALL)
_COLLAPSED: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
"""What pathlib makes of a URL."""
_LONGEST_NAME: Final = 255
"""Bytes of a file's name."""


@dataclass(frozen=True, slots=True)
class Url:
    """A folder or file elsewhere; as text it is without its query, which may be a signature."""

    scheme: str
    path: str
    """Bucket or host, and what follows, without a slash at the end."""
    query: str = field(default="", repr=False)

    def __str__(self) -> str:
        return printable(f"{self.scheme}://{self.path}")

    @property
    def full(self) -> str:
        """With its query: to ask with, never to show."""
        return f"{self.scheme}://{self.path}{self.query}"

    @property
    def name(self) -> str:
        """The last part of its path."""
        name = self.path.rpartition("/")[2]
        return unquote(name) if self.scheme in WEB else name

    @property
    def parent(self) -> Url:
        """What it lies in."""
        return Url(self.scheme, self.path.rpartition("/")[0])

    def below(self, name: str) -> Url:
        """The object of that relative name below it."""
        return Url(self.scheme, f"{self.path}/{quote(name) if self.scheme in WEB else name}")


Location = Path | Url
"""Where a source or a store lies: on this machine, or elsewhere."""


def location_of(place: str | Path) -> Location:
    """The path or URL that a SOURCE or a store is named by.

    Raises `UsageError` for a URL that cannot be used: with credentials in it, chained, without a bucket, or
    made a path of, which takes one of its slashes away.
    """
    text = str(place)
    match = _URL.match(text)
    if match is None:
        if _COLLAPSED.match(text) and not Path(text.partition("/")[0]).exists():
            raise UsageError(f"{printable(text)} was a URL before it was made a path", hint="give it as text")
        return Path(place)
    scheme, path, query = match[1].lower(), match[2], match[3]
    bare = f"{scheme}://{printable(path.rpartition('@')[2])}"
    user, at, _ = path.partition("/")[0].rpartition("@")
    if at and (scheme in WEB or ":" in user):
        hint = "give credentials as the service's own tools take them, such as AWS_PROFILE"
        raise UsageError(f"{bare}: the URL carries a user's name or password", hint=hint)
    if "::" in text:
        raise UsageError(f"{bare}: chained URLs are not read", hint="name the folder or file itself")
    if scheme in WEB and path.endswith("/"):
        raise UsageError(f"{bare}: web servers list no folders", hint="name a trace or a card")
    path = path.rstrip("/")
    if not path.strip("/"):
        raise UsageError(f"{bare} names nothing", hint=f"such as {scheme}://bucket/folder")
    return Url(scheme, path, query)


def check_names(names: Iterable[str], where: Url) -> None:
    """`InputError` unless each name, with / between its parts, is a file of its own within any folder.

    A name that leads elsewhere or steers a terminal, or two that a file system may take for one, are refused.
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
                raise _refused_name_error(where, name, "another folder's name differs in case or form alone")
        if files.setdefault(_collision_key(name), name) != name:
            raise _refused_name_error(where, name, "another name differs in case or form alone")
    for key in files.keys() & folders.keys():
        raise _refused_name_error(where, files[key], "there is a folder of that name, too")


def _name_fault(name: str) -> str | None:
    """Why a name is none for a file within a folder, or None."""
    if not name.isprintable():
        return "its name has control characters"
    if "" in (parts := name.split("/")) or "." in parts:
        return "its name has empty parts"
    if any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in parts):
        return f"its name has a part of more than {_LONGEST_NAME} bytes"
    return why_outside(name)


def _collision_key(name: str) -> str:
    """Equal for names that some file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _refused_name_error(where: Url, name: str, why: str) -> InputError:
    hint = "rename it, or name a narrower folder"
    return InputError(f"holds {shown(name)}, and {why}", where=str(where), hint=hint)

# SPDX-License-Identifier: Apache-2.0
"""Names of files as a collection has them: redacted, and of characters that every system and shell takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from cclbench.contribute.place import MANIFEST
from cclbench.errors import UsageError
from cclbench.text import shown

Redact = Callable[[str], str]
"""The name of a file or folder without what nobody shall know."""
LONGEST: Final = 120
_STRANGE = re.compile(r"[^A-Za-z0-9._+=@-]+")


def safe_names(names: Iterable[str], redact: Redact) -> dict[str, str]:
    """The collection's name of each relative path with forward slashes.

    A run of other characters than letters, digits and `._+=@-` becomes a hyphen; hyphens and dots at the
    beginning go.  Raises `UsageError` where two files would share a name, or nothing fit is left of one.
    """
    given: dict[str, str] = {}
    taken = {MANIFEST: "the manifest"}
    for name in names:
        new = "/".join(_STRANGE.sub("-", redact(part)).lstrip("-.") for part in name.split("/"))
        if any(not 0 < len(part) <= LONGEST for part in new.split("/")):
            hint = f"rename it: up to {LONGEST} letters, digits and . _ + = @ -"
            raise UsageError(f"the name {shown(name)} cannot be carried over", hint=hint)
        if new.lower() in taken:
            other = shown(taken[new.lower()])
            raise UsageError(f"{shown(name)} and {other} would share the name {new}", hint="rename one")
        given[name] = new
        taken[new.lower()] = name
    return given

# SPDX-License-Identifier: Apache-2.0
"""Kinds of what is redacted, what stands in its place, and the names of fields that tell a kind.

What stands in its place needs no quotes in YAML, JSON or a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from cclbench.contribute.redaction.pattern import PATTERNS, expression
from cclbench.formats.rewriting import ADDRESS as ADDRESS
from cclbench.formats.rewriting import ANNOTATION as ANNOTATION
from cclbench.formats.rewriting import ENVIRONMENT as ENVIRONMENT
from cclbench.formats.rewriting import HOST as HOST
from cclbench.formats.rewriting import JOB as JOB

USER: Final = "user name"
HOME: Final = "home path"
EMAIL: Final = "e-mail address"
COMMAND: Final = "command line"
CLOUD_KEY: Final = "cloud key"
TOKEN: Final = "token"  # noqa: S105 - the name of a kind
PRIVATE_KEY: Final = "private key"
PASSWORD: Final = "password in a URL"  # noqa: S105 - the name of a kind
SECRET: Final = "secret"  # noqa: S105 - the name of a kind
BUCKET: Final = "bucket"
FILE_NAME: Final = "file name"

NUMBERED: Final = {USER: "user", HOST: "host", JOB: "job", ADDRESS: "address", ANNOTATION: "annotation"}
"""Kinds whose instances stay apart: the same name is `host-1` in all files of a data point."""
HIDDEN: Final = {
    HOME: "redacted-home",
    EMAIL: "redacted-email",
    ENVIRONMENT: "redacted-environment",
    COMMAND: "redacted-command-line",
    CLOUD_KEY: "redacted-cloud-key",
    TOKEN: "redacted-token",
    PRIVATE_KEY: "redacted-private-key",
    PASSWORD: "redacted-password",
    SECRET: "redacted-secret",
    BUCKET: "redacted-bucket",
}


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fields: Mapping[str, str]
    secret_fields: str
    kept_variables: str
    common_words: str


_NAMES: Final = msgspec.yaml.decode(files(__package__).joinpath("names.yaml").read_bytes(), type=_Names)
_BY_FIELD: Final = {
    name.replace("_", "").lower(): kind
    for kind, names in (*((form.kind, form.variables) for form in PATTERNS), *_NAMES.fields.items())
    for name in names.split()
}
_SECRET_FIELD: Final = re.compile(expression(_NAMES.secret_fields))
_KEPT: Final = re.compile(expression(_NAMES.kept_variables))
_COMMON: Final = frozenset(_NAMES.common_words.split())
SHORTEST: Final = 4
"""Letters of a name that is replaced wherever it stands, of a user's one less; shorter ones stay but where
something calls them a name."""
_MACHINES: Final = frozenset(
    {"node", "gpu", "login", "compute", "server", "host", "machine", "head", "master"}
)
"""Of these, words that with two digits are a machine's name."""


@lru_cache(maxsize=1 << 14)
def kind_of_field(name: str) -> str | None:
    """The kind that a field of this name holds, as `hostname`, `Host Name` or `PROCESS_0:USER_NAME` do."""
    last = name.rpartition(":")[2]
    kind = _BY_FIELD.get(re.sub(r"[^a-z0-9]", "", last.lower())) if len(last) < 64 else None
    if kind is None and re.fullmatch(r"ARGUMENT_\d+", last):
        return COMMAND
    return SECRET if kind is None and len(last) < 64 and _SECRET_FIELD.search(last) else kind


def kept(variable: str) -> bool:
    """Whether an environment's variable tells of the run's shape or its libraries, and of nobody."""
    return _KEPT.fullmatch(variable) is not None


def common(kind: str, name: str) -> bool:
    """Whether a name is too short or too common a word to be replaced wherever it stands."""
    folded = name.casefold()
    stem = re.sub(r"[-_.]?\d{1,2}$", "", folded)
    machine = stem in _MACHINES and re.search(r"\d\d$", folded) is not None
    short = len(folded) < SHORTEST - (kind == USER)
    return short or folded in _COMMON or (stem in _COMMON and not machine) or len(stem) < 2

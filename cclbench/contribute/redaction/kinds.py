# SPDX-License-Identifier: Apache-2.0
"""Kinds of redacted values, their replacements, and the field names that imply a kind.

A replacement needs no quotes in YAML, JSON or a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from cclbench.contribute.redaction.pattern import CLEAN, NOTHING, PATTERNS, expand_expression
from cclbench.formats.rewriting import ENVIRONMENT as ENVIRONMENT
from cclbench.formats.rewriting import HOST as HOST
from cclbench.formats.rewriting import JOB as JOB
from cclbench.formats.rewriting import REVEALED as REVEALED

USER: Final = "user name"
ADDRESS: Final = "address"
DEVICE: Final = "device id"
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
SSH_KEY: Final = "SSH key"
PHONE: Final = "phone number"
ACCOUNT: Final = "account"
FOLDER: Final = "folder"
BARE_KEY: Final = "bare key"
"""Possible value of a field named just "key"."""
KEY_PARAMETER: Final = "key parameter"
"""Value of a field of one or two letters in a JSON web key (RFC 7518)."""

NUMBERED: Final = {
    USER: "user",
    HOST: "host",
    JOB: "job",
    ACCOUNT: "account",
    FOLDER: "folder",
    ADDRESS: "address",
    DEVICE: "device",
}
"""Kinds with numbered pseudonyms: the same name is `host-1` in all files of a data point."""
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
    SSH_KEY: "redacted-ssh-key",
    PHONE: "redacted-phone-number",
}
CREDENTIALS: Final = frozenset({CLOUD_KEY, TOKEN, PRIVATE_KEY, PASSWORD, SECRET})
"""Kinds that give access, and so are never published."""
ELSEWHERE, ENCODED, SPLIT = "{} known from elsewhere", "encoded {}", "split {}"
"""Rules for a name or value known from another place, an encoded one, and one that is split by a break or
reversed."""
_RULES: Final = {
    **{form.name: form.kind for form in PATTERNS},
    **{
        rule.format(kind): kind for kind in (*NUMBERED, *HIDDEN) for rule in ("{}", ELSEWHERE, ENCODED, SPLIT)
    },
}


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fields: Mapping[str, str]
    secret_fields: str
    key_fields: str
    kept_variables: str
    common_words: str
    public_values: str
    public_domains: str


_NAMES: Final = msgspec.yaml.decode(files(__package__).joinpath("names.yaml").read_bytes(), type=_Names)
_BY_FIELD: Final = {
    name.replace("_", "").lower(): kind
    for kind, names in (*((form.kind, form.variables) for form in PATTERNS), *_NAMES.fields.items())
    for name in names.split()
}
_SECRET_FIELD: Final = re.compile(expand_expression(_NAMES.secret_fields))
_KEY_FIELD: Final = re.compile(expand_expression(_NAMES.key_fields))
_KEPT: Final = re.compile(expand_expression(_NAMES.kept_variables))
_COMMON: Final = frozenset(_NAMES.common_words.split())
_PUBLIC_VALUE: Final = re.compile(expand_expression(_NAMES.public_values))
_PUBLIC_DOMAIN: Final = re.compile(expand_expression(_NAMES.public_domains))
_SHORTEST_VALUE, _LONGEST_VALUE = 8, 4096
SHORTEST: Final = 4
"""Least length of a name that is replaced everywhere, one less for a user; shorter ones are replaced only
where a field or path marks them as a name."""
_MACHINES: Final = frozenset(
    {"node", "gpu", "login", "compute", "server", "host", "machine", "head", "master"}
)
"""Words that are a machine's name if two digits follow."""


@lru_cache(maxsize=1 << 14)
def kind_of_field(name: str) -> str | None:
    """The kind that a field of this name holds, as `hostname`, `Host Name` or `PROCESS_0:USER_NAME` do."""
    last = name.rpartition(":")[2]
    kind = _BY_FIELD.get(re.sub(r"[^a-z0-9]", "", last.lower())) if len(last) < 64 else None
    if kind is None and re.fullmatch(r"ARGUMENT_\d+", last):
        return COMMAND
    if kind is None and len(last) < 64:
        return SECRET if _SECRET_FIELD.search(last) else BARE_KEY if _KEY_FIELD.fullmatch(last) else None
    return kind


def is_kept(variable: str) -> bool:
    """Whether an environment variable describes the run's layout or libraries and identifies nobody."""
    return _KEPT.fullmatch(variable) is not None


def kind_of_rule(rule: str) -> str:
    """The kind that a rule finds; the name of a variable or field may follow the rule."""
    base = rule.partition(" (")[0]
    return _RULES.get(base, base)


def is_telling(kind: str, value: str) -> bool:
    """Whether a hidden value is the same secret wherever else it occurs.

    Not so for numbers, short and common words, and values common to every machine's environment.
    """
    folded = value.casefold()
    uncommon = re.sub(r"[a-z]{3,}", lambda word: "" if word[0] in _COMMON else word[0], folded)
    if kind == PHONE:
        return len(re.findall(r"\d", value)) >= _SHORTEST_VALUE
    letters = re.search(r"[^\W\d_]", folded)
    mixed = letters and re.search(r"\d", folded) and kind in CREDENTIALS
    if letters is None or not _SHORTEST_VALUE - 2 * bool(mixed) <= len(value) <= _LONGEST_VALUE:
        return False
    if NOTHING.fullmatch(value) or CLEAN.search(value) or len(re.sub(r"\W", "", uncommon)) < SHORTEST:
        return False
    return kind in CREDENTIALS or not _PUBLIC_VALUE.fullmatch(value)


def is_public_domain(domain: str) -> bool:
    """Whether a host's domain is public: of one label, or a cloud's."""
    return "." not in domain or _PUBLIC_DOMAIN.fullmatch(domain) is not None


def is_common_word(kind: str, name: str) -> bool:
    """Whether a name is too short or too common a word to be replaced everywhere."""
    folded = name.casefold()
    stem = re.sub(r"[-_.]?\d{1,2}$", "", folded)
    machine = stem in _MACHINES and re.search(r"\d\d$", folded) is not None
    short = len(folded) < SHORTEST - (kind == USER)
    return short or folded in _COMMON or (stem in _COMMON and not machine) or len(stem) < 2

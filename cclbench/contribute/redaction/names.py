# SPDX-License-Identifier: Apache-2.0
"""Names that are replaced everywhere, each by the same pseudonym in all files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from secrets import token_bytes
from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.needles import Needles
from cclbench.contribute.redaction.pattern import BEGINS, CLEAN, ENDS, LOOPBACK
from cclbench.contribute.redaction.public_names import PublicNames
from cclbench.formats.rewriting import alternation_pattern

_ADDRESS: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]{6,}:[0-9a-fA-F:]*")
_ENTRY: Final = re.compile(r"(?P<name>[^\s,:\[]+(?:\[[^\]]*\][^\s,:]*)?)(?P<port>(?::\d+)?)")
_LISTED: Final = re.compile(
    r"([A-Za-z][\w.-]{0,60})\[(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\]([\w.-]{0,60})", re.ASCII
)
_MOST_HOSTS: Final = 4096
_LEAST_OF_A_KEY: Final = 16
_PLAIN: Final = re.compile(r"\w[\w.:+ -]{0,62}\w")
_BESIDE_A_NUMBER: Final = r"(?:(?<=[-_/=#@])|(?<=[A-Za-z:#] )|(?=\d+[-_@/]|\d+\.[A-Za-z]))"

_PROVIDERS: Final = re.compile(
    r"(?:^|\.)(?:s3[\w.-]*\.amazonaws\.com|storage\.(?:googleapis|cloud\.google)\.com"
    r"|(?:blob|dfs|file|queue|table)\.core\.windows\.net)"
)
"""The provider's part of a bucket's address."""
_ROUTES: Final = frozenset(
    ("runs", "sweeps", "reports", "workspace", "artifacts", "groups", "table", "overview", "files", "logs")
)
"""Parts of an experiment tracker's URL that are not names."""

Key = tuple[str, str]
"""A kind and a name in the form compared: without case, a host without its domain."""


@dataclass(frozen=True, eq=False)
class Identities:
    """Names learnt from all files of a data point; they are secrets, so `repr` does not print them.

    `pseudonyms` by (kind, name); those in `everywhere` are replaced everywhere, others only where a path, a
    field or a variable marks them as a name.
    """

    pseudonyms: Mapping[Key, str] = field(default_factory=dict)
    everywhere: frozenset[Key] = frozenset()
    domains: frozenset[str] = frozenset()
    """Domains that followed hosts' short names."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Kinds of hidden values, such as keys and variables, that are replaced everywhere."""
    spellings: frozenset[Key] = frozenset()
    """Names that are replaced everywhere, as written: in encoded forms case matters."""
    revealed: frozenset[str] = frozenset()
    """Fields and variables whose values their owner reveals, without case."""
    kept_names: tuple[str, ...] = ()
    """Patterns of names in evidence that their owner publishes."""
    published: frozenset[str] = frozenset()
    """Texts that a card publishes, such as the model's name, without case."""
    salt: bytes = field(default_factory=partial(token_bytes, 32))

    @property
    def learns(self) -> bool:
        """Whether names are collected."""
        return False

    def __repr__(self) -> str:
        return f"<Identities: {len(self.pseudonyms)} names, {len(self.everywhere)} replaced everywhere>"

    __str__ = __repr__

    def pseudonym_of(self, kind: str, name: str, *, learn: bool = False) -> str:
        """Pseudonym of a name of that kind; `learn` has an effect only in a `Learner`."""
        del learn
        return self.pseudonyms.get(name_key(kind, name), f"{kinds.NUMBERED[kind]}-unknown")

    def stand_in_for_value(self, kind: str, value: str) -> str:
        """Replacement of a value of that kind; a `Learner` also records the value."""
        del value
        return kinds.HIDDEN[kind]

    def keeps(self, name: str, value: str) -> bool:
        """Whether the value of a field or variable of that name stays because its owner reveals it."""
        revealed = self.is_revealed(name)
        if revealed:
            self.keep_value(value)
        return revealed

    def is_revealed(self, name: str) -> bool:
        """Whether the owner reveals the values of fields or variables of that name."""
        return bool(self.revealed) and name.rpartition(":")[2].casefold() in self.revealed

    def keep_value(self, value: str) -> None:
        """Note a value that stays: a `Learner` does not hide it elsewhere."""

    @cached_property
    def public_names(self) -> PublicNames:
        """What evidence publishes of its texts."""
        return PublicNames(self.salt, self.kept_names, self.published)

    @cached_property
    def secret_needles(self) -> Needles:
        """All names and values that must not occur in the bytes of a copy."""
        domains = dict.fromkeys(self.domains, kinds.HOST)
        return Needles({**domains, **{name: kind for kind, name in sorted(self.spellings)}, **self.values})

    def stand_in_for(self, kind: str, value: str) -> str:
        """Replacement of a name or value that was found by itself."""
        if kind in kinds.NUMBERED:
            return self.pseudonym_of(kind, value)
        return kinds.HIDDEN[kind]

    @cached_property
    def by_name(self) -> Mapping[str, Key]:
        """The names that are replaced everywhere, without case."""
        return {name: (kind, name) for kind, name in sorted(self.everywhere)}

    @cached_property
    def by_value(self) -> Mapping[str, str]:
        """Kinds of the values, which are matched without case."""
        return {value.casefold(): kind for value, kind in self.values.items()}

    @cached_property
    def name_pattern(self) -> re.Pattern[str] | None:
        """Matches the names as whole words, numbers only next to a mark of an id; domains; values."""
        domain = rf"(?:\.{alternation_pattern(self.domains)})?" if self.domains else ""
        forms = {
            kinds.USER: (BEGINS, ENDS),
            kinds.HOST: (BEGINS, f"{domain}{ENDS}"),
            kinds.JOB: (BEGINS, ENDS),
            kinds.ACCOUNT: (BEGINS, ENDS),
            kinds.FOLDER: (BEGINS, ENDS),
            kinds.DEVICE: (BEGINS, ENDS),
            kinds.ADDRESS: (BEGINS, ENDS),
            "": (rf"(?<![A-Za-z0-9.]){_BESIDE_A_NUMBER}", ENDS),
        }
        alternatives = []
        for form, (before, after) in forms.items():
            names = [name for kind, name in self.everywhere if form == ("" if name.isdigit() else kind)]
            if names:
                alternatives.append(f"{before}(?:{alternation_pattern(names)}){after}")
        if self.domains:
            alternatives.append(rf"{BEGINS}(?:[\w-]+\.){{0,4}}{alternation_pattern(self.domains)}{ENDS}")
        for credential, (before, after) in ((False, (BEGINS, ENDS)), (True, ("", ""))):
            values = [v for v, kind in self.values.items() if (kind in kinds.CREDENTIALS) is credential]
            if values:
                alternatives.append(f"{before}(?:{alternation_pattern(values)}){after}")
        return re.compile("|".join(alternatives), re.IGNORECASE) if alternatives else None

    @cached_property
    def _loose_pattern(self) -> re.Pattern[str] | None:
        # A pattern that begins with letters, in one case, is much faster than one with its context.
        names = [*(name for _, name in self.everywhere), *self.domains, *map(str.casefold, self.values)]
        return re.compile(alternation_pattern(names)) if names else None

    def may_be_mentioned(self, text: str) -> bool:
        """Whether a text may contain one of them, also within a word."""
        return self._loose_pattern is not None and self._loose_pattern.search(text.casefold()) is not None


class Learner(Identities):
    """Collects identities: each new name gets the next number of its kind."""

    def __init__(self, revealed: Iterable[str] = (), kept_names: Iterable[str] = ()) -> None:
        super().__init__(
            revealed=frozenset(name.casefold() for name in revealed), kept_names=tuple(kept_names)
        )
        self._names: dict[Key, str] = {}
        self._everywhere: set[Key] = set()
        self._domains: set[str] = set()
        self._counts: dict[str, int] = {}
        self._values: dict[str, str] = {}
        self._spellings: set[tuple[Key, str]] = set()
        self._kept: set[str] = set()
        self.used: set[str] = set()
        """Revealed names that occur in any file."""

    @property
    def learns(self) -> bool:
        """True: names are collected."""
        return True

    def pseudonym_of(self, kind: str, name: str, *, learn: bool = False) -> str:
        """The name's number, a new one for a new name."""
        key = name_key(kind, name)
        if key not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[key] = f"{kinds.NUMBERED[kind]}-{self._counts[kind]}"
        if learn and _PLAIN.fullmatch(key[1]) and not kinds.is_common_word(kind, key[1]):
            self._everywhere.add(key)
            at = max(0, name.casefold().find(key[1]))
            spelt = name[at : at + len(key[1])]  # for a host its first label
            self._spellings |= {(key, form) for form in (spelt, spelt.lower(), spelt.upper())}
        if learn and kind == kinds.HOST:
            self._domains.update(filter(None, [name.strip().strip(".").casefold().partition(".")[2]]))
        return self._names[key]

    def stand_in_for_value(self, kind: str, value: str) -> str:
        """Also record the value, or its parts that are secrets by themselves, to be hidden elsewhere."""
        for part in _secret_parts(kind, value):
            if kinds.is_telling(kind, part):
                self._values.setdefault(part, kind)
        return kinds.HIDDEN[kind]

    def is_revealed(self, name: str) -> bool:
        """Also note in `used` that the name occurs."""
        revealed = super().is_revealed(name)
        if revealed:
            self.used.add(name.rpartition(":")[2].casefold())
        return revealed

    def keep_value(self, value: str) -> None:
        """A value that stays in one place is not a secret elsewhere."""
        self._kept.add(value.casefold())

    def learnt_identities(self, published: frozenset[str]) -> Identities:
        """The identities learnt; a name that a card publishes on purpose is not a secret elsewhere."""

        texts = published | self._kept

        def is_published(name: str) -> bool:
            pattern = re.compile(f"{BEGINS}{re.escape(name)}{ENDS}")
            return any(pattern.search(text) for text in texts)

        everywhere = frozenset(key for key in self._everywhere if not is_published(key[1]))
        domains = frozenset(d for d in self._domains if not kinds.is_public_domain(d) and not is_published(d))
        values = {
            value: kind
            for value, kind in self._values.items()
            if value.casefold() not in self._kept
            and (kind in kinds.CREDENTIALS or not is_published(value.casefold()))
        }
        spellings = frozenset(
            (kind, form) for (kind, name), form in self._spellings if (kind, name) in everywhere
        )
        names, kept = dict(self._names), (self.revealed, self.kept_names, published)
        return Identities(names, everywhere, domains, values, spellings, *kept)


def _secret_parts(kind: str, value: str) -> Iterable[str]:
    """Parts of a hidden value that are secrets by themselves: a password, a bucket without its path."""
    stripped = value.strip().strip("\"'")
    if kind == kinds.PRIVATE_KEY:
        return [line for line in value.split() if len(line) >= _LEAST_OF_A_KEY and not line.startswith("-")]
    if kind == kinds.PASSWORD:
        return {stripped, re.split(r"[:/]", stripped)[-1]}
    if kind == kinds.BUCKET:
        return {stripped, *re.split(r"[@/]", _PROVIDERS.sub("", stripped).strip("/"))[:2]}
    if kind in kinds.CREDENTIALS:
        # The secret parts of a cookie, a hash with its parameters, or a signed header.
        words = re.split(r"[\s;:,=&$\"'/?|]+", stripped)
        return {
            stripped,
            *(word for word in words if len(word) >= _LEAST_OF_A_KEY and re.search(r"\d", word)),
        }
    return () if kind in (kinds.COMMAND, kinds.HOME) else [stripped]


def name_key(kind: str, name: str) -> Key:
    """A name in the form compared: without case; a host by its first label."""
    folded = name.strip().strip(".").casefold()
    if kind == kinds.DEVICE:
        return kind, re.sub(r"^(?:gpu|mig|tpu)-", "", folded)
    if kind == kinds.HOST and not _ADDRESS.fullmatch(folded):
        folded = folded.partition(".")[0] or folded
    return kind, folded


def replace_names(identities: Identities, kind: str, text: str, *, learn: bool = False) -> str:
    """A field's value with its names replaced: a name, or a list of hosts with or without ports."""
    if kind == kinds.JOB and "/" in text:
        parts = (
            part if part in _ROUTES else replace_names(identities, kind, part, learn=learn)
            for part in text.split("/")
        )
        return "/".join(parts)
    if kind != kinds.HOST:
        return (
            text
            if CLEAN.fullmatch(text) or not text.strip()
            else identities.pseudonym_of(kind, text, learn=learn)
        )

    def replace_match(match: re.Match[str]) -> str:
        return ",".join(map(replace_name, _expand_hosts(match["name"]))) + match["port"]

    def replace_name(name: str) -> str:
        if CLEAN.fullmatch(name) or LOOPBACK.fullmatch(name):
            return name
        role = kinds.ADDRESS if _ADDRESS.fullmatch(name) else kind
        return identities.pseudonym_of(role, name, learn=learn and role == kind)

    alone = _ADDRESS.fullmatch(text) or LOOPBACK.fullmatch(text)
    return replace_name(text) if alone else _ENTRY.sub(replace_match, text)


def _expand_hosts(hosts: str) -> list[str]:
    """The hosts that Slurm abbreviates as `nid[0016-0018,0020]`."""
    listed = _LISTED.fullmatch(hosts)
    if listed is None:
        return [hosts]
    names = list[str]()
    for part in listed[2].split(","):
        first, _, last = part.partition("-")
        numbers = range(int(first), min(int(last or first), int(first) + _MOST_HOSTS) + 1)
        names += [f"{listed[1]}{number:0{len(first)}d}{listed[3]}" for number in numbers]
    return names[:_MOST_HOSTS]

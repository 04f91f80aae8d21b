# SPDX-License-Identifier: Apache-2.0
"""Classes of secrets and identities, values drawn from them, and the two halves of an exam of redaction.

Redaction rules are written for the half `development`; the share of `held-out` that they find estimates the
share of unknown secrets that are found.
"""

from __future__ import annotations

import base64
import gzip
import random
import re
import string
import textwrap
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

HALVES: Final = ("development", "held-out")
_HALVES_SEED: Final = 20261123
_DRAWN: Final = re.compile(r"<(\w+)(?::(\d+))?>")
_UPPER: Final = string.ascii_uppercase
_ALNUM: Final = string.ascii_letters + string.digits
_HEX: Final = "0123456789abcdef"
_LETTERS: Final = {
    "alnum": _ALNUM,
    "base32": _UPPER + "234567",
    "base64": _ALNUM + "+/",
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "digit": string.digits[1:],
    "hex": _HEX,
    "hexdigits": _HEX[1:],
    "letters": string.ascii_letters,
    "lower": string.ascii_lowercase,
    "lower32": string.ascii_lowercase + "234567",
    "loweralnum": string.ascii_lowercase + string.digits,
    "upper": _UPPER + string.digits,
    "word": _ALNUM + "_-",
}


def name(rng: random.Random) -> str:
    """Name of a user or host, not a word of any language."""
    consonants = "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=3))
    return consonants + "".join(rng.choices(string.ascii_lowercase, k=4)) + str(rng.randrange(10, 99))


_OTHERS: Final[dict[str, Callable[[random.Random], str]]] = {
    "name": name,
    "Name": lambda rng: name(rng)[:7].capitalize(),
    "octet": lambda rng: str(rng.randrange(11, 250)),
    "byte": lambda rng: f"{rng.randrange(16, 250):02x}",
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
}


def draw(template: str, rng: random.Random) -> str:
    """A value of a template; at least one of letters and digits is a digit."""

    def one(part: re.Match[str]) -> str:
        if part[1] in _OTHERS:
            return _OTHERS[part[1]](rng)
        letters = _LETTERS[part[1]]
        drawn = "".join(rng.choices(letters, k=int(part[2])))
        return (
            drawn[:3] + str(rng.randrange(2, 8)) + drawn[4:] if "2" in letters and len(drawn) > 4 else drawn
        )

    return _DRAWN.sub(one, template)


@dataclass(frozen=True)
class SecretClass:
    """A class: its name, the template of its values, lines that contain one, and its documentation."""

    name: str
    source: str
    value: str
    texts: tuple[str, ...]
    alone: bool = False
    encoding: str = ""

    def planted(self, number: int, rng: random.Random) -> PlantedSecret:
        """A value in the text with that number."""
        value = draw(self.value, rng)
        text = self.texts[number % len(self.texts)].replace("{}", value)
        if not self.encoding:
            return PlantedSecret(self, value, text, ())
        encoded, traces = _ENCODINGS[self.encoding](text, value)
        return PlantedSecret(self, value, encoded, tuple(traces))


@dataclass(frozen=True)
class PlantedSecret:
    """One secret: its class, its value, the text that contains it, and traces of an encoded one."""

    secret_class: SecretClass
    value: str
    text: str
    traces: tuple[str, ...]


def _whole(encoded: str) -> tuple[str, list[str]]:
    return f"data {encoded} end", [encoded]


def _split(between: str, value: str, text: str) -> tuple[str, list[str]]:
    half = len(value) // 2
    return text.replace(value, value[:half] + between + value[half:]), [value[4:half], value[half:]]


def _wrapped(text: str) -> tuple[str, list[str]]:
    lines = textwrap.wrap(base64.b64encode(text.encode()).decode(), 64)
    return "\n".join(lines), lines


_ENCODINGS: Final[dict[str, Callable[[str, str], tuple[str, list[str]]]]] = {
    "base64": lambda text, _: _whole(base64.b64encode(text.encode()).decode()),
    "base64url": lambda text, _: _whole(base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")),
    "wrapped": lambda text, _: _wrapped(text),
    "percent": lambda text, _: _whole("".join(f"%{byte:02X}" for byte in text.encode())),
    "hex": lambda text, _: _whole(text.encode().hex()),
    "json": lambda text, _: _whole("".join(f"\\u{ord(letter):04x}" for letter in text)),
    "gzip": lambda text, _: _whole(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()),
    "utf16": lambda text, _: _whole(base64.b64encode(text.encode("utf-16-le")).decode()),
    "reversed": lambda text, _: _whole(text[::-1]),
    "continued": lambda text, value: _split("\\\n", value, text),
    "lines": lambda text, value: _split("\n", value, text),
    "folded": lambda text, value: _split("\\\n      ", value, f'key: "{text}"'),
    "strings": lambda text, value: _split('" "', value, f'"{text}"'),
}
"""A text encoded, and the pieces, each of which counts as a surviving secret if it is published."""


def classes(half: str | None = None) -> list[SecretClass]:
    """All classes, or those of one of the `HALVES`, drawn by a seed."""
    listed = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    all_classes = [SecretClass(**{**entry, "texts": tuple(entry["texts"])}) for entry in listed]
    names = sorted(each.name for each in all_classes)
    held_out = set(random.Random(_HALVES_SEED).sample(names, len(names) // 2))  # noqa: S311
    return [each for each in all_classes if half is None or (each.name in held_out) is (half == HALVES[1])]

# SPDX-License-Identifier: Apache-2.0
"""Values drawn from templates such as `zq_<alnum:32>`, for exams of redaction."""

from __future__ import annotations

import random
import re
import string
import uuid
from collections.abc import Callable
from typing import Final

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

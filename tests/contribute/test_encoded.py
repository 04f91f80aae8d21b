# SPDX-License-Identifier: Apache-2.0
"""Secrets that stand in a text encoded or split alone, and texts that look encoded and are not."""

from __future__ import annotations

import base64
import gzip

import pytest

from cclbench.contribute.redaction.encoded import encoded_texts
from cclbench.contribute.redaction.names import Learner
from cclbench.contribute.redaction.scrub import Scrubber

TOKEN = f"ghp_{'Ab1c' * 9}"
LINE = f"export GH_TOKEN={TOKEN} and a line that is long enough to be wrapped somewhere in it"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "encoded",
    [
        b64(LINE.encode()),
        b64(LINE.encode()).rstrip("="),
        base64.urlsafe_b64encode(LINE.encode()).decode(),
        b64(b64(LINE.encode()).encode()),
        b64(gzip.compress(LINE.encode())),
        b64(LINE.encode("utf-16-le")),
        base64.encodebytes(LINE.encode()).decode().strip(),
        LINE.encode().hex(),
        LINE.encode().hex(" "),
        "".join(f"\\x{byte:02x}" for byte in LINE.encode()),
        "".join(f"\\u{ord(letter):04x}" for letter in LINE),
        "".join(f"%{byte:02x}" for byte in LINE.encode()),
    ],
)
def test_an_encoded_text_that_holds_something_is_hidden(encoded: str) -> None:
    new, counts = Scrubber(Learner()).text(f"data {encoded} end")
    assert new == "data redacted-secret end"
    assert counts == {"encoded secret": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"run --token {TOKEN[:20]}\\\n    {TOKEN[20:]} x", "run --token redacted-token x"),
        (f"{TOKEN[:20]}\n{TOKEN[20:]}", "redacted-token"),
        (f'f("{TOKEN[:14]}" "{TOKEN[14:]}")', 'f("redacted-token")'),
        (f"'{TOKEN[:14]}' +\n  '{TOKEN[14:]}'", "'redacted-token'"),
        (f"a {TOKEN[::-1]} b", "a redacted-token b"),
        (f"{TOKEN}\nnext line", "redacted-token\nnext line"),
    ],
)
def test_a_token_that_a_break_splits_is_hidden(text: str, expected: str) -> None:
    assert Scrubber(Learner()).text(text)[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "0123456789abcdef0123456789abcdef",
        "100%25 of a%20b",
        b64(b"nothing to see in this line at all"),
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
    ],
)
def test_what_holds_nothing_stays(text: str) -> None:
    assert Scrubber(Learner()).text(text) == (text, {})


def test_of_bytes_that_are_no_text_nothing_is_decoded() -> None:
    assert list(encoded_texts(b64(bytes(range(128, 200))))) == []


def test_a_split_token_is_hidden_beside_other_strings_and_in_bytes() -> None:
    """What adjoins it may itself look as if it went on."""
    split = f'"{TOKEN[:14]}" "{TOKEN[14:]}"'
    assert Scrubber(Learner()).text(f'key: "one-more"\n{split}')[0] == 'key: "one-more"\n"redacted-token"'

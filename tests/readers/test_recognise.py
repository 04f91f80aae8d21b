# SPDX-License-Identifier: Apache-2.0
"""Which reader a file's beginning asks for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cclbench.errors import InputError
from cclbench.readers import READERS, recognise

FILE = Path("trace.json")


@pytest.mark.parametrize(
    "head",
    [
        b'{"schemaVersion": 1, "traceEvents": [',
        b' {\n "deviceProperties": [], "x": 1',
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"',
        b'[{"ph": "X", "cat": "Operator", "name": "a"}',
        b'{"traceEvents": [{"ph": "X"',
        b'[{"ph": "M"',
    ],
)
def test_traces(head):
    assert recognise(FILE, head).name == "kineto"


@pytest.mark.parametrize(
    "head",
    [b"", b"PK\3\4", b"{}", b'{"results": [1]}', b"[1, 2]", b"id: a-card\n", b"\x1f\x8b\x08"],
)
def test_other_files(head):
    assert recognise(FILE, head) is None


def test_own_keys_count_more_than_the_layout():
    sniff = READERS.get("kineto").sniff
    assert sniff(b'{"schemaVersion": 1, "traceEvents": [') > sniff(b'{"traceEvents": [')
    assert sniff(b'[{"ph": "X", "cat": "Operator"}') > sniff(b'[{"ph": "X"}')


def test_a_tie_names_both(monkeypatch):
    known = {"kineto": READERS.get("kineto"), "other": SimpleNamespace(sniff=lambda _: 0.9)}
    monkeypatch.setattr("cclbench.readers.READERS", type("Both", (dict,), {"get": dict.get})(known))
    with pytest.raises(InputError, match="kineto or other"):
        recognise(FILE, b'{"schemaVersion": 1}')

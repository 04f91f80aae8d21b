# SPDX-License-Identifier: Apache-2.0
"""Entries of graph captures: Python functions are decoded by themselves, with the same values."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cclbench.formats.kineto.events import PYTHON, CallDecoder, CallEvent, PythonEvent

TEXT = st.sampled_from([PYTHON, "cpu_op", 'a "cat": "python_function"', "é{}[],"])
NUMBER = st.sampled_from([0, 7, 12.5, 6520430063661.945])
PYTHON_ROW = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.just(PYTHON),
        "name": TEXT,
        "tid": NUMBER.map(int),
        "ts": NUMBER,
        "dur": NUMBER,
    },
    optional={"args": st.just({"Python id": 3}), "pid": st.just(1)},
)
OTHER_ROW = st.fixed_dictionaries(
    {"ph": st.sampled_from("Xif"), "name": TEXT},
    optional={"cat": TEXT, "tid": TEXT, "ts": NUMBER, "dur": NUMBER, "args": st.just({"kernel": "gemm"})},
)
USED = ("ph", "cat", "name", "tid", "ts", "dur")


def values(events: Any) -> list[tuple[Any, ...]]:
    """What is read of each entry; of others than Python functions also their `args`."""
    return [
        (*(getattr(event, name) for name in USED), None if event.cat == PYTHON else event.args)
        for event in events
    ]


@given(st.lists(st.one_of(st.lists(PYTHON_ROW), st.lists(st.one_of(PYTHON_ROW, OTHER_ROW))), max_size=6))
def test_arrays_of_python_functions_have_the_values_of_any_other(arrays: list[list[dict[str, Any]]]) -> None:
    decoder = CallDecoder()
    for rows in arrays:
        text = msgspec.json.encode(rows)
        assert values(decoder.decode(text)) == values(msgspec.json.decode(text, type=list[CallEvent]))


def test_only_what_follows_a_python_function_is_decoded_as_such() -> None:
    decoder, row = CallDecoder(), b'{"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 2}'
    kinds = [type(decoder.decode(b"[" + row + b"]")[0]) for _ in range(2)]
    assert kinds == [CallEvent, PythonEvent]
    assert [type(e) for e in decoder.decode(b"[" + row + b', {"cat": "cpu_op"}]')] == [CallEvent, CallEvent]
    assert type(decoder.decode(b"[" + row + b"]")[0]) is CallEvent

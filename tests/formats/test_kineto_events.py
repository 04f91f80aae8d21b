# SPDX-License-Identifier: Apache-2.0
"""Fields of Kineto events to their bounds, the columns made of `args`, kinds, tracks and links by value."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
import pytest

from cclbench.formats.kineto.events import DECODER, Args, argument_columns, autograd_columns, operator_ids
from cclbench.formats.kineto.kinds import device_index, track_number


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        *((name, -(1 << 63), (1 << 63) - 1) for name in ("correlation", "Total Allocated", "Seq")),
        *((name, -(1 << 31), (1 << 31) - 1) for name in ("Rank", "Device Type")),
        *((name, 0, 1 << 56) for name in ("In msg nelems", "Out msg size")),
        ("flops", 0, 1 << 64),
    ],
)
def test_numbers_of_args_to_their_bounds(field: str, least: int, most: int) -> None:
    def decoded(value: int) -> Any:
        return DECODER.decode(json.dumps([{"args": {field: value}}]).encode())

    for value in (least, most):
        assert decoded(value)[0].args != Args()
    # A float tells the next number above 2⁶⁴ from it only so far away.
    for value in (least - 1, most + (1 << 12 if field == "flops" else 1)):
        with pytest.raises(msgspec.DecodeError):
            decoded(value)


def args_of(*given: dict[str, Any]) -> list[Args]:
    text = json.dumps([{"args": args} for args in given]).encode()
    return [event.args or Args() for event in DECODER.decode(text)]


def test_ids_and_numbers_of_operators() -> None:
    def ids(*stated: Any) -> list[int | None]:
        return operator_ids(args_of(*({"External id": i} for i in stated))).to_pylist()

    last = (1 << 63) - 1
    assert ids(1, 0, -1, None, last) == [1, None, None, None, last]
    strange = ("5", 2.5, 1 << 63, -(1 << 63))
    assert ids(1, *strange, last, True, [3], 0) == [1, *[None] * 4, last, None, None, None]
    # under the name of 2021 they count where there is no other
    assert operator_ids(args_of({"external id": 4}, {})).to_pylist() == [4, None]
    assert operator_ids(args_of({"external id": 4}, {"External id": 7})).to_pylist() == [None, 7]
    stated = [{"Sequence number": n, "Fwd thread id": n} for n in (0, 1, 9, -1, "3", True, (1 << 63) - 2)]
    columns = autograd_columns(args_of(*stated, {}))
    assert columns["sequence"].to_pylist() == [0, 1, 9, None, None, None, (1 << 63) - 2, None]
    assert columns["forward_thread"].to_pylist() == [None, 1, 9, None, None, None, (1 << 63) - 2, None]
    columns = autograd_columns(args_of({"Sequence number": (1 << 63) - 1}, {"Sequence number": 2}))
    assert columns["sequence"].to_pylist() == [None, 2]


def test_arguments_are_texts_without_spaces_and_null_where_an_op_has_none() -> None:
    given = [
        {"Input Dims": [[2, 3], []], "Input type": ["float", "a b"]},
        {},
        {"Input Dims": [], "Concrete Inputs": ["", "1 2"], "Input Strides": [[3, 1]]},
        {"Input Dims": [[2, 3], []]},
    ]
    columns = argument_columns(args_of(*given))
    columns = {name: None if c is None else c.to_pylist() for name, c in columns.items()}
    assert columns == {
        "shapes": ["[[2,3],[]]", None, "[]", "[[2,3],[]]"],
        "dtypes": ['["float","a b"]', None, None, None],
        "strides": [None, None, "[[3,1]]", None],
        "values": [None, None, '["","1 2"]', None],
    }
    assert argument_columns(args_of({}, {})) == dict.fromkeys(("shapes", "dtypes", "strides", "values"))


def test_shapes_under_the_name_of_2021_count_where_there_is_no_other() -> None:
    for given, shapes in (
        ([{"Input dims": [[1]]}, {}], ["[[1]]", None]),
        ([{"Input dims": [[1]]}, {"Input Dims": [[2]]}], [None, "[[2]]"]),
        ([{"Input Dims": [[n]]} for n in (1, 2, 1)], ["[[1]]", "[[2]]", "[[1]]"]),
    ):
        assert argument_columns(args_of(*given))["shapes"].to_pylist() == shapes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("stream 7", 7), ("-12", -12), ("9" * 18, int("9" * 18)), ("9" * 19, zlib.crc32(b"9" * 19))),
        *(
            ("main", zlib.crc32(b"main")),
            ("stream 7b", zlib.crc32(b"stream 7b")),
            (None, zlib.crc32(b"None")),
        ),
    ],
)
def test_a_track_is_its_number_or_that_of_its_name(text: str | None, number: int) -> None:
    assert track_number(text) == number


@pytest.mark.parametrize(
    ("device", "index"),
    [(0, 0), ("3", 3), (9999, 9999), (10_000, None), (-1, None), ("gpu", None), (None, None)],
)
def test_a_device_s_index_may_stand_as_text(device: Any, index: int | None) -> None:
    assert device_index(device) == index

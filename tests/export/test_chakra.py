# SPDX-License-Identifier: Apache-2.0
"""What is written is Chakra's schema, and what is damaged is told."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from cclbench.export import chakra
from cclbench.ground.errors import InputError

# Facts of schema/protobuf/et_def.proto, github.com/mlcommons/chakra at
# 21585d8f2d65603d791d2121e3d4632351120262: number, type, whether it repeats.
OFFICIAL = {
    "AttributeProto": {
        "name": (1, "string", False), "double_val": (3, "double", False), "int32_val": (7, "int32", False),
        "int64_val": (9, "int64", False), "uint64_val": (13, "uint64", False),
        "bool_val": (27, "bool", False), "string_val": (29, "string", False),
    },
    "GlobalMetadata": {"version": (1, "string", False), "attr": (2, "AttributeProto", True)},
    "Node": {
        "id": (1, "uint64", False), "name": (2, "string", False), "type": (3, "enum", False),
        "ctrl_deps": (4, "uint64", True), "data_deps": (5, "uint64", True),
        "start_time_micros": (6, "uint64", False), "duration_micros": (7, "uint64", False),
        "attr": (10, "AttributeProto", True),
    },
}  # fmt: skip
NODE_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
COLLECTIVES = {
    "ALL_REDUCE": 0, "REDUCE": 1, "ALL_GATHER": 2, "GATHER": 3, "SCATTER": 4, "BROADCAST": 5, "ALL_TO_ALL": 6,
    "REDUCE_SCATTER": 7, "BARRIER": 9,
}  # fmt: skip


def test_fields_are_those_of_the_official_schema() -> None:
    for message, fields in OFFICIAL.items():
        found = chakra.message_class(message).DESCRIPTOR
        told = {}
        for field in found.fields:
            kind = field.message_type.name if field.message_type else field.type
            told[field.name] = (field.number, kind, field.is_repeated)
        # an enum is an int32 on the wire
        official = {
            name: (number, TYPES.get(kind, kind), repeats) for name, (number, kind, repeats) in fields.items()
        }
        assert told == official
    written = (chakra.COMPUTE, chakra.SEND, chakra.RECV, chakra.COLLECTIVE)
    assert written == tuple(NODE_TYPES.values())
    assert {kind.upper(): number for kind, number in chakra.COLLECTIVES.items()} == COLLECTIVES
    alternatives = chakra.message_class("AttributeProto").DESCRIPTOR.oneofs_by_name["value"]
    assert {field.name for field in alternatives.fields} == OFFICIAL["AttributeProto"].keys() - {"name"}


TYPES = {"double": 1, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "enum": 5}


def test_bytes_of_a_node() -> None:
    file = BytesIO()
    chakra.write_node(file, 3, "k", chakra.COMPUTE, [1, 2], [], (1_999, 1_999, 300_000), {"is_cpu_op": False})
    node = bytes.fromhex("0803 1201 6b 1804 2a02 0102 3001 38ab02")  # 1 us; 300 us - 1 us = 299 us
    attributes = [
        b"\x0a\x08start_ns" + b"\x48\xcf\x0f",
        b"\x0a\x0bduration_ns" + b"\x48\x91\x98\x12",
        b"\x0a\x09is_cpu_op" + b"\xd8\x01\x00",
    ]
    expected = node + b"".join(b"\x52" + bytes([len(each)]) + each for each in attributes)
    assert file.getvalue() == bytes([len(expected)]) + expected


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "workload.0.et"
    says = {"text": "x" * 300, "whole": -5, "real": 0.5, "yes": True, "comm_src": 7}
    with path.open("wb") as file:
        chakra.write_metadata(file, says)
        chakra.write_node(file, 0, "n" * 20_000, chakra.RECV, [], [], (0, 0, 1), {})
    header, node = chakra.read_messages(path)
    assert chakra.message_attributes(header) == says
    assert header.version == "0.0.4"
    assert (len(node.name), node.type, node.duration_micros) == (20_000, 6, 0)
    assert chakra.message_attributes(node) == {"start_ns": 0, "duration_ns": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\x05abc", "ends within a message"),
        (b"\x80", "ends within a length"),
        (b"\xff\xff\xff\xff\xff\xff", "no length of a message"),
        (b"\x02\xff\xff", "no GlobalMetadata of Chakra"),
    ],
)
def test_damage_is_told(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.0.et"
    path.write_bytes(text)
    with pytest.raises(InputError, match=says):
        list(chakra.read_messages(path))

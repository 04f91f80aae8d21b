# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages from textual descriptions, without a compiler or generated code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def described_class(package: str, messages: Mapping[str, str], class_name: str) -> Any:
    """The class of the message `class_name`, one of those described by name.

    Fields are `name=number:type`, a scalar type of protobuf or one of the messages; a `*` suffix repeats,
    `?` makes it one of the message's alternatives.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=package, package=f"cclbench.{package}", syntax="proto3")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        if "?" in fields:
            described.oneof_decl.add(name="value")
        for text in fields.split():
            name, number, kind = re.split("[=:]", text)
            field = described.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            if kind.endswith("?"):
                field.oneof_index = 0
            kind = kind.rstrip("*?")
            if kind in messages:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{class_name}"))

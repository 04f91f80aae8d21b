# SPDX-License-Identifier: Apache-2.0
"""Events as messages. Fields: tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from cclbench.formats.job_log.scalars import Scalar
from cclbench.ground.protobuf_schema import described_class

_MESSAGES: Final = {
    "Tensor": "dtype=1:int32 tensor_content=4:bytes float_val=5:float* double_val=6:double*",
    "Value": "tag=1:string simple_value=2:float? tensor=8:Tensor?",
    "Summary": "value=1:Value*",
    "Event": "wall_time=1:double step=2:int64 file_version=3:string? summary=5:Summary?",
}
_CONTENT: Final = {1: struct.Struct("<f"), 2: struct.Struct("<d")}
"""Layout of a tensor's one number, by the type's number."""


@cache
def event_class() -> Any:
    """The class of events."""
    return described_class("tensorboard", _MESSAGES, "Event")


def scalars_of(event: Any) -> Iterator[Scalar]:
    """The values of an event."""
    for value in event.summary.value:
        yield Scalar(event.wall_time, event.step, value.tag, _number_of(value))


def _number_of(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    layout = _CONTENT.get(value.tensor.dtype)
    listed = [*value.tensor.float_val, *value.tensor.double_val]
    if layout is not None and len(value.tensor.tensor_content) == layout.size:
        listed = [*layout.unpack(value.tensor.tensor_content)]
    return float(listed[0]) if len(listed) == 1 else None

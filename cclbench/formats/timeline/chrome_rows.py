# SPDX-License-Identifier: Apache-2.0
"""Rows of Chrome JSON whose times are texts or numbers in µs, as msprof and Flex write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from cclbench.formats.timeline.tables import exact_nanoseconds
from cclbench.formats.trace import impossible_value
from cclbench.ground.intervals import Int64


class ChromeRow(msgspec.Struct, gc=False):
    """What such rows have in common; readers add the attributes of theirs."""

    ph: str
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Any = None
    dur: Any = None


def row_nanoseconds(times: Sequence[Any], where: str, hint: str) -> Int64:
    """µs as they are written in whole ns; `InputError` with `hint` if one is no time."""
    try:
        return exact_nanoseconds(pa.array(list(map(str, times)), pa.string()), "us", where)
    except pa.ArrowException as error:
        raise impossible_value(f"time: {str(error).splitlines()[0][:200]}", where, hint) from None

# SPDX-License-Identifier: Apache-2.0
"""The decoded fields of a Kineto event (msgspec skips all others), and columns built from its `args`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PYTHON: Final = "python_function"
"""Category of Python functions."""
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 56)]
"""Number of elements or bytes: small enough that 16 bytes an element still fit 64 bits."""
Flops = Annotated[float, msgspec.Meta(ge=0, le=1 << 64)]
"""FLOPs of an operator: torch counts them in unsigned 64 bits."""


class CallArgs(msgspec.Struct, gc=False):
    """`args` of operators and launches."""

    correlation: Int64 | None = None
    kernel: Any = None
    flops: Flops | None = None
    external_id: Any = msgspec.field(name="External id", default=None)
    external_id_2021: Any = msgspec.field(name="external id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    dims_2021: msgspec.Raw = msgspec.field(name="Input dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=None)


class Args(CallArgs, gc=False):
    """The same with those of device rows, waits, collectives (old and new keys) and allocations."""

    device: Int64 | str | None = None
    stream: Int64 | str | None = None
    bytes: Int64 | float | str | None = None
    grid: tuple[Int32, Int32, Int32] | str | None = None
    """A kernel's three dimensions; the text `grid(100,)` for an op compiled by TorchInductor."""
    occupancy: float | None = msgspec.field(name="est. achieved occupancy %", default=None)
    warps: float | None = msgspec.field(name="warps per SM", default=None)
    kind: Any = None
    direction: Any = None
    size: Any = None
    wait_on_stream: Int64 | float | str | None = None
    wait_on_record: Int64 | float | str | None = msgspec.field(
        name="wait_on_cuda_event_record_corr_id", default=None
    )
    collective: str | None = msgspec.field(name="Collective name", default=None)
    in_elements: Count | None = msgspec.field(name="In msg nelems", default=None)
    out_elements: Count | None = msgspec.field(name="Out msg nelems", default=None)
    in_size: Count | None = msgspec.field(name="In msg size", default=None)
    out_size: Count | None = msgspec.field(name="Out msg size", default=None)
    dtype: str | None = None
    group_size: Int32 | None = msgspec.field(name="Group size", default=None)
    group_name: str | int | None = msgspec.field(name="Process Group Name", default=None)
    group_id: str | int | None = msgspec.field(name="Process Group ID", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    group_ranks: str | None = msgspec.field(name="Process Group Ranks", default=None)
    first_rank: Int32 | None = msgspec.field(name="Global rank start", default=None)
    rank_stride: Int32 | None = msgspec.field(name="Global rank stride", default=None)
    rank: Int32 | None = msgspec.field(name="Rank", default=None)
    src_rank: Int32 | None = msgspec.field(name="Src Rank", default=None)
    dst_rank: Int32 | None = msgspec.field(name="Dst Rank", default=None)
    seq: Int64 | None = msgspec.field(name="Seq", default=None)
    """Sequence number in the process group, separate for collectives and transfers (kineto #1296).

    `Comms Id` (#1300) is not a communicator's id: it is a hash, up to 2⁶⁴, of this number, whether it is a
    transfer, and the group's name, first rank, stride and size (torch/csrc/profiler/util.cpp).  It adds
    nothing to the row, and differs between the two ends of a transfer, whose ranks count separately."""
    allocated: Int64 | None = msgspec.field(name="Total Allocated", default=None)
    reserved: Int64 | None = msgspec.field(name="Total Reserved", default=None)
    change: Any = msgspec.field(name="Bytes", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    device_type: Int32 | None = msgspec.field(name="Device Type", default=None)
    device_id: Int32 | None = msgspec.field(name="Device Id", default=None)


class CallEvent(msgspec.Struct, gc=False):
    """An entry of `traceEvents` with the `args` of operators and launches; times in µs."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Int64 | str | None = None
    tid: Int64 | str | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: CallArgs | None = None


class Event(CallEvent, gc=False):
    """The same with all `args`."""

    args: Args | None = None


class ExactCallEvent(CallEvent, gc=False):
    """A `CallEvent` with every digit of its times."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class ExactEvent(Event, gc=False):
    """An `Event` with every digit of its times."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class PythonEvent(msgspec.Struct, gc=False):
    """An entry of `traceEvents` with what is used of a Python function; times in µs."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    tid: Int64 | str | None = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: ClassVar[None] = None


DECODER = msgspec.json.Decoder(list[Event])
EXACT_DECODER = msgspec.json.Decoder(list[ExactEvent])
EXACT_CALL_DECODER = msgspec.json.Decoder(list[ExactCallEvent])
_CALL_DECODER = msgspec.json.Decoder(list[CallEvent])
_PYTHON_DECODER = msgspec.json.Decoder(list[PythonEvent])


class CallDecoder:
    """Decodes a file's entries with the few `args` of calls, in half the time of all.

    Most entries of a capture are Python functions, one behind the other: an array of nothing else is decoded
    as `PythonEvent`, in two thirds of that time.
    """

    def __init__(self) -> None:
        self._in_python = False

    def decode(self, text: bytes) -> Sequence[CallEvent | PythonEvent]:
        """The entries of an array."""
        if self._in_python:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                python = _PYTHON_DECODER.decode(text)
                if [event.cat for event in python].count(PYTHON) == len(python):
                    return python
        calls = _CALL_DECODER.decode(text)
        self._in_python = bool(calls) and calls[-1].cat == PYTHON
        return calls


NO_ARGS = Args()
_FULL_WARPS = 64
"""Most resident warps of a multiprocessor, on any NVIDIA GPU since 2012."""
_LEAST_OCCUPANCY = 0.005
"""Smallest occupancy that does not round to 0 %."""


def operator_ids(args: list[Args]) -> pa.Array:
    """Ids of operator calls: an op's own, or that of the op that launched a device row; null for 0."""
    ids = [a.external_id for a in args]
    if not any(ids):
        ids = [a.external_id_2021 for a in args]
    return _positive_numbers(ids)


def _positive_numbers(values: list[Any]) -> pa.Array:
    """The positive integers, null for all other values."""
    numbers = whole_numbers(values)
    return pc.if_else(pc.greater(numbers, 0), numbers, None)


def whole_numbers(values: list[Any]) -> pa.Array:
    """The integers of 64 bits, null for all other values."""
    try:
        return pa.array(values, pa.int64())
    except (TypeError, ValueError, OverflowError):
        return pa.array([i if type(i) is int and abs(i) < 1 << 63 else None for i in values], pa.int64())


def kernel_occupancy(args: list[Args]) -> pa.Array | None:
    """Estimated share of the device's warps that each kernel keeps resident, as Kineto states it.

    Kineto rounds it to whole percent, and writes a negative number if the device is unknown to it.  It also
    writes 0 for a kernel with more shared memory than a block's default limit, as if it could not run: a 0
    counts only if the grid has too few warps for half a percent.
    """
    percent = np.array([np.nan if a.occupancy is None else a.occupancy for a in args], np.float64)
    warps = np.array([np.nan if a.warps is None else a.warps for a in args], np.float64)
    valid = (percent > 0) | ((percent == 0) & (warps < _LEAST_OCCUPANCY * _FULL_WARPS))
    valid &= percent <= 100
    return pa.array(percent / 100, mask=~valid) if valid.any() else None


def autograd_columns(args: list[Args]) -> dict[str, pa.Array]:
    """Columns that link backward ops to their forward ops; sequence numbers start at 0."""
    sequence = [a.sequence + 1 if type(a.sequence) is int else None for a in args]
    return {
        "sequence": pc.subtract(_positive_numbers(sequence), 1),
        "forward_thread": _positive_numbers([a.forward_thread for a in args]),
    }


def argument_columns(args: list[Args]) -> dict[str, pa.Array | None]:
    """Columns of ops' arguments, each a JSON list as text, null if an op has none."""
    shapes = [a.dims for a in args]
    return {
        "shapes": _json_texts(shapes if any(shapes) else [a.dims_2021 for a in args]),
        "dtypes": _json_texts([a.types for a in args]),
        "strides": _json_texts([a.strides for a in args]),
        "values": _json_texts([a.values for a in args]),
    }


def _json_texts(raws: list[msgspec.Raw]) -> pa.Array | None:
    if not any(raws):
        return None
    ends = np.zeros(len(raws) + 1, np.int32)
    np.fromiter(map(len, raws), np.int32, len(raws)).cumsum(out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(raws))]
    coded = pa.Array.from_buffers(pa.binary(), len(raws), buffers).dictionary_encode()
    distinct, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    absent = codes == distinct.index(b"") if b"" in distinct else np.zeros(len(codes), np.bool_)
    texts = pa.array([_without_spaces(raw) for raw in distinct], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=absent), texts)


@lru_cache(maxsize=1 << 12)
def _without_spaces(json: bytes) -> str:
    return str(msgspec.json.format(json or b"[]", indent=-1), "utf-8", "replace")

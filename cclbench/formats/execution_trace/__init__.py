# SPDX-License-Identifier: Apache-2.0
"""PyTorch execution traces (ET): the operators of a process with their tensors, but without times.

They complement Kineto traces of older versions with each collective's tensors, sequence number and process
group.  Two layouts, as torch/csrc/profiler/standalone/execution_trace_observer.cpp writes them: schema 1.0.x,
and 1.1.x ("chakra") with `ctrl_deps` and `{values, types}`.  The second, and `## process_group:init ##`,
follow that source; they have not been tested on a real job's trace.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from cclbench.formats import HEAD_BYTES, READERS, BackendCall, ExecutionTrace, ExecutionTraceReader, Payload
from cclbench.formats.streams import open_bytes
from cclbench.formats.texts import damaged_error, read_whole, reason_of
from cclbench.record.facts import ProcessGroup

_MOST_BYTES: Final = 1 << 29
_HINT: Final = "capture the execution trace again, or remove it to do without"
_LONGEST_LIST: Final = 1 << 12
"""The observer cuts longer lists."""
_MOST_RANKS: Final = 1 << 20
_MOST_PAYLOAD: Final = 1 << 60
_INT64: Final = range(-(1 << 63), 1 << 63)
_PROCESS = re.compile(rb'"pid"\s*:\s*(\d{1,18})\b')
_DTYPE = re.compile(r"Tensor\(((?:[^()]|\([^()]*\))*)\)")
_GROUPS = ("## process_group:init ##", "process_group:init")
_BACKENDS = ("nccl:", "gloo:")

Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class _Node(msgspec.Struct, gc=False):
    """An operator; tensors are decoded for collectives only."""

    id: int
    name: str
    parent: int | None = None
    ctrl_deps: int | None = None
    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")

    @property
    def enclosing_node(self) -> int:
        return (self.ctrl_deps if self.parent is None else self.parent) or 0


class _GraphFile(msgspec.Struct):
    pid: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    nodes: list[_Node]


class _Tensors(msgspec.Struct):
    values: list[Any] = []
    types: list[str] = []


class _ListedGroup(msgspec.Struct):
    pg_name: str | int
    pg_desc: str | None = None
    ranks: list[Rank] = []
    group_size: Annotated[int, msgspec.Meta(gt=0, le=_MOST_RANKS)] | None = None


class PyTorchExecutionTrace(ExecutionTraceReader):
    """Reader of PyTorch's execution traces."""

    name = "execution_trace"
    description = "PyTorch execution traces: operators and their tensors, without times"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = "`torch.profiler.ExecutionTraceObserver`, beside the trace of the same process"
    versions = "schema 1.0.1; 1.1 (chakra) as documented"
    tested = "real: schema 1.0 of NCCL jobs; documentation: schema 1.1, by the observer's source"

    def sniff(self, head: bytes) -> float:
        """Certain of the observer's own keys before the list of operators."""
        header = head.partition(b"[")[0]
        has_keys = all(key in header for key in (b'"schema"', b'"pid"', b'"nodes"'))
        return 1.0 if has_keys and header.lstrip()[:1] == b"{" else 0.0

    def process_of(self, path: Path) -> int | None:
        """The process id in the file's first lines."""
        try:
            with open_bytes(path) as file:
                match = _PROCESS.search(file.read(HEAD_BYTES).partition(b"[")[0])
        except (OSError, EOFError, zlib.error) as error:
            raise damaged_error(path, f"gzip stream is damaged ({error})", hint=_HINT) from None
        return int(match[1]) if match else None

    def read(self, path: Path) -> ExecutionTrace:
        """The whole trace; `InputError` if it is damaged."""
        text = read_whole(path, _MOST_BYTES, hint=_HINT)
        try:
            file = msgspec.json.decode(text, type=_GraphFile)
            nodes = {node.id: node for node in file.nodes}
            calls = sorted((n for n in file.nodes if n.name.startswith(_BACKENDS)), key=lambda n: n.id)
            return ExecutionTrace(
                process_id=file.pid,
                calls=tuple(
                    _communication_call(node, nodes.get(node.enclosing_node), path) for node in calls
                ),
                groups=tuple(g for n in file.nodes if n.name in _GROUPS for g in _process_groups(n)),
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise damaged_error(path, reason_of(error), hint=_HINT) from None


def _decode_tensors(values: msgspec.Raw, types: msgspec.Raw) -> _Tensors:
    """Values and types, in either layout."""
    if bytes(values).startswith(b"{"):
        return msgspec.json.decode(values, type=_Tensors)
    return _Tensors(msgspec.json.decode(values, type=list[Any]), msgspec.json.decode(types, type=list[str]))


def _communication_call(node: _Node, enclosing: _Node | None, path: Path) -> BackendCall:
    in_bytes = _tensor_bytes(_decode_tensors(node.inputs, node.input_types).values, path)
    if enclosing is None or enclosing.name != "record_param_comms":
        return BackendCall(node.name, in_bytes)
    inputs = _decode_tensors(enclosing.inputs, enclosing.input_types)
    values = inputs.values
    # [tensors,] sequence number, group, rank, name, split sizes in and out [, first rank, stride, size]
    at = next((i for i in (4, 3) if len(values) > i and isinstance(values[i], str)), None)
    if at is None:
        return BackendCall(node.name, in_bytes)
    seq, group = values[at - 3], values[at - 2]
    if isinstance(seq, list) and seq:
        seq = seq[0]  # the second entry: whether it counts point-to-point transfers
    name, description = [*group, None, None][:2] if isinstance(group, list) else (group, None)
    first, stride, size = [*(_checked_integer(value) for value in values[at + 3 : at + 6]), None, None, None][
        :3
    ]
    splits = {len(value) for value in values[at + 1 : at + 3] if isinstance(value, list) and value}
    if size is None and len(splits) == 1 and max(splits) < _LONGEST_LIST:
        (size,) = splits
    dtypes = set(_DTYPE.findall(inputs.types[0])) if at == 4 and inputs.types else set()
    payload = Payload(
        source=PyTorchExecutionTrace.name,
        collective=values[at],
        in_bytes=_tensor_bytes(values[0], path) if at == 4 else None,
        out_bytes=_tensor_bytes(_decode_tensors(enclosing.outputs, msgspec.Raw(b"[]")).values, path),
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        group_name=str(name),
        group_description=description if isinstance(description, str) else None,
        group_size=size if size is not None and 0 < size <= _MOST_RANKS else None,
        ranks=_strided_ranks(first, stride, size),
    )
    return BackendCall(node.name, in_bytes, payload, _checked_integer(seq))


def _checked_integer(value: object) -> int | None:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and value in _INT64
    return value if is_integer else None  # type: ignore[return-value]


def _strided_ranks(first: int | None, stride: int | None, size: int | None) -> tuple[int, ...] | None:
    """first, first + stride, ...; None for a stride of −1, which means that ranks are not evenly spaced."""
    if first is None or stride is None or size is None or not 0 < size <= _MOST_RANKS:
        return None
    is_valid = first >= 0 and stride > 0 and first + size * stride <= _MOST_RANKS
    return tuple(range(first, first + size * stride, stride)) if is_valid else None


def _tensor_bytes(value: object, path: Path) -> int | None:
    """Σ elements × element bytes of all tensors in a value; None if there are none or a size is unknown.

    A tensor is [id, storage, offset, elements, element bytes, device].
    """
    total, any_tensor, pending = 0, False, [value]
    while pending:
        match pending.pop():
            case [int(), int(), int(), int(elements), int(element_bytes), str(device)]:
                if not device:
                    return None  # symbolic, without storage
                total, any_tensor = total + elements * element_bytes, True
                if elements < 0 or element_bytes < 0 or total > _MOST_PAYLOAD:
                    message = f"impossible tensor of {elements} × {element_bytes} bytes"
                    raise damaged_error(path, message, hint=_HINT)
            case list(items):
                pending += items
    return total if any_tensor else None


def _process_groups(node: _Node) -> list[ProcessGroup]:
    """The groups listed as JSON text; one without ranks consists of ranks 0 to `group_size` − 1."""
    values = _decode_tensors(node.inputs, node.input_types).values
    if not values or not isinstance(values[0], str):
        return []
    listed = msgspec.json.decode(values[0], type=list[_ListedGroup])
    return [
        ProcessGroup(str(g.pg_name), g.pg_desc, tuple(g.ranks or range(g.group_size or 0)) or None)
        for g in listed
    ]


READERS.add(PyTorchExecutionTrace.name, PyTorchExecutionTrace(), origin=__name__)

# SPDX-License-Identifier: Apache-2.0
"""Chakra execution traces of one rank, protobuf or JSON: what a job communicates and what depends on what.

A node that communicates states its kind and, as `comm_size`, bytes.  Only of kinds that move the same size
into and out of a rank is that the payload; of others (all_gather, all_to_all, ...) Chakra does not say which
side it is.  Durations are of the capture that the trace was made from; they have no common clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

_PROTOBUF: Final = re.compile(
    rb"[\x80-\xff]{0,4}[\x00-\x7f](?:\n[\x03-\x14]\d+\.\d+\.\d+|\x12.{1,5}\n\x06schema)", re.DOTALL
)
_JSON: Final = re.compile(rb'\s*\{\s*"workload_graph"\s*:\s*\[')
_RANK: Final = re.compile(r"\.(\d{1,7})\.(?:et|json)")
_MOST_BYTES: Final = 1 << 30
_LONGEST_NS: Final = 10**17
_SAME_SIZE: Final = ("all_reduce", "broadcast", "reduce", "send", "recv", "send_recv")
_HINT: Final = "convert it again with Chakra's converter"


class Node(msgspec.Struct, rename={"id": "Id", "name": "Name", "type": "NodeType", "duration": "runtime"}):
    """A node, by the names that it has in JSON; `duration` in µs."""

    id: int
    name: str = ""
    type: int = 0
    duration: int | float = 0
    data_deps: list[int] = []
    ctrl_deps: list[int] = []
    is_cpu_op: bool = False
    comm_type: int | None = None
    comm_size: int | None = None
    comm_src: int | None = None
    comm_dst: int | None = None


class _Graph(msgspec.Struct):
    workload_graph: list[Node]


class Chakra(EvidenceReader):
    """Reader of Chakra's execution traces; the rank is the number in their names, `NAME.3.et`."""

    name = "chakra"
    description = "Chakra execution traces, protobuf or JSON: communication with sizes, dependencies"
    extensions: tuple[str, ...] = (".et", ".json")
    capture = (
        "Chakra's execution traces, one a rank (`NAME.3.et` or `.json` is of rank 3); `cclbench "
        "export --to chakra`"
    )
    versions = "schema 0.0.4, and 1.0.1 and 1.0.2-chakra of PyTorch's traces"
    tested = "real: a trace of DLRM, ASTRA-sim's microbenchmarks and a custom ring"

    def sniff(self, head: bytes) -> float:
        """Sure of the first message's version or attribute, or of the outermost key."""
        return 0.9 if _PROTOBUF.match(head) or _JSON.match(head) else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """JSON is rewritten as any; `InputError` for protobuf."""
        if path.suffix == ".json":
            return super().rewrite(path, target, redactor)
        raise InputError(
            "texts of Chakra's protobuf cannot be redacted", where=str(path), hint="contribute the trace"
        )

    def read(self, path: Path) -> Evidence:
        """A timing for each node that communicates; `InputError` if the file is damaged."""
        # Not needed to recognise a file.
        from cclbench.formats.timing_rows import Timings

        rank = _RANK.search(path.name)
        timings, left_out, kinds = Timings(path), Counter[str](), Counter[int]()
        node_ids, needed, sizes_left_out = set[int](), Counter[int](), 0
        for node in _nodes(path):
            kinds[node.type] += 1
            node_ids.add(node.id)
            needed.update(node.data_deps)
            needed.update(node.ctrl_deps)
            row = _communication(node, left_out)
            if row is not None:
                sizes_left_out += node.comm_size is not None and row["bytes"] is None
                timings.add_row(rank=int(rank[1]) if rank else None, **row)
        missing = sum(count for number, count in needed.items() if number not in node_ids)
        notes = []
        if missing:
            notes.append(f"{missing:,} of {needed.total():,} dependencies are on nodes that the file lacks")
        if sizes_left_out:
            notes.append(f"{sizes_left_out:,} sizes are of kinds of which Chakra does not state the side")
        return Evidence(
            timings=timings.timing_table(),
            facts={"nodes": kinds.total(), "dependencies": needed.total(), "compute_nodes": kinds[4]},
            left_out=dict(left_out),
            notes=notes,
        )


def _communication(node: Node, left_out: Counter[str]) -> dict[str, Any] | None:
    """The row of a node; None if it is no communication, or only the host's call of one."""
    from cclbench.classify import collective_name
    from cclbench.formats.chakra.messages import COLLECTIVE, COLLECTIVES, RECV, SEND
    from cclbench.formats.timing_rows import MOST_BYTES

    if node.type not in (SEND, RECV, COLLECTIVE):
        return None
    if node.is_cpu_op and node.comm_size is None:
        left_out["calls of the host, whose kernels follow"] += 1
        return None
    named = collective_name(node.name)
    stated = {number: kind for kind, number in COLLECTIVES.items()}.get(node.comm_type or 0)
    kind = {SEND: "send", RECV: "recv"}.get(node.type)
    if kind is None:
        kind = stated if node.comm_type is not None else named.kind if named else None
    duration, size = node.duration * 1000, node.comm_size
    return {
        "kind": kind,
        # Names of simulators' nodes name no library.
        "library": named.library if named and named.library != "custom" else None,
        "src_rank": _rank_number(node.comm_src),
        "dst_rank": _rank_number(node.comm_dst),
        "bytes": size if size is not None and 0 <= size <= MOST_BYTES and kind in _SAME_SIZE else None,
        "dur_ns": round(duration) if 0 < duration <= _LONGEST_NS else None,
    }


def _rank_number(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 1 << 31 else None


def _nodes(path: Path) -> Iterator[Node]:
    """All nodes in the file's order."""
    from cclbench.formats.recognition import head_of
    from cclbench.formats.texts import damaged_error, read_whole, reason_of

    if not _JSON.match(head_of(path)):
        yield from _protobuf_nodes(path)
        return
    text = read_whole(path, _MOST_BYTES, hint=_HINT)
    try:
        # A converter wrote the dependencies as `ctrlDeps`.
        graph = msgspec.json.decode(text.replace(b'"ctrlDeps"', b'"ctrl_deps"'), type=_Graph)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, reason_of(error), hint=_HINT) from None
    yield from graph.workload_graph


def _protobuf_nodes(path: Path) -> Iterator[Node]:
    from cclbench.formats.chakra.messages import message_attributes, read_messages

    messages = read_messages(path)
    next(messages, None)
    for message in messages:
        attributes = message_attributes(message)
        numbers = {
            name: value
            for name in ("comm_type", "comm_size", "comm_src", "comm_dst")
            if type(value := attributes.get(name)) is int
        }
        yield Node(
            id=message.id,
            name=message.name,
            type=message.type,
            duration=message.duration_micros,
            data_deps=list(message.data_deps),
            ctrl_deps=list(message.ctrl_deps),
            is_cpu_op=attributes.get("is_cpu_op") is True,
            **numbers,
        )


READERS.add(Chakra.name, Chakra(), origin=__name__)

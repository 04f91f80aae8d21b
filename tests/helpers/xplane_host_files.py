# SPDX-License-Identifier: Apache-2.0
"""Profiles of CPU devices written on the spot, byte by byte, and what is read of one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cclbench.formats import Part, Rows, Trace
from cclbench.formats.xplane import host
from cclbench.formats.xplane.space import XSpace
from helpers.xplane_files import hlo_field, varint

EPOCH = 1_700_000_000_000_000_000
Stat = int | str | bytes
Event = tuple[str, int, int, dict[str, Stat]]
"""Name, begin and duration in ns after the line's begin, stats."""


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    return b"".join(hlo_field(n, value.encode() if isinstance(value, str) else value) for n, value in fields)


class Plane:
    """An XPlane whose names get their ids as they come."""

    def __init__(self, name: str, **told: Stat) -> None:
        self.name, self.lines = name, list[bytes]()
        self.events: dict[str, int] = {}
        self.stats: dict[str, int] = {}
        self.metadata: list[bytes] = []
        self.told = self._stats(told)

    def _stats(self, told: dict[str, Stat]) -> list[bytes]:
        field = {int: 4, str: 5, bytes: 6}
        made = []
        for name, value in told.items():
            at = self.stats.setdefault(name, len(self.stats) + 1)
            if name in ("hlo_op", "hlo_module"):  # as the profiler does, a reference to a stat's name
                value = self.stats.setdefault(str(value), len(self.stats) + 1)
                made.append(message((1, at), (7, value)))
            else:
                made.append(message((1, at), (field[type(value)], value)))
        return made

    def line(self, name: str, track: int, *events: Event, begin: int = 0) -> Plane:
        made = []
        for called, start, length, told in events:
            at = self.events.setdefault(called, len(self.events) + 1)
            fields = [(1, at), (2, start * 1000), (3, length * 1000)]
            made.append(message(*fields, *((4, stat) for stat in self._stats(told))))
        self.lines.append(message((1, track), (2, name), (3, begin), *((4, event) for event in made)))
        return self

    def module(self, name: str, program: int, hlo: bytes) -> Plane:
        stats = self._stats({"program_id": program, "Hlo Proto": hlo})
        self.metadata.append(message((1, program), (2, name), *((5, stat) for stat in stats)))
        return self

    def made(self) -> bytes:
        events = [message((1, at), (2, name)) for name, at in self.events.items()] + self.metadata
        stats = [message((1, at), (2, name)) for name, at in self.stats.items()]
        return message(
            (2, self.name),
            *((3, line) for line in self.lines),
            *((4, message((1, at), (2, event))) for at, event in enumerate(events, 1)),
            *((5, message((1, at), (2, stat))) for at, stat in enumerate(stats, 1)),
            *((6, stat) for stat in self.told),
        )


class Op:
    """Makes ops of one run, each with a context id of its own."""

    contexts = iter(range(1, 1 << 30))

    @classmethod
    def ran(cls, name: str, start: int, length: int, device: int = 0, run: int = -7, **more: Stat) -> Event:
        told = {"hlo_op": name, "hlo_module": "jit_f", "program_id": 3, "run_id": run}
        return name, start, length, {**told, "device_ordinal": device, **more}

    @classmethod
    def ended(cls, name: str, start: int, length: int, at: int, **more: Any) -> tuple[Event, Event]:
        """An op and the mark of its end."""
        context = next(cls.contexts)
        return cls.ran(name, start, length, **more, _p=context), (f"end: {name}", at, 1, {"_c": context})


def meeting(what: str, start: int, length: int, members: list[int]) -> Event:
    key = f"run_id=RunId: -7, global_devices={members}, num_local_participants=2, op_id=1"
    return "Rendezvous", start, length, {"name": f"{what} RendezvousKey{{{key}}}", "num_threads": 2}


def array(*dims: int, kind: int = 11) -> bytes:
    """A ShapeProto, of f32 unless told otherwise."""
    return message((2, kind), (3, b"".join(map(varint, dims))))


def hlo(*computations: list[bytes]) -> bytes:
    made = [message((5, at), *((2, i) for i in some)) for at, some in enumerate(computations, 1)]
    return message((1, message(*((3, computation) for computation in made))))


def instruction(name: str, opcode: str, shape: bytes, at: int = 1, *operands: int, calls: int = 0) -> bytes:
    fields = [(1, name), (2, opcode), (3, shape), (35, at), (36, b"".join(map(varint, operands)))]
    return message(*fields, *([(38, varint(calls))] if calls else []))


def write(folder: Path, *planes: Plane, epoch: Stat = EPOCH) -> Path:
    """Planes in a file, after one that tells when the profile began."""
    path = folder / "host.xplane.pb"
    all_planes = (Plane("Task Environment", profile_start_time=epoch), *planes)
    path.write_bytes(message(*((1, plane.made()) for plane in all_planes)))
    return path


class Member:
    """What is read of one device."""

    def __init__(self, path: Path, member: str) -> None:
        self.trace: Trace = host.read_device(XSpace(path).host_profile, Part(member))
        self.batches = {(rows.kind, rows.side): rows for rows in self.trace.batches if isinstance(rows, Rows)}

    def rows(self, kind: str, side: str = "device") -> list[tuple[str, int, int]]:
        """(name, begin in ns after the epoch, duration) in the order given."""
        rows = self.batches.get((kind, side))
        if rows is None:
            return []
        names, starts = list(rows.names), (rows.start_ns - EPOCH).tolist()
        return [
            (names[c], s, d)
            for c, s, d in zip(rows.codes.tolist(), starts, rows.dur_ns.tolist(), strict=True)
        ]

    @property
    def told(self) -> list[tuple[Any, int, int]]:
        """(payload, row, seq) of each entry."""
        told, payloads = self.trace.told, list(self.trace.told.payloads)
        return [(payloads[c], r, s) for c, r, s in zip(told.code, told.row, told.seq, strict=True)]

# SPDX-License-Identifier: Apache-2.0
"""Profiles of CPU devices written on the spot, and what is read of one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cclbench.formats import Part, Rows, Trace
from cclbench.formats.xplane import host
from cclbench.formats.xplane.space import XSpace
from helpers import xplane_files
from helpers.xplane_files import BEGIN_NS as EPOCH
from helpers.xplane_files import array as array
from helpers.xplane_files import hlo_field, varint

Stat = int | str | bytes
Event = tuple[str, int, int, dict[str, Stat]]
"""Name, begin and duration in ns after the line's begin, stats."""


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    return b"".join(hlo_field(n, value.encode() if isinstance(value, str) else value) for n, value in fields)


class Plane:
    """An XPlane of threads and of compiled programs."""

    def __init__(self, name: str, **told: Stat) -> None:
        self.plane = xplane_files.Plane(name, **told)

    def line(self, name: str, track: int, *events: Event) -> Plane:
        self.plane.line(name, events, track=track)
        return self

    def module(self, name: str, program: int, hlo: bytes) -> Plane:
        self.plane.described(name, program_id=program, **{"Hlo Proto": hlo})
        return self


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
    path.write_bytes(xplane_files.space(*(plane.plane for plane in all_planes)))
    return path


class Member:
    """What is read of one device."""

    def __init__(self, path: Path, member: str) -> None:
        self.trace: Trace = host.read_device(XSpace(path).host_profile, Part(member))
        self.batches = {(rows.kind, rows.side): rows for rows in self.trace.batches if isinstance(rows, Rows)}

    def rows(self, kind: str, side: str = "device") -> list[tuple[str, int, int]]:
        """(name, begin in ns after the epoch, duration) in the order given."""
        rows = self.batches.get((kind, side))
        return [] if rows is None else xplane_files.listed(rows)

    @property
    def stated_payloads(self) -> list[tuple[Any, int, int]]:
        """(payload, row, seq) of each entry."""
        told, payloads = self.trace.stated_payloads, list(self.trace.stated_payloads.payloads)
        return [(payloads[c], r, s) for c, r, s in zip(told.code, told.row, told.seq, strict=True)]

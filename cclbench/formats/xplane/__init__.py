# SPDX-License-Identifier: Apache-2.0
"""XLA profiles (XSpace, `*.xplane.pb`) of JAX, TensorFlow and PyTorch/XLA: TPU, GPU and CPU devices.

Each device is a rank.  Rows of the host belong to the process that drives all of them: see `process`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cclbench.errors import InputError
from cclbench.formats import READERS, Part, Reader, Rows, Trace
from cclbench.formats.files import output, uncompressed
from cclbench.formats.rewriting import Redactor
from cclbench.formats.xplane import gpu, hlo_proto, host, process, proto, tpu
from cclbench.formats.xplane.collectives import Member
from cclbench.formats.xplane.hlo_proto import Program
from cclbench.formats.xplane.host_events import decode
from cclbench.record.facts import TraceFacts


class Xplane(Reader):
    """Reader of XLA profiles."""

    name = "xplane"
    precedence = 20
    frameworks: Mapping[str, str] = {"JAX profiler": "jax"}
    description = "XLA profiles (XSpace protobuf): TPU, GPU, CPU"
    extensions: tuple[str, ...] = (".xplane.pb",)
    capture = "`jax.profiler.trace(folder)`, PyTorch/XLA's `xp.trace`: the `*.xplane.pb` of every host"
    versions = "JAX 0.4 to 0.10"
    tested = (
        "real: TPU v6e, MI300X, GPUs of which some are idle, JAX on CPU devices of one and of two processes;"
        " documentation: NVIDIA GPUs, collectives of GPUs, asynchronous collectives"
    )

    def sniff(self, head: bytes) -> float:
        """Sure of a file that begins with a named plane."""
        return 0.9 if proto.begins_space(head) else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor, *, annotations: bool) -> bool:
        """Texts inside the nested messages, and every length around them."""
        from cclbench.formats.xplane.rewriting import ProtobufRewriter

        profile = ProtobufRewriter(uncompressed(path), redactor, annotations=annotations)
        with output(path, target) as write:
            profile.rewrite(write)
        return True

    def parts(self, path: Path) -> list[Part]:
        """Each device, by its plane's name; a device of the host where there is no accelerator."""
        profile = _profile(path)
        devices = [Part(where.name) for where in profile.devices]
        return devices or host.members(decode(path, profile.space.planes), path, profile.space.cut)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """One device of the profile."""
        profile = _profile(path)
        space = profile.space
        if space.cut is not None and not allow_truncated:
            raise InputError(
                space.cut.reason,
                where=f"{path}: byte {space.cut.byte:,}",
                hint="re-run with --allow-truncated to use the planes before it",
            )
        if profile.devices:
            trace = _Device(profile, part).trace()
        else:
            trace = host.read(decode(path, space.planes), part)
        trace.cut = space.cut
        if space.complaints:
            trace.notes.append(f"the profiler reports {space.complaints} errors or warnings")
        return trace


class _Profile:
    """What all devices of a file share."""

    def __init__(self, path: Path) -> None:
        self.path, self.space = path, proto.space(path)
        self.devices = _devices(self.space)

    @cached_property
    def epoch_ns(self) -> int:
        """When the profile began, since the epoch; 0 where the file does not tell."""
        return proto.epoch_ns(self.path, self.space.planes)

    @cached_property
    def stats(self) -> list[proto.Stats]:
        """What each device's plane says of it."""
        messages = (proto.plane(self.path, where, lines=False) for where in self.devices)
        return [proto.stats(proto.stat_names(message), message.stats) for message in messages]

    @cached_property
    def first_busy(self) -> int:
        """The place of the first device that did anything, which has the process's own rows."""
        lines = {where: "XLA" if "TPU" in where.name else "Stream" for where in self.devices}
        busy = (i for i, where in enumerate(self.devices) if proto.has_events(self.path, where, lines[where]))
        return next(busy, 0)


def _profile(path: Path) -> _Profile:
    """The profile, scanned once for devices that are read in turn."""
    stat = path.stat()
    return _profile_as_of(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _profile_as_of(path: Path, _size: int, _mtime_ns: int) -> _Profile:
    return _Profile(path)


class _Device:
    """One device's plane, and what other planes of its file say of it."""

    def __init__(self, profile: _Profile, part: Part) -> None:
        self.path, self.space, self.devices = profile.path, profile.space, profile.devices
        self.profile = profile
        self.place = [where.name for where in self.devices].index(part.member)
        self.own = self.devices[self.place]
        kind = proto.DEVICE.fullmatch(self.own.name)
        assert kind is not None  # noqa: S101 - chosen by it
        self.is_tpu, self.number = kind[1] == "TPU", int(kind[2])
        self.epoch_ns = profile.epoch_ns
        self.numbers = {int(where.name.rpartition(":")[2]) for where in self.devices}

    def trace(self) -> Trace:
        """All that the device did, and rows of the process that drives it."""
        message = proto.plane(self.path, self.own)
        stats = self.profile.stats
        ids = [tpu.global_id(told, str(self.path)) if self.is_tpu else None for told in stats]
        device = ids[self.place] if len(set(ids)) == len(ids) else None
        programs: dict[int, Program] = {}
        for where in self._named(proto.PROGRAMS):
            programs |= hlo_proto.programs(proto.plane(self.path, where), str(self.path))
        placed = {number: at for number, program in programs.items() if (at := program.devices) is not None}
        everywhere = {i for at in placed.values() for i in at.ravel().tolist()}
        own, world = stats[self.place], len(everywhere)
        facts = TraceFacts(
            rank=device,
            rank_source=None if device is None else "metadata",
            local_rank=self.place,
            # Unknown where the programs do not cover the file's devices, or leave out ids between.
            world_size=world if world >= len(self.devices) and max(everywhere) < world else None,
            producer="XLA profiler",
            device_count=len(self.devices),
            **(tpu.facts(own) if self.is_tpu else gpu.facts(own)),
        )
        trace = Trace(batches=iter(()), facts=facts)
        if not self.epoch_ns:
            trace.notes.append("the profile does not tell when it began: times count from its own begin")
        if not self.is_tpu and everywhere == self.numbers:
            # Each process counts its GPUs from 0: that is their global id where programs know no others.
            device = self.number
        trace.batches = self._batches(trace, message, Member(device, placed), programs)
        return trace

    def _batches(
        self, trace: Trace, message: Any, member: Member, programs: dict[int, Program]
    ) -> Iterator[Rows]:
        launched: set[int] = set()
        if self.is_tpu:
            yield from tpu.batches(trace, message, self.path, self.number, member, self.epoch_ns)
        else:
            yield from gpu.batches(trace, message, self.path, self.number, self.epoch_ns, programs, member)
            launched = gpu.correlations(message)
        del message
        elsewhere: set[int] | None = None
        if self.place == self.profile.first_busy:
            others = [where for where in self.devices if where != self.own and not self.is_tpu]
            elsewhere = set().union(*(gpu.correlations(proto.plane(self.path, where)) for where in others))
            self._count_others(trace)
        for where in self._named(proto.HOST):
            yield from process.batches(
                trace,
                proto.plane(self.path, where),
                self.path,
                self.epoch_ns,
                own=launched,
                elsewhere=elsewhere,
            )

    def _count_others(self, trace: Trace) -> None:
        """Rows of planes that nobody reads: SparseCores, custom devices, derived ones."""
        for where in self.space.planes:
            if where in self.devices or where.name in (proto.HOST, proto.PROGRAMS, proto.ENVIRONMENT):
                continue
            left_out = sum(len(line.events) for line in proto.plane(self.path, where).lines)
            if left_out:
                reason = "row of a SparseCore" if "SparseCore" in where.name else "row of another plane"
                trace.dropped[reason] += left_out

    def _named(self, name: str) -> list[proto.PlaneRange]:
        return [where for where in self.space.planes if where.name == name]


def _devices(space: proto.Space) -> list[proto.PlaneRange]:
    """Planes of accelerators, in order of kind and number."""
    found = [
        (kind[1], int(kind[2]), where)
        for where in space.planes
        if (kind := proto.DEVICE.fullmatch(where.name))
    ]
    return [where for _, _, where in sorted(found, key=lambda entry: entry[:2])]


READERS.add(Xplane.name, Xplane(), origin=__name__)

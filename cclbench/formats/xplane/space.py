# SPDX-License-Identifier: Apache-2.0
"""An XLA profile's planes: its devices, facts about them, and the rows of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from cclbench.formats import Rows, Trace
from cclbench.formats.xplane import gpu, hlo_proto, proto, tpu
from cclbench.formats.xplane.collectives import DeviceMember
from cclbench.formats.xplane.device import NO_EPOCH, device_batches, remember_last
from cclbench.formats.xplane.hlo_proto import HloProgram
from cclbench.formats.xplane.host_events import HostProfile, profile_of
from cclbench.record.facts import TraceFacts


class XSpace:
    """A file of planes, which are parsed one at a time, with what its devices share."""

    def __init__(self, path: Path) -> None:
        self.path, self.space = path, proto.find_planes(path)
        self.planes = {where.name: where for where in self.space.planes}
        devices = [kind for name in self.planes if (kind := proto.DEVICE.fullmatch(name))]
        self.devices = [kind[0] for kind in sorted(devices, key=lambda kind: (kind[1], int(kind[2])))]

    @cached_property
    def epoch_ns(self) -> int:
        """When the profile began, in ns since the epoch; 0 if the file does not state it."""
        return proto.epoch_ns(self.path, self.space.planes)

    @cached_property
    def plane_stats(self) -> list[proto.Stats]:
        """Stats of each device's plane."""
        messages = (proto.parse_plane(self.path, self.planes[name], lines=False) for name in self.devices)
        return [proto.decode_stats(proto.stat_names(message), message.stats) for message in messages]

    @cached_property
    def first_busy(self) -> str:
        """The first active device, which gets the process's rows."""
        for name in self.devices:
            if proto.has_events(self.path, self.planes[name], "XLA" if "TPU" in name else "Stream"):
                return name
        return self.devices[0]

    @cached_property
    def host_profile(self) -> HostProfile:
        """Ops of CPU devices, if there is no accelerator."""
        messages = {name: self.plane_message(name) for name in (proto.HOST, proto.PROGRAMS)}
        return profile_of(messages, self.path, self.epoch_ns)

    def plane_message(self, name: str) -> Any | None:
        """The message of a plane, None if it does not exist."""
        where = self.planes.get(name)
        return None if where is None else proto.parse_plane(self.path, where)

    def device_trace(self, name: str) -> Trace:
        """Rows of a device, facts from other planes, and rows of the process that drives it."""
        message, place = self.plane_message(name), self.devices.index(name)
        is_tpu, stats = "TPU" in name, self.plane_stats[place]
        ids = [
            tpu.global_id(plane_stats, str(self.path)) if is_tpu else None for plane_stats in self.plane_stats
        ]
        device = ids[place] if len(set(ids)) == len(ids) else None
        programs: dict[int, HloProgram] = {}
        for where in self.space.planes:
            if where.name == proto.PROGRAMS:
                programs |= hlo_proto.plane_programs(proto.parse_plane(self.path, where), str(self.path))
        placed = {
            number: at for number, program in programs.items() if (at := program.device_ids) is not None
        }
        program_devices = {i for at in placed.values() for i in at.ravel().tolist()}
        world = len(program_devices)
        facts = TraceFacts(
            rank=device,
            rank_source=None if device is None else "metadata",
            local_rank=place,
            # Unknown if the programs do not cover the file's devices, or ids have gaps.
            world_size=world if world >= len(self.devices) and max(program_devices) < world else None,
            producer="XLA profiler",
            device_count=len(self.devices),
            **(tpu.tpu_facts(stats) if is_tpu else gpu.gpu_facts(stats)),
        )
        trace = Trace(batches=iter(()), facts=facts, notes=[] if self.epoch_ns else [NO_EPOCH])
        numbers = {device_name: int(device_name.rpartition(":")[2]) for device_name in self.devices}
        if not is_tpu and program_devices == set(numbers.values()):
            # Each process counts its GPUs from 0: these are global ids if programs have no others.
            device = numbers[name]
        others = (
            [other_name for other_name in self.devices if other_name != name]
            if name == self.first_busy
            else None
        )
        member = DeviceMember(device, placed)
        rows = device_batches(
            trace, name, message, self.plane_message, self.path, self.epoch_ns, member, programs, others
        )
        trace.batches = rows if others is None else self._and_others(trace, rows)
        return trace

    def _and_others(self, trace: Trace, rows: Iterator[Rows | pa.Table]) -> Iterator[Rows | pa.Table]:
        """The rows; those of SparseCores, custom devices and other planes that are not read are counted."""
        yield from rows
        read = {*self.devices, proto.HOST, proto.PROGRAMS, proto.ENVIRONMENT}
        for where in self.space.planes:
            if where.name not in read:
                reason = "row of a SparseCore" if "SparseCore" in where.name else "row of another plane"
                left_out = sum(len(line.events) for line in proto.parse_plane(self.path, where).lines)
                trace.dropped += Counter({reason: left_out})


space_of = remember_last(XSpace)

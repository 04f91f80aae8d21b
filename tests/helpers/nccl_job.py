# SPDX-License-Identifier: Apache-2.0
"""Logs of NCCL_DEBUG=INFO as the processes of a small job write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

HOST = "node-7"
WORLD_ID = "0xbc0e7634ab7a9573"


@dataclass(slots=True)
class Process:
    """One process's lines, in order."""

    rank: int
    lines: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Ascending with the rank, as a launcher starts processes."""
        return 4000 + self.rank

    def say(self, message: str) -> None:
        self.lines.append(f"{HOST}:{self.pid}:{self.pid + 100} [{self.rank}] NCCL INFO {message}")

    def pointer(self, name: str) -> str:
        """A communicator's address, of this process alone."""
        return f"0x55{self.rank:x}{sum(map(ord, name)):x}0"

    def init(self, name: str, rank: int, size: int, *, commid: str = WORLD_ID) -> None:
        """ncclCommInitRankConfig, as NCCL 2.28 logs it."""
        about = f"comm {self.pointer(name)} rank {rank} nranks {size} cudaDev {self.rank} nvmlDev {self.rank}"
        for state in ("START", "COMPLETE"):
            self.say(f"ncclCommInitRankConfig {about} busId 1000 commId {commid} - Init {state}")
            if state == "START":
                self.say(f"comm {self.pointer(name)} rank {rank} nRanks {size} nNodes 1 localRanks {size}")

    def split(self, name: str, parent: str, rank: int, size: int, *, count: int, color: int) -> None:
        """ncclCommSplit, which states no commId."""
        about = (
            f"ncclCommSplit comm {self.pointer(name)} rank {rank} nranks {size} cudaDev {self.rank} nvmlDev 0"
            f" busId 1000 parent {self.pointer(parent)} splitCount {count} color {color} key {rank}"
        )
        self.say(f"{about}- Init START")
        self.say(f"{about} - Init COMPLETE")

    def call(self, function: str, name: str, size: int, count: int, *, dtype: int = 9, root: int = 0) -> None:
        self.say(
            f"{function}: opCount 0 sendbuff (nil) recvbuff 0xa05bf08bc count {count} datatype {dtype} op 0"
            f" root {root} comm {self.pointer(name)} [nranks={size}] stream 0x555deede7f30"
        )

    def destroy(self, name: str, rank: int, size: int) -> None:
        about = f"comm {self.pointer(name)} rank {rank} nranks {size} cudaDev {self.rank} busId 1000"
        self.say(f"{about} - Destroy COMPLETE")

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def fsdp2_pp4(steps: int = 3) -> list[Process]:
    """FSDP of 2 times a pipeline of 4 stages: rank = 2·stage + shard; groups are split from the world. A
    step: two micro-batches of 1 MiB (2^19 of bf16) from each stage to the next, their gradients back; an
    all-gather and a reduce-scatter of 2^20 elements a rank in each pair of shards, an all-reduce of 4 B in
    it, and one by all."""
    job = [Process(rank) for rank in range(8)]
    for one in job:
        stage, shard = divmod(one.rank, 2)
        one.init("world", one.rank, 8)
        one.split("fsdp", "world", shard, 2, count=1, color=100 + stage)
        one.split("pp", "world", stage, 4, count=2, color=200 + shard)
        # The same ranks again, as a second mesh has them.
        one.split("loss", "world", shard, 2, count=3, color=100 + stage)
    for _ in range(steps):
        for one in job:
            stage, _shard = divmod(one.rank, 2)
            one.call("AllGather", "fsdp", 2, 1 << 20)
            forward, backward = (("Recv", -1), ("Send", 1)), (("Recv", 1), ("Send", -1))
            for function, way in (*forward, *backward):
                peer = stage + way
                for _ in range(2 if 0 <= peer < 4 else 0):
                    one.call(function, "pp", 4, 1 << 19, root=peer)
            one.call("ReduceScatter", "fsdp", 2, 1 << 20, dtype=7)
            one.call("AllReduce", "loss", 2, 1, dtype=7)
            one.call("AllReduce", "world", 8, 1, dtype=7)
    return job


def interleaved(job: Sequence[Process], prefix: Iterable[str] = ("",)) -> str:
    """All lines in one file, each process's in order; prefixes in turn."""
    labels = list(prefix)
    most = max(len(one.lines) for one in job)
    lines = [one.lines[i] for i in range(most) for one in job if i < len(one.lines)]
    return "".join(f"{labels[i % len(labels)]}{line}\n" for i, line in enumerate(lines))

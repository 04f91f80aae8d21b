# SPDX-License-Identifier: Apache-2.0
"""Train a small Llama on one CPU with records from files of a store that can be slow, under the profiler.

    python file_loader.py --output traces [--store-rate 1e6]

Each record is a file of 64 KiB, of which the model takes the first tokens.  With `--store-rate` a read lasts
as long as a store of so many bytes per second needs for it.  The loader has no workers: the step's thread
waits for every read.

The first steps are timed without the profiler, two warm up; the `--steps` that follow are in
OUTPUT/rank0_trace.json.gz.  OUTPUT/rank0_calls.pfw.gz has a row for each read, as DFTracer writes them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tiny_llama import VOCABULARY, TinyLlama, cut, train_step
from torch.utils.data import DataLoader, Dataset

import cclbench.torch

WAIT, WARMUP = 6, 2
RECORD_BYTES = 64 << 10
HEADS, HEAD_DIM = 8, 32


class Records(Dataset[torch.Tensor]):
    """Records of random tokens in files, and a row for each read of one."""

    def __init__(self, folder: Path, count: int, sequence_length: int, rate: float | None) -> None:
        self.folder, self.count, self.sequence_length, self.rate = folder, count, sequence_length, rate
        self.calls: list[dict[str, object]] = []
        for number in range(count):
            generator = torch.Generator().manual_seed(number)
            tokens = torch.randint(VOCABULARY, (RECORD_BYTES // 8,), generator=generator)
            (folder / str(number)).write_bytes(tokens.numpy().tobytes())

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> torch.Tensor:
        file = os.open(self.folder / str(number), os.O_RDONLY)
        begin_ns, begin = time.time_ns(), time.perf_counter()
        record = os.read(file, RECORD_BYTES)
        if self.rate is not None:
            time.sleep(max(len(record) / self.rate - (time.perf_counter() - begin), 0))
        self._add_call(begin_ns, time.perf_counter() - begin, len(record))
        os.close(file)
        return torch.frombuffer(bytearray(record), dtype=torch.long)[: self.sequence_length + 1]

    def _add_call(self, begin_ns: int, seconds: float, moved: int) -> None:
        place = {"id": len(self.calls) + 1, "pid": 1, "tid": 1, "name": "read", "cat": "POSIX", "ph": "X"}
        times = {"ts": begin_ns // 1000, "dur": round(1e6 * seconds)}
        self.calls.append(place | times | {"args": {"ret": moved, "count": RECORD_BYTES}})

    def write_calls(self, path: Path) -> None:
        """The calls so far, a row a line."""
        keys = ("id", "name", "cat", "pid", "tid", "ts", "dur", "ph", "args")
        rows = [json.dumps({key: call[key] for key in keys}, separators=(",", ":")) for call in self.calls]
        path.write_bytes(gzip.compress("\n".join(["[", *rows, "]", ""]).encode(), mtime=0))


def train(options: argparse.Namespace, folder: Path) -> None:
    """Train for all steps; write the trace, step times and reads."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyLlama(1, HEADS, HEAD_DIM)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    count = options.batch * (WAIT + WARMUP + options.steps)
    records = Records(folder, count, options.sequence_length, options.store_rate)
    with cclbench.torch.profile(
        options.output,
        wait=WAIT,
        warmup=WARMUP,
        active=options.steps,
        model=model,
        global_batch=options.batch,
        sequence_length=options.sequence_length,
    ) as profiler:
        for batch in DataLoader(records, batch_size=options.batch):
            train_step(model, optimizer, batch, nullcontext())
            profiler.step()
    cut(options.output / "rank0_trace.json.gz")
    records.write_calls(options.output / "rank0_calls.pfw.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces, made if missing")
    parser.add_argument("--batch", type=int, default=8, help="records a step")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--steps", type=int, default=4, help="steps in the trace")
    parser.add_argument("--store-rate", type=float, help="bytes per second that the store delivers at most")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        train(options, Path(folder))


if __name__ == "__main__":
    main()

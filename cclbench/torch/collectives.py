# SPDX-License-Identifier: Apache-2.0
"""Write the process group, kind, bytes and sequence number of every gloo collective into a PyTorch trace.

A gloo collective is a row `gloo:<op>` on one of its group's worker threads. It does not state the group, nor
the kind of a reduce-scatter, which runs as `gloo:all_reduce`. `cclbench.torch.profile` adds these by itself,
and so does

    cclbench.torch.annotate_collectives()

on every rank at the same place of the program, best right after init_process_group.

Every collective is then queued inside an annotation (`cat` user_annotation) on the thread that calls it,
which begins when the program asks for the collective and ends when gloo has queued it. Its name is one
line, `key=value`:

    cclbench::collective kind=reduce_scatter seq=12 in_bytes=1508352 out_bytes=754176 dtype=float32 rows=1
        threads=4450,4452 pg=2 ranks=1,3 desc=mesh_dp

- `kind`: the call: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather,
  scatter, barrier, send or recv.
- `seq`: counts the group's collectives from 0 in the order of calls, which is the same on all its ranks. A
  send or recv names its `peer=` (a global rank) and counts apart for each kind and peer, so that the i-th
  send from a to b is the i-th recv of b from a.
- `in_bytes`, `out_bytes`: all that this rank passes in and gets out. `dtype`: torch's name. A barrier has
  none of the three.
- `rows`: how many `gloo:*` rows the call makes: 1, but one per tensor of a list or coalesced
  reduce-scatter.
- `threads`: system ids (`tid` in the trace) of the group's worker threads, as far as seen. They are learnt
  from collectives that no profiler records, so profile after a step or two of warm-up; before that the key
  is missing.
- `pg`, `desc`: the group's name and description in `distributedInfo.pg_config`; `desc` is last, may hold
  spaces.
- `ranks`: the group's global ranks in the order of the group.

From rows to calls: a send or recv row begins inside its annotation, on the same thread, and ends when the
program waits for it. All others belong to the group that lists their thread. A group's queue is first in,
first out, so its rows by start are its calls by `seq`, each taken `rows` times. Two that start within
microseconds on two threads may have swapped places; where their sizes differ, `Input Dims` tell, which are
those of the tensors that `in_bytes` counts.

Calls are seen where they enter c10d's dispatcher, so those of torch.distributed, functional collectives
(DTensor), FSDP and DDP's C++ reducer are all covered, and no other operator is touched. It costs some 25 µs a
call.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from cclbench.capture.marks import collective_mark

KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
}
A_ROW_A_TENSOR = {"reduce_scatter_", "reduce_scatter_tensor_coalesced_"}
LEARN_THREADS_FROM = 64  # calls a group: enough for each of its (by default two) threads to have run one

# Kernels live as long as the library that holds them.
_LIBRARY = torch.library.Library("c10d", "IMPL")


@dataclass
class _Group:
    """One process group as the annotations describe it, and the number of its calls."""

    name: str
    ranks: list[int]
    description: str
    calls: Counter[str] = field(default_factory=Counter)
    threads: set[int] = field(default_factory=set)

    @classmethod
    def from_process_group(cls, process_group: dist.ProcessGroup) -> _Group:
        ranks = dist.get_process_group_ranks(process_group)
        return cls(process_group.group_name, ranks, process_group.group_desc)

    def next_annotation(self, operator: str, arguments: dict[str, Any]) -> str:
        """Name of the annotation of this group's next call of a c10d operator."""
        kind, counter, peer = KINDS[operator], "collective", None
        if kind in ("send", "recv"):
            peer = self.ranks[arguments["dst" if kind == "send" else "src"]]
            counter = f"{kind} {peer}"
        seq = self.calls[counter]
        self.calls[counter] += 1
        inputs, outputs = (
            [t for name, value in arguments.items() if name.startswith(side) for t in _iterate_tensors(value)]
            for side in (("input", "tensor"), ("output", "tensor"))
        )
        payload = None
        if kind != "barrier":
            dtype = str((inputs + outputs)[0].dtype).removeprefix("torch.")
            payload = _total_bytes(inputs), _total_bytes(outputs), dtype
        return collective_mark(
            kind,
            seq,
            self.name,
            ranks=self.ranks,
            description=self.description,
            peer=peer,
            payload=payload,
            rows=len(inputs) if operator in A_ROW_A_TENSOR else 1,
            threads=self.threads,
        )

    def learn_thread(self, work: dist.Work) -> None:
        """Record the thread that completes a call: a worker of this group, unless already completed."""
        caller = threading.get_native_id()

        def note_thread(_: object) -> None:
            if (worker := threading.get_native_id()) != caller:
                self.threads.add(worker)

        try:
            work.get_future().then(note_thread)
        except RuntimeError:  # no future: gloo composes a reduce-scatter of other work
            return


def _iterate_tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _iterate_tensors(element)


def _total_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@cache
def annotate_collectives() -> None:
    """Annotate all further collectives of this process; the module's docstring describes the annotations.

    Further calls have no effect.
    """
    groups: dict[str, _Group] = {}

    def annotated_kernel(name: str) -> Callable[..., Any]:
        operator = getattr(torch.ops.c10d, name).default
        names = [argument.name for argument in operator._schema.arguments]

        def run_annotated(keys: torch._C.DispatchKeySet, *values: Any) -> Any:
            arguments = dict(zip(names, values, strict=False))
            process_group = dist.ProcessGroup.unbox(arguments["process_group"])
            if process_group.group_name not in groups:
                groups[process_group.group_name] = _Group.from_process_group(process_group)
            group = groups[process_group.group_name]
            with record_function(group.next_annotation(name, arguments)):
                result = operator.redispatch(keys.remove(torch._C.DispatchKey.BackendSelect), *values)
            # A callback would lengthen a row that is being recorded.
            if sum(group.calls.values()) <= LEARN_THREADS_FROM and not torch.autograd._profiler_enabled():
                work = result[-1] if isinstance(result, tuple | list) else result
                group.learn_thread(dist.Work.unbox(work))
            return result

        return run_annotated

    for name in KINDS:
        # BackendSelect is the last key before the backend's own, and unlike Autograd it is never masked.
        _LIBRARY.impl(name, annotated_kernel(name), "BackendSelect", with_keyset=True)

# SPDX-License-Identifier: Apache-2.0
"""Which names are communication, of which library and of which kind.

Each rule is a library and a pattern; the first whose pattern occurs in the name's head (lower case)
wins, and `NOT_COMMUNICATION` goes before all.  The kind then follows from `KINDS`, first match again.
Names are from the sources of the libraries and from traces of them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cclbench.classify.names import head


class CollectiveName(NamedTuple):
    """What a name tells of a collective: kind (None where it does not tell) and library."""

    kind: str | None
    library: str


# Framework kernels that gather, scatter, broadcast or reduce within one device, code that Inductor
# generated from a graph with collectives in it, copies around collectives, Python functions, prose.
NOT_COMMUNICATION: Final = (
    r"^at::|^aten::|^triton_(?:poi|red|per|tem|for|mix|unk)_|^fsdp::|^cub::|^thrust::|^rocprim::|^cutlass"
    r"|get_dispatch_layout|(?:block|warp|local|thread)_?all_?reduce|mpi_reduce_local|local_reduce_scatter"
    r"|^nn\.module|\.py$|\s"
)

LIBRARIES: Final = (
    ("rccl", r"rccl\w*kernel"),
    ("nccl", r"nccl(?:dev|sym|kernel|all|reduce|broadcast|bcast|send|recv|scatter|gather|_ep\b|:)"),
    ("mscclpp", r"mscclpp"),
    ("msccl", r"msccl\w*kernel"),
    ("gloo", r"^gloo:"),
    ("ucc", r"^ucc:"),
    (
        "mpi",
        r"^mpi:|^p?mpi_i?(?:all|reduce|scan|exscan|bcast|barrier|gather|scatter|[bsr]?send|recv|mrecv"
        r"|neighbor_|wait)",
    ),
    (
        "xla",
        r"^%?(?:async-|ragged-)?(?:all-reduce|all-gather|all-to-all|reduce-scatter|collective-)"
        r"|^%?(?:send|recv)(?:-done)?\.\d|^%?(?:send|recv)-done$|^stream_executor::\S*allreduce",
    ),
    ("oneccl", r"oneccl|\bccl::"),
    ("hccl", r"^hcom_|\bhccl"),
    ("deepep", r"\b(?:deep|hybrid)_ep(?:_v\d)?::"),
    ("uccl", r"\buccl(?:_ep)?::"),
    ("nixl", r"\bnixl(?:_ep)?::"),
    ("mori", r"\bmori::|\bep(?:dispatch|combine)\w*kernel"),
    ("pplx", r"\bpplx\w*::|\ba2a_(?:dispatch|combine)"),
    ("rocshmem", r"rocshmem|roc_shmem"),
    (
        "nvshmem",
        r"nvshmem|\b(?:barrier|sync|broadcast|alltoall|fcollect|rdxn|reducescatter)\w*_on_stream_kernel"
        r"|exchangesplitandoffset|\balltoall(?:v|get)(?:_2d)?$",
    ),
    (
        "c10d",
        r"^_?c10d(?:_functional(?:_autograd)?)?::(?!\S*(?:kernel|symmetric))|^record_param_comms$|^_dtensor::shard_dim",
    ),
    (
        "custom",
        r"all_?reduce|all_?gather|reduce_?scatter|all_?(?:to|2)_?all|cross_device_reduce|quickreduce"
        r"|userbuffers|lamport|symm_mem|symmetric_memory|multimem_|moe_?a2a|moe_comm|fusedmoecomm"
        r"|(?:barrier|put_signal|wait_signal)_kernel",
    ),
)

KINDS: Final = (
    (None, r"notify|clean_low_latency|exchangesplit|prepare|sanitize"),
    ("send_recv", r"send_?recv|collective-permute|neighbor_"),
    ("reduce_scatter", r"reduce_?-?scatter|userbuffers\w*_rs(?![a-z])"),
    ("all_gather", r"all_?gather|all-gather|fcollect|userbuffers\w*_ag(?![a-z])"),
    (
        "all_reduce",
        r"all_?-?reduce|cross_device_reduce|quickreduce|userbuffers\w*_sum|rdxn|reduce_fusion",
    ),
    ("all_to_all", r"all_?-?(?:to|2)_?-?all|a2a|dispatch|combine|moe_?comm"),
    ("broadcast", r"broadcast|bcast"),
    ("barrier", r"barrier|sync\w*_on_stream"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
    ("send", r"send"),
    ("recv", r"recv"),
)

_NOT_COMMUNICATION: Final = re.compile(NOT_COMMUNICATION)
_LIBRARIES: Final = tuple((library, re.compile(pattern)) for library, pattern in LIBRARIES)
_KINDS: Final = tuple((kind, re.compile(pattern)) for kind, pattern in KINDS)
# One scan settles nearly every name: no rule can match where the union does not.
_ANY: Final = re.compile("|".join(f"(?:{pattern})" for _, pattern in LIBRARIES))


def collective(name: str, vendor: str | None = None) -> CollectiveName | None:
    """Kind and library of a communication kernel or op, or None where the name is no communication.

    `vendor` is the accelerator's, "nvidia", "amd" or None: RCCL's kernels carry NCCL's names.
    """
    return of_head(head(name).lower(), vendor)


def of_head(subject: str, vendor: str | None = None) -> CollectiveName | None:
    """`collective` for a name whose lower-case head is at hand."""
    if not _ANY.search(subject) or _NOT_COMMUNICATION.search(subject):
        return None
    library = next(library for library, pattern in _LIBRARIES if pattern.search(subject))
    if library == "nccl" and vendor == "amd":
        library = "rccl"
    kind = next((kind for kind, pattern in _KINDS if pattern.search(subject)), None)
    return CollectiveName(kind, library)

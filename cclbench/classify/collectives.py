# SPDX-License-Identifier: Apache-2.0
"""Which names are communication, of which library and of which kind.

Each rule is a library and a pattern; the first whose pattern occurs in the name's subject wins, and
`NOT_COMMUNICATION` goes before all.  The kind then follows from `KINDS`, first match again.  White
space separates the alternatives of a pattern.  Names are from the sources of the libraries and from
traces of them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cclbench.classify.names import subject


class CollectiveName(NamedTuple):
    """What a name tells of a collective: kind (None where it does not tell) and library."""

    kind: str | None
    library: str


# Framework kernels that gather, scatter, broadcast or reduce within one device, code that Inductor
# generated from a graph with collectives in it, copies around collectives, Python functions, prose.
NOT_COMMUNICATION: Final = r"""
    ^at::  ^aten::  ^triton_(?:poi|red|per|tem|for|mix|unk)_  ^fsdp::  ^cub::  ^thrust::  ^rocprim::  ^cutlass
    get_dispatch_layout  (?:block|warp|local|thread)_?all_?reduce  local_reduce_scatter  mpi_reduce_local
    ^nn\.module  \.py$  ^(?!(?:nccl|gloo|ucc|mpi):).*\s
"""

LIBRARIES: Final = (
    ("rccl", r"rccl\w*kernel"),
    (
        "nccl",
        r"nccl(?:dev|sym|kernel|all(?:reduce|gather|to)|reduce|broadcast|bcast|send|recv|scatter|gather|_ep\b|:)",
    ),
    ("mscclpp", "mscclpp"),
    ("msccl", r"msccl\w*kernel"),
    ("gloo", "^gloo:"),
    ("ucc", "^ucc:"),
    (
        "mpi",
        """
        ^mpi:  ^p?mpi_i?(?:all(?:reduce|gather|to)|reduce|scan|exscan|bcast|barrier|gather|scatter|neighbor_)
        ^p?mpi_i?(?:[bsr]?send|m?recv)  ^p?mpi_wait
        """,
    ),
    (
        "xla",
        r"""
        ^%?(?:async-|ragged-)?(?:all-reduce|all-gather|all-to-all|reduce-scatter|collective-)
        ^%?(?:send|recv)(?:-done)?\.\d  ^%?(?:send|recv)-done$  ^stream_executor::\S*allreduce
        """,
    ),
    ("oneccl", r"oneccl  \bccl::"),
    ("hccl", r"^hcom_  \bhccl"),
    ("deepep", r"\b(?:deep|hybrid)_ep(?:_v\d)?::"),
    ("uccl", r"\buccl(?:_ep)?::"),
    ("nixl", r"\bnixl(?:_ep)?::"),
    ("mori", r"\bmori::  \bep(?:dispatch|combine)\w*kernel"),
    ("pplx", r"\bpplx\w*::  \ba2a_(?:dispatch|combine)"),
    ("rocshmem", "rocshmem  roc_shmem"),
    (
        "nvshmem",
        r"""
        nvshmem  \b(?:barrier|sync|broadcast|alltoall|fcollect|rdxn|reducescatter)\w*_on_stream_kernel
        exchangesplitandoffset  \balltoall(?:v|get)(?:_2d)?$
        """,
    ),
    (
        "c10d",
        r"""
        ^_?c10d(?:_functional(?:_autograd)?)?::(?!\S*(?:kernel|symmetric))
        ^record_param_comms$  ^_dtensor::shard_dim
        """,
    ),
    # Kernels of serving engines, symmetric memory, userbuffers and whoever writes an all-reduce.
    (
        "custom",
        """
        all_?reduce  all_?gather  reduce_?scatter  all_?(?:to|2)_?all  cross_device_reduce  quickreduce
        userbuffers  lamport  symm_mem  symmetric_memory  multimem_  moe_?a2a  moe_comm  fusedmoecomm
        (?:barrier|put_signal|wait_signal)_kernel
        """,
    ),
)

_CALLED: Final = (
    ("reduce_scatter", "reducescatter"),
    ("all_reduce", "allreduce"),
    ("all_gather", "allgather"),
    ("all_to_all", "alltoall"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send_recv", "sendrecv"),
    ("send", "send"),
    ("recv", "recv"),
)

KINDS: Final = (
    (None, "notify  clean_low_latency  exchangesplit  rmsnormlamport  prepare  sanitize"),
    ("send_recv", "send_?recv  collective-permute  neighbor_"),
    ("reduce_scatter", r"reduce_?-?scatter  userbuffers\w*_rs(?![a-z])"),
    ("all_gather", r"all_?gather  all-gather  fcollect  userbuffers\w*_ag(?![a-z])"),
    (
        "all_reduce",
        r"all_?-?reduce  cross_device_reduce  quickreduce  userbuffers\w*_sum  rdxn  reduce_fusion",
    ),
    ("all_to_all", "all_?-?(?:to|2)_?-?all  a2a  dispatch  combine  moe_?comm"),
    ("broadcast", "broadcast  bcast"),
    ("barrier", r"barrier  sync\w*_on_stream"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)


def alternatives(pattern: str) -> re.Pattern[str]:
    """The regular expression of a rule whose alternatives are separated by white space."""
    return re.compile("|".join(pattern.split()))


_NOT_COMMUNICATION: Final = alternatives(NOT_COMMUNICATION)
_LIBRARIES: Final = tuple((library, alternatives(pattern)) for library, pattern in LIBRARIES)
_KINDS: Final = tuple((kind, alternatives(pattern)) for kind, pattern in KINDS)
# One scan settles nearly every name: no rule can match where the union does not.
_ANY: Final = alternatives(" ".join(pattern for _, pattern in LIBRARIES))


def collective(name: str, vendor: str | None = None) -> CollectiveName | None:
    """Kind and library of a communication kernel or op, or None where the name is no communication.

    `vendor` is the accelerator's, "nvidia", "amd" or None: RCCL's kernels carry NCCL's names.
    """
    return of_subject(subject(name), vendor)


def of_subject(named: str, vendor: str | None = None) -> CollectiveName | None:
    """`collective` for a name whose subject is at hand."""
    if not _ANY.search(named) or _NOT_COMMUNICATION.search(named):
        return None
    library = next(library for library, pattern in _LIBRARIES if pattern.search(named))
    if library == "nccl" and vendor == "amd":
        library = "rccl"
    kind = next((kind for kind, pattern in _KINDS if pattern.search(named)), None)
    return CollectiveName(kind, library)


def kind_of(name: str) -> str | None:
    """The kind a framework's name for a collective means: `_allgather_base`, `alltoallv`, `all_reduce`."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for kind, mark in _CALLED if mark in letters), None)


# In units of (n − 1)/n, by nccl-tests' doc/PERFORMANCE.md.
_BUS_PARTS: Final = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def bus_factor(kind: str, ranks: int) -> float:
    """Bus traffic per payload byte in a group of n `ranks`: busbw / algbw, as nccl-tests defines it.

    all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all (n−1)/n; others 1.
    """
    parts = _BUS_PARTS.get(kind)
    return 1.0 if parts is None else parts * (ranks - 1) / ranks

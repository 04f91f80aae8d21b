# SPDX-License-Identifier: Apache-2.0
"""Communication kernels and ops by name: library and kind.

Each rule is a library and a pattern; the first whose pattern occurs in the name's subject wins.
`NOT_COMMUNICATION`, `ON_ONE_DEVICE` and `FUSED` take precedence over all rules.  The kind is the first match
in `KINDS`: None where a name states no kind, or where only sizes, flags and offsets are exchanged.  White
space separates the alternatives of a pattern.  Names are from the libraries' sources and traces;
tests/classify/kernel_names.yaml lists each with the file it is from.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from cclbench.classify.fused import FUSED
from cclbench.classify.names import rule_subject


class CollectiveName(NamedTuple):
    """Kind (None where the name states none) and library of a collective."""

    kind: str | None
    library: str


# Framework kernels that gather, scatter, broadcast or reduce within one device, code that Inductor
# generated from a graph with collectives in it, copies around collectives, Python functions, prose.
NOT_COMMUNICATION: Final = r"""
    ^at::  ^aten::  ^triton_(?:poi|red|per|tem|for|mix|unk)_  ^fsdp::  ^cub::  ^thrust::  ^rocprim::  ^cutlass
    (?:block|warp|local|thread)_?all_?reduce  local_reduce_scatter  mpi_reduce_local
    ^nn\.module  \.py$  ^(?!(?:nccl|gloo|ucc|mpi):).*\s
"""

# Kernels of communication libraries that read and write this device's memory alone: layouts and counts from
# the routing, staging copies, sums of what has arrived, masks, initial values.
ON_ONE_DEVICE: Final = r"""
    dispatch_?layout  (?:query|update|clean)_mask_buffer  dispatch_copy_epilogue  combine_reduce_epilogue
    dispatch_deterministic  hybrid_ep::(?:scan|update_expected)  nccl_ep::hybridep::  cache_p2p_ptr
    epdispatchcopytostaging  epcombineall(?![a-z])  epcombinesync(?!barrier)  async(?:send|recv)copy
    convert(?:dispatchoutput|combineinput)  localreducekernel  moea2a(?:prepare|sanitize)
    topk_reduce_scatter_kernel  lamport_init  nvshmemi_init  supportprobe  kuserbuffers_(?:inc|dummy)
"""

LIBRARIES: Final = (
    ("rccl", r"rccl\w*kernel"),
    (
        "nccl",
        r"""
        nccl(?:dev|sym|kernel|all(?:reduce|gather|to)|reduce|broadcast|bcast|send|recv|scatter|gather|:)
        nccl_(?:ep|extension)::
        """,
    ),
    # Its collectives as RCCL, SGLang and its own benchmarks compile them have no namespace.
    (
        "mscclpp",
        r"""
        mscclpp  ^all(?:reduce|gather)\d+(?:read)?$  ^broadcast6$
        ^allreduce(?:alltoall|allpairs|nvlspacket|_ll_[12]node)$
        """,
    ),
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
    (
        "oneccl",
        r"""
        oneccl  \bccl::  ^xccl:  ^allreduce_kernel_[a-z]+\d+_[a-z]+$  ^alltoallv_kernel_\d+_[a-z]+\d+_[a-z]+$
        ^reduce_read_write_kernel_\d+_  ^(?:reduce|write|read_write)_monolithic_kernel_\d+_
        """,
    ),
    ("spyre", "^senrdma(?:send|receive)"),
    ("hccl", r"^hcom_  \bhccl"),
    # Traces that DeepSeek published call its namespace dpsk::ep.
    ("deepep", r"\b(?:(?:deep|hybrid)_ep(?:_v\d)?|dpsk::ep)::  ^ag_nvl_kernel$"),
    ("uccl", r"\buccl(?:_ep)?::  ^intranode::barrier$"),
    ("nixl", r"\bnixl(?:_ep)?::"),
    (
        "mori",
        r"""
        \bmori::  \bep(?:dispatch|combine)  ^mori_shmem
        ^(?:\w*sdma\w*|internodering\w+|fusedring(?:local|remote)gather)kernel_(?:[uif]\d+|bf16)$
        """,
    ),
    ("pplx", r"^(?:dispatch|combine)kernel$  \ba2a_(?:dispatch|combine)_(?:send|recv)"),
    (
        "flux",
        r"""
        \bflux::(?:ag_|all2all|a2a_single|cudaipcbarrierall|reducescatter|(?:ep_)?topk_gather_rs|transport_)
        \bflux::(?:dis_scatter_(?:forward_flatten|backward_kernel|backward_single)|(?:pre|post)_attn_)
        """,
    ),
    ("rocshmem", "rocshmem  roc_shmem"),
    (
        "nvshmem",
        r"nvshmem  \b(?:barrier|sync|broadcast|alltoall|fcollect|rdxn|reducescatter)\w*_on_stream_kernel",
    ),
    (
        "c10d",
        r"""
        ^_?c10d(?:_functional(?:_autograd)?)?::(?!\S*(?:kernel|symmetric))
        ^record_param_comms$  ^_dtensor::shard_dim
        """,
    ),
    # Kernels of serving engines, symmetric memory, userbuffers, Triton-distributed, Iris and other custom
    # all-reduces.  The first line matches only a function's own name: namespace trtllm_allreduce holds norms.
    (
        "custom",
        r"""
        (?:all_?reduce|all_?gather|reduce_?scatter|all_?(?:to|2)_?all|moe_?a2a|cross_device_reduce|lamport)(?!\S*::)
        userbuffers  multimem_  symm_mem  symmetric_memory  (?:barrier|put_signal|wait_signal)_kernel
        barrier_all(?:_|$)  moe_prepare::computecountandindice  flashinfer::comm::(?:pcie_ipc|ulysses)::
        aiter::a[gr]_(?:ll_)?gfx  parallel_qknorm_across_head  qkv_pack_a2a
        ^tensorrt_llm::kernels::(?:mnnvl::)?rmsnorm$  \bcomms::prims::
        \bkernel_(?:dispatch|combine)_(?:token|intranode)  \bkernel_get_ag_splits
        build_fused_dispatch_metadata  ^_forward_(?:pull|push)_\w*kernel$  inter_node_p2p_for_same_local_rank
        """,
    ),
)

_KIND_MARKS: Final = (
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
    (
        None,
        """
        notify  clean_?low_?latency  exchangesplit  rmsnorm(?:lamport)?$  prepare  get_ag_splits
        dispatch_metadata  allreduce_allgather  reducescatter_allreduce
        _monolithic_kernel_  ^reduce_read_write
        """,
    ),
    ("send_recv", "send_?recv  collective-permute  neighbor_"),
    ("all_reduce", "reducescatterallgather"),
    ("reduce_scatter", r"reduce_?-?scatter  userbuffers\w*_rs(?![a-z])  gather_rs"),
    (
        "all_gather",
        r"""
        all_?gather  all-gather  fcollect  userbuffers\w*_ag(?![a-z])  \bag_(?:nvl|gfx|a2a_mode|ring)
        ring(?:local|remote)gather  ^_forward_pu
        """,
    ),
    (
        "all_reduce",
        r"""
        all_?-?reduce  cross_device_reduce  userbuffers\w*_sum  rdxn  reduce_fusion  nvshmemi_reduce
        minimax_reduce  parallel_qknorm  aiter::ar_  pcie_ipc::
        """,
    ),
    ("barrier", r"barrier  sync\w*_on_stream  (?:device|rdma)_sync"),
    ("all_to_all", "all_?-?(?:to|2)_?-?all  a2a  dispatch  combine  dis_scatter  flux::transport"),
    ("broadcast", "broadcast  bcast"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv  ^hcom_receive  ^senrdmareceive"),
)

# PyTorch runs its reduce-scatter as an instance of two_shot_all_reduce_kernel<T, alignment, world size,
# reduce_scatter, split_last_dim> (CUDASymmetricMemoryOps.cu).
_REDUCE_SCATTER_INSTANCE: Final = re.compile(
    r"two_shot_all_reduce_kernel(?:<[^,]*,[^,]*,[^,]*, *(?:true|\(bool\)1)|I(?:(?!Lb)\w)*Lb1E)"
)


def alternatives_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a rule whose alternatives are separated by white space."""
    return re.compile("|".join(pattern.split()))


class _Compiled(NamedTuple):
    """The rules, compiled; one scan for `any_library` settles nearly every name."""

    any_library: re.Pattern[str]
    not_communication: re.Pattern[str]
    libraries: tuple[tuple[str, re.Pattern[str]], ...]
    kinds: tuple[tuple[str | None, re.Pattern[str]], ...]


@cache
def _compiled_rules() -> _Compiled:
    """The rules, compiled on first use."""
    return _Compiled(
        alternatives_pattern(" ".join(pattern for _, pattern in LIBRARIES)),
        alternatives_pattern(" ".join((NOT_COMMUNICATION, ON_ONE_DEVICE, FUSED))),
        tuple((library, alternatives_pattern(pattern)) for library, pattern in LIBRARIES),
        tuple((kind, alternatives_pattern(pattern)) for kind, pattern in KINDS),
    )


def collective_name(name: str, vendor: str | None = None) -> CollectiveName | None:
    """Kind and library of a communication kernel or op; None for any other name.

    Also None for a kernel that computes in the same launch (`fused`).
    `vendor` is the accelerator's, "nvidia", "amd" or None: RCCL's kernels carry NCCL's names.
    """
    collective = subject_collective(rule_subject(name), vendor)
    if collective is not None and _REDUCE_SCATTER_INSTANCE.search(name):
        return collective._replace(kind="reduce_scatter")
    return collective


@lru_cache(maxsize=1 << 13)
def subject_collective(subject: str, vendor: str | None = None) -> CollectiveName | None:
    """`collective_name` for a name given by its subject."""
    rules = _compiled_rules()
    if not rules.any_library.search(subject) or rules.not_communication.search(subject):
        return None
    library = next(library for library, pattern in rules.libraries if pattern.search(subject))
    if library == "nccl" and vendor == "amd":
        library = "rccl"
    kind = next((kind for kind, pattern in rules.kinds if pattern.search(subject)), None)
    return CollectiveName(kind, library)


def kind_of(name: str) -> str | None:
    """The kind of a collective by a framework's name: `_allgather_base`, `alltoallv`, `all_reduce`."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for kind, mark in _KIND_MARKS if mark in letters), None)


# In units of (n − 1)/n, by nccl-tests' doc/PERFORMANCE.md.
_BUS_PARTS: Final = {
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
    "gather": 1,
    "scatter": 1,
}


def bus_factor(kind: str, ranks: int) -> float:
    """Bus traffic per payload byte in a group of n `ranks`: busbw / algbw, as nccl-tests defines it.

    all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all, gather, scatter (n−1)/n; others 1.
    """
    parts = _BUS_PARTS.get(kind)
    return 1.0 if parts is None else parts * (ranks - 1) / ranks

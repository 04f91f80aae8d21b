# SPDX-License-Identifier: Apache-2.0
"""Facts about library, network and channels from single lines of NCCL's and RCCL's debug output.

The same lines contain host names, addresses, process ids, device and library paths: only what a rule matches
is read.  Lines are those of NCCL 2.12 to 2.30, RCCL 2.18 to 2.30, aws-ofi-nccl 1.4 to 1.18.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cclbench.classify import kind_of
from cclbench.ground.units import binary_text

_MOST_VALUES: Final = 64
"""Most different values of one fact that are kept."""

_RULES: Final = tuple(
    (mark, fact, re.compile(pattern, re.ASCII))
    for mark, fact, pattern in (
        ("CCL version", "library_version", r"\b[NR]CCL version ?:? ?(\d(?:(?![NR]CCL)[\w.+:-]){0,60})"),
        ("HIP version", "hip_version", r"HIP version +: ?(\d[\w.+-]{0,40})"),
        ("ROCm version", "rocm_version", r"ROCm version ?: ?(\d[\w.+-]{0,40})"),
        ("cudaDriverVersion", "cuda_driver_version", r"cudaDriverVersion (\d{4,6})\b"),
        ("Using network", "network", r"Using network ([A-Za-z][\w /-]{0,40})"),
        ("aws-ofi-nccl", "network_plugin", r"(?:Initializing|Using) (aws-ofi-nccl [\w.-]{1,30})"),
        ("Loaded net plugin", "network_plugin", r"Loaded net plugin ([A-Za-z][\w ]{0,40}\(v\d+\))"),
        ("rovider is", "network_provider", r"Selected [Pp]rovider is ([\w;-]{1,30})"),
        ("Libfabric version", "libfabric_version", r"Using Libfabric version (\d[\w.]{0,20})"),
        ("(found", "network_interfaces", r"\(found (\d{1,3}) nics\)"),
        ("TUNER/Plugin: Using", "tuner_plugin", r"TUNER/Plugin: Using (?:tuner plugin )?(\w{1,40})"),
        ("NVLS", "nvls", r"NVLS multicast support is ((?:not )?available)"),
        ("coll channels", "coll_channels", r"\b(\d{1,4}) coll channels"),
        ("collnet channels", "collnet_channels", r"\b(\d{1,4}) collnet channels"),
        ("nvls channels", "nvls_channels", r"\b(\d{1,4}) nvls channels"),
        ("p2p channels,", "p2p_channels", r"\b(\d{1,4}) p2p channels,"),
        ("Channel ", "rings", r"Channel \d{2,4}/(\d{2,4}) ?:"),
        ("nRanks", "ranks", r"\bnRanks (\d{1,7})\b"),
        ("nranks", "ranks", r"\bnranks (\d{1,7})\b"),
        ("nNodes", "nodes", r"\bnNodes (\d{1,7})\b"),
    )
)
_NUMBERS: Final = {
    *("cuda_driver_version", "network_interfaces", "coll_channels", "collnet_channels", "nvls_channels"),
    *("p2p_channels", "rings", "ranks", "nodes"),
}
_TRANSPORT = re.compile(r" via ((?:P2P|SHM|NET|NVLS|COLLNET)(?:/[\w ().-]{1,40}){0,5})", re.ASCII)
_ORDINAL = re.compile(r"\d+(?:\(\d+\))?", re.ASCII)
_PORTS = re.compile(r"\[\d+\][\w.-]+:\d+/(\w+)", re.ASCII)
_OVERRIDE = re.compile(r"\b(NCCL_\w+) set by environment to ([\w,:;^+-]{1,40}?)\.?\s*$", re.ASCII)
# Performance settings; those that name interfaces, hosts or files are not read.
_OVERRIDES: Final = frozenset(
    f"NCCL_{name}"
    for name in (
        *("ALGO", "PROTO", "MIN_NCHANNELS", "MAX_NCHANNELS", "MIN_CTAS", "MAX_CTAS", "BUFFSIZE", "NTHREADS"),
        *("LL_THRESHOLD", "LL128_BUFFSIZE", "P2P_NET_CHUNKSIZE", "P2P_PCI_CHUNKSIZE", "P2P_NVL_CHUNKSIZE"),
        *("MIN_P2P_NCHANNELS", "MAX_P2P_NCHANNELS", "NCHANNELS_PER_PEER", "NCHANNELS_PER_NET_PEER"),
        *("NET", "NET_GDR_LEVEL", "NET_GDR_READ", "NET_SHARED_BUFFERS", "P2P_LEVEL", "P2P_DISABLE"),
        *("P2P_DIRECT_DISABLE", "SHM_DISABLE", "NVLS_ENABLE", "NVLS_NCHANNELS", "NVB_DISABLE", "PXN_DISABLE"),
        *("CROSS_NIC", "COLLNET_ENABLE", "CUMEM_ENABLE", "MNNVL_ENABLE", "GRAPH_REGISTER", "LOCAL_REGISTER"),
        *("IB_DISABLE", "IB_QPS_PER_CONNECTION", "IB_SPLIT_DATA_ON_QPS", "IB_TC", "IB_SL", "IB_TIMEOUT"),
        *("IB_RETRY_CNT", "IB_ADAPTIVE_ROUTING", "IB_PCI_RELAXED_ORDERING", "IB_MERGE_NICS", "IB_GID_INDEX"),
        *("NSOCKS_PERTHREAD", "SOCKET_NTHREADS", "DMABUF_ENABLE", "RUNTIME_CONNECT", "LAUNCH_MODE"),
    )
)
_TUNED: Final = re.compile(
    r"(?:([A-Z]\w{2,30}): )?(\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})\b", re.ASCII
)
_ALGORITHMS: Final = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS: Final = ("LL", "LL128", "SIMPLE")
"""Names of the numbers that NCCL before 2.24 prints in their place (src/include/nccl_common.h)."""
_LIBRARY = re.compile(r"\b([NR])CCL version|\+hip", re.ASCII)
_SETTING = re.compile(
    r"\b((?:NCCL|RCCL|OFI_NCCL|UCX|FI|CUDA)_\w+) (?:set by environment )?(?:set )?to\b", re.ASCII
)


def is_private_setting(line: str) -> bool:
    """Whether a line states a variable other than a performance setting."""
    match = _SETTING.search(line)
    return match is not None and match[1] not in _OVERRIDES


def fact_texts(line: str) -> list[str]:
    """The parts of a line from which `LineFacts` reads its facts, without names of network devices."""
    texts = ["CCL WARN"] if "CCL WARN" in line else []
    texts += [match[0] for mark, _, pattern in _RULES if mark in line and (match := pattern.search(line))]
    if match := _TRANSPORT.search(line):
        texts.append(match[0])
    if "NET/IB" in line and (ports := _PORTS.findall(line)):
        texts.append("NET/IB " + " ".join(f"[{number}]-:1/{link}" for number, link in enumerate(ports)))
    if (match := _OVERRIDE.search(line)) and match[1] in _OVERRIDES:
        texts.append(match[0])
    return texts


class LineFacts:
    """Facts from the lines read so far."""

    def __init__(self) -> None:
        self.warnings = 0
        self._found: dict[str, dict[str, None]] = {}
        self._remote: set[bool] = set()
        self._tuned: dict[tuple[str | None, str, str], tuple[int, int]] = {}
        """Smallest and largest size, B, by collective, algorithm and protocol."""

    def read_line(self, line: str) -> None:
        """Collect the facts in a line."""
        if "CCL WARN" in line:
            self.warnings += 1
        for mark, fact, pattern in _RULES:
            if mark in line and (match := pattern.search(line)):
                self._add_values(fact, [match[1].strip()])
        if " via " in line and (match := _TRANSPORT.search(line)):
            self._add_transport(match[1])
        if "NET/IB" in line and (ports := _PORTS.findall(line)):
            self._add_values("network_interfaces", [str(len(ports))])
            self._add_values("network_link", sorted(set(ports)))
        if "Bytes -> Algo" in line and (match := _TUNED.search(line)):
            self._add_choice(match)
        if "set by environment" in line and (match := _OVERRIDE.search(line)) and match[1] in _OVERRIDES:
            self._add_values(match[1], [match[2]])
        if "CCL version" in line and (match := _LIBRARY.search(line)):
            self._add_values("library", ["rccl" if match[1] == "R" or "+hip" in line else "nccl"])

    def collected_facts(self) -> dict[str, str | int | float | list[str]]:
        """Facts by name; a list if lines differ: communicators of several sizes, ranks that disagree."""
        facts: dict[str, str | int | float | list[str]] = {}
        for name, values in self._found.items():
            if len(values) > 1 or name == "transports":
                facts[name] = sorted(values, key=lambda v: (len(v), v) if name in _NUMBERS else (0, v))
            else:
                (only,) = values
                facts[name] = int(only) if name in _NUMBERS else only
        if self.warnings:
            facts["warnings"] = self.warnings
        if self._tuned:
            facts["tuning"] = self._choices()
        if self._remote:
            facts["gpudirect_rdma"] = (
                "some channels" if len(self._remote) > 1 else "yes" if True in self._remote else "no"
            )
        return facts

    def _add_transport(self, path: str) -> None:
        parts = [part for part in path.split("/") if not _ORDINAL.fullmatch(part)]
        self._add_values("transports", ["/".join(parts)])
        if parts[0] == "NET":
            self._remote.add("GDRDMA" in parts)

    def _add_choice(self, match: re.Match[str]) -> None:
        algorithm, protocol = (
            names[int(word)] if word.isdecimal() and int(word) < len(names) else word.upper()
            for word, names in ((match[3], _ALGORITHMS), (match[4], _PROTOCOLS))
        )
        key, size = (match[1] and kind_of(match[1]), algorithm, protocol), int(match[2])
        if key in self._tuned or len(self._tuned) < _MOST_VALUES:
            low, high = self._tuned.get(key, (size, size))
            self._tuned[key] = min(low, size), max(high, size)

    def _choices(self) -> list[str]:
        """`all_reduce 4B-64KiB: TREE LL`, by collective and size."""
        order = sorted(self._tuned.items(), key=lambda entry: (entry[0][0] or "", entry[1], entry[0][1:]))
        return [
            f"{kind or 'collectives'} {_size_range(*sizes)}: {algorithm} {protocol}"
            for (kind, algorithm, protocol), sizes in order
        ]

    def _add_values(self, fact: str, values: Iterable[str]) -> None:
        fact_values = self._found.setdefault(fact, {})
        for value in values:
            if len(fact_values) < _MOST_VALUES:
                fact_values[value.lstrip("0") or "0" if fact in _NUMBERS else value] = None


def _size_range(low: int, high: int) -> str:
    """`4B-64KiB`; `4B` for a single size."""
    return binary_text(low) if low == high else f"{binary_text(low)}-{binary_text(high)}"

# SPDX-License-Identifier: Apache-2.0
"""NCCL and RCCL by their debug output: version, network, transports, channels, algorithms by size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cclbench.formats.nccl_log import NcclLog
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_FACTS: Final[Mapping[str, str]] = {
    "library": "library",
    "library_version": "version",
    "hip_version": "HIP version",
    "rocm_version": "ROCm version",
    "cuda_driver_version": "CUDA driver version",
    "ranks": "ranks",
    "nodes": "nodes",
    "communicators": "communicators",
    "network": "network",
    "network_plugin": "network plug-in",
    "network_provider": "network provider",
    "libfabric_version": "libfabric version",
    "network_interfaces": "network interfaces",
    "network_link": "network link",
    "gpudirect_rdma": "GPUDirect RDMA",
    "transports": "transports",
    "coll_channels": "channels of collectives",
    "p2p_channels": "channels of transfers",
    "collnet_channels": "CollNet channels",
    "nvls_channels": "NVLS channels",
    "rings": "rings",
    "nvls": "NVLS multicast",
    "tuner_plugin": "tuner plug-in",
    "tuning": "algorithm and protocol",
}
"""Facts of the library's output, and their names in words; settings of the environment keep theirs."""
_ONLY_FROM_OUTPUT: Final = frozenset(("network", "transports", "rings", "coll_channels", "tuning", "nvls"))
"""Facts that only debug output states: a sweep's header has a version, too."""
_PATHS: Final = (
    *("transports", "network", "network_plugin", "gpudirect_rdma"),
    *("coll_channels", "p2p_channels", "nvls_channels"),
)
"""Facts of the first screen about what data pass through."""
_SETTING: Final = "NCCL_"
_COLUMNS: Final = (FigureColumn(name="setting", key=True), FigureColumn(name="value", lead=True))


def summarise_libraries(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """The library's facts, those of all files together; slow paths first."""
    files = [
        file.facts
        for file in inputs.run.record.evidence
        if file.reader == NcclLog.name or not _ONLY_FROM_OUTPUT.isdisjoint(file.facts)
    ]
    if not files:
        return
    facts = {
        name: _distinct_values(files, name) for name in dict.fromkeys(key for one in files for key in one)
    }
    names = [*_FACTS, *sorted(name for name in facts if name.startswith(_SETTING))]
    rows: list[tuple[Cell, ...]] = [
        (_FACTS.get(name, name), ", ".join(facts[name])) for name in names if facts.get(name)
    ]
    yield SourceSummary(
        kind="library",
        heading="Communication library, by its debug output",
        warnings=[*_warned(files), *_slow_paths(facts)],
        sentences=list(_sentences(facts)),
        tables=[FigureTable(subject="library", title="Settings", columns=_COLUMNS, rows=rows, detail=True)],
        absent=list(_absences(facts)),
    )


def _sentences(facts: Mapping[str, list[str]]) -> Iterator[str]:
    """Version and size; transports and channels; algorithms by size; settings of the environment."""
    first = {name: words for name, values in facts.items() if (words := ", ".join(values))}
    library = " ".join(first.get(name, "") for name in ("library", "library_version")).strip()
    counts = [
        f"{first[name]} {name if first[name] != '1' else name[:-1]}"
        for name in ("ranks", "nodes", "communicators")
        if name in first
    ]
    if words := "; ".join(filter(None, (library, ", ".join(counts)))):
        yield f"{words}."
    paths = [f"{_FACTS[name]} {first[name]}" for name in _PATHS if first.get(name, "0") != "0"]
    if paths:
        text = "; ".join(paths)
        yield f"{text[:1].upper()}{text[1:]}."
    if "tuning" in first:
        yield f"Algorithm and protocol: {'; '.join(facts['tuning'])}."
    chosen = [f"{name}={words}" for name, words in sorted(first.items()) if name.startswith(_SETTING)]
    if chosen:
        yield f"Set by the environment: {', '.join(chosen)}."


def _distinct_values(files: Sequence[Mapping[str, str | int | float | list[str]]], name: str) -> list[str]:
    values = (facts[name] for facts in files if name in facts)
    return list(
        dict.fromkeys(
            str(each) for value in values for each in (value if isinstance(value, list) else [value])
        )
    )


def _warned(files: Sequence[Mapping[str, object]]) -> Iterator[str]:
    counts = [count for facts in files if isinstance(count := facts.get("warnings"), int)]
    if counts:
        times = f"{sum(counts):,} time{'s'[: sum(counts) != 1]}"
        yield f"The library warned {times}: search the log for NCCL WARN."


def _slow_paths(facts: Mapping[str, list[str]]) -> Iterator[str]:
    """Transports that are slower than what the machine may have."""
    transports = facts.get("transports", [])
    kinds = {transport.partition("/")[0] for transport in transports}
    if any(transport.startswith("NET/Socket") for transport in transports):
        yield "Channels between nodes use TCP sockets (NET/Socket), not the network's own transport."
    elif facts.get("gpudirect_rdma") not in (None, ["yes"]):
        some = "Channels" if facts["gpudirect_rdma"] == ["no"] else "Some channels"
        yield f"{some} of the network state no GDRDMA: without GPUDirect RDMA, data pass through host memory."
    if "SHM" in kinds and "P2P" not in kinds:
        yield "No channel uses peer-to-peer access: data within a node pass through host memory (SHM)."


def _absences(facts: Mapping[str, list[str]]) -> Iterator[str]:
    if "transports" not in facts:
        yield "transports are not stated (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,P2P,SHM,NET)"
    if "tuning" not in facts:
        yield "algorithms and protocols are not stated (NCCL_DEBUG_SUBSYS=INIT,TUNING)"

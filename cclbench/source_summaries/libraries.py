# SPDX-License-Identifier: Apache-2.0
"""NCCL and RCCL by their debug output: version, network, transports, channels, algorithms by size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cclbench.analyzers.view.network_facts import distinct_facts, library_outputs, network_facts
from cclbench.hardware.network_conditions import known_conditions
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
_PATHS: Final = (
    *("transports", "network", "network_plugin", "gpudirect_rdma"),
    *("coll_channels", "p2p_channels", "nvls_channels"),
)
"""Facts of the first screen about what data pass through."""
_SETTING: Final = "NCCL_"
_COLUMNS: Final = (FigureColumn(name="setting", key=True), FigureColumn(name="value", lead=True))
_CONDITIONS: Final = tuple(
    FigureColumn(name=name, key=name == "condition") for name in ("condition", "what to do", "source")
)


def summarise_libraries(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """The library's facts, those of all files together; slow paths first."""
    files = library_outputs(inputs.run.record.evidence)
    if not files:
        return
    facts = distinct_facts(files)
    network = network_facts(facts, inputs.view.card, inputs.view.machine)
    conditions = [(each.claim(network), each.advice, each.source) for each in known_conditions(network)]
    names = [*_FACTS, *sorted(name for name in facts if name.startswith(_SETTING))]
    rows: list[tuple[Cell, ...]] = [
        (_FACTS.get(name, name), ", ".join(facts[name])) for name in names if facts.get(name)
    ]
    yield SourceSummary(
        kind="library",
        heading="Communication library, by its debug output",
        warnings=[*_warned(files), *(claim for claim, _, _ in conditions)],
        sentences=list(_sentences(facts)),
        tables=[
            FigureTable(subject="library", title="Settings", columns=_COLUMNS, rows=rows, detail=True),
            *_conditions_table(conditions),
        ],
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


def _conditions_table(conditions: Sequence[tuple[Cell, ...]]) -> Iterator[FigureTable]:
    """What is known to be slow, and the page that says so."""
    if conditions:
        title = "Settings known to be slow"
        yield FigureTable(
            subject="conditions", title=title, columns=_CONDITIONS, rows=[*conditions], detail=True
        )


def _warned(files: Sequence[Mapping[str, object]]) -> Iterator[str]:
    counts = [count for facts in files if isinstance(count := facts.get("warnings"), int)]
    if counts:
        times = f"{sum(counts):,} time{'s'[: sum(counts) != 1]}"
        yield f"The library warned {times}: search the log for NCCL WARN."


def _absences(facts: Mapping[str, list[str]]) -> Iterator[str]:
    if "transports" not in facts:
        yield "transports are not stated (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,P2P,SHM,NET)"
    if "tuning" not in facts:
        yield "algorithms and protocols are not stated (NCCL_DEBUG_SUBSYS=INIT,TUNING)"

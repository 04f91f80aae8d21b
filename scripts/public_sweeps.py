# SPDX-License-Identifier: Apache-2.0
"""The public sweeps that the model of collectives is compared with and learns from."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from cclbench.formats.nccl_tests import NcclTests
from cclbench.ground.errors import InputError
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.fabric import Transport
from cclbench.hardware.residual_learning import ObservedSweep, observe_sweep
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.hardware.system import System

PUBLISHED = Path(__file__).parents[1] / "tests" / "hardware" / "published"
HALVES = ("development", "held out")
MISCONFIGURED = ("tcp_fallback", "misconf_")
"""In names of files: runs that their sources call misconfigured, left out of totals and of the learning."""

SYSTEMS = {
    "a100_nvswitch": "dgx-a100",
    "alps": "alps-gh200",
    "aws_p5_": "aws-p5",
    "cscs_daint": "alps-gh200",
    "gcp_a3mega": "gcp-a3-mega",
    "h100_1n4": "dgx-h100",
    "vultr_b200": "dgx-b200",
}
"""Systems of the folder's sweeps by prefix of their file names; each prefix is one machine."""


FITTED = ("tcpx-sweeps",)
"""Sources of fabrics' figures that are fits of the formulas to sweeps used here."""
FITTED_WITHOUT = {"gcp_a3high": "tcpx-skypilot", "skypilot_a3high": "tcpx-dstack"}
"""The source of figures that another machine gave, by prefix of a machine's file names: what `FITTED` would
state without this machine."""


def specified_system(id: str, source: str | None = None) -> System:  # noqa: A002 - the catalog's word for it
    """A system without figures that are fitted to its sweeps: these would say nothing of other machines.

    `source`: with the usable share of its network that this source states in their place; its latency is
    that of all (both machines gave the same).
    """
    found = system(id)
    out = found.scale_out
    if out is None or not set(FITTED) & set(out.fabric.cited.values()):
        return found
    transports = dict.fromkeys(out.fabric.transports, Transport(None))
    fabric = structs.replace(out.fabric, usable_fraction=None, transports=transports)
    for other in out.fabric.disagreements:
        if (other.field, other.source) == ("usable_fraction", source):
            fabric = structs.replace(out.fabric, usable_fraction=float(other.says))
    return structs.replace(found, scale_out=structs.replace(out, fabric=fabric))


class PublicSweep(NamedTuple):
    """A sweep, its file, its machine, and the machine's system in the catalog."""

    path: Path
    machine: str
    system: str
    sweep: Sweep

    @property
    def file(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem

    @property
    def misconfigured(self) -> bool:
        """Whether the file's name says so, see `MISCONFIGURED`."""
        return any(word in self.file for word in MISCONFIGURED)


def folder_sweeps(folder: Path, half: str | None = None) -> list[PublicSweep]:
    """Sweeps of a folder whose machine is in the catalog, or of one half of them.

    A file states its `system` and `source` in its header; a machine is a system of one source, unless the
    header names the `machine`.  `SYSTEMS` has those of files without.
    """
    sweeps = []
    for path in sorted(folder.glob("*.csv")):
        lines = (line[2:].partition(": ") for line in path.read_text().splitlines() if line.startswith("# "))
        header = {key: value for key, _, value in lines}
        if half is not None and header.get("half") != half:
            continue
        prefix = next((prefix for prefix in SYSTEMS if path.name.startswith(prefix)), None)
        if "system" in header:
            if "source" not in header:
                raise InputError("a sweep without its source", where=str(path), hint="add '# source: ...'")
            accelerator = header.get("gpu", header["system"])
            machine = header.get("machine", f"{accelerator}, {header['source']}")
            system = header["system"]
        elif prefix is not None:
            machine, system = prefix.strip("_"), SYSTEMS[prefix]
        else:
            print(f"{path.name}: the catalog has no system for it; state '# system: ID'", file=sys.stderr)
            continue
        sweeps.extend(PublicSweep(path, machine, system, sweep) for sweep in read_sweeps(path))
    return sweeps


def published_sweeps(half: str) -> list[PublicSweep]:
    """Sweeps of one half of tests/hardware/published."""
    return folder_sweeps(PUBLISHED, half)


def read_sweeps(path: Path) -> list[Sweep]:
    """Sweeps of a file; rows that belong to none are reported on stderr."""
    evidence = NcclTests().read(path)
    version = evidence.facts.get("library_version")
    sweeps, left_out = sweeps_of(evidence.timings, None if version is None else str(version))
    for reason, rows in left_out.items():
        print(f"{path.name}: {rows} rows {reason}", file=sys.stderr)
    return sweeps


def predicted_system(public: PublicSweep) -> System:
    """The sweep's system as the catalog would describe it without this machine."""
    source = next((own for prefix, own in FITTED_WITHOUT.items() if public.file.startswith(prefix)), None)
    return specified_system(public.system, source)


def price_sweep(public: PublicSweep, machine: System | None = None) -> ObservedSweep | NoPrice:
    """The sweep compared with the formulas, or why there is no price; `machine`: as `specified_system`."""
    sweep, machine = public.sweep, machine or specified_system(public.system)
    prediction = price_collective(
        sweep.kind,
        sweep.sizes_bytes,
        machine.group_members(sweep.ranks, sweep.nodes),
        machine,
        library_version=sweep.library_version,
    )
    if isinstance(prediction, NoPrice):
        return prediction
    return observe_sweep(public.file, public.machine, public.system, sweep, prediction)


def priced_sweeps(folder: Path) -> list[tuple[PublicSweep, ObservedSweep]]:
    """All sweeps used for learning, the folder's and the published ones, with the times of the formulas."""
    publics = [*folder_sweeps(folder), *(public for half in HALVES for public in published_sweeps(half))]
    return with_formulas(publics)


def with_formulas(given: Iterable[PublicSweep]) -> list[tuple[PublicSweep, ObservedSweep]]:
    """Sweeps with the times of the formulas, without misconfigured ones and those that have no price."""
    priced = ((public, price_sweep(public)) for public in given if not public.misconfigured)
    return [(public, observed) for public, observed in priced if not isinstance(observed, NoPrice)]

# SPDX-License-Identifier: Apache-2.0
"""The public sweeps that the model of collectives is compared with and learns from."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from cclbench.formats.nccl_tests import NcclTests
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.fabric import Transport
from cclbench.hardware.residual_learning import ObservedSweep, observe_sweep
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.hardware.system import System

PUBLISHED = Path(__file__).parents[1] / "tests" / "hardware" / "published"
HALVES = ("development", "held out")
MISCONFIGURED = ("tcp_fallback", "misconf")
"""Runs without network plug-in or GPUDirect: reported as outliers, left out of totals and of the learning."""

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


def specified_system(id: str) -> System:  # noqa: A002 - the catalog's word for it
    """A system without figures that are fitted to its sweeps: these would say nothing of other machines."""
    found = system(id)
    out = found.scale_out
    if out is None or not set(FITTED) & set(out.fabric.cited.values()):
        return found
    transports = dict.fromkeys(out.fabric.transports, Transport(None))
    fabric = structs.replace(out.fabric, usable_fraction=None, transports=transports)
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


def folder_sweeps(folder: Path) -> list[PublicSweep]:
    """Sweeps of a folder whose machine is in the catalog."""
    sweeps = []
    for path in sorted(folder.glob("*.csv")):
        machine = next((prefix for prefix in SYSTEMS if path.name.startswith(prefix)), None)
        if machine is None:
            print(f"{path.name}: the catalog has no system for it", file=sys.stderr)
            continue
        sweeps.extend(
            PublicSweep(path, machine.strip("_"), SYSTEMS[machine], sweep) for sweep in read_sweeps(path)
        )
    return sweeps


def published_sweeps(half: str) -> list[PublicSweep]:
    """Sweeps of one half of tests/hardware/published; a machine is a system of one source."""
    return [public for public in headed_sweeps(PUBLISHED) if _header(public.path)["half"] == half]


def headed_sweeps(folder: Path) -> list[PublicSweep]:
    """Sweeps of a folder whose headers state GPU, system and source; a machine is a system of one source."""
    sweeps = []
    for path in sorted(folder.glob("*.csv")):
        header = _header(path)
        machine = header.get("machine", f"{header['gpu']}, {header['source']}".partition("; ")[0])
        sweeps.extend(PublicSweep(path, machine, header["system"], sweep) for sweep in read_sweeps(path))
    return sweeps


def _header(path: Path) -> dict[str, str]:
    lines = (line[2:].partition(": ") for line in path.read_text().splitlines() if line.startswith("# "))
    return {key: value for key, _, value in lines}


def read_sweeps(path: Path) -> list[Sweep]:
    """Sweeps of a file; rows that belong to none are reported on stderr."""
    evidence = NcclTests().read(path)
    version = evidence.facts.get("library_version")
    sweeps, left_out = sweeps_of(evidence.timings, None if version is None else str(version))
    for reason, rows in left_out.items():
        print(f"{path.name}: {rows} rows {reason}", file=sys.stderr)
    return sweeps


def priced_sweeps(folder: Path) -> list[tuple[PublicSweep, ObservedSweep]]:
    """All sweeps used for learning, the folder's and the published ones, with the times of the formulas."""
    return with_formulas(
        [*folder_sweeps(folder), *(public for half in HALVES for public in published_sweeps(half))]
    )


def with_formulas(given: Iterable[PublicSweep]) -> list[tuple[PublicSweep, ObservedSweep]]:
    """Sweeps with the times of the formulas, without misconfigured ones and those that have no price."""
    sweeps = []
    for public in given:
        sweep, machine = public.sweep, specified_system(public.system)
        prediction = price_collective(
            sweep.kind,
            sweep.sizes_bytes,
            machine.group_members(sweep.ranks, sweep.nodes),
            machine,
            library_version=sweep.library_version,
        )
        if not any(word in public.file for word in MISCONFIGURED) and not isinstance(prediction, NoPrice):
            observed = observe_sweep(public.file, public.machine, public.system, sweep, prediction)
            sweeps.append((public, observed))
    return sweeps

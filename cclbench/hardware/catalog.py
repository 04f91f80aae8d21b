# SPDX-License-Identifier: Apache-2.0
"""The catalog of accelerators: dense peaks, memory and links, each file with its source.

A figure nobody could source is null, and what needs it does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from cclbench.errors import InputError, UsageError, near

# Drivers report binary gigabytes less a reserve where vendors print decimal ones, up to 7.4 % apart.
_MEMORY_TOLERANCE: Final = 0.1


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accelerator as software sees it (of a module of two dies: one die); its file is `data/<id>.yaml`.

    `peak_flops_per_s` is dense (no sparsity), by dtype, FLOP/s (integer types: op/s).  `sm_count` are
    streaming multiprocessors or compute units.  `scale_up_bytes_per_s` is the line rate of all its
    scale-up links together, per direction, B/s.  `unverified` names the fields that no source was
    at hand for.
    """

    id: str
    kind: Literal["accelerator"]
    vendor: Literal["nvidia", "amd", "google", "aws", "generic"]
    names: tuple[str, ...]  # regular expressions for the whole device name, case ignored
    peak_flops_per_s: Mapping[str, float | None]
    hbm_bytes: int | None
    hbm_bytes_per_s: float | None
    sm_count: int | None
    scale_up_bytes_per_s: float | None
    source: str
    unverified: tuple[str, ...]
    notes: str | None

    def has_name(self, name: str) -> bool:
        """Whether profilers print this name for it."""
        return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in self.names)

    def has_memory(self, reported_bytes: int) -> bool:
        """Whether a driver that reports so many bytes can be talking of it."""
        if self.hbm_bytes is None:
            return True
        return abs(reported_bytes / self.hbm_bytes - 1) <= _MEMORY_TOLERANCE


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """All accelerators by id, sorted; read once."""
    import yaml  # lazily: a bare `--help` need not pay for it

    found: dict[str, Accelerator] = {}
    folder = files("cclbench.hardware") / "data"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".yaml"):
            continue
        try:
            machine = yaml.safe_load(entry.read_text("utf-8"))
            if machine["kind"] == "accelerator":
                found[machine["id"]] = msgspec.convert(machine, Accelerator)
        except (yaml.YAMLError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise InputError(f"is no catalog entry: {error}", where=str(entry)) from None
    return MappingProxyType(found)


def accelerator(id: str) -> Accelerator:  # noqa: A002 - the catalog's word for it
    """The accelerator of that id; `UsageError` with near matches where there is none."""
    try:
        return accelerators()[id]
    except KeyError:
        raise UsageError(f"the catalog has no accelerator {id!r}", hint=near(id, accelerators())) from None


def by_device_name(name: str, memory_bytes: int | None = None) -> Accelerator | None:
    """The one accelerator for which profilers print `name`, with that much memory where it is told.

    None where the name is unknown, the memory contradicts it, or more than one accelerator is left.
    """
    named = [entry for entry in accelerators().values() if entry.has_name(name)]
    if memory_bytes is not None:
        named = [entry for entry in named if entry.has_memory(memory_bytes)]
    return named[0] if len(named) == 1 else None

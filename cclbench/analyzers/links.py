# SPDX-License-Identifier: Apache-2.0
"""The machine whose links a rank's collectives use, and who meets in each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from cclbench.analyzers.columns import codes
from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.platform import accelerator
from cclbench.analyzers.view import RankView
from cclbench.card.model import Hardware
from cclbench.hardware import catalog
from cclbench.hardware.system import ScaleOut, ScaleUp, System
from cclbench.intervals import Int64
from cclbench.schema import group_id

UNKNOWN_RANKS: Final = "whose ranks are not known"
"""Why nothing is said of a collective of which `members_of` knows no ranks."""

_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?")
_LIST: Final = re.compile(r"\d{1,9}(?:,\d{1,9})*")


def members_of(rank: RankView, table: pa.Table) -> tuple[list[Sequence[int]], Int64]:
    """The ranks that meet in each collective, once each: a group's, or a transfer's two; and which it is."""
    group, names = codes(table, "group")
    pair = np.stack(
        [table[end].cast(pa.int64()).fill_null(-1).to_numpy() for end in ("src_rank", "dst_rank")]
    )
    pair[:, (pair < 0).any(axis=0)] = -1
    group = np.where(pair[0] < 0, group, -1)
    keys, row = np.unique(np.stack([group, *pair]), axis=1, return_inverse=True)
    listed = {group_id(g.ranks): g.ranks for g in rank.facts.groups if g.ranks}
    members = [
        (source, target) if source >= 0 else _ranks(names[number], listed)
        for number, source, target in keys.T.tolist()
    ]
    return members, row.reshape(-1)


def _ranks(name: str | None, listed: dict[str, tuple[int, ...]]) -> Sequence[int]:
    """The ranks of a group's id (see `schema.group_id`); none where it only abbreviates them."""
    if name is None or name in listed:
        return listed.get(name or "", ())
    if match := _RANGE.fullmatch(name):
        return range(int(match[1]), int(match[2]) + 1, int(match[3] or 1))
    return tuple(map(int, name.split(","))) if _LIST.fullmatch(name) else ()


def system_of(rank: RankView) -> tuple[System, str | None]:
    """The card's system; else what the catalog's systems with such nodes share, and which they are."""
    hardware = rank.card.hardware if rank.card else None
    if hardware and hardware.system:
        named = catalog.systems().get(hardware.system)
        if named is None:
            raise NotApplicable(f"the catalog knows no system {hardware.system!r} (card: hardware.system)")
        return named, None
    machine = accelerator(rank)
    per_node = (hardware.per_node if hardware else None) or rank.facts.device_count
    if not per_node:
        raise NotApplicable(
            "neither the card (hardware.system, hardware.per_node) nor the trace says what a node holds"
        )
    alike = [s for s in catalog.systems().values() if (s.accelerator, s.per_node) == (machine.id, per_node)]
    if not alike or any(other.scale_up != alike[0].scale_up for other in alike):
        which = f"differ: {', '.join(s.id for s in alike)}" if alike else "are none"
        raise NotApplicable(
            "no card names the system (hardware.system), and the catalog's with"
            f" {per_node} × {machine.id} in a node {which}"
        )
    made = msgspec.structs.replace(
        alike[0],
        id=f"a node of {per_node} × {machine.id}",
        scale_up=_stated(alike[0].scale_up, hardware),
        scale_out=_network(hardware),
    )
    return made, f"links as of {', '.join(s.id for s in alike)}, since no card names the system"


def _stated(known: ScaleUp | None, hardware: Hardware | None) -> ScaleUp | None:
    """The links as known, at the rate that the card states where it does."""
    rate = hardware.scale_up.bytes_per_s if hardware else None
    return msgspec.structs.replace(known, bytes_per_s=rate) if known and rate else known


def _network(hardware: Hardware | None) -> ScaleOut | None:
    """The card's interfaces, where it counts them and names a fabric of the catalog."""
    if hardware is None or hardware.scale_out.nics is None:
        return None
    fabric = catalog.fabrics().get(hardware.scale_out.fabric or "")
    if fabric is None or fabric.tier != "scale_out":
        return None
    return ScaleOut(
        fabric, hardware.scale_out.nics, hardware.scale_out.bytes_per_s or fabric.link_bytes_per_s
    )

# SPDX-License-Identifier: Apache-2.0
"""A valid workload card as a frozen object; missing fields are None (degrees: 1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field
from msgspec.structs import asdict

from cclbench.ground.units import parse_quantity


class Model(Struct, frozen=True):
    """The model, with the sizes needed to count its FLOPs."""

    name: str | None = None
    family: str | None = None
    url: str | None = None
    moe: bool | None = None
    parameters: int | None = None
    active_parameters: int | None = None
    embedding_parameters: int | None = None
    tied_embeddings: bool | None = None
    vocabulary: int | None = None
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    query_key_dim: int | None = None
    value_dim: int | None = None
    attention: str | None = None
    attention_window: int | None = None


class CardBatch(Struct, frozen=True):
    """Samples and tokens; `global_` is `global` in the card."""

    global_: int | None = field(default=None, name="global")
    micro: int | None = None
    sequence_length: int | None = None
    input_length: int | None = None
    output_length: int | None = None


class CardWorkload(Struct, frozen=True):
    """The workload; phase is training, inference or serving, `standard` a standard workload's name."""

    phase: str
    standard: str | None = None
    model: Model = field(default_factory=Model)
    precision: str | None = None
    batch: CardBatch = field(default_factory=CardBatch)
    dataset: str | None = None
    steps: int | None = None


class CardScaleUp(Struct, frozen=True):
    """The fabric inside a node; bandwidth is per accelerator and direction."""

    fabric: str | None = None
    bandwidth: str | None = None

    @property
    def bytes_per_s(self) -> float | None:
        """The bandwidth as a number, bytes/s."""
        return parse_quantity(self.bandwidth, "bandwidth") if self.bandwidth else None


class CardScaleOut(CardScaleUp, frozen=True):
    """The network between nodes; bandwidth is per interface and direction."""

    nics: int | None = None


class Hardware(Struct, frozen=True):
    """The accelerators used; `accelerator`, `system`: catalog ids, `calibration`: a file beside the card,
    `price_per_device_hour`: USD, `price_source`: who asks it for what, `price_date`: when.
    """

    accelerator: str | None = None
    count: int | None = None
    per_node: int | None = None
    system: str | None = None
    calibration: str | None = None
    scale_up: CardScaleUp = field(default_factory=CardScaleUp)
    scale_out: CardScaleOut = field(default_factory=CardScaleOut)
    driver: str | None = None
    price_per_device_hour: float | None = None
    price_source: str | None = None
    price_date: str | None = None


class Versioned(Struct, frozen=True):
    """A piece of software: framework or network plugin."""

    name: str | None = None
    version: str | None = None


class Communication(Struct, frozen=True):
    """The collective library and its configuration."""

    library: str | None = None
    version: str | None = None
    plugin: Versioned = field(default_factory=Versioned)
    protocols: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Software(Struct, frozen=True):
    """Framework, compiler and communication library."""

    framework: Versioned = field(default_factory=Versioned)
    compiler: str | None = None
    communication: Communication = field(default_factory=Communication)


class Parallelism(Struct, frozen=True):
    """Parallel degrees, numbers of ranks."""

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    microbatches: int | None = None


class CardTrace(Struct, frozen=True):
    """One trace file; `path` is relative to the card's root, `url` is where to download it if missing."""

    path: str
    format: str | None = None
    ranks: tuple[int, ...] = ()
    sha256: str | None = None
    bytes: int | None = None
    licence: str | None = None
    url: str | None = None


class CardEvidence(Struct, frozen=True):
    """The traces, and how they were recorded."""

    traces: tuple[CardTrace, ...] = ()
    launch: str | None = None
    source_url: str | None = None


class Contributor(Struct, frozen=True):
    """The contributor of the card."""

    name: str | None = None
    contact: str | None = None


class _Fields(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: int
    id: str
    description: str
    workload: CardWorkload
    hardware: Hardware = field(default_factory=Hardware)
    software: Software = field(default_factory=Software)
    parallelism: Parallelism = field(default_factory=Parallelism)
    evidence: CardEvidence = field(default_factory=CardEvidence)
    contributor: Contributor = field(default_factory=Contributor)


class Card(_Fields, frozen=True, kw_only=True):
    """A workload card, version 2.

    `raw` is the card as written; `root` is the folder that paths in `evidence` are relative to.
    """

    raw: Mapping[str, Any]
    root: Path


def card_of(raw: Mapping[str, Any], root: Path) -> Card:
    """The card of a mapping that conforms to the schema."""
    return Card(**asdict(convert(raw, _Fields)), raw=raw, root=root)

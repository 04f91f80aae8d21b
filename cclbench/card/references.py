# SPDX-License-Identifier: Apache-2.0
"""Check that the catalog has what a card names: accelerator, system, fabrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from cclbench.card.fields import card_field
from cclbench.ground.diagnostics import Path, Problem, dotted_path
from cclbench.ground.errors import near
from cclbench.ground.yaml_file import Document
from cclbench.hardware import catalog

Tier = Literal["scale_up", "scale_out"]

_HOST: Final = "generic-cpu"
"""The accelerator of CPU ranks, for whose links the catalog has no entries."""
_OWN: Final = f"else describe it in a hardware file that {catalog.VARIABLE} names"


def reference_problems(document: Document) -> Iterator[Problem]:
    """An error for each name that is not in the catalog; a warning for a fabric whose rate the card states.

    Fields of the wrong type are treated as absent; the schema check reports them.
    """
    card = document.value
    for key in ("accelerator", "system"):
        name = card_field(card, "hardware", key, kind=str)
        entries: Mapping[str, Any] = catalog.accelerators() if key == "accelerator" else catalog.systems()
        if name is not None and name not in entries:
            message = f"is {name}, no {key} of the catalog; {near(name, entries)}; {_OWN}"
            yield _field_problem(document, "error", ("hardware", key), message)
    if card_field(card, "hardware", "accelerator", kind=str) != _HOST:
        yield from _fabric_problems(document)


def accelerators_like(name: str) -> list[str]:
    """Ids of the accelerators that contain all words of a name, such as the two of `nvidia_a100`."""
    return [id_ for id_ in catalog.accelerators() if _name_words(name) <= _name_words(id_)]


def fabrics_like(name: str, tier: Tier, accelerator: str | None) -> list[str]:
    """Ids of the fabrics of a tier that match a name: by id, else by words or topology.

    For links inside a node, only fabrics of systems with the accelerator are considered, if it is known.
    """
    fabrics = {id_: fabric for id_, fabric in catalog.fabrics().items() if fabric.tier == tier}
    if name in fabrics:
        return [name]
    if tier == "scale_up" and accelerator is not None:
        scale_ups = [s.scale_up for s in catalog.systems().values() if s.accelerator == accelerator]
        fabrics = {links.fabric.id: links.fabric for links in scale_ups if links is not None}
    words = _name_words(name)
    return sorted(
        id_ for id_, fabric in fabrics.items() if words <= _name_words(id_) or fabric.topology in words
    )


def _name_words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9.]+", name.lower()))


def _fabric_problems(document: Document) -> Iterator[Problem]:
    for tier in ("scale_up", "scale_out"):
        name = card_field(document.value, "hardware", tier, "fabric", kind=str)
        if name is None:
            continue
        ids = [id_ for id_, fabric in catalog.fabrics().items() if fabric.tier == tier]
        if name in ids:
            continue
        path: Path = ("hardware", tier, "fabric")
        message = f"is {name}, no {tier} fabric of the catalog; {near(name, ids)}"
        if card_field(document.value, "hardware", tier, "bandwidth", kind=str) is None:
            yield _field_problem(document, "error", path, f"{message}; state its bandwidth, {_OWN}")
        else:
            yield _field_problem(document, "warning", path, f"{message}; of it the bandwidth alone is known")


def _field_problem(
    document: Document, severity: Literal["error", "warning"], path: Path, message: str
) -> Problem:
    return Problem(severity, document.file, document.line(path), dotted_path(path), message)

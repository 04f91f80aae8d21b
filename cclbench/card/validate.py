# SPDX-License-Identifier: Apache-2.0
"""Check a card: schema, consistency, catalog, standard workload, files, and missing fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cclbench.card.consistency import consistency_problems
from cclbench.card.evidence import evidence_problems, root_of
from cclbench.card.fields import card_field
from cclbench.card.json_schema import card_schema
from cclbench.card.model import Card, card_of
from cclbench.card.read import Document, read_card
from cclbench.card.references import reference_problems
from cclbench.card.standard import standard_problems
from cclbench.ground.diagnostics import Problem, check
from cclbench.ground.json_schema import schema_problems
from cclbench.record.metric_name import metric_name

_MFU: Final = metric_name("compute.mfu")
# Metrics that require a field, by the card's path.
_NEEDED_BY = {
    "hardware.accelerator": "compute.mfu and every share of a peak",
    "hardware.count": "compute.mfu and the check of the parallel degrees",
    "hardware.per_node": "bandwidth shares in a node and across nodes",
    "workload.precision": _MFU,
    "workload.model.parameters": _MFU,
    "workload.model.embedding_parameters": _MFU,
    "workload.model.tied_embeddings": "compute.mfu, whose FLOPs count the output head",
    "workload.model.vocabulary": "compute.mfu, whose FLOPs count the output head",
    "workload.model.hidden": "compute.mfu, whose FLOPs count the output head",
    "workload.model.layers": _MFU,
    "workload.model.heads": _MFU,
    "workload.model.head_dim": _MFU,
    "workload.batch.global": "throughput",
    "workload.batch.sequence_length": "throughput in tokens and compute.mfu",
    "software.framework.name": "the rule of expert and context parallelism",
    "software.communication.library": "the collective cost models",
    "parallelism": "what a process group spans",
    "evidence.traces": "every metric",
}


def validate_card(path: Path | str) -> list[Problem]:
    """All problems of the card at `path`, errors first, then missing fields.

    Raises `InputError` if the file is unreadable or not one YAML mapping.
    """
    return card_problems(read_card(path), root_of(Path(path)), contents=True)


def load_card(path: Path | str) -> Card:
    """The card at `path`.

    The files it names are not opened; readers report missing or changed ones.  Raises `InputError` if the
    card is unreadable or not YAML, `CheckFailed` with all errors if it is invalid.
    """
    document, root = read_card(path), root_of(Path(path))
    check(card_problems(document, root, contents=False))
    return card_of(document.value, root)


def card_problems(document: Document, root: Path, *, contents: bool) -> list[Problem]:
    """Errors, then warnings, of a parsed card; `contents` also checks the files it names."""
    version = card_field(document.value, "version")
    if version == 1:
        hint = "is 1, this is version 2: `cclbench card upgrade` turns the card into it"
        return [Problem("error", document.file, document.line(("version",)), "version", hint)]
    problems = [
        *document.problems,
        *schema_problems(document, card_schema()),
        *consistency_problems(document),
        *reference_problems(document),
        *standard_problems(document),
        *evidence_problems(document, root, contents=contents),
    ]
    return [*sorted(problems, key=lambda p: (p.severity != "error", p.line or 0)), *_gap_warnings(document)]


def _gap_warnings(document: Document) -> Iterator[Problem]:
    name = Path(document.file)
    identity = card_field(document.value, "id", kind=str)
    if identity is not None and name.suffix in {".yaml", ".yml"} and identity != name.stem:
        message = f"differs from the file's name, {name.name}"
        yield Problem("warning", document.file, document.line(("id",)), "id", message)
    for path, metrics in _NEEDED_BY.items():
        keys = tuple(path.split("."))
        if card_field(document.value, *keys, kind=object) is None and not _is_dispensable(document, path):
            message = f"is not filled in; needed for {metrics}"
            yield Problem("warning", document.file, document.line(keys), path, message)


def _is_dispensable(document: Document, path: str) -> bool:
    """Whether the field at `path` is not needed in this card.

    A single accelerator needs no degrees, library or node size; the output head's size is needed with tied
    embeddings and for inference; dimensions of query, key and value replace that of a head.
    """
    card = document.value
    if path in {"hardware.per_node", "software.communication.library", "parallelism"}:
        return bool(card_field(card, "hardware", "count") == 1)
    model = card_field(card, "workload", "model", kind=Mapping) or {}
    if path in {"workload.model.vocabulary", "workload.model.hidden"}:
        return card_field(card, "workload", "phase", kind=str) != "inference" and not model.get(
            "tied_embeddings"
        )
    return path == "workload.model.head_dim" and {"query_key_dim", "value_dim"} <= model.keys()

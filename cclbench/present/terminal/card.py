# SPDX-License-Identifier: Apache-2.0
"""A workload card on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cclbench.card import Card
from cclbench.ground.text import printable
from cclbench.ground.units import humanise


def card_rows(card: Card) -> Iterator[dict[str, str]]:
    """The card's fields for display: dotted path and text."""
    rates = {
        "hardware.scale_up.bandwidth": card.hardware.scale_up.bytes_per_s,
        "hardware.scale_out.bandwidth": card.hardware.scale_out.bytes_per_s,
    }
    for path, value in _flatten_card(card.raw, ""):
        text = printable(value if isinstance(value, str) else json.dumps(value))
        if (rate := rates.get(path)) and text != (figure := humanise(rate, "B/s")):
            text += f" = {figure}"
        yield {"field": path, "value": text}
    for trace in card.evidence.traces:
        size = humanise(trace.bytes, "B") if trace.bytes is not None else None
        ranks = f"ranks {', '.join(map(str, trace.ranks))}" if trace.ranks else None
        text = printable("; ".join(filter(None, (trace.path, trace.format, ranks, size))))
        yield {"field": "evidence.traces", "value": text}


def _flatten_card(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    for key, below in value.items():
        field = f"{path}.{key}" if path else key
        if field in {"version", "id", "description", "evidence.traces"}:
            continue
        if isinstance(below, dict):
            yield from _flatten_card(below, field)
        else:
            yield field, below

# SPDX-License-Identifier: Apache-2.0
"""Figures of the catalog: a number with its unit and the key of its source, `200 Gb/s [efa-docs]`."""

from __future__ import annotations

import msgspec


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures are from; `date` is when it was published or read (`2026-06` or `2026-06-30`)."""

    title: str
    date: str
    url: str | None = None


class Disagreement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What another source says of a figure (`field`, dotted), as it prints it."""

    field: str
    says: str
    source: str

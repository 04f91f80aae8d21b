# SPDX-License-Identifier: Apache-2.0
"""Workload cards: what ran, on what, and where the evidence lies.

`load` a card, `validate` one, `upgrade` a version 1 card, `infer` a new one from traces.
"""

from __future__ import annotations

from cclbench.card.evidence import root_of
from cclbench.card.infer import CardFacts, infer, rooted
from cclbench.card.json_schema import schema
from cclbench.card.model import Card, Trace
from cclbench.card.upgrade import Upgrade, upgrade
from cclbench.card.validate import load, validate
from cclbench.diagnostics import Problem

__all__ = [
    "Card",
    "CardFacts",
    "Problem",
    "Trace",
    "Upgrade",
    "infer",
    "load",
    "root_of",
    "rooted",
    "schema",
    "upgrade",
    "validate",
]

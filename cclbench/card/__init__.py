# SPDX-License-Identifier: Apache-2.0
"""Workload cards: the workload, its hardware and software, and its evidence.

`load_card` reads a card, `validate_card` checks one, `upgrade_card` converts a version 1 card, `infer_card`
creates one from traces.
"""

from __future__ import annotations

from cclbench.card.evidence import root_of
from cclbench.card.infer import CardFacts, infer_card, relative_to_root
from cclbench.card.json_schema import card_schema
from cclbench.card.model import Card, CardTrace
from cclbench.card.upgrade import UpgradedCard, upgrade_card
from cclbench.card.validate import load_card, validate_card
from cclbench.ground.diagnostics import Problem

__all__ = [
    "Card",
    "CardFacts",
    "CardTrace",
    "Problem",
    "UpgradedCard",
    "card_schema",
    "infer_card",
    "load_card",
    "relative_to_root",
    "root_of",
    "upgrade_card",
    "validate_card",
]

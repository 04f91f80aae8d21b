# SPDX-License-Identifier: Apache-2.0
"""Check that a workload card and the traces agree on the FLOPs of a step."""

from __future__ import annotations

from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results

_MODEL_FLOPS_SHARE: Final = metric_name("compute.model_flops_share")

_WITHIN: Final = 1.2
"""Factor by which a card's FLOPs may differ from those measured: padding, heads, shared embeddings."""
_SILENT: Final = 0.1
"""Share of the compute time without FLOPs above which the check is skipped."""


def card_contradiction(results: Results) -> str | None:
    """A sentence if the card's model and batch need other FLOPs per step than were measured, else None.

    Recomputation is left out; attention may be over all pairs of tokens or over those that attend.  None
    also if a tenth of the compute time has no FLOPs.
    """
    recomputed, without, executed, least, most = (
        results.value(_MODEL_FLOPS_SHARE, stat=stat)
        for stat in ("recomputed", "without_model", "executed", "needed", "needed_all_pairs")
    )
    if recomputed is None or without is None or without > _SILENT or recomputed >= 1:
        return None
    if executed is None or least is None or most is None:
        return None
    once = executed * (1 - recomputed)
    needed = least / once if least > once * _WITHIN else most / once
    if least <= once * _WITHIN and once <= most * _WITHIN:
        return None
    return (
        f"the card contradicts the traces: its model and batch need {humanise(needed, 'ratio')} the FLOPs of"
        " the products and attention that ran"
    )

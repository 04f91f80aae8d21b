# SPDX-License-Identifier: Apache-2.0
"""Check cclbench on a user's own traces, for which no true figure is known.

Agreements compare figures of one run that are computed in two ways (`agreements`).  Relations read the traces
again with a change whose effect on every figure is known: a day later, twice as slow, with ranks renumbered
(`relations`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from cclbench.engine import Progress
from cclbench.ground.errors import CheckFailed, InputError
from cclbench.ingestion import ingest
from cclbench.record.manifest import Options
from cclbench.record.store import Store
from cclbench.selfcheck.agreements import CHECKS, check_agreements
from cclbench.selfcheck.outcome import Checked, Hedged, Outcome
from cclbench.selfcheck.reading import CheckedReading
from cclbench.selfcheck.relations import RELATIONS, check_relations
from cclbench.workspace import source_at

_DECISIVE: Final = 0.01
"""Bounds of a gain closer than this share of the step count as one figure."""


def check_source(
    source: str | Path, *, options: Options | None = None, progress: Progress | None = None
) -> Checked:
    """Run all checks on a SOURCE's traces; nothing is kept.

    `InputError` if there are no traces.
    """
    asked = options or Options()
    outcomes = list[Outcome]()
    with TemporaryDirectory(prefix="cclbench-") as folder, source_at(source) as found:
        if not found.files:
            raise InputError("holds no traces to check", where=str(source))
        traces = replace(found, evidence=())  # a change of the traces does not change its times
        reading = CheckedReading.of_run(ingest(traces, Store(Path(folder) / "store"), asked))
        checks = (check_agreements(reading), check_relations(traces, reading, asked, Path(folder)))
        for outcome in chain(*checks):
            outcomes.append(outcome)
            if progress:
                progress("checks", len(outcomes), len(CHECKS) + len(RELATIONS))
        return Checked(outcomes=outcomes, hedged=list(_hedged_gains(reading)))


def _hedged_gains(reading: CheckedReading) -> Iterator[Hedged]:
    for found in reading.findings:
        if found.gain_s is None or not found.gain_share:
            continue
        low, high = found.gain_s
        if high - low > _DECISIVE * high / found.gain_share:
            yield Hedged(finding=found.name, gain_s=found.gain_s, because=found.because)


def require_passed(found: Checked) -> None:
    """`CheckFailed` if a check does not hold."""
    broken = [one.check for one in found.outcomes if one.status == "broken"]
    if broken:
        raise CheckFailed(
            f"{len(broken)} of {len(found.outcomes)} checks do not hold: {', '.join(broken)}",
            hint="-v names what differs; figures that these are about are not to be relied on",
        )


def as_document(found: Checked) -> dict[str, Any]:
    """The document that `--json` prints."""
    return {
        "schema": "selfcheck.v1",
        "checks": msgspec.to_builtins(found.outcomes),
        "hedged": msgspec.to_builtins(found.hedged),
    }

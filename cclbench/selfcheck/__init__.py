# SPDX-License-Identifier: Apache-2.0
"""Check cclbench on a user's own traces, whose true figures are not known.

Agreements compare figures of one run that are computed in two ways (`agreements`).  Relations read the traces
again with a change whose effect on every figure is known, such as a shift of time or renumbered ranks
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
from cclbench.selfcheck.outcome import BoundedGain, Outcome, SelfcheckResult
from cclbench.selfcheck.reading import CheckedReading
from cclbench.selfcheck.relations import RELATIONS, check_relations
from cclbench.workspace import source_at

_NARROW: Final = 0.01
"""Width of a gain's bounds, as a share of the step, up to which they count as one figure."""


def check_source(
    source: str | Path, *, options: Options | None = None, progress: Progress | None = None
) -> SelfcheckResult:
    """Run all checks on a SOURCE's traces; nothing is kept.

    `InputError` if there are no traces.
    """
    options = options or Options()
    outcomes = list[Outcome]()
    with TemporaryDirectory(prefix="cclbench-") as folder, source_at(source) as opened:
        if not opened.files:
            raise InputError("holds no traces to check", where=str(source))
        traces = replace(opened, evidence=())  # its times would stay as they are in the changed traces
        reading = CheckedReading.from_run(ingest(traces, Store(Path(folder) / "store"), options))
        checks = (check_agreements(reading), check_relations(traces, reading, options, Path(folder)))
        for outcome in chain(*checks):
            outcomes.append(outcome)
            if progress:
                progress("checks", len(outcomes), len(CHECKS) + len(RELATIONS))
        return SelfcheckResult(outcomes=outcomes, bounded_gains=list(_bounded_gains(reading)))


def _bounded_gains(reading: CheckedReading) -> Iterator[BoundedGain]:
    for finding in reading.findings:
        if finding.gain_s is None or not finding.gain_share:
            continue
        low, high = finding.gain_s
        if high - low > _NARROW * high / finding.gain_share:
            yield BoundedGain(finding=finding.name, gain_s=finding.gain_s, because=finding.because)


def require_passed(result: SelfcheckResult) -> None:
    """`CheckFailed` if a check does not hold."""
    broken = [outcome.check for outcome in result.outcomes if outcome.status == "broken"]
    if broken:
        raise CheckFailed(
            f"{len(broken)} of {len(result.outcomes)} checks do not hold: {', '.join(broken)}",
            hint="-v lists the differences; do not rely on the figures of these checks",
        )


def as_document(result: SelfcheckResult) -> dict[str, Any]:
    """The document that `--json` prints."""
    return {
        "schema": "selfcheck.v1",
        "checks": msgspec.to_builtins(result.outcomes),
        "hedged": msgspec.to_builtins(result.bounded_gains),
    }

# SPDX-License-Identifier: Apache-2.0
"""How a data point was made, and how to check it: for its page of a site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cclbench.contribute.manifest import read_manifest
from cclbench.contribute.place import DataPointPlace
from cclbench.contribute.signature import read_signature
from cclbench.contribute.verify import MEANING
from cclbench.ground.errors import CheckFailed, InputError
from cclbench.present.board.rows import BoardRow
from cclbench.record.run import Run


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """What a run's page says of its origin: labelled texts, and commands with what they do."""

    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def origin_of(row: BoardRow, run: Run, data_point: DataPointPlace | None, verified: str | None) -> PageOrigin:
    """The origin of a run, and of its data point if it is one of a repository."""
    facts = [("Run", row.id), ("Fingerprint of its source", row.fingerprint)]
    if row.date is not None:
        facts.append(("Date", row.date.date().isoformat()))
    commands = [(f"cclbench metrics {row.id}", "all figures, with their reasons")]
    traced = [
        (f"cclbench diagnose {row.id}", "causes, and what fixing each would gain"),
        (f"cclbench whatif {row.id} --set scale_up.bandwidth=x2", "the step on other hardware"),
        (f"cclbench open {row.id}", "all ranks in Perfetto"),
    ]
    if run.ranks:
        commands += traced
    if data_point is not None:
        facts.append(("Data point", data_point.id))
        facts.extend(_manifest_facts(data_point).items())
        commands.insert(0, (f"cclbench verify {data_point.id}", "recompute it from its evidence"))
        commands.insert(0, (f"cclbench run workload_cards/{data_point.id}.yaml", "its first screen"))
    words = "not checked when this site was made" if verified is None else f"{verified}: {_meaning(verified)}"
    facts.append(
        ("Verification", words if data_point is not None else "none: a run of a store, not a data point")
    )
    return PageOrigin(tuple(facts), tuple(commands))


def _meaning(status: str) -> str:
    return next((words for name, words in MEANING.items() if name == status), "")


def _manifest_facts(data_point: DataPointPlace) -> Mapping[str, str]:
    try:
        manifest = read_manifest(data_point.manifest_path)
    except InputError as error:
        return {"Manifest": str(error)}
    facts = {
        "Made with": f"cclbench {manifest.cclbench}",
        "SHA-256 of the card": manifest.card,
        "Evidence": f"{len(manifest.files)} files, {sum(file.bytes for file in manifest.files):,} bytes",
    }
    if manifest.redactions is not None:
        counts = ", ".join(f"{kind} {count}" for kind, count in manifest.redactions.items() if count)
        facts["Redactions"] = counts or "none were needed"
    if manifest.revealed:
        facts["Kept on purpose"] = ", ".join(manifest.revealed)
    try:
        facts["Signature"] = str(read_signature(data_point) or "none")
    except CheckFailed as error:
        facts["Signature"] = str(error)
    return facts

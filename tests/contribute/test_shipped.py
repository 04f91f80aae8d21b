# SPDX-License-Identifier: Apache-2.0
"""The repository is a collection itself: `cclbench verify --all` passes on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.place import DataPointPlace, data_point_ids
from cclbench.contribute.verify import verify_data_point
from cclbench.ingestion.source import find_source

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("identity", data_point_ids(REPOSITORY))
def test_a_shipped_data_point_is_verified(identity: str) -> None:
    with evidence_elsewhere([]) as nowhere:
        verdict = verify_data_point(DataPointPlace(REPOSITORY, identity), nowhere)
    assert (verdict.status, verdict.reasons) == ("verified", ())


@pytest.mark.parametrize("identity", data_point_ids(REPOSITORY))
def test_a_manifest_is_no_evidence(identity: str) -> None:
    """A run of the folder is the same run whatever its manifest says."""
    found = find_source(REPOSITORY / "traces" / identity)
    assert "manifest.json" in found.ignored
    read = {file.name for file in (*found.files, *found.beside, *found.evidence)}
    assert "manifest.json" not in read

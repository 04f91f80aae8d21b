# SPDX-License-Identifier: Apache-2.0
"""The page on object stores: its commands work on a bucket."""

from __future__ import annotations

from pathlib import Path

from helpers.page_commands import blocks, here, printed_by
from helpers.s3_service import Service


def test_the_pages_commands_work(s3: Service, job: Path, repository: Path, tmp_path: Path) -> None:
    assert s3.direct("PUT", "/my-bucket")[0] == 200
    for path in job.glob("*.json"):
        assert s3.direct("PUT", f"/my-bucket/traces/job/{path.name}", path.read_bytes())[0] == 200
    page = (repository / "docs" / "object-stores.md").read_text()
    printed = [
        printed_by(block, tmp_path, here(tmp_path), language)
        for language, _, block in blocks(page)
        if language in ("sh", "python")
    ]
    assert len(printed) == 2
    assert "time.step" in printed[0]
    assert "bucket/traces/job" in printed[0]
    assert printed[1].endswith("steps\n")
    assert not (tmp_path / "runs").exists()

# SPDX-License-Identifier: Apache-2.0
"""`cclbench mcp` and URLs: a kind of store is read where it is allowed, and else not asked at all."""

from __future__ import annotations

from pathlib import Path

from helpers.mcp_session import Server, answer, refusal, session
from helpers.s3_service import Service
from mcp.client import Client


def test_s3_is_read_where_it_is_allowed(s3: Service, job: Path, tmp_path: Path) -> None:
    s3.put_folder(job, "traces/job")
    source = "s3://bucket/traces/job"
    s3.asked.clear()

    async def refused(client: Client) -> None:
        error = await refusal(client, "run", source=source)
        assert "no URLs are allowed; allow others with --allow-url of `cclbench mcp`" in error

    async def allowed(client: Client) -> None:
        run = (await answer(client, "run", source=source))["run"]
        (row,) = (await answer(client, "runs"))["rows"]
        assert (row["run"], row["source"], row["ranks"]) == (run, source, 2)

    session(Server(tmp_path / "runs"), refused)
    assert s3.asked == []
    session(Server(tmp_path / "runs", "--allow-url", "s3"), allowed)
    assert s3.asked

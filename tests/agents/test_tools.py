# SPDX-License-Identifier: Apache-2.0
"""The tools of agents, asked by the protocol's own client over stdio."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

from helpers.mcp_session import Server, answer, first_run, refusal, session, text_of
from mcp.client import Client

from cclbench.ground.schema import EVENTS
from cclbench.present.brief import BRIEF_BYTES

TOOLS = {
    *("runs", "run", "diagnose", "metrics", "explain", "sql", "ops", "sequences", "stragglers", "memory"),
    *("timeline", "whatif", "compare", "hardware", "settings"),
}


def asked_of(run: str, both: list[str]) -> dict[str, dict[str, object]]:
    """What each tool may be asked, but for `sequences` and `timeline`."""
    return {
        "run": {"source": run},
        "explain": {"name": "events"},
        "sql": {"run": run, "query": "FROM events"},
        "whatif": {"run": run, "settings": ["kernels.time=x0.5"]},
        **{name: {"runs": both} for name in ("compare", "stragglers")},
        **{name: {} for name in ("runs", "hardware", "settings")},
        **{name: {"run": run} for name in ("diagnose", "metrics", "ops", "memory")},
    }


def test_a_round_trip_through_all_tools(store: Path) -> None:
    async def asks(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        runs = [row["run"] for row in (await answer(client, "runs"))["rows"]]
        assert len(runs) == 2
        found = await answer(client, "diagnose", run=runs[0], full=True)
        first = found["rows"][0]
        assert first["gain_share"] > 0.01
        assert (await answer(client, "sql", run=runs[0], query=first["query"]))["rows"]
        assert (await answer(client, "explain", name=first["name"]))["rows"][0]["rule"]
        steps = await answer(client, "metrics", run=runs[0], pattern="time.step", full=True)
        assert steps["rows"][0]["value"] == found["step_s"]
        assert (await answer(client, "ops", run=runs[0], by="category", full=True))["all_rows"] > 1
        told = await answer(client, "compare", runs=sorted(runs), full=True)
        assert "1.13× longer than A's" in told["versus"][0]["words"]
        half = await answer(client, "whatif", run=runs[0], settings=["kernels.time=x0.5"], full=True)
        assert half["rows"]
        (reader,) = (await answer(client, "explain", name="kineto", full=True))["rows"]
        assert reader["capture"].startswith("`torch.profiler`")
        table, *columns = (await answer(client, "explain", name="events", full=True))["rows"]
        assert (table["name"], [row["name"] for row in columns]) == ("events", EVENTS.names)
        assert all(row["meaning"] for row in columns)
        assert next(row for row in columns if row["name"] == "dur_ns")["unit"] == "ns"

    session(store, asks)


def test_long_answers_come_in_pages(store: Path) -> None:
    async def asks(client: Client) -> None:
        run = await first_run(client)
        query = "SELECT name, start_ns FROM events ORDER BY rank, start_ns, name LIMIT 120"
        pages, offset = [], 0
        for _ in range(3):
            page = await answer(client, "sql", run=run, query=query, offset=offset, full=True)
            pages.append(page)
            offset = page.get("next_offset", 0)
        assert [len(page["rows"]) for page in pages] == [50, 50, 20]
        assert [page["more"] for page in pages] == [True, True, False]
        assert "all_rows" not in pages[0]
        assert pages[2]["all_rows"] == 120
        rows = [(row["start_ns"], row["name"]) for page in pages for row in page["rows"]]
        assert len(rows) == 120
        assert all("ORDER BY" in page["notes"][0] for page in pages)
        both = [row["run"] for row in (await answer(client, "runs"))["rows"]]
        paged = {"metrics": {"run": run}, "ops": {"run": run, "by": "shape"}, "compare": {"runs": both}}
        for tool, asked in paged.items():
            first = await answer(client, tool, **asked, full=True)
            last = await answer(client, tool, **asked, offset=first["all_rows"] - 1)
            assert (len(first["rows"]), first["next_offset"]) == (50, 50), tool
            assert (len(last["rows"]), last["more"]) == (1, False), tool

    session(store, asks)


def test_an_offset_that_no_page_begins_at_is_refused(store: Path) -> None:
    async def asks(client: Client) -> None:
        both = [row["run"] for row in (await answer(client, "runs"))["rows"]]
        run = both[0]
        asked = asked_of(run, both)
        del asked["run"]
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools if "offset" in tool.input_schema["properties"]} == {
            *asked,
            "sequences",  # of kernels, which a CPU's trace has none of
        }
        for tool, values in asked.items():
            for offset in (-1, 2**62):
                assert "offset" in await refusal(client, tool, **values, offset=offset), tool
            assert "is beyond the last row" in await refusal(client, tool, **values, offset=999_999), tool

    session(store, asks)


WRONG = (
    ("diagnose", {"run": "nobody"}, "no run"),
    ("sql", {"run": "{run}", "query": "COPY events TO 'x'"}, "SQL"),
    ("sql", {"run": "/etc", "query": "SELECT 1"}, "no run"),
    ("explain", {"name": "time.stepp"}, "time.step"),
    ("explain", {"name": "x" * 201}, "201 characters"),
    ("run", {"source": "nowhere"}, "nowhere"),
    ("run", {"source": "n" * 100_000}, "File name too long"),
    ("sql", {"run": "n" * 100_000, "query": "SELECT 1"}, "File name too long"),
)
"""Tools, what they are asked, and what they say."""


def test_a_wrong_call_is_the_protocols_error(store: Path, tmp_path: Path) -> None:
    async def asks(client: Client) -> None:
        run = await first_run(client)
        for tool, asked, said in WRONG:
            wrong = {key: value.replace("{run}", run) for key, value in asked.items()}
            assert said in await refusal(client, tool, **wrong)

    session(Server(store), asks, cwd=tmp_path)


def test_tools_are_described_and_short_unless_asked(store: Path) -> None:
    async def asks(client: Client) -> None:
        run = await first_run(client)
        both = [row["run"] for row in (await answer(client, "runs"))["rows"]]
        tools = (await client.list_tools()).tools
        for tool in tools:
            described = {
                name: one.get("description") for name, one in tool.input_schema["properties"].items()
            }
            assert all(described.values()), (tool.name, described)
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint == (tool.name != "run")
        asked = asked_of(run, both)
        assert {tool.name for tool in tools} == {*asked, "sequences", "timeline"}
        for name, values in asked.items():
            assert len((await text_of(client, name, values)).encode()) <= BRIEF_BYTES, name

    session(store, asks)


def test_a_picture_resources_and_prompts(store: Path) -> None:
    async def asks(client: Client) -> None:
        run = await first_run(client)
        (picture,) = (await client.call_tool("timeline", {"run": run, "ranks": [0, 2]})).content
        assert picture.mime_type == "image/png"
        assert b64decode(picture.data).startswith(b"\x89PNG")
        assert "no complete step 99" in await refusal(client, "timeline", run=run, step=99)
        listed = (await client.read_resource("cclbench://runs")).contents[0].text
        assert run in listed
        found = json.loads((await client.read_resource(f"cclbench://runs/{run}")).contents[0].text)
        assert found["findings"] == (await answer(client, "diagnose", run=run))["findings"]
        prompts = {one.name for one in (await client.list_prompts()).prompts}
        assert prompts == {"diagnose", "compare"}
        words = (await client.get_prompt("diagnose", {"source": run})).messages[0].content.text
        assert run in words

    session(store, asks)

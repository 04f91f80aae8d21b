# SPDX-License-Identifier: Apache-2.0
"""Sessions of agents: rounds and calls to the microsecond, time that adds up, damage by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence as Given
from helpers.hand_made import job_values

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, recognise_format
from cclbench.formats.agent_session import AgentSession
from cclbench.ground.errors import InputError


def at(second: float) -> str:
    return f"2026-06-01T05:40:{second:06.3f}Z"


def event(kind: str, second: float) -> dict[str, Any]:
    return {"event_type": kind, "timestamp": at(second), "content": "moonshot"}


def tool(name: str, begin: float, end: float, **more: object) -> dict[str, Any]:
    return {"tool_name": name, "emitted_at": at(begin), "result_at": at(end), **more}


ROUND: dict[str, Any] = {"session_id": "moonshot-1", "project": "moonshot", "round_index": 0, "model": "m-1"}
ROUND |= {"input_tokens_total": 100, "prefix_tokens": 80, "output_tokens": 30}
ROUND |= {"timing_events": [event("user_message", 0), event("reasoning", 2), event("tool_call", 4)]}
ROUND |= {"tools": [tool("Bash", 3, 9, is_error=False), tool("Search", 4, 7, is_error=True)]}
TOLD = [event("tool_result", 7), event("tool_result", 9), event("text", 14.5)]
SECOND = ROUND | {"round_index": 1, "timing_events": TOLD, "tools": []}
THIRD = SECOND | {"round_index": 2, "timing_events": [event("user_message", 20), event("text", 21)]}
OTHER = THIRD | {"session_id": "moonshot-2", "timing_events": [event("user_message", 0), event("text", 1)]}


def read(tmp_path: Path, *rounds: object) -> Evidence:
    path = tmp_path / "rounds.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in [*rounds, ""]))
    assert recognise_format(path, path.read_bytes()).name == "agent_session"
    return AgentSession().read(path)


def test_a_round_lasts_from_its_last_input_to_its_last_output(tmp_path: Path) -> None:
    found = read(tmp_path, ROUND, SECOND)
    names = ("round", "kind", "name", "start_ns", "end_ns", "failed")
    rows = [tuple(row[name] for name in names) for row in found.agent_calls.to_pylist()]
    begin = rows[0][3]
    assert [(*row[:3], row[3] - begin, row[4] - begin, row[5]) for row in rows] == [
        *((0, "model", "m-1", 0, 4 * 10**9, None), (0, "tool", "Bash", 3 * 10**9, 9 * 10**9, False)),
        (0, "tool", "Search", 4 * 10**9, 7 * 10**9, True),
        (1, "model", "m-1", 9 * 10**9, 14_500_000_000, None),
    ]


def values(metric: str, table: pa.Table) -> dict[tuple[str | None, str | None], float | None]:
    return {(v.category, v.stat): v.value for v in job_values(metric, Given(agent_calls=table))}


def test_the_time_of_sessions_adds_up(tmp_path: Path) -> None:
    """21 s: the model 4 + 5.5 + 1, tools alone 4 to 9, neither 14.5 to 20; another session of 1 s."""
    table = read(tmp_path, ROUND, SECOND, THIRD, OTHER).agent_calls
    assert table is not None
    parts = {"model": 11.5, "tools": 5, "waiting": 5.5}
    shares = {(name, "share"): seconds / 22 for name, seconds in parts.items()}
    known = {(None, None): 22} | {(name, None): seconds for name, seconds in parts.items()} | shares
    assert values("agent.time", table) == pytest.approx(known)
    latency = values("agent.tool_latency", table)
    assert (latency[None, None], latency["Bash", None], latency["Search", "failed"]) == (4.5, 6, 1)
    tokens = values("agent.tokens", table)
    assert [tokens[name, None] for name in (None, "input", "cached", "output")] == [520, 400, 320, 120]
    assert tokens["output", "per_s"] == pytest.approx(120 / 11.5)


def test_what_has_no_times_is_left_out_and_counted(tmp_path: Path) -> None:
    late = "9999-06-01T05:40:00Z"  # its nanoseconds have more than 64 bits
    open_call = ROUND | {"tools": [{"tool_name": "Bash", "emitted_at": at(3), "result_at": late}]}
    found = read(tmp_path, open_call, SECOND | {"timing_events": [event("text", 5)]})
    assert found.left_out == {"rounds or calls without a begin or an end": 2}
    assert found.agent_calls is not None
    tools = values("agent.tool_latency", found.agent_calls)
    assert tools == {(None, None): None}


BAD = {
    "cut": ('{"session_id": "a", "round_index": 1, "timing_events": [', "line 2: is not a round"),
    "no round": ('{"session_id": "a"}', "line 2: is not a round"),
    "backwards": (json.dumps(ROUND | {"tools": [tool("a", 9, 3)]}), "line 2: has a call that ends before"),
    "negative": (json.dumps(ROUND | {"output_tokens": -1}), "line 2: has a number of tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    line, says = BAD[case]
    with pytest.raises(InputError, match=says):
        read(tmp_path, ROUND, line)
    with pytest.raises(InputError, match="has no round with times"):
        read(tmp_path, ROUND | {"timing_events": [], "tools": []})


def test_texts_and_ids_are_not_published(tmp_path: Path) -> None:
    own = read(tmp_path, ROUND, SECOND, OTHER).agent_calls
    source, target = tmp_path / "rounds.jsonl", tmp_path / "copy.jsonl"
    redact_evidence(source, target)
    assert "moonshot" not in target.read_text()
    assert AgentSession().read(target).agent_calls == own


def test_real_sessions_spend_what_their_events_say(test_data: Path) -> None:
    (path,) = (test_data / "agent_tools").rglob("*.jsonl")
    table = AgentSession().read(path).agent_calls
    assert table is not None
    rounds = map(json.loads, path.read_text().splitlines())
    stated = [tool["tool_wall_latency_ms"] for one in rounds for tool in one["tools"]]
    latency = values("agent.tool_latency", table)
    assert latency[None, None] == pytest.approx(sum(stated) / len(stated) / 1000, rel=1e-9)
    times = values("agent.time", table)
    whole = sum(times[name, None] or 0 for name in ("model", "tools", "waiting"))
    assert whole == pytest.approx(times[None, None], rel=1e-12)

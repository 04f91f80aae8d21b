# SPDX-License-Identifier: Apache-2.0
"""Sessions of coding agents: rounds of a model, and the calls of tools between them (JSON lines).

A line is a round: what it was given and when (`timing_events`), what the model returned and when, its tokens,
and the `tools` that it called with the times of the call and of the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import CAPTURED, METADATA, Redactor
from cclbench.formats.texts import damaged_error, raw_lines, reason_of, strip_decoration
from cclbench.ground.evidence_schema import AGENT_CALLS

_MOST_BYTES: Final = 1 << 30
_MOST: Final = 1 << 40
_INPUTS: Final = ("user_message", "tool_result")
_OUTPUTS: Final = ("reasoning", "text", "tool_call")
_KINDS: Final = (*_INPUTS, *_OUTPUTS)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LATEST_NS: Final = 1 << 62
_NO_TIME: Final = "rounds or calls without a begin or an end"


class _TimedEvent(msgspec.Struct):
    event_type: str
    timestamp: str


class _Tool(msgspec.Struct):
    tool_name: str
    emitted_at: str | None = None
    result_at: str | None = None
    is_error: bool | None = None


class _Round(msgspec.Struct):
    session_id: str
    round_index: int
    timing_events: list[_TimedEvent]
    tools: list[_Tool] = []
    model: str | None = None
    input_tokens_total: int | None = None
    prefix_tokens: int | None = None
    output_tokens: int | None = None


class AgentSession(EvidenceReader):
    """Reader of the rounds of coding agents' sessions."""

    name = "agent_session"
    description = "sessions of coding agents (JSON lines): rounds of the model, calls of tools"
    extensions: tuple[str, ...] = (".jsonl",)
    capture = "rounds of sessions, a line each, with `timing_events` and `tools`"
    versions = "the only one"
    tested = "real: two sessions of two agents, 19 rounds"

    withheld: Mapping[str, str] = {
        **dict.fromkeys(("session_id", "round_id", "project", "trace_key", "store"), METADATA),
        **dict.fromkeys(("content", "input", "result"), CAPTURED),
    }

    def sniff(self, head: bytes) -> float:
        """Sure of a first line with the events of a round."""
        first = strip_decoration(head).lstrip().partition(b"\n")[0]
        keys = (b'"round_index"', b'"session_id"', b'"timing_events"')
        return 0.9 if first.startswith(b"{") and all(key in first for key in keys) else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each round of the model, and for each call of a tool."""
        rows, left_out, sessions = list[dict[str, Any]](), Counter[str](), dict[str, int]()
        for number, entry in _rounds(path):
            session = sessions.setdefault(entry.session_id, len(sessions))
            for row in _calls(entry, path, number):
                if row["start_ns"] is None or row["end_ns"] is None:
                    left_out[_NO_TIME] += 1
                elif row["end_ns"] < row["start_ns"]:
                    raise damaged_error(path, "has a call that ends before it begins", line=number)
                else:
                    rows.append({"session": session, **row})
        if not rows:
            raise damaged_error(path, "has no round with times")
        return Evidence(agent_calls=pa.Table.from_pylist(rows, schema=AGENT_CALLS), left_out=dict(left_out))

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Times, tokens and names of models and tools; sessions are numbered."""
        sessions: dict[str, int] = {}
        with open_output(path, target) as write:
            for _, entry in _rounds(path):
                entry.session_id = str(sessions.setdefault(entry.session_id, len(sessions)))
                redactor.count("session_id", Counter({METADATA: 1}))
                _publish(entry, redactor)
                write(msgspec.json.encode(entry) + b"\n")
        return True


def _publish(entry: _Round, redactor: Redactor) -> None:
    """Redact the names of a round; texts that are to be times and are none go."""
    events = [(event, "event_type") for event in entry.timing_events if event.event_type not in _KINDS]
    for named, key in ((entry, "model"), *events, *((tool, "tool_name") for tool in entry.tools)):
        text, counts = redactor.text(getattr(named, key) or "", key)
        redactor.count(key, counts)
        setattr(named, key, text or None if key == "model" else text)
    times: list[tuple[_TimedEvent | _Tool, str, str | None]]
    times = [(event, "timestamp", "") for event in entry.timing_events]
    times += [(tool, key, None) for tool in entry.tools for key in ("emitted_at", "result_at")]
    for timed, key, nothing in times:
        if (text := getattr(timed, key)) and _time(text) is None:
            redactor.count(key, Counter({METADATA: 1}))
            setattr(timed, key, nothing)


def _rounds(path: Path) -> Iterator[tuple[int, _Round]]:
    """The rounds, each with its line."""
    decoder = msgspec.json.Decoder(_Round)
    for number, line in raw_lines(path, _MOST_BYTES):
        if not line.strip():
            continue
        try:
            yield number, decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            what = f"is not a round: {reason_of(error)}"
            raise damaged_error(path, what, line=number) from None


def _calls(entry: _Round, path: Path, number: int) -> Iterator[dict[str, Any]]:
    """The model from its last input to its last output, and the calls of tools."""
    tokens = (entry.input_tokens_total, entry.prefix_tokens, entry.output_tokens)
    if not all(0 <= count < _MOST for count in (entry.round_index, *tokens) if count is not None):
        raise damaged_error(path, "has a number of tokens or of a round that is none", line=number)

    def latest(kinds: tuple[str, ...]) -> int | None:
        times = (_time(event.timestamp) for event in entry.timing_events if event.event_type in kinds)
        return max((time for time in times if time is not None), default=None)

    yield {
        "round": entry.round_index,
        "kind": "model",
        "name": entry.model,
        "start_ns": latest(_INPUTS),
        "end_ns": latest(_OUTPUTS),
        "input_tokens": tokens[0],
        "cached_tokens": tokens[1],
        "output_tokens": tokens[2],
    }
    for tool in entry.tools:
        yield {
            "round": entry.round_index,
            "kind": "tool",
            "name": tool.tool_name,
            "start_ns": _time(tool.emitted_at),
            "end_ns": _time(tool.result_at),
            "failed": tool.is_error,
        }


def _time(text: str | None) -> int | None:
    """Nanoseconds since 1970; None for what is no time with a zone, or one of another age."""
    try:
        nanoseconds = (datetime.fromisoformat(text or "") - _EPOCH) // _MICROSECOND * 1000
    except (ValueError, TypeError, OverflowError):
        return None
    return nanoseconds if 0 <= nanoseconds < _LATEST_NS else None


READERS.add(AgentSession.name, AgentSession(), origin=__name__)

# SPDX-License-Identifier: Apache-2.0
"""Where sessions of agents spend their time: the model, its tools, and the people who answer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.columns import has_values, with_words, word_codes
from cclbench.analyzers.view.named_times import longest_names, spread_values
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals

NO_SESSION: Final = "needs the rounds of an agent's session (JSON lines)"
_SOURCE: Final = "agent_session"
_session_metric = partial(run_metric, inputs=("agent_calls",), not_applicable=NO_SESSION)
_MOST_TOOLS: Final = 20


def _calls(run: RunView) -> pa.Table:
    calls = run.table("agent_calls")
    if not len(calls):
        raise NotApplicable(NO_SESSION)
    return calls


def _session_codes(calls: pa.Table) -> np.ndarray:
    """A number for each session of each file."""
    files, _ = word_codes(calls, "file")
    _, codes = np.unique(files * (1 << 32) + calls["session"].to_numpy(), return_inverse=True)
    return codes


def _busy(calls: pa.Table, kind: str) -> Intervals:
    kind_calls = with_words(calls, "kind", (kind,))
    return intervals.union(kind_calls["start_ns"].to_numpy(), kind_calls["end_ns"].to_numpy())


@_session_metric(
    "agent.time",
    definition="Time of agents' sessions from their first event to the last, all sessions. By category,"
    " which add up to it: model, from the last input of a round to its last output; tools, at least one call"
    " runs and the model does not; waiting, neither does: the agent itself, or a person. A cache of tool"
    " results can save no more than tools. Stat share: of the whole.",
    formula="Σ over sessions of |model|, |tools \\\\ model|, rest",
    unit="s",
    better="lower",
)
def time(run: RunView) -> Iterator[Value]:
    """Time of sessions by what they wait for."""
    calls = _calls(run)
    codes = _session_codes(calls)
    total, parts = 0, dict.fromkeys(("model", "tools", "waiting"), 0)
    for session in range(int(codes.max()) + 1):
        session_calls = calls.filter(pa.array(codes == session))
        length = int(session_calls["end_ns"].to_numpy().max() - session_calls["start_ns"].to_numpy().min())
        model, tools = _busy(session_calls, "model"), _busy(session_calls, "tool")
        exposed = intervals.subtract(tools, model).length
        total += length
        parts["model"] += model.length
        parts["tools"] += exposed
        parts["waiting"] += length - model.length - exposed
    rounds = len(with_words(calls, "kind", ("model",)))
    words = f"{int(codes.max()) + 1:,} sessions, {rounds:,} rounds, {len(calls) - rounds:,} calls of tools"
    yield Value(value=total / NS_PER_S, reason=words, source=_SOURCE)
    for category, length in parts.items():
        value = partial(Value, category=category, source=_SOURCE, provenance="derived")
        yield value(value=length / NS_PER_S)
        if total:
            yield value(value=length / total, stat="share", unit="1")


@_session_metric(
    "agent.tool_latency",
    definition="Time of a call of a tool, from the model's request to the result, the mean; by category for"
    " the tools that take most time in all, with p50, max, sum, count and, where errors are stated, the share"
    " failed.",
    formula="Σ (result − call) / calls",
    unit="s",
    better="lower",
)
def tool_latency(run: RunView) -> Iterator[Value]:
    """Time of a tool's call."""
    tools = with_words(_calls(run), "kind", ("tool",))
    if not len(tools):
        yield no_value("no tool was called", source=_SOURCE)
        return
    times = (tools["end_ns"].to_numpy() - tools["start_ns"].to_numpy()) / NS_PER_S
    states, failed = has_values(tools, "failed"), tools["failed"].fill_null(False).to_numpy()
    yield Value(value=float(times.mean()), source=_SOURCE)
    for name, tool_mask in longest_names(tools, "name", times, _MOST_TOOLS):
        yield from spread_values(times[tool_mask], (50,), category=name, source=_SOURCE)
        if (tool_mask & states).any():
            share = float(failed[tool_mask & states].mean())
            value = partial(Value, category=name, source=_SOURCE)
            yield value(value=share, stat="failed", unit="1", provenance="derived")


@_session_metric(
    "agent.tokens",
    definition="Tokens that rounds of agents' sessions were given and returned; in all, by category input,"
    " cached (of the input, what the prefix cache held), output; stat per_s: output tokens per second of the"
    " model's time.",
    formula="Σ tokens",
    unit="count",
)
def tokens(run: RunView) -> Iterator[Value]:
    """Tokens of rounds."""
    calls = _calls(run)
    model = with_words(calls, "kind", ("model",))
    sums = {}
    for category in ("input", "cached", "output"):
        stated = has_values(model, f"{category}_tokens")
        if stated.any():
            sums[category] = int(model[f"{category}_tokens"].fill_null(0).to_numpy().sum())
    if not {"input", "output"} <= sums.keys():
        yield no_value("rounds do not state their tokens", source=_SOURCE)
        return
    yield Value(value=sums["input"] + sums["output"], source=_SOURCE)
    for category, count in sums.items():
        yield Value(value=count, category=category, source=_SOURCE)
    seconds = float((model["end_ns"].to_numpy() - model["start_ns"].to_numpy()).sum()) / NS_PER_S
    if seconds:
        rate = sums["output"] / seconds
        yield Value(
            value=rate, category="output", stat="per_s", unit="1/s", provenance="derived", source=_SOURCE
        )

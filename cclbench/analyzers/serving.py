# SPDX-License-Identifier: Apache-2.0
"""Serving: what a client sees, which no kernel trace knows."""

from __future__ import annotations

from cclbench.analyzers.metric import unanswered

for _name, _definition, _formula in (
    ("ttft", "Time from a request's arrival to its first token.", "first token − request sent"),
    (
        "tpot",
        "Mean time between a request's output tokens after the first.",
        "(last token − first token) / (output tokens − 1)",
    ),
):
    unanswered(
        f"serving.{_name}",
        definition=_definition,
        formula=_formula,
        unit="s",
        better="lower",
        needs="the client's benchmark file",
        reason="a kernel trace sees no requests and no tokens; it takes the client's benchmark file",
    )

# SPDX-License-Identifier: Apache-2.0
"""Settings of the network that are known to be slow, whether or not they cost this job time."""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.findings.case import Case
from cclbench.findings.finding import Finding, finding
from cclbench.hardware.network_conditions import known_conditions


@finding(
    "network_setting",
    title="a setting of the network is known to be slow",
    rule="the run has steps, and a condition of hardware/network_conditions.yaml holds by NCCL's debug log"
    " beside the traces, or by the card's plug-in and environment variables; facts that nobody states match"
    " none",
    gain="none: a condition is not measured",
    actions={
        "any": (
            "change that one setting, and compare both runs, or nccl-tests between the same nodes, before and"
            " after",
        ),
    },
)
def network_setting(case: Case) -> Iterator[Finding]:
    if not case.step_s:
        return  # the summary of a log alone says the same
    facts = case.network_facts
    if not facts:
        return
    for condition in known_conditions(facts):
        yield case.finding(
            "network_setting",
            f"{condition.claim(facts)} What to do: {condition.advice}.",
            no_gain="the setting is known to be slow, but what it costs this job is not measured",
            confidence="low",
            because=f"{condition.name}: {condition.source}",
        )

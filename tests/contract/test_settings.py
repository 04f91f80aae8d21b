# SPDX-License-Identifier: Apache-2.0
"""Settings of a replay from outside: listed, replayed, and named where they touch nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.packages import cclbench_with, with_module

SETTING = '''
"""Every gap of a host, longer by a factor."""

from dataclasses import replace

import numpy as np

from cclbench.replay.change import change, factor_of


@change("mine.gaps", values="x2", definition="gaps take so many times as long", read=factor_of)
def gaps(subject, factor):
    if factor == 1:
        return "a factor of one is none"
    nodes = subject.graph.nodes
    longer = np.where(subject.since >= 0, np.rint(nodes.gap * factor).astype(np.int64), nodes.gap)
    return replace(subject.graph, nodes=replace(nodes, gap=longer))
'''


def test_a_setting_from_outside_is_one_of_ours(repository: Path, tmp_path: Path) -> None:
    outside = with_module(tmp_path, "my_settings", SETTING, "cclbench.scenarios")

    def told(*arguments: object) -> dict[str, Any]:
        done = cclbench_with(outside, *arguments, "--json", check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    listed = {row["name"]: row for row in told("list", "settings")["rows"]}
    assert listed["mine.gaps"]["origin"] == "my_settings"
    assert {"host.time", "kernels.time", "copies.bandwidth", "overlap", "scale_out.bandwidth"} < listed.keys()
    card = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    asked = ("whatif", card, "--store", tmp_path / "store")
    rows = told(*asked, "--scenario", "mine.gaps=x2", "--scenario", "mine.gaps=x1")["results"]
    speedup = {row["category"]: row for row in rows if row["metric"] == "whatif.speedup" and not row["stat"]}
    assert speedup["mine.gaps=x2"]["value"] < 1
    assert speedup["mine.gaps=x1"]["value"] is None
    assert "a factor of one is none" in speedup["mine.gaps=x1"]["reason"]

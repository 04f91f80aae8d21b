# SPDX-License-Identifier: Apache-2.0
"""What each finding rests on, in the order shown: the row it is about first, then what explains it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from helpers.hand_results import Row, a_rank, by_rank, found, row

TABLE = yaml.safe_load(Path(__file__).with_name("evidence.yaml").read_text())


def given(name: str) -> list[Row]:
    """The rows of that name."""
    rows: list[Row] = []
    for told in TABLE[name]["given"]:
        metric, *words = told.replace("+link", "collective=all_reduce group=0-1").split()
        values = [float(word) for word in words if "=" not in word]
        texts = dict(word.replace("~", " ").split("=", 1) for word in words if "=" in word)
        keys = texts | {key: int(texts[key]) for key in ("step", "rank") if key in texts}
        if metric.startswith("+"):
            rows += given(metric[1:])
        else:
            rows += by_rank(metric, *values, **keys) if len(values) > 1 else [row(metric, *values, **keys)]
    return rows


STEP = by_rank("time.step", 1.0, 1.0)
PAUSES = [row("time.idle_host_by", n % 2 * 0.8, rank=rank, step=n) for rank in (0, 1) for n in range(4)]


def test_what_communication_rests_on_that_nobody_can_tell_from_waiting() -> None:
    rows = [*by_rank("time.exposed_unmatched", 0.2, 0.2), row("time.exposed_comm", 0.3)]
    rows += [row("overlap.ratio", 0.5)]
    one = found(*STEP, *rows)["exposed_communication"]
    shown = ["time.exposed_unmatched", "time.exposed_comm", "overlap.ratio"]
    assert [e.metric for e in one.evidence] == shown


@pytest.mark.parametrize("name", [name for name, rows in TABLE.items() if "shown" in rows])
def test_what_a_finding_rests_on(name: str) -> None:
    on = "host" if name == "double_precision" else "device"
    ranks = [a_rank(one, facts={"works_on": on, "world_size": 4}) for one in range(2)]
    rows = [*STEP, *given(name), *(PAUSES if name == "host_pauses" else ())]
    one = found(*rows, ranks=ranks)[name]
    keys = ((e.metric, e.category, e.collective, e.group, e.stat) for e in one.evidence)
    assert [" ".join(filter(None, key)) for key in keys] == TABLE[name]["shown"]

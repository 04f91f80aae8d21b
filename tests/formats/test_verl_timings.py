# SPDX-License-Identifier: Apache-2.0
"""verl's timers: console and file logger, damage by line, nothing else published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import redact_planted as planted
from helpers.changed_bytes import read_or_refused
from helpers.refused import refused

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, recognise_format
from cclbench.formats.verl_timings import VerlTimings
from cclbench.ground.errors import InputError

NUMPY = "(TaskRunner pid=7) step:2 - actor/lr:1e-06 - timing_s/gen:np.float64(2.5) - timing_s/step:4"
# A step as a published log of verl prints it, without its other metrics.
CONSOLE = (
    "\x1b[36m(TaskRunner pid=812)\x1b[0m step:1 - training/global_step:1 - actor/loss:-0.25"
    " - timing_s/generate_sequences:15.364402770996094 - timing_s/reshard:0.23392614722251892"
    " - timing_s/gen:16.22749171219766 - timing_s/reward:0.42415859922766685"
    " - timing_s/old_log_prob:10.275943230837584 - timing_s/adv:0.07341944053769112"
    " - timing_s/update_actor:21.522068275138736 - timing_s/step:48.7025266494602"
    " - timing_s/stop_profile:0.00015546195209026337 - timing_per_token_ms/gen:0.1701672753528414"
)
JSON = json.dumps({"step": 3, "data": {"actor/lr": 1e-6, "timing_s/gen": 1.25, "timing_s/step": 2}})


def read(folder: Path, *lines: str, name: str = "train.log") -> Evidence:
    path = folder / name
    path.write_text("\n".join([*lines, ""]))
    assert recognise_format(path, path.read_bytes()).name == "verl_timings"
    return VerlTimings().read(path)


def test_times_are_read_to_the_ns_in_both_forms(tmp_path: Path) -> None:
    found = read(tmp_path, "Training Progress: 0%", CONSOLE, NUMPY, JSON)
    rows = [
        tuple(row[name] for name in ("entry", "step", "phase", "dur_ns"))
        for row in found.phase_times.to_pylist()
    ]
    assert rows[:3] == [
        (0, 1, "generate_sequences", 15_364_402_771),
        (0, 1, "reshard", 233_926_147),
        (0, 1, "gen", 16_227_491_712),
    ]
    assert len(rows) == 9 + 4
    assert rows[-4:] == [
        (1, 2, "gen", 2_500_000_000),
        (1, 2, "step", 4_000_000_000),
        (2, 3, "gen", 1_250_000_000),
        (2, 3, "step", 2_000_000_000),
    ]


def test_what_is_no_time_is_left_out(tmp_path: Path) -> None:
    found = read(
        tmp_path, "step:1 - timing_s/gen:nan - timing_s/ref:-1 - timing_s/adv:soon - timing_s/step:2"
    )
    assert found.phase_times["phase"].to_pylist() == ["step"]
    assert found.left_out == {"times that are negative or no numbers": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (JSON[:-9], "line 2: is no line of verl's metrics"),
        ('{"step": -1, "data": {"timing_s/step": 1}}', "line 2: has a step that is no number"),
        ('{"step": 1, "data": {"timing_s/step": ' + "[" * 9000, "line 2: is no line"),
    ],
)
def test_damage_is_an_error_that_says_where(tmp_path: Path, text: str, says: str) -> None:
    refused(lambda _: read(tmp_path, JSON, text), tmp_path / "train.log", says)


def test_a_log_without_times_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("step:1 - actor/lr:1e-06\n")
    with pytest.raises(InputError, match="has no times of a step"):
        VerlTimings().read(path)


def test_mutated_logs_are_read_or_refused(tmp_path: Path) -> None:
    def rows(path: Path) -> None:
        assert VerlTimings().read(path).phase_times is not None

    read_or_refused(rows, tmp_path / "train.log", f"{CONSOLE}\n{JSON}\n".encode(), 1000)


def test_no_planted_secret_is_left_and_every_time_stays(tmp_path: Path) -> None:
    secrets = [secret for secret in planted.SECRETS if "\n" not in secret]
    (tmp_path / "own").mkdir()
    lines = [*secrets, *(f"{secret} {CONSOLE} - env/name:{secret}" for secret in secrets), JSON, NUMPY]
    before = read(tmp_path / "own", *lines)
    source, target = tmp_path / "own" / "train.log", tmp_path / "train.log"
    redact_evidence(source, target)
    assert planted.left_in(target) == []
    assert not any(secret in target.read_text() for secret in secrets)
    after = VerlTimings().read(target).phase_times
    assert after["dur_ns"].to_pylist() == before.phase_times["dur_ns"].to_pylist()
    assert {"gen", "update_actor", "step"} <= set(after["phase"].to_pylist())

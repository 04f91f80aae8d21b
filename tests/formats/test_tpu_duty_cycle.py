# SPDX-License-Identifier: Apache-2.0
"""Duty cycles of TPUs: samples of chips, activity of roles by hand and as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from cclbench.api import run
from cclbench.formats import recognise_format
from cclbench.formats.tpu_duty_cycle import TpuDutyCycle
from cclbench.ground.errors import InputError
from cclbench.record.selection import Selection
from cclbench.results import full_results

HEAD = "ts,wall,phase,chip,duty_cycle_pct,mem_used_mib,mem_total_mib,mem_pct\n"


def written(folder: Path, role: str, busy: dict[float, tuple[float, float]]) -> Path:
    """A file of two chips; times are seconds."""
    rows = [
        f"{1785432443 + at},17:27:23,x,{chip},{value},{1 + chip},16126,0.0\n"
        for at, values in busy.items()
        for chip, value in enumerate(values)
    ]
    path = folder / f"tpu_duty_cycle_{role}.csv"
    path.write_text(HEAD + "".join(rows))
    return path


def activity(folder: Path, store: Path) -> dict[tuple[str | None, str | None], float | None]:
    rows = full_results(run(folder, store=store), Selection()).summary
    return {(row.category, row.stat): row.value for row in rows if row.metric == "rl.active"}


def test_samples_have_exact_times_and_base_units(tmp_path: Path) -> None:
    path = written(tmp_path, "sampler", {0.25: (0, 50), 1: (12.5, 100)})
    assert recognise_format(path, path.read_bytes()).name == "tpu_duty_cycle"
    found = TpuDutyCycle().read(path)
    assert found.facts == {"role": "sampler"}
    rows = [(r["device"], r["counter"], r["start_ns"], r["value"]) for r in found.counters.to_pylist()]
    assert rows[:4] == [
        (0, "gpu_utilization", 1785432443_250_000_000, 0),
        (0, "memory_used", 1785432443_250_000_000, 1 << 20),
        (1, "gpu_utilization", 1785432443_250_000_000, 0.5),
        (1, "memory_used", 1785432443_250_000_000, 2 << 20),
    ]


def test_roles_by_hand(tmp_path: Path) -> None:
    """The sampler is active 0 to 4 of 10 s, the trainer 3 to 8 of 2 to 12 s; both 3 to 4, neither 8 to 10."""
    (tmp_path / "job").mkdir()
    sampler = {float(t): (0.0, 80.0 if t < 4 else 0.0) for t in range(11)}
    trainer = {float(t): (50.0 if 3 <= t < 8 else 0.0,) * 2 for t in range(2, 13)}
    written(tmp_path / "job", "sampler", sampler)
    written(tmp_path / "job", "trainer", trainer)
    known: dict[tuple[str | None, str | None], float] = {(None, None): 0.45, ("all", None): 1 / 8}
    known |= {("none", None): 2 / 8, ("sampler", None): 0.4, ("sampler", "utilization"): 0.4}
    known |= {("trainer", None): 0.5, ("trainer", "utilization"): 0.5}
    assert activity(tmp_path / "job", tmp_path / "store") == pytest.approx(known)
    (tmp_path / "job" / "tpu_duty_cycle_trainer.csv").unlink()
    assert activity(tmp_path / "job", tmp_path / "store") == {(None, None): None}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,x,y,0,101,1,2,3\n", "line 2: a duty cycle of more than 100 %"),
        *(("1,x,y,a,10,1,2,3\n", "line 2: no index"), ("1,x\r,y,0,1,1,2,3\n", "line 2: no row of a table")),
        *(("soon,x,y,0,10,1,2,3\n", "line 2: text where a number"), ("1,x,y,0\n", "line 2: 4 cells, not 8")),
        ("-1,x,y,0,10,1,2,3\n", "line 2: a counter below 0"),
        ("17854321785432444,x,y,0,10,1,2,3\n", "line 2: a time before 1970 or beyond 2262"),
    ],
)
def test_damage_is_an_error_that_says_where(tmp_path: Path, row: str, says: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEAD + row)
    with pytest.raises(InputError, match=says):
        TpuDutyCycle().read(path)


def test_a_published_job_is_as_active_as_its_authors_say(test_data: Path, tmp_path: Path) -> None:
    """Its README: the sampler is active 56.2 % of samples at 95.8 %, the trainer 39.4 % at 90.1 %."""
    found = activity(test_data / "rl_tpu", tmp_path)
    published = {("sampler_a", None): 0.562, ("trainer_a", None): 0.394}
    published |= {("sampler_a", "utilization"): 0.958, ("trainer_a", "utilization"): 0.901}
    assert {key: found[key] for key in published} == pytest.approx(published, abs=1e-3)

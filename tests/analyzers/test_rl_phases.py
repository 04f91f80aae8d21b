# SPDX-License-Identifier: Apache-2.0
"""Steps of reinforcement learning by role: exact parts of logs, and of marked ranges of two pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from formats.test_verl_timings import CONSOLE
from helpers.hand_made import Evidence as Given
from helpers.hand_made import a_rank, collective, event, job_values
from helpers.hand_values import in_ns, parts, run_parts
from hypothesis import given, settings
from hypothesis import strategies as st

import cclbench
from cclbench.analyzers.metric import Value
from cclbench.analyzers.rl_phases import STEP_PARTS, split_steps
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.role_times import PRECEDENCE
from cclbench.classify.rl_phases import ROLES
from cclbench.formats.verl_timings import VerlTimings
from cclbench.ground.evidence_schema import PHASE_TIMES
from cclbench.record.selection import Selection
from cclbench.results import full_results
from cclbench.source_summaries import source_summaries

Times = Mapping[str, float]


def steps(*each: Times) -> list[Value]:
    rows = [
        {"file": "a.log", "entry": entry, "step": entry, "phase": phase, "dur_ns": round(seconds * 1e9)}
        for entry, times in enumerate(each)
        for phase, seconds in times.items()
    ]
    return job_values("rl.step", Given(phase_times=rows))


PLAIN = {
    "gen": 10,
    "reshard": 2,
    "reward": 1,
    "old_log_prob": 3,
    "ref": 2,
    "adv": 1,
    "update_actor": 6,
    "step": 25,
}


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (PLAIN | {"testing": 4}, "validate or save"),
        (PLAIN | {"update_critic": 9}, "take longer than the step"),
        ({"gen": 1}, "states no time of the whole step"),
        # The trainer's own `gen` is also the time of a generation that ran beside another step.
        (PLAIN | {"sync_rollout_weights": 0.5}, "runs beside them"),
    ],
)
def test_steps_whose_parts_are_not_known_are_left_out(times: Times, reason: str) -> None:
    (none,) = steps(times)
    assert (none.value, reason in (none.reason or "")) == (None, True)
    whole, *_ = steps(times, PLAIN)
    assert (whole.value, whole.status) == (25, "partial")


TIME = st.integers(0, 10**13)


@settings(max_examples=40)
@given(st.lists(st.tuples(*(TIME for _ in range(6))), min_size=1, max_size=6))
def test_a_simulated_job_is_accounted_to_the_ns(
    tmp_path_factory: pytest.TempPathFactory, truth: Sequence[tuple[int, ...]]
) -> None:
    """Steps of known generation, resharding, scoring, updates, weight transfers and idle time, as a log."""
    lines = []
    for step, (sample, reshard, score, update, sync, idle) in enumerate(truth):
        whole = sample + reshard + score + update + sync + idle
        timed = {"reshard": reshard, "gen": sample + reshard, "ref": score // 3, "reward": score - score // 3}
        timed |= {"update_actor": update, "update_weights": sync, "step": whole}
        times = " - ".join(f"timing_s/{name}:{ns // 10**9}.{ns % 10**9:09}" for name, ns in timed.items())
        lines.append(f"step:{step} - actor/lr:1e-06 - {times}")
    path = tmp_path_factory.mktemp("log") / "train.log"
    path.write_text("\n".join(lines))
    table = VerlTimings().read(path).phase_times
    assert table is not None
    split = split_steps(table.cast(PHASE_TIMES) if table.schema != PHASE_TIMES else table)
    assert split.unsplit == {}
    assert (sum(split.parts[part] for part in STEP_PARTS) == split.lengths).all()
    measured = zip(
        *(
            split.parts[part].tolist()
            for part in ("generate", "weight_sync", "score", "update", "unattributed")
        ),
        strict=True,
    )
    assert [*measured] == [(one[0], one[1] + one[4], one[2], one[3], one[5]) for one in truth]


def test_a_published_step_and_its_first_screen(tmp_path: Path) -> None:
    """gen 16.227 less 0.234 of resharding; 0.424 + 10.276 + 0.073 score; 48.703 less all is 0.179 s."""
    (tmp_path / "train.log").write_text(CONSOLE + "\n")
    run = cclbench.run(tmp_path / "train.log", store=tmp_path / "store")
    (summary,) = source_summaries(run, full_results(run, Selection()))
    assert (summary.kind, summary.absent) == ("rl_steps", [])
    assert summary.sentences == [
        "A step takes 48.7 s in the mean: generate 32.8 %, score 22.1 %, update 44.2 %, weight sync 0.48 %,"
        " unattributed 0.368 %."
    ]
    assert summary.tables[1].rows[0][:2] == ("step", 48.702526649)


def test_each_role_has_a_precedence() -> None:
    assert set(PRECEDENCE) == set(ROLES)


def ranges(rank: int, *marked: tuple[str, int, int], group: str | None = "all") -> RankView:
    """A rank with those ranges, and a collective that it shares with others of its group."""
    rows = [event("annotation", start, end, name=name) for name, start, end in marked]
    own = [collective("broadcast", 0, 1, group=group, instance=0)] if group else []
    return a_rank(rows, collectives=own, rank=rank)


GENERATOR = (("rollout_generate", 0, 60), ("rl.tools", 20, 30), ("update_weights", 90, 100))
TRAINER = (("ref_compute_log_prob", 60, 70), ("actor_update", 70, 90), ("update_weights", 90, 100))


def test_bubbles_are_while_only_ranks_of_other_roles_work() -> None:
    """100 ns: 0 and 1 generate 50 and call tools 10, then wait 30 for 2, which waits 60 for them."""
    ranks = (ranges(0, *GENERATOR), ranges(1, *GENERATOR), ranges(2, *TRAINER))
    found = in_ns(run_parts("rl.time", *ranks))
    expected = {None: 100, "generate": 100 / 3, "tools": 20 / 3, "score": 10 / 3, "update": 20 / 3}
    expected |= {"weight_sync": 10, "bubble": (30 + 30 + 60) / 3, "unattributed": 0}
    expected |= {"bubble of generate, tools, weight_sync": 30, "bubble of score, update, weight_sync": 60}
    assert found == pytest.approx(expected)


def test_ranks_of_all_roles_have_no_bubbles_between_them() -> None:
    """Colocated: 10 ns between generation and scoring are of no role."""
    own = (("generate_sequences", 0, 40), ("compute_log_prob", 50, 60), ("actor_update", 60, 100))
    found = in_ns(run_parts("rl.time", ranges(0, *own), ranges(1, *own, group=None)))
    assert found == pytest.approx(
        {None: 100, "generate": 40, "score": 10, "update": 40, "bubble": 0, "unattributed": 10}
    )
    assert in_ns(parts(ranges(0, *own), "rl.time"))["rest"] == pytest.approx(10)


def test_without_a_common_clock_bubbles_are_not_known() -> None:
    found = in_ns(run_parts("rl.time", ranges(0, *GENERATOR), ranges(1, *TRAINER, group="other")))
    assert (found[None], found["bubble"], found["unattributed"]) == (None, None, None)
    assert (found["generate"], found["update"]) == pytest.approx((25, 10))


def test_a_job_that_only_samples_or_only_trains_is_none() -> None:
    """Names such as compute_values alone do not make a job one of reinforcement learning."""
    assert run_parts("rl.time", ranges(0, *GENERATOR)) == {None: None}
    assert run_parts("rl.time", ranges(0, ("forward", 0, 10))) == {None: None}


@settings(max_examples=40)
@given(st.lists(st.tuples(*(st.integers(1, 1000) for _ in range(4))), min_size=1, max_size=8))
def test_a_simulated_job_of_two_pools_is_accounted_to_the_ns(truth: Sequence[tuple[int, ...]]) -> None:
    """Each round: generate, a pause of all, update, weights sent by all; the other pool waits."""
    generator, trainer, now = list[tuple[str, int, int]](), list[tuple[str, int, int]](), 0
    for generate, pause, update, sync in truth:
        generator.append(("rl.generate", now, now + generate))
        now += generate + pause
        trainer.append(("rl.update", now, now + update))
        now += update
        for own in (generator, trainer):
            own.append(("rl.weight_sync", now, now + sync))
        now += sync
    sums = [sum(each) for each in zip(*truth, strict=True)]
    found = in_ns(run_parts("rl.time", ranges(0, *generator), ranges(1, *trainer)))
    expected = {None: now, "generate": sums[0] / 2, "update": sums[2] / 2, "weight_sync": sums[3]}
    expected |= {"unattributed": sums[1], "bubble": (sums[0] + sums[2]) / 2}
    expected |= {"bubble of generate, weight_sync": sums[2], "bubble of update, weight_sync": sums[0]}
    assert found == pytest.approx(expected)

# SPDX-License-Identifier: Apache-2.0
"""Step annotations, and the windows that follow from them."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.errors import UsageError
from cclbench.normalize import steps
from cclbench.normalize.steps import Annotation, Marks


def found(*annotations, pattern=None):
    made = [Annotation(*a) for a in annotations]
    marks, left_out = steps.marks(made, steps.families(pattern))
    listed = zip(marks.numbers.tolist(), marks.starts.tolist(), marks.ends.tolist(), strict=True)
    return list(listed), dict(left_out)


def times(*values):
    return np.array(values, np.int64)


def windows_of(marks, step, starts, ends, horizon=None):
    windows, left_out = steps.device_windows(marks, times(*step), times(*starts), times(*ends), horizon)
    return windows, dict(left_out)


MARKS = Marks(times(3, 4), times(100, 200), times(200, 300))


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#7",
        "step 7",
        "Step#7",
        "iteration=7",
        "train_step 7",
        "training step: 7",
    ],
)
def test_numbered_steps(name):
    assert found((name, 0, 10)) == ([(7, 0, 10)], {})


@pytest.mark.parametrize(
    "name",
    ["execute_model", "execute_context_1(8)_generation_3(3)", "run_batch", "step[DECODE bs=1]", "step"],
)
def test_unnumbered_steps_count_from_0(name):
    assert found((name, 0, 10), (name, 20, 30)) == ([(0, 0, 10), (1, 20, 30)], {})


@pytest.mark.parametrize(
    "name", ["my step 3 of 4", "ProfilerStep#", "Optimizer.step#Adam.step", "stepper 3", ""]
)
def test_other_annotations_are_no_steps(name):
    assert found((name, 0, 10)) == ([], {})


def test_first_family_that_occurs_wins():
    known, _ = found(("step 1", 0, 5), ("ProfilerStep#9", 10, 20), ("execute_model", 30, 40))
    assert known == [(9, 10, 20)]


def test_order_of_time_not_of_the_file():
    assert found(("ProfilerStep#2", 50, 60), ("ProfilerStep#1", 10, 20))[0] == [(1, 10, 20), (2, 50, 60)]


def test_nested_step_is_left_out_and_counted():
    known, left_out = found(("step 1", 0, 100), ("step 2", 10, 20), ("step 3", 100, 200))
    assert known == [(1, 0, 100), (3, 100, 200)]
    assert left_out == {"its annotation lies inside another step's": 1}


def test_ranges_of_one_number_that_overlap_are_one_step():
    assert found(("step 1", 0, 100), ("step 1", 50, 120), ("step 2", 130, 150)) == (
        [(1, 0, 120), (2, 130, 150)],
        {},
    )


def test_repeated_numbers_are_counted_from_0():
    assert found(("step 5", 0, 10), ("step 5", 20, 30), ("step 6", 40, 50))[0] == [
        (0, 0, 10),
        (1, 20, 30),
        (2, 40, 50),
    ]


def test_step_without_duration():
    assert found(("step 1", 5, 5), ("step 2", 6, 9)) == ([(2, 6, 9)], {"its annotation has no duration": 1})


def test_absurdly_long_number_is_no_number():
    assert found(("ProfilerStep#99999999999", 0, 10))[0] == [(0, 0, 10)]


def test_own_pattern_with_and_without_a_number():
    assert found(("epoch 2 batch 4", 0, 9), ("ProfilerStep#1", 0, 9), pattern=r"epoch \d+ batch (\d+)")[
        0
    ] == [(4, 0, 9)]
    assert found(("fwd", 0, 9), ("fwd", 10, 19), pattern="fwd")[0] == [(0, 0, 9), (1, 10, 19)]


def test_own_pattern_that_is_none():
    with pytest.raises(UsageError, match="no regular expression"):
        steps.families("(")


def test_step_that_holds_an_instant():
    assert MARKS.holding(times(99, 100, 199, 200, 299, 300)).tolist() == [-1, 0, 0, 1, 1, -1]
    assert steps.NO_MARKS.holding(times(1, 2)).tolist() == [-1, -1]


class TestDeviceWindows:
    """From a step's first device event to the next one's; the last to the end of its own."""

    def test_two_steps(self):
        # Launched in step 3: [110, 150) and [160, 230); in step 4: [240, 260) and [250, 320).
        result = windows_of(MARKS, (0, 0, 1, 1), (110, 160, 240, 250), (150, 230, 260, 320))
        assert result == ([(3, 110, 240), (4, 240, 320)], {})

    def test_order_of_events_does_not_matter(self):
        result = windows_of(MARKS, (1, 0, 1, 0), (250, 160, 240, 110), (320, 230, 260, 150))
        assert result == ([(3, 110, 240), (4, 240, 320)], {})

    def test_events_without_a_step_are_no_edge(self):
        result = windows_of(MARKS, (-1, 0, 1, -1), (10, 110, 240, 900), (20, 150, 260, 950))
        assert result == ([(3, 110, 240), (4, 240, 260)], {})

    def test_step_without_device_events(self):
        result = windows_of(MARKS, (1, 1), (240, 250), (260, 320))
        assert result == ([(4, 240, 320)], {"no device event was launched in it": 1})

    def test_step_whose_work_begins_after_the_next(self):
        result = windows_of(MARKS, (0, 1), (260, 240), (270, 300))
        assert result == ([(4, 240, 300)], {"its device work begins after the next step's": 1})

    def test_horizon_leaves_out_what_may_not_be_whole(self):
        events = ((0, 0, 1, 1), (110, 160, 240, 250), (150, 230, 260, 320))
        cut = {"the file is cut before its end": 1}
        assert windows_of(MARKS, *events, horizon=250) == ([(3, 110, 240)], cut)
        # The last step may have had more events: a horizon behind all that is left proves nothing.
        assert windows_of(MARKS, *events, horizon=400) == ([(3, 110, 240)], cut)
        assert windows_of(MARKS, *events, horizon=239) == ([], {"the file is cut before its end": 2})

    def test_nothing_launched_in_any_step(self):
        assert windows_of(MARKS, (-1,), (5,), (9,)) == ([], {"no device event was launched in it": 2})
        assert windows_of(steps.NO_MARKS, (), (), ()) == ([], {})


def test_annotation_windows_and_horizon():
    assert steps.annotation_windows(MARKS, None) == ([(3, 100, 200), (4, 200, 300)], {})
    windows, left_out = steps.annotation_windows(MARKS, 299)
    assert (windows, dict(left_out)) == ([(3, 100, 200)], {"the file is cut before its end": 1})


def test_table():
    rows = steps.table(2, [(7, 1, 5, "device"), (None, 0, 9, "whole_trace")]).to_pylist()
    assert rows == [
        {"rank": 2, "step": 7, "start_ns": 1, "end_ns": 5, "source": "device"},
        {"rank": 2, "step": None, "start_ns": 0, "end_ns": 9, "source": "whole_trace"},
    ]
    assert steps.table(0, []).num_rows == 0

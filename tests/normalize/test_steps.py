# SPDX-License-Identifier: Apache-2.0
"""Step annotations, and the windows that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cclbench.formats import DeviceStep
from cclbench.ground.errors import UsageError
from cclbench.normalize import steps
from cclbench.normalize.device_rows import DeviceRows
from cclbench.normalize.steps import Annotation, Marks, Window


def found(*annotations, pattern=None):
    made = [Annotation(*a) for a in annotations]
    marks, left_out = steps.annotated_steps(made, steps.step_patterns(pattern))
    listed = zip(marks.numbers.tolist(), marks.starts.tolist(), marks.ends.tolist(), strict=True)
    return list(listed), dict(left_out)


def times(*values):
    return np.array(values, np.int64)


def rows_of(step, starts, ends, kernel=None):
    """Device rows; all are kernels unless `kernel` says which."""
    mask = np.array([True] * len(step) if kernel is None else kernel, np.bool_)
    return DeviceRows(times(*step), times(*starts), times(*ends), mask)


def windows_of(marks, *rows, horizon=None, **more):
    windows, left_out, _ = steps.device_windows(marks, rows_of(*rows, **more), horizon)
    return [(w.step, w.start_ns, w.end_ns, "open" if w.open else "closed") for w in windows], dict(left_out)


def purities(windows):
    return [None if w.purity is None else round(w.purity, 9) for w in windows]


MARKS = Marks(times(3, 4), times(100, 200), times(200, 300))


@pytest.mark.parametrize(
    "name", ["ProfilerStep#7", "step 7", "Step#7", "iteration=7", "train_step 7", "training step: 7"]
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


ADAM, MUON = "Optimizer.step#Adam.step", "Optimizer.step#Muon.step"
BEFORE = {"it began before the capture, as its optimizer's call tells": 1}


def test_where_nothing_marks_steps_they_end_with_their_optimizers_call():
    """Of two optimizers with the one that is called first; a call of another is none."""
    calls = [(ADAM, 80, 100), (MUON, 105, 110), (ADAM, 180, 200), (MUON, 205, 210), (ADAM, 290, 300)]
    assert found(*calls) == ([(0, 100, 200), (1, 200, 300)], BEFORE)
    assert found(("step 4", 0, 150), *calls) == ([(4, 0, 150)], {})
    assert found(*calls, pattern="mine") == ([], {})


def test_calls_one_right_after_another_are_one():
    """One optimizer a group of parameters: the time between is less than a tenth of a call."""
    calls = [(ADAM, start, start + 20) for begin in (80, 280, 480) for start in (begin, begin + 21)]
    assert found(*calls)[0] == [(0, 121, 321), (1, 321, 521)]


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


def test_a_range_within_another_of_its_number_does_not_end_it():
    """Step 2 begins behind the inner range's end and before the outer one's."""
    assert found(("step 1", 0, 100), ("step 1", 20, 50), ("step 2", 70, 80), ("step 3", 100, 110)) == (
        [(1, 0, 100), (3, 100, 110)],
        {"its annotation lies inside another step's": 1},
    )


def test_repeated_numbers_are_counted_from_0():
    assert found(("step 5", 0, 10), ("step 5", 20, 30), ("step 6", 40, 50))[0] == [
        (0, 0, 10),
        (1, 20, 30),
        (2, 40, 50),
    ]


def test_step_without_duration():
    assert found(("step 1", 5, 5), ("step 2", 6, 9)) == ([(2, 6, 9)], {"its annotation has no duration": 1})


@pytest.mark.parametrize(("text", "number"), [("999999999", 999_999_999), ("1000000000", 0)])
def test_a_number_has_nine_digits_at_most(text, number):
    assert found((f"ProfilerStep#{text}", 0, 10))[0] == [(number, 0, 10)]


def test_of_ranges_that_begin_at_once_the_outer_one_is_the_step():
    assert found(("step 2", 5, 10), ("step 1", 5, 90), ("step 3", 90, 95)) == (
        [(1, 5, 90), (3, 90, 95)],
        {"its annotation lies inside another step's": 1},
    )


def test_only_the_step_before_is_continued():
    """The range of step 1 within step 2 continues neither; step 3's second range continues step 3."""
    assert found(("step 1", 0, 10), ("step 2", 10, 30), ("step 1", 20, 40), ("step 2", 25, 35)) == (
        [(1, 0, 10), (2, 10, 35)],
        {"its annotation lies inside another step's": 1},
    )


def test_unnumbered_ranges_that_overlap_are_not_one_step():
    assert found(("step", 0, 10), ("step", 5, 20)) == (
        [(0, 0, 10)],
        {"its annotation lies inside another step's": 1},
    )


@pytest.mark.parametrize("names", [("step", "step"), ("ProfilerStep#4", "ProfilerStep#5")])
def test_steps_that_overlap_by_less_than_a_microsecond_are_neighbours(names):
    first, second = names
    (one, two), left_out = found((first, 0, 50_000), (second, 49_001, 90_000))
    assert (one[1:], two[1:], left_out) == ((0, 50_000), (50_000, 90_000), {})
    (one,), left_out = found((first, 0, 50_000), (second, 49_000, 90_000))
    assert (one[1:], left_out) == ((0, 50_000), {"its annotation lies inside another step's": 1})
    (one,), left_out = found((first, 0, 50_000), (second, 49_500, 50_000))
    assert (one[1:], left_out) == ((0, 50_000), {"its annotation lies inside another step's": 1})


def test_steps_before_zero_are_steps_as_any_other():
    """A host's clock may begin anywhere."""
    assert found(("step 1", -30, -20), ("step 2", -20, -10), ("step 3", -15, -12)) == (
        [(1, -30, -20), (2, -20, -10)],
        {"its annotation lies inside another step's": 1},
    )


def marked(*steps):
    """(number, begin, end) of each step that a device's rows mark, and whether the last is closed."""
    made = steps_of_device(*steps)
    return list(
        zip(made.numbers.tolist(), made.starts.tolist(), made.ends.tolist(), strict=True)
    ), made.closed


def steps_of_device(*told):
    return steps.of_device([DeviceStep(*one) for one in told])


class TestStepsOfTheDevice:
    """(name, begin, end, number, closed) of rows."""

    def test_a_step_reaches_to_the_next_and_the_last_to_its_own_end(self):
        assert marked(("2", 50, 60, 8), ("1", 10, 20, 7), ("3", 90, 95, 9)) == (
            [(7, 10, 50), (8, 50, 90), (9, 90, 95)],
            False,
        )

    def test_the_last_one_ends_with_whatever_ends_last(self):
        assert marked(("1", 10, 99, 7), ("2", 50, 60, 8)) == ([(7, 10, 50), (8, 50, 99)], False)

    def test_closed_ones_end_where_they_say(self):
        one, two = ("1", 10, 20, 7, True), ("2", 50, 60, 8)
        assert marked(one, two) == ([(7, 10, 20), (8, 50, 60)], False)
        assert marked(("1", 10, 20, 7), ("2", 50, 60, 8, True), ("3", 70, 80, 9)) == (
            [(7, 10, 50), (8, 50, 60), (9, 70, 80)],
            False,
        )
        assert marked(("1", 10, 20, 7), ("2", 50, 60, 8), ("3", 70, 80, 9, True)) == (
            [(7, 10, 50), (8, 50, 70), (9, 70, 80)],
            True,
        )

    def test_numbered_rows_go_before_modules(self):
        assert marked(("jit_f", 0, 900), ("1", 10, 20, 7)) == ([(7, 10, 20)], False)

    def test_of_modules_the_one_that_takes_longest_counts(self):
        """jit_f runs 30 + 20, jit_g 45, though it begins and ends later; numbers count from 0."""
        assert marked(("jit_g", 200, 245), ("jit_f", 10, 40), ("jit_f", 100, 120)) == (
            [(0, 10, 100), (1, 100, 120)],
            False,
        )
        assert marked(("jit_g", 200, 255), ("jit_f", 10, 40), ("jit_f", 100, 120))[0] == [(0, 200, 255)]

    def test_of_modules_that_take_as_long_the_first_by_name(self):
        assert marked(("jit_g", 0, 10), ("jit_f", 20, 30))[0] == [(0, 20, 30)]

    def test_rows_without_duration_are_no_steps(self):
        assert marked(("1", 10, 10, 7), ("2", 50, 51, 8)) == ([(8, 50, 51)], False)
        assert steps_of_device(("1", 10, 10, 7)) is steps.NO_MARKS
        assert steps_of_device() is steps.NO_MARKS

    def test_numbers_that_repeat_are_counted(self):
        assert marked(("1", 0, 10, 5), ("1", 20, 30, 5))[0] == [(0, 0, 20), (1, 20, 30)]


def test_steps_are_counted_where_one_has_no_number():
    assert found(("step 5", 0, 10), ("step", 20, 30))[0] == [(0, 0, 10), (1, 20, 30)]


def test_own_pattern_with_and_without_a_number():
    assert found(("epoch 2 batch 4", 0, 9), ("ProfilerStep#1", 0, 9), pattern=r"epoch \d+ batch (\d+)")[
        0
    ] == [(4, 0, 9)]
    assert found(("fwd", 0, 9), ("fwd", 10, 19), pattern="fwd")[0] == [(0, 0, 9), (1, 10, 19)]


def test_own_pattern_that_is_none():
    with pytest.raises(UsageError, match="no regular expression"):
        steps.step_patterns("(")


def test_step_that_holds_an_instant():
    assert MARKS.step_at(times(99, 100, 199, 200, 299, 300)).tolist() == [-1, 0, 0, 1, 1, -1]
    assert steps.NO_MARKS.step_at(times(1, 2)).tolist() == [-1, -1]


class TestDeviceWindows:
    """From the first kernel a step launched to the next step's; the last has no successor and is open."""

    def test_two_steps(self):
        # Launched in step 3: [110, 150) and [160, 230); in step 4: [240, 260) and [250, 320).
        result = windows_of(MARKS, (0, 0, 1, 1), (110, 160, 240, 250), (150, 230, 260, 320))
        assert result == ([(3, 110, 240, "closed"), (4, 240, 320, "open")], {})

    def test_order_of_events_does_not_matter(self):
        result = windows_of(MARKS, (1, 0, 1, 0), (250, 160, 240, 110), (320, 230, 260, 150))
        assert result == ([(3, 110, 240, "closed"), (4, 240, 320, "open")], {})

    def test_events_without_a_step_are_no_edge(self):
        result = windows_of(MARKS, (-1, 0, 1, -1), (10, 110, 240, 900), (20, 150, 260, 950))
        assert result == ([(3, 110, 240, "closed"), (4, 240, 260, "open")], {})

    def test_prefetched_copy_opens_no_window(self):
        # Step 4's input is copied at [120, 130), while step 3 computes; its first kernel begins at 240.
        result = windows_of(MARKS, (0, 1, 1), (110, 120, 240), (150, 130, 260), kernel=(True, False, True))
        assert result == ([(3, 110, 240, "closed"), (4, 240, 260, "open")], {})

    def test_copy_ends_the_open_window(self):
        result = windows_of(MARKS, (0, 1, 1), (110, 240, 270), (150, 260, 290), kernel=(True, True, False))
        assert result == ([(3, 110, 240, "closed"), (4, 240, 290, "open")], {})

    def test_step_with_copies_only_has_no_window(self):
        result = windows_of(MARKS, (0, 1), (110, 240), (150, 260), kernel=(True, False))
        assert result == ([(3, 110, 150, "open")], {"no kernel was launched in it": 1})

    def test_step_without_device_events(self):
        result = windows_of(MARKS, (1, 1), (240, 250), (260, 320))
        assert result == ([(4, 240, 320, "open")], {"no kernel was launched in it": 1})

    def test_step_whose_work_begins_after_the_next(self):
        result = windows_of(MARKS, (0, 1), (260, 240), (270, 300))
        assert result == ([(4, 240, 300, "open")], {"its device work begins after the next step's": 1})

    def test_horizon_leaves_out_what_may_not_be_whole(self):
        events = ((0, 0, 1, 1), (110, 160, 240, 250), (150, 230, 260, 320))
        cut = {"the file is cut before its end": 1}
        assert windows_of(MARKS, *events, horizon=250) == ([(3, 110, 240, "closed")], cut)
        # The last step may have had more events: a horizon behind all that is left proves nothing.
        assert windows_of(MARKS, *events, horizon=400) == ([(3, 110, 240, "closed")], cut)
        assert windows_of(MARKS, *events, horizon=239) == ([], {"the file is cut before its end": 2})

    def test_a_window_that_ends_at_the_horizon_is_whole(self):
        events = ((0, 0, 1, 1), (110, 160, 240, 250), (150, 230, 260, 320))
        assert windows_of(MARKS, *events, horizon=240)[0] == [(3, 110, 240, "closed")]

    def test_a_window_without_length_is_none(self):
        result = windows_of(MARKS, (0, 1), (240, 240), (250, 300))
        assert result == ([(4, 240, 300, "open")], {"its device work begins after the next step's": 1})

    def test_each_window_ends_where_the_very_next_one_begins(self):
        marks = Marks(times(3, 4, 5), times(100, 200, 320), times(200, 300, 400))
        rows = rows_of((0, 1, 2), (110, 240, 350), (150, 260, 380))
        windows, _, periods = steps.device_windows(marks, rows, None)
        assert [(w.start_ns, w.end_ns) for w in windows] == [(110, 240), (240, 350), (350, 380)]
        assert periods == steps.Periods(device_ns=120.0, host_ns=110.0)

    def test_nothing_launched_in_any_step(self):
        assert windows_of(MARKS, (-1,), (5,), (9,)) == ([], {"no kernel was launched in it": 2})
        assert windows_of(steps.NO_MARKS, (), (), ()) == ([], {})

    def test_periods_are_those_of_closed_windows(self):
        rows = rows_of((0, 1), (110, 240), (150, 260))
        _, _, periods = steps.device_windows(MARKS, rows, None)
        assert periods == steps.Periods(device_ns=130.0, host_ns=100.0)
        _, _, periods = steps.device_windows(MARKS, rows_of((0,), (110,), (150,)), None)
        assert periods is None


class TestPurity:
    """Share of the kernel time in a window that its own step launched; unions, clipped to the window."""

    def test_kernels_of_other_steps(self):
        # Window of step 3: [110, 240). Its own kernels [110, 150); step 4's... begin at 240; of no step
        # [160, 180). Own 40 of 60 ns.  Step 3's kernel [235, 250) reaches into step 4's window by 10.
        rows = rows_of((0, -1, 0, 1), (110, 160, 235, 240), (150, 180, 250, 280))
        windows, _, _ = steps.device_windows(MARKS, rows, None)
        # Step 3: own [110, 150) + [235, 240) = 45 of 65.  Step 4: [240, 280) is its own wherever it runs.
        assert purities(windows) == [round(45 / 65, 9), 1.0]

    def test_foreign_kernel_beside_own_ones_takes_time_only_where_it_is_alone(self):
        rows = rows_of((0, 0, 1, 0), (110, 150, 240, 280), (150, 200, 260, 300))
        windows, _, _ = steps.device_windows(MARKS, rows, None)
        # Step 4: open window [240, 260), its own kernel; step 3's late one begins after it ends.
        assert purities(windows) == [1.0, 1.0]
        rows = rows_of((0, 1, 0), (110, 240, 250), (150, 260, 300))
        windows, _, _ = steps.device_windows(MARKS, rows, None)
        assert purities(windows) == [1.0, 1.0]

    def test_copies_are_no_kernel_time(self):
        rows = rows_of((0, 1, 1), (110, 120, 240), (150, 230, 260), kernel=(True, False, True))
        windows, _, _ = steps.device_windows(MARKS, rows, None)
        assert purities(windows) == [1.0, 1.0]

    def test_copies_of_its_own_step_are_no_kernel_time_of_it(self):
        # Step 3 has a kernel [110, 150) and a copy [160, 200), over which a kernel of no step runs.
        rows = rows_of((0, 0, -1, 1), (110, 160, 160, 240), (150, 200, 200, 260), (True, False, True, True))
        windows, _, _ = steps.device_windows(MARKS, rows, None)
        assert purities(windows) == [0.5, 1.0]

    def test_kernels_of_no_step_are_nobodys_own(self):
        # In the last window, [240, 300), too: [260, 280) is of no step.
        rows = rows_of((0, 1, -1, 1), (110, 240, 260, 280), (150, 260, 280, 300))
        windows, _, _ = steps.device_windows(MARKS, rows, None)
        assert purities(windows) == [1.0, round(40 / 60, 9)]

    def test_own_kernels_count_within_their_window_alone(self):
        # Step 3's kernel runs [180, 260), in step 4's annotation from 200 on; step 5 has no window.
        marks = Marks(times(3, 4, 5), times(100, 200, 300), times(200, 300, 400))
        rows = rows_of((0, 1, 2), (180, 260, 290), (260, 290, 350))
        windows, _ = steps.annotation_windows(marks, 350, rows=rows)
        assert [w.step for w in windows] == [3, 4]
        assert purities(windows) == [1.0, 0.3]

    def test_kernels_of_a_step_without_a_window_are_not_own(self):
        """Step 3 is cut: its kernel in step 4's window is a foreign one."""
        marks = Marks(times(3, 4), times(200, 100), times(400, 300))
        rows = rows_of((0, 1), (100, 150), (150, 200))
        windows, _ = steps.annotation_windows(marks, 300, rows=rows)
        assert [(w.step, w.purity) for w in windows] == [(4, 0.5)]

    def test_host_annotations_of_a_device_that_runs_behind(self):
        # Host steps [100, 200) and [200, 300); step 3's kernel runs [180, 260), step 4's [260, 400).
        rows = rows_of((0, 1), (180, 260), (260, 400))
        windows, _ = steps.annotation_windows(MARKS, None, rows=rows)
        assert purities(windows) == [1.0, 0.4]

    def test_unknown_without_kernels_or_launches(self):
        windows, _ = steps.annotation_windows(MARKS, None)
        assert purities(windows) == [None, None]
        rows = rows_of((0,), (180,), (190,), kernel=(False,))
        windows, _ = steps.annotation_windows(MARKS, None, rows=rows)
        assert purities(windows) == [None, None]


def test_annotation_windows_and_horizon():
    whole = [Window(3, 100, 200, "annotation"), Window(4, 200, 300, "annotation")]
    assert steps.annotation_windows(MARKS, None) == (whole, {})
    assert steps.annotation_windows(MARKS, 300) == (whole, {})
    windows, left_out = steps.annotation_windows(MARKS, 299)
    assert (windows, dict(left_out)) == (whole[:1], {"the file is cut before its end": 1})


@pytest.mark.parametrize("source", ["module", "graph"])
def test_last_run_of_a_module_or_graph_is_open(source):
    runs = replace(MARKS, source=source)
    windows, _ = steps.annotation_windows(runs, None)
    assert [(w.step, w.source, w.open) for w in windows] == [(3, source, False), (4, source, True)]
    closed = replace(runs, closed=True)
    assert [w.open for w in steps.annotation_windows(closed, None)[0]] == [False, False]


def test_what_marks_steps_is_kept():
    assert steps_of_device(("f", 0, 10), ("f", 20, 30)).source == "module"
    assert steps_of_device(("f", 0, 10, None, False, "graph")).source == "graph"


def test_table():
    rows = steps.steps_table(
        2, [Window(7, 1, 5, "device", True, 0.25), Window(None, 0, 9, "whole_trace")]
    ).to_pylist()
    assert rows == [
        {"rank": 2, "step": 7, "start_ns": 1, "end_ns": 5, "source": "device", "open": True, "purity": 0.25},
        {
            "rank": 2,
            "step": None,
            "start_ns": 0,
            "end_ns": 9,
            "source": "whole_trace",
            "open": False,
            "purity": None,
        },
    ]
    assert steps.steps_table(0, []).num_rows == 0


class TestChosenWindows:
    """Closed windows of the policy asked for, or of the next one; open ones where no other is there."""

    def of(self, *windows, policy="steps"):
        found = steps.choose_windows(steps.steps_table(0, list(windows)), policy)
        if found is None:
            return None
        one, counted, left = found
        return one, counted["step"].to_pylist(), left["step"].to_pylist()

    def test_open_one_stands_aside(self):
        closed, last = Window(5, 10, 20, "device"), Window(6, 20, 25, "device", True)
        assert self.of(last, closed) == ("steps", [5], [6])

    def test_open_one_counts_where_it_is_alone(self):
        assert self.of(Window(6, 20, 25, "device", True)) == ("steps", [6], [])

    def test_next_policy(self):
        annotated, whole = Window(5, 10, 20, "annotation"), Window(None, 0, 30, "whole_trace")
        assert self.of(whole, annotated) == ("annotations", [5], [])
        assert self.of(whole, annotated, policy="trace") == ("trace", [None], [])
        assert self.of() is None

# SPDX-License-Identifier: Apache-2.0
"""Step annotations, the windows that follow from them, where steps begin and end on a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.formats import DeviceStep
from cclbench.ground.errors import UsageError
from cclbench.normalize import steps
from cclbench.normalize.device_rows import DeviceRows, own_shares, step_extents
from cclbench.normalize.steps import NO_MARKS, Annotation, Marks, Window


def found(*annotations, pattern=None):
    made = [Annotation(*a) for a in annotations]
    marks, left_out = steps.annotated_steps(made, steps.step_patterns(pattern))
    listed = zip(marks.numbers.tolist(), marks.starts.tolist(), marks.ends.tolist(), strict=True)
    return list(listed), dict(left_out)


def spans(text):
    """(name, begin, end) of ranges like `step 1 0..5; step 2 5..9`."""
    for one in text.split("; "):
        name, _, times = one.rpartition(" ")
        begin, end = times.split("..")
        yield name, int(begin), int(end)


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


NESTED = {"its annotation lies inside another step's": 1}
ADAM, MUON = "Optimizer.step#Adam.step", "Optimizer.step#Muon.step"
BEFORE = {"it began before the capture, as its optimizer's call tells": 1}
# Of two optimizers with the one that is called first; a call of another is none.
OPTIMIZERS = [(ADAM, 80, 100), (MUON, 105, 110), (ADAM, 180, 200), (MUON, 205, 210), (ADAM, 290, 300)]


NUMBERED = "ProfilerStep#7; step 7; Step#7; iteration=7; train_step 7; training step: 7"
UNNUMBERED = "execute_model; execute_context_1(8)_generation_3(3); run_batch; step[DECODE bs=1]; step"
OTHERS = f"my step 3 of 4; ProfilerStep#; {ADAM}; stepper 3; "


def test_names_of_steps():
    """Without a number they count from 0."""
    for name in NUMBERED.split("; "):
        assert found((name, 0, 10)) == ([(7, 0, 10)], {}), name
    for name in UNNUMBERED.split("; "):
        assert found((name, 0, 10), (name, 20, 30)) == ([(0, 0, 10), (1, 20, 30)], {}), name
    for name in OTHERS.split("; "):
        assert found((name, 0, 10)) == ([], {}), name


def test_where_nothing_marks_steps_they_end_with_their_optimizers_call():
    """Calls one right after another are one: the time between is less than a tenth of a call."""
    assert found(*OPTIMIZERS) == ([(0, 100, 200), (1, 200, 300)], BEFORE)
    assert found(("step 4", 0, 150), *OPTIMIZERS) == ([(4, 0, 150)], {})
    assert found(*OPTIMIZERS, pattern="mine") == ([], {})
    calls = [(ADAM, start, start + 20) for begin in (80, 280, 480) for start in (begin, begin + 21)]
    assert found(*calls)[0] == [(0, 121, 321), (1, 321, 521)]


@pytest.mark.parametrize(
    ("annotations", "steps", "left_out"),
    [
        # The first family that occurs wins.
        ("step 1 0..5; ProfilerStep#9 10..20; execute_model 30..40", "9 10..20", {}),
        # Order of time, not of the file.
        ("ProfilerStep#2 50..60; ProfilerStep#1 10..20", "1 10..20; 2 50..60", {}),
        # A nested step is left out and counted.
        ("step 1 0..100; step 2 10..20; step 3 100..200", "1 0..100; 3 100..200", NESTED),
        # Ranges of one number that overlap are one step.
        ("step 1 0..100; step 1 50..120; step 2 130..150", "1 0..120; 2 130..150", {}),
        # Step 2 begins behind the inner range's end and before the outer one's, which ends step 1.
        ("step 1 0..100; step 1 20..50; step 2 70..80; step 3 100..110", "1 0..100; 3 100..110", NESTED),
        # Repeated numbers are counted from 0, and so are steps of which one has no number.
        ("step 5 0..10; step 5 20..30; step 6 40..50", "0 0..10; 1 20..30; 2 40..50", {}),
        ("step 5 0..10; step 20..30", "0 0..10; 1 20..30", {}),
        ("step 1 5..5; step 2 6..9", "2 6..9", {"its annotation has no duration": 1}),
        # A number has nine digits at most.
        ("ProfilerStep#999999999 0..10", "999999999 0..10", {}),
        ("ProfilerStep#1000000000 0..10", "0 0..10", {}),
        # Of ranges that begin at once the outer one is the step.
        ("step 2 5..10; step 1 5..90; step 3 90..95", "1 5..90; 3 90..95", NESTED),
        # The range of step 1 within step 2 continues neither; step 2's second range continues step 2.
        ("step 1 0..10; step 2 10..30; step 1 20..40; step 2 25..35", "1 0..10; 2 10..35", NESTED),
        # Unnumbered ranges that overlap are not one step.
        ("step 0..10; step 5..20", "0 0..10", NESTED),
        # A host's clock may begin anywhere.
        ("step 1 -30..-20; step 2 -20..-10; step 3 -15..-12", "1 -30..-20; 2 -20..-10", NESTED),
    ],
)
def test_steps_of_annotations(annotations, steps, left_out):
    known = [(int(number), begin, end) for number, begin, end in spans(steps)]
    assert found(*spans(annotations)) == (known, left_out)


@pytest.mark.parametrize("names", [("step", "step"), ("ProfilerStep#4", "ProfilerStep#5")])
def test_steps_that_overlap_by_less_than_a_microsecond_are_neighbours(names):
    first, second = names
    (one, two), left_out = found((first, 0, 50_000), (second, 49_001, 90_000))
    assert (one[1:], two[1:], left_out) == ((0, 50_000), (50_000, 90_000), {})
    for begin, end in ((49_000, 90_000), (49_500, 50_000)):
        (one,), left_out = found((first, 0, 50_000), (second, begin, end))
        assert (one[1:], left_out) == ((0, 50_000), NESTED)


def steps_of_device(*told):
    return steps.device_marks([DeviceStep(*one) for one in told])


# Rows of (name, begin, end, number, closed).
ONE, TWO, THREE = ("1", 10, 20, 7), ("2", 50, 60, 8), ("3", 70, 80, 9)


@pytest.mark.parametrize(
    ("rows", "steps", "closed"),
    [
        # A step reaches to the next and the last to its own end, or to whatever ends last.
        ([TWO, ONE, ("3", 90, 95, 9)], [(7, 10, 50), (8, 50, 90), (9, 90, 95)], False),
        ([("1", 10, 99, 7), TWO], [(7, 10, 50), (8, 50, 99)], False),
        # Closed ones end where they say.
        ([(*ONE, True), TWO], [(7, 10, 20), (8, 50, 60)], False),
        ([ONE, (*TWO, True), THREE], [(7, 10, 50), (8, 50, 60), (9, 70, 80)], False),
        ([ONE, TWO, (*THREE, True)], [(7, 10, 50), (8, 50, 70), (9, 70, 80)], True),
        # Numbered rows go before modules.
        ([("jit_f", 0, 900), ONE], [(7, 10, 20)], False),
        # Of modules the one that takes longest counts, jit_f's 30 + 20 before jit_g's 45; numbers from 0 on.
        ([("jit_g", 200, 245), ("jit_f", 10, 40), ("jit_f", 100, 120)], [(0, 10, 100), (1, 100, 120)], False),
        ([("jit_g", 200, 255), ("jit_f", 10, 40), ("jit_f", 100, 120)], [(0, 200, 255)], False),
        # Of modules that take as long the first by name.
        ([("jit_g", 0, 10), ("jit_f", 20, 30)], [(0, 20, 30)], False),
        # Rows without duration are no steps; numbers that repeat are counted.
        ([("1", 10, 10, 7), ("2", 50, 51, 8)], [(8, 50, 51)], False),
        ([("1", 0, 10, 5), ("1", 20, 30, 5)], [(0, 0, 20), (1, 20, 30)], False),
    ],
)
def test_steps_of_the_device(rows, steps, closed):
    made = steps_of_device(*rows)
    columns = made.numbers.tolist(), made.starts.tolist(), made.ends.tolist()
    assert (list(zip(*columns, strict=True)), made.closed) == (steps, closed)
    assert steps_of_device(("1", 10, 10, 7)) is steps_of_device() is NO_MARKS


def test_own_pattern_with_and_without_a_number():
    assert found(("epoch 2 batch 4", 0, 9), ("ProfilerStep#1", 0, 9), pattern=r"epoch \d+ batch (\d+)")[
        0
    ] == [(4, 0, 9)]
    assert found(("fwd", 0, 9), ("fwd", 10, 19), pattern="fwd")[0] == [(0, 0, 9), (1, 10, 19)]
    # Own pattern that is none.
    with pytest.raises(UsageError, match="no regular expression"):
        steps.step_patterns("(")


FIRST, OPEN = (3, 110, 240, "closed"), (4, 240, 320, "open")
LAST, CUT = (4, 240, 260, "open"), "the file is cut before its end"
NO_KERNEL, LATER = {"no kernel was launched in it": 1}, {"its device work begins after the next step's": 1}
# Launched in step 3: [110, 150) and [160, 230); in step 4: [240, 260) and [250, 320).
TWO_STEPS = ((0, 0, 1, 1), (110, 160, 240, 250), (150, 230, 260, 320))
COPIED = {"kernel": (True, False, True)}


@pytest.mark.parametrize(
    ("rows", "more", "windows", "left_out"),
    [
        (TWO_STEPS, {}, [FIRST, OPEN], {}),
        # The order of events does not matter; events without a step are no edge.
        (((1, 0, 1, 0), (250, 160, 240, 110), (320, 230, 260, 150)), {}, [FIRST, OPEN], {}),
        (((-1, 0, 1, -1), (10, 110, 240, 900), (20, 150, 260, 950)), {}, [FIRST, LAST], {}),
        # Step 4's input is copied at [120, 130), while step 3 computes; its first kernel begins at 240.
        (((0, 1, 1), (110, 120, 240), (150, 130, 260)), COPIED, [FIRST, LAST], {}),
        # A copy ends the open window.
        (
            *(((0, 1, 1), (110, 240, 270), (150, 260, 290)), {"kernel": (True, True, False)}),
            *([FIRST, (4, 240, 290, "open")], {}),
        ),
        # A step with copies only has no window, nor one without device events.
        (((0, 1), (110, 240), (150, 260)), {"kernel": (True, False)}, [(3, 110, 150, "open")], NO_KERNEL),
        (((1, 1), (240, 250), (260, 320)), {}, [OPEN], NO_KERNEL),
        (((-1,), (5,), (9,)), {}, [], {"no kernel was launched in it": 2}),
        # Work that begins after the next step's, and a window without length.
        (((0, 1), (260, 240), (270, 320)), {}, [OPEN], LATER),
        (((0, 1), (240, 240), (250, 320)), {}, [OPEN], LATER),
        # A horizon leaves out what may not be whole; what ends there is.  The last step may have had more
        # events: a horizon behind all that is left proves nothing.
        *((TWO_STEPS, {"horizon": at}, [FIRST], {CUT: 1}) for at in (240, 250, 400)),
        (TWO_STEPS, {"horizon": 239}, [], {CUT: 2}),
    ],
)
def test_windows_from_the_first_kernel_a_step_launched_to_the_next_steps(rows, more, windows, left_out):
    """The last has no successor and is open."""
    assert windows_of(MARKS, *rows, **more) == (windows, left_out)
    assert windows_of(NO_MARKS, (), (), ()) == ([], {})


def test_each_window_ends_where_the_very_next_one_begins_and_periods_are_those_of_closed_ones():
    marks = Marks(times(3, 4, 5), times(100, 200, 320), times(200, 300, 400))
    rows = rows_of((0, 1, 2), (110, 240, 350), (150, 260, 380))
    windows, _, periods = steps.device_windows(marks, rows, None)
    assert [(w.start_ns, w.end_ns) for w in windows] == [(110, 240), (240, 350), (350, 380)]
    assert periods == steps.Periods(device_ns=120.0, host_ns=110.0)
    *_, periods = steps.device_windows(MARKS, rows_of((0, 1), (110, 240), (150, 260)), None)
    assert periods == steps.Periods(device_ns=130.0, host_ns=100.0)
    *_, periods = steps.device_windows(MARKS, rows_of((0,), (110,), (150,)), None)
    assert periods is None


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Step 3: own [110, 150) + [235, 240) = 45 of 65, with [160, 180) of no step; its kernel [235, 250)
        # reaches into step 4's window, where [240, 280) is step 4's own wherever it runs.
        (((0, -1, 0, 1), (110, 160, 235, 240), (150, 180, 250, 280)), [45 / 65, 1]),
        # A foreign kernel beside own ones takes time only where it is alone: step 3's late one begins after
        # the open window [240, 260), or reaches into it.
        (((0, 0, 1, 0), (110, 150, 240, 280), (150, 200, 260, 300)), [1, 1]),
        (((0, 1, 0), (110, 240, 250), (150, 260, 300)), [1, 1]),
        # Copies are no kernel time, of their own step [160, 200) neither, over which one of no step runs.
        (((0, 1, 1), (110, 120, 240), (150, 230, 260), (True, False, True)), [1, 1]),
        (((0, 0, -1, 1), (110, 160, 160, 240), (150, 200, 200, 260), (True, False, True, True)), [0.5, 1]),
        # Kernels of no step are nobody's own, in the last window, [240, 300), too: [260, 280) is of none.
        (((0, 1, -1, 1), (110, 240, 260, 280), (150, 260, 280, 300)), [1, 40 / 60]),
    ],
)
def test_purity_is_the_share_of_the_kernel_time_in_a_window_that_its_own_step_launched(rows, expected):
    """Unions, clipped to the window."""
    windows, _, _ = steps.device_windows(MARKS, rows_of(*rows), None)
    assert purities(windows) == [round(share, 9) for share in expected]


@pytest.mark.parametrize(
    ("marks", "horizon", "rows", "expected"),
    [
        # Step 3's kernel runs [180, 260), in step 4's annotation from 200 on; step 5 has no window.
        (
            *(Marks(times(3, 4, 5), times(100, 200, 300), times(200, 300, 400)), 350),
            *(((0, 1, 2), (180, 260, 290), (260, 290, 350)), {3: 1, 4: 0.3}),
        ),
        # Step 3 is cut: its kernel in step 4's window is a foreign one.
        (
            Marks(times(3, 4), times(200, 100), times(400, 300)),
            300,
            ((0, 1), (100, 150), (150, 200)),
            {4: 0.5},
        ),
        # A device that runs behind: step 3's kernel [180, 260), step 4's [260, 400).
        (MARKS, None, ((0, 1), (180, 260), (260, 400)), {3: 1, 4: 0.4}),
        # Unknown without kernels or launches.
        (MARKS, None, ((0,), (180,), (190,), (False,)), {3: None, 4: None}),
        (MARKS, None, None, {3: None, 4: None}),
    ],
)
def test_purity_of_the_hosts_annotations(marks, horizon, rows, expected):
    windows, _ = steps.annotation_windows(marks, horizon, rows=None if rows is None else rows_of(*rows))
    assert dict(zip((w.step for w in windows), purities(windows), strict=True)) == expected


def test_annotation_windows_and_horizon():
    whole = [Window(3, 100, 200, "annotation"), Window(4, 200, 300, "annotation")]
    assert steps.annotation_windows(MARKS, None) == (whole, {})
    assert steps.annotation_windows(MARKS, 300) == (whole, {})
    windows, left_out = steps.annotation_windows(MARKS, 299)
    assert (windows, dict(left_out)) == (whole[:1], {"the file is cut before its end": 1})
    # Step that holds an instant.
    assert MARKS.step_at(times(99, 100, 199, 200, 299, 300)).tolist() == [-1, 0, 0, 1, 1, -1]
    assert NO_MARKS.step_at(times(1, 2)).tolist() == [-1, -1]
    # What marks steps is kept.
    assert steps_of_device(("f", 0, 10), ("f", 20, 30)).source == "module"
    assert steps_of_device(("f", 0, 10, None, False, "graph")).source == "graph"


@pytest.mark.parametrize("source", ["module", "graph"])
def test_last_run_of_a_module_or_graph_is_open(source):
    runs = replace(MARKS, source=source)
    windows, _ = steps.annotation_windows(runs, None)
    assert [(w.step, w.source, w.open) for w in windows] == [(3, source, False), (4, source, True)]
    closed = replace(runs, closed=True)
    assert [w.open for w in steps.annotation_windows(closed, None)[0]] == [False, False]


def test_table():
    windows = [Window(7, 1, 5, "device", True, 0.25), Window(None, 0, 9, "whole_trace")]
    first, second = steps.steps_table(2, windows).to_pylist()
    assert first == {
        "rank": 2, "step": 7, "start_ns": 1, "end_ns": 5, "source": "device", "open": True, "purity": 0.25
    }  # fmt: skip
    assert second == first | {
        "step": None, "start_ns": 0, "end_ns": 9, "source": "whole_trace", "open": False, "purity": None
    }  # fmt: skip
    assert steps.steps_table(0, []).num_rows == 0


DEVICE, LEFT_OPEN = Window(5, 10, 20, "device"), Window(6, 20, 25, "device", True)
MARKED, WHOLE = Window(5, 10, 20, "annotation"), Window(None, 0, 30, "whole_trace")


@pytest.mark.parametrize(
    ("windows", "policy", "expected"),
    [
        *(([LEFT_OPEN, DEVICE], "steps", ("steps", [5], [6])), ([LEFT_OPEN], "steps", ("steps", [6], []))),
        ([WHOLE, MARKED], "steps", ("annotations", [5], [])),
        ([WHOLE, MARKED], "trace", ("trace", [None], [])),
    ],
)
def test_closed_windows_of_the_policy_asked_for_or_of_the_next_one(windows, policy, expected):
    """Open ones count where no other is there."""
    one, counted, left = steps.choose_windows(steps.steps_table(0, windows), policy)
    assert (one, counted["step"].to_pylist(), left["step"].to_pylist()) == expected
    assert steps.choose_windows(steps.steps_table(0, []), policy) is None


STEPS = 3
WINDOWS = ((0, 10), (10, 25), (25, 40))
ROW = st.tuples(st.integers(-1, STEPS - 1), st.integers(-5, 45), st.integers(0, 12), st.booleans())


def device_rows(rows):
    """Rows of step, start, duration and whether it is a kernel."""
    step, start, duration = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return DeviceRows(step.astype(np.int32), start, start + duration, np.array([r[3] for r in rows], bool))


def instants(rows):
    return {at for _, start, duration, _ in rows for at in range(start, start + duration)}


@given(rows=st.lists(ROW))
def test_where_steps_begin_and_end(rows):
    opening, ending = step_extents(device_rows(rows), STEPS)
    launched = [row for row in rows if row[0] >= 0]
    for step in range(STEPS):
        own = [row for row in launched if row[0] == step]
        assert opening.get(step) == min((start for _, start, _, kernel in own if kernel), default=None)
        assert ending.get(step) == max((start + lasts for _, start, lasts, _ in own), default=None)


@given(rows=st.lists(ROW), window=st.permutations([0, 1, -1]))
def test_shares_are_those_of_all_instants(rows, window):
    """A nanosecond at a time: of those in a window in which a kernel runs, those in which an own one does."""
    starts, ends = (np.array(bounds) for bounds in zip(*WINDOWS, strict=True))
    shares = own_shares(device_rows(rows), starts, ends, np.array(window, np.int32))
    kernels = [row for row in rows if row[3]]
    expected = []
    for number, (begin, end) in enumerate(WINDOWS):
        own = instants(row for row in kernels if row[0] >= 0 and window[row[0]] == number)
        busy = instants(kernels) & set(range(begin, end))
        expected.append(len(own & busy) / len(busy) if busy else None)
    assert shares == expected

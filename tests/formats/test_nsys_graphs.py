# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs that were traced whole: what is known of a capture, and what is said to be unknown."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.nsys_files import CALL, COPY, GRAPH, KERNEL, SESSION, call, kernel, nvtx, process, strings, write
from rich.console import Console, Group

import cclbench
from cclbench.findings.diagnosis import diagnose_run
from cclbench.formats.nsys.whole_graphs import begins_iteration
from cclbench.ground.errors import InputError
from cclbench.operator_table import operator_costs
from cclbench.present.headline import busy_with
from cclbench.present.kernels import kernels_of
from cclbench.present.partition import bars_of, by_rank
from cclbench.present.run_summary import fact_lines, summarise_run
from cclbench.present.terminal.run import first_screen
from cclbench.present.timeline import step_timeline

PRODUCT, REDUCTION = "sm90_xmma_gemm_bf16", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"
NAMES = strings(PRODUCT, REDUCTION, "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000")
GEMM, REDUCE, LAUNCH, GRAPH_LAUNCH = range(1, 5)
NS = 1e-9
FIVE = [f"time.{part}" for part in ("compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle")]
UNKNOWN = "traced as a whole: their kernels are not recorded (nsys: --cuda-graph-trace=node)"


def graph(start, end, correlation, *, executable=5, pid=10, device=0, stream=7):
    row = {"start": start, "end": end, "deviceId": device, "contextId": 1, "greenContextId": None}
    row |= {"streamId": stream, "correlationId": correlation, "globalPid": process(pid)}
    return row | {"graphId": 1, "graphExecId": executable}


def launches(*at, first=1, pid=10):
    """Launch calls of graphs, 5 ns each."""
    return [call(t, t + 5, first + n, name=GRAPH_LAUNCH, pid=pid) for n, t in enumerate(at)]


def ranges(*at):
    """Steps, each up to the next one's begin."""
    return [nvtx(a, b, f"step {n}") for n, (a, b) in enumerate(pairwise(at))]


@pytest.fixture
def run(tmp_path):
    """Metrics of an export of these tables."""
    known, store = {"StringIds": NAMES, "TARGET_INFO_SESSION_START_TIME": SESSION}, tmp_path / "store"
    return lambda name="trace", **tables: cclbench.run(
        write(tmp_path / f"{name}.sqlite", **known, **tables), store=store
    )


def own(run, metric, rank=None, stat=None):
    """The row about the whole run, or the whole of a rank."""
    wanted = dict.fromkeys(("step", "group", "collective", "category"))
    wanted |= {"metric": metric, "rank": rank, "stat": stat}
    (found,) = (row for row in run.rows if all(row[key] == value for key, value in wanted.items()))
    return found


def ns(run, metric, **keys):
    return round(own(run, metric, **keys)["value"] / NS, 6)


@pytest.mark.parametrize(
    ("launched", "expected"),
    [
        ("AAAA", "^^^^"),
        ("ABABA", "^ ^ ^"),  # a forward and a sampler
        ("abcabcab", "^  ^  ^ "),  # pieces of one model
        ("bcabcabca", "^  ^  ^  "),  # the same, from where the capture begins
        ("DDDTDDDTDD", "^   ^   ^ "),  # a draft, three times, and what checks it
        ("AAABBA", "^^^^^^"),  # another size of the batch
        ("abcabcdefdefabc", "^  ^  ^  ^  ^  "),  # pieces of two sizes
        ("cabcabcdefdef", " ^  ^  ^  ^  "),  # what the capture begins with was begun before it
        ("xAAA", " ^^^"),  # a graph that ran once is no repetition
        *(("abc", "   "), ("A", " ")),
    ],
)
def test_launches_that_repeat_begin_iterations(launched, expected):
    graphs = np.array([ord(one) for one in launched], np.int64)
    assert "".join("^" if begins else " " for begins in begins_iteration(graphs)) == expected


def back_to_back(count=10, busy=990, period=1000, **more):
    """Graphs of `busy` ns, one every `period`."""
    return [graph(100 + n * period, 100 + n * period + busy, n + 1, **more) for n in range(count)]


def test_a_capture_of_nothing_but_graphs_has_steps_and_says_what_it_lacks(run):
    """Ten graphs of 990 ns, one each 1,000 ns: nine steps of 1,000 ns and an open one."""
    done = run(**{GRAPH: back_to_back(), CALL: launches(*range(10, 110, 10))})
    assert done.record.ranks[0].facts.works_on == "device"
    steps = done.record.ranks[0].steps
    assert (steps.source, steps.found, steps.closed) == ("graph", 10, 9)
    assert own(done, "time.step")["window"] == "steps"
    assert (ns(done, "time.step"), own(done, "time.step")["status"]) == (1000, "ok")
    assert ns(done, "time.step", stat="max") == 1000
    assert [ns(done, metric) for metric in FIVE] == [990, 0, 0, 0, 10]
    assert [own(done, metric)["status"] for metric in FIVE] == ["partial"] * 4 + ["ok"]
    assert (ns(done, "time.graph_only"), own(done, "time.graph_only")["status"]) == (990, "ok")
    # Launched long before its stream is free: the device itself leaves the gaps.
    assert [ns(done, f"time.idle_{of}") for of in ("host", "device", "unknown")] == [0, 10, 0]
    busy = own(done, "compute.busy")
    assert (busy["value"], busy["status"], busy["coverage"]) == (pytest.approx(0.99), "partial", 0)
    assert busy["reason"] == f"9 CUDA graph launches {UNKNOWN}"
    assert f"9 CUDA graph launches {UNKNOWN}" in own(done, "time.idle")["reason"]
    for metric in ("compute.kernel_count", "compute.mean_kernel", "compute.category_share", "comm.time"):
        row = own(done, metric)
        assert (row["value"], row["status"]) == (None, "not_applicable"), metric
        assert row["reason"].endswith(UNKNOWN), metric
    lacking = [row for row in done.rows if row["status"] == "ok" and row["value"] is not None]
    assert {row["metric"].partition(".")[0] for row in lacking} == {"time"}


def test_what_runs_beside_graphs_is_told_apart_as_far_as_it_is_recorded(run):
    """Annotated steps of 400 ns; graphs 100-300, a product 250-350, an all-reduce 340-400, a copy 390-420."""
    copy = {"start": 390, "end": 420, "deviceId": 0, "streamId": 10, "correlationId": 4, "bytes": 8}
    copy |= {"globalPid": process(10), "copyKind": 1, "srcKind": 1, "dstKind": 2}
    first = {
        GRAPH: [graph(100, 300, 1), graph(500, 700, 6)],
        KERNEL: [
            kernel(250, 350, name=GEMM, streamId=8, correlationId=2),
            kernel(340, 400, name=REDUCE, streamId=9, correlationId=3),
        ],
        COPY: [copy],
        CALL: [*launches(50), *launches(460, first=6)],
        "NVTX_EVENTS": ranges(40, 450, 800),
    }
    first[CALL] += [call(60 + n, 61 + n, 2 + n, name=LAUNCH) for n in range(3)]
    done = run(**first)
    steps = done.record.ranks[0].steps
    assert (steps.source, steps.found, steps.closed) == ("device", 2, 1)
    assert ns(done, "time.step") == 400  # from a graph's begin to the next step's
    assert [ns(done, metric) for metric in FIVE] == [240, 10, 50, 20, 80]
    assert ns(done, "time.graph_only") == 150  # up to where the product begins
    parts = {stat: ns(done, "time.step_parts", stat=stat) for stat in ("compute", "graphs", "exposed_copy")}
    assert parts == {"compute": 75, "graphs": 175, "exposed_copy": 20}  # 250-300 is half of each
    assert own(done, "compute.kernel_count")["status"] == "not_applicable"
    # the graph of 460 was launched after the copy's end, and the gap is the host's
    assert ns(done, "time.idle_host") == 80


def test_metrics_of_kernels_are_partial_where_graphs_are_few(run):
    """A graph of 50 ns beside kernels of 950: the kernels' figures hold for 95 % of the time."""
    kernels = [kernel(100 + n * 100, 195 + n * 100, name=GEMM, correlationId=n + 2) for n in range(10)]
    done = run(**{GRAPH: [graph(1100, 1150, 1)], KERNEL: kernels, CALL: launches(50)})
    assert own(done, "time.step")["window"] == "trace"
    count = own(done, "compute.kernel_count")
    assert (count["value"], count["status"]) == (10, "partial")
    assert (count["coverage"], count["coverage_time"]) == (pytest.approx(10 / 11), pytest.approx(0.95))
    assert own(done, "compute.dominant_kernel")["status"] == "partial"


def test_graphs_that_are_less_than_half_of_the_time_mark_no_steps(run):
    """A graph in each of three passes over kernels that take longer may be of any length of a step."""
    graphs = [graph(100 + n * 1000, 200 + n * 1000, n + 1) for n in range(3)]
    kernels = [kernel(300 + n * 1000, 450 + n * 1000, name=GEMM, correlationId=0) for n in range(3)]
    done = run(**{GRAPH: graphs, KERNEL: kernels, CALL: launches(10, 20, 30)})
    assert done.record.ranks[0].steps.source is None
    assert (own(done, "time.step")["window"], ns(done, "time.step")) == ("trace", 2350)


def decoding(graphs=True, marked=False, pid=10, device=0):
    """Twelve iterations: eight of a batch and four of a smaller one, each a graph or two products; a sampler.

    An iteration is a graph of 900 ns (of the smaller batch 700), 20 ns later a sampler of 50; the host waits
    30 ns before it launches the next.
    """
    at, calls, graph_rows, kernels, begins = 100, [], [], [], []
    on = {"pid": pid, "deviceId": device}
    for n in range(12):
        executable, busy = (5, 900) if n < 8 else (6, 700)
        first = 10 * n + 1
        calls.append(call(at - 15, at - 10, first, name=GRAPH_LAUNCH if graphs else LAUNCH, pid=pid))
        begins.append(at - 20)
        if graphs:
            graph_rows.append(graph(at, at + busy, first, executable=executable, pid=pid, device=device))
        else:
            calls.append(call(at - 9, at - 7, first + 1, name=LAUNCH, pid=pid))
            half = busy // 2
            for number, begin in ((first, at), (first + 1, at + half + 40)):
                kernels.append(kernel(begin, begin + half, name=GEMM, correlationId=number, **on))
            busy += 40
        calls.append(call(at + 5, at + 8, first + 2, name=LAUNCH, pid=pid))
        end = at + busy + 70
        kernels.append(kernel(end - 50, end, name=GEMM, correlationId=first + 2, **on))
        at = end + 30
    tables = {KERNEL: kernels, CALL: calls} | ({GRAPH: graph_rows} if graphs else {})
    return tables | ({"NVTX_EVENTS": ranges(*begins, at)} if marked else {})


def test_iterations_of_several_batch_sizes_are_the_steps(run):
    """Eight periods of 1,000 ns and three of 800; the last has no end."""
    done = run(**decoding())
    assert done.record.ranks[0].steps.closed == 11
    assert ns(done, "time.step") == round((8 * 1000 + 3 * 800) / 11, 6)
    assert ns(done, "time.step", stat="p50") == 1000
    assert ns(done, "time.idle") == 50
    assert ns(done, "time.graph_only") == round((8 * 900 + 3 * 700) / 11, 6)
    listed = {row["key"]: row["calls"] for row in operator_costs(done, by="kernel").table}
    calls = {name: calls for name, calls in listed.items() if "graph" in name}
    assert calls == {"CUDA graph 5": 8, "CUDA graph 6": 3}


def first_words(run):
    """What a person reads first."""
    parts = first_screen(run.record, run.figures, run.window, diagnose_run(run).findings, unicode=True)
    lines = Console(width=80, color_system=None).render_lines(Group(*parts))
    return " ".join(" ".join(part.text for part in line) for line in lines)


def test_people_read_that_graphs_are_unknown_inside(run):
    done = run(**decoding())
    words = " ".join(first_words(done).split())
    assert "step 11 incomplete, not averaged" in words
    assert "as CUDA graph launches repeat" in words
    assert "CUDA graphs, unknown inside" in words
    summary = summarise_run(done.record, done.figures.scope._replace(steps=[], open_steps=[]), "steps")
    assert "11 of them complete" in dict(fact_lines(done.record, summary))["steps"]
    assert "compute only" not in words
    (bar,) = bars_of(by_rank(list(done.figures.summary)), finer=lambda _: True)
    seconds = {one.label: round(value / NS) for one, value in bar.slices if value}
    known = {"compute outside CUDA graphs": 50, "CUDA graphs, traced whole": round((8 * 900 + 3 * 700) / 11)}
    assert seconds == known | {"host-bound idle": 30, "idle, waits on device": 20}
    (lanes,) = step_timeline(done, step=0).lanes
    assert [(lane.ends - lane.starts).tolist() for lane in (lanes.compute, lanes.graphs)] == [[50], [900]]
    listed = [(time.name, time.calls) for time in kernels_of(done, "steps").times]
    assert listed == [("CUDA graph 5", 8), ("CUDA graph 6", 3), (PRODUCT, 11)]


def test_what_nothing_is_found_in_is_said_to_be_unknown(run):
    assert busy_with(run(**{GRAPH: back_to_back(busy=999), CALL: launches(*range(10, 110, 10))}).figures) == (
        "CUDA graphs traced as a whole run in 99.9 % of it: their kernels are not recorded."
    )


def test_processes_and_devices_have_graphs_of_their_own(run):
    one, two = decoding(), decoding(pid=11, device=1)
    for row in two[GRAPH]:
        row["end"] -= 100
    done = run(**{table: one[table] + two[table] for table in one})
    assert [rank.rows["graph"] for rank in done.record.ranks] == [12, 12]
    first, second = (ns(done, "time.graph_only", rank=rank) for rank in (0, 1))
    assert first - second == pytest.approx(100)


def test_a_process_with_two_devices_repeats_what_takes_longest(run):
    """Ten graphs of 990 ns on one device, ten of 400 ns on another between their begins."""
    others = [row | {"deviceId": 1, "start": row["start"] + 500} for row in back_to_back(busy=900)]
    done = run(**{GRAPH: back_to_back() + others, CALL: launches(*range(10, 110, 10))})
    assert (done.record.ranks[0].steps.found, ns(done, "time.step")) == (10, 1000)
    assert ns(done, "time.graph_only") == 990  # what the other device does lies within it


def test_findings_of_graphs_are_about_the_host_and_promise_nothing(run):
    done = run(**decoding())
    found = diagnose_run(done).findings
    assert {one.name for one in found} <= {"host_bound", "device_stalls", "open_step"}
    assert any(one.name == "host_bound" for one in found)
    for one in found:
        assert one.gain_s is None
        assert not any("graph" in action for action in one.try_ if one.name == "host_bound")
    with pytest.raises(InputError, match="12 CUDA graph launches were traced whole"):
        cclbench.whatif(done, "kernels.time=0")


@pytest.mark.parametrize(("marked", "window"), [(True, "steps"), (False, "trace")])
def test_a_pair_of_which_one_is_graphs_is_compared_by_busy_and_idle(run, tmp_path, marked, window):
    """The graph saves the 40 ns between two products; the sampler's 20 and the host's 30 ns remain."""
    eager = run("eager", **decoding(graphs=False, marked=marked))
    graphs = run("graphs", **decoding(marked=marked))
    found = cclbench.compare(eager, graphs, store=tmp_path / "store")
    assert [one.window_policy for one in found.subjects] == [window, window]
    (pair,) = found.versus
    assert pair.ratio is not None
    assert pair.work.status == "unknown"
    times = {change.part: (change.before_s, change.after_s) for change in pair.changes}
    assert list(times) == ["busy", "idle_host", "idle_other"]
    # Of all but the last: eleven steps, or twelve iterations of which eleven are followed by a gap.
    busy = (950 * 8 + 750 * 3) / 11 if marked else 950 * 8 + 750 * 4
    assert times["busy"] == (pytest.approx(busy * NS), pytest.approx(busy * NS))
    apart = 40 if marked else 40 * 12
    assert pair.change_ns == -apart
    assert sum(change.change_ns for change in pair.changes) == pair.change_ns
    before, after = (sum(times[part][side] for part in ("idle_host", "idle_other")) for side in (0, 1))
    assert before - after == pytest.approx(apart * NS)
    assert any("CUDA graphs of B were traced whole" in words for words in found.warnings)
    assert "compute" not in pair.words

# SPDX-License-Identifier: Apache-2.0
"""Pages and reports that commands write."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call
from helpers.page_commands import blocks, here, printed_by
from helpers.trees import files
from helpers.typed import figures, record
from rich.console import Console

from cclbench.findings.culprits import Culprit
from cclbench.findings.finding import Finding
from cclbench.findings.kept_gains import GAINS_FILE
from cclbench.formats import READERS
from cclbench.present.run_summary import summarise_run
from cclbench.present.terminal import run as answer
from cclbench.record.results import Results

from .conftest import words_of

Row = dict[str, Any]


def text_of(parts: Any, *, width: int = 80) -> str:
    """The page as plain text of 80 columns."""
    console = Console(width=width, color_system=None, highlight=False, markup=False, force_terminal=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def page(manifest: dict[str, Any], rows: list[Row], window: str, **options: Any) -> Any:
    return answer.run_page(record(manifest), Results.from_rows(figures(rows)), window, **options)


def chart(rows: list[Row], **options: Any) -> Any:
    return answer.bar_chart(figures(rows), **options)


@pytest.fixture
def shown(manifest: dict[str, Any], rows: list[Row]) -> str:
    return text_of(page(manifest, rows, "steps"))


LINES = """\
run      tiny-0123abcd  traces/tiny
card     none: metrics that need one name the missing field
ranks    0-1; 2 of 4 ranks have a trace
steps    3 (steps 3-5), as the device ran them; left out on 2 ranks: cut by the
device   NVIDIA H100 80GB HBM3
traces   PyTorch Profiler 2.13.0
library  nccl 2.27.3
matched  36 of 42 parts of collectives across ranks; 2: its peer is unknown; 4:
         no other rank's trace has it; 1 of 18 collectives lack a rank
clocks   corrected on rank 1, offset up to 250 µs, drift up to 20.2 ppm;
         residual up to 901 ns
kernels  1.2 % of their time is unclassified: my_kernel<float>[1]
note     rank 1: kernels without a launch: 3
Time: where a step goes                    run  min .. max over ranks
  time.step                             100 ms  50.0 ms .. 100 ms
    p50 90.0 ms, cv 7.0 %
  time.exposed_comm                    15.0 ms  10.0 ms .. 20.0 ms
  comm.volume                          7.00 GB
    all_gather                         4.00 GB
  memory.hbm_utilization               ~50.0 %  40.0 % .. 60.0 %       modelled
    ... 4 more: -v or --json
- throughput.tokens, compute.mfu: the run has no workload card
- serving.ttft: a kernel trace alone cannot give it
- compute.achieved_flops: more than the peak
- memory.hbm_utilization: from op shapes
"""


def test_what_is_found_and_metrics_by_topic(manifest: dict[str, Any], rows: list[Row], shown: str) -> None:
    assert [line for line in LINES.splitlines() if line not in shown.splitlines()] == []
    assert shown.count("compute.achieved_flops") == 1, "a failed metric has no number"
    failed = shown[shown.index("\nFailed") : shown.index("\nNotes")]
    assert "compute.achieved_flops" in failed
    for verbosity in (-1, 0, 1):
        text = text_of(page(manifest, rows, "steps", verbosity=verbosity))
        assert max(map(len, text.splitlines())) <= 80


def test_findings_of_a_cpu_card_and_cut_file(manifest: dict[str, Any], entry: Any, rows: list[Row]) -> None:
    cut = {"file": "traces/tiny/rank0.json", "byte": 1234567, "reason": "the file ends early"}
    cut |= {"horizon_ns": 5}
    steps = {"found": 2, "closed": 2, "source": "annotation", "left_out": {}}
    own = {"facts": {"works_on": "host", "backend": "gloo"}, "unclassified": {"share": None, "names": []}}
    manifest["ranks"] = [entry(0, truncated=cut, steps=steps, notes=["odd"], **own)]
    manifest["ranks"][0]["collectives"]["libraries"] = {"gloo": 3}
    manifest["card"] = {"id": "tiny", "path": "workload_cards/tiny.yaml", "description": None}
    lines = text_of(page(manifest, rows, "steps")).splitlines()
    for line in (
        "card     tiny  workload_cards/tiny.yaml",
        "device   CPU",
        "library  gloo",
        "steps    3 of 2 (steps 3-5), as annotated on the host",
        "cut      rank0.json: the file ends early at byte 1,234,567; later data is lost",
        "note     odd",
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith("kernels")]


def test_one_rank_cannot_tell_waiting_apart(manifest: dict[str, Any], entry: Any, rows: list[Row]) -> None:
    """Where there is nothing to match, nothing is said of it."""
    clocks = manifest["clocks"]["ranks"][:1]
    manifest["ranks"] = [entry(0)]
    manifest["clocks"] = {"reference_ns": 0, "ranks": []}
    manifest["matching"] |= {"matched": 0, "instances": 0, "complete": 0, "partial": 0, "rows": 21}
    manifest["matching"]["unmatched"] = {"no other rank's trace has it": 21}
    text = words_of(text_of(page(manifest, rows, "steps")))
    said = "matched 0 of 21 parts of collectives across ranks; 21: no other rank's trace has it; "
    assert f"{said}waiting and transfer cannot be separated" in text
    assert "clocks" not in text
    manifest["matching"] |= {"rows": 0, "matched": 0, "unmatched": {}}
    manifest["clocks"]["ranks"] = clocks
    lines = text_of(page(manifest, rows, "steps")).splitlines()
    assert not [line for line in lines if line.startswith("matched")]
    assert "clocks   not corrected, none exceeds its uncertainty; residual up to 900 ns" in lines


def test_quiet_prints_the_table_alone_with_the_split_of_exposed_communication_behind_it(
    manifest: dict[str, Any], rows: list[Row], row: Callable[..., Row]
) -> None:
    split = [row(f"time.exposed_{part}", 0.005) for part in ("unmatched", "transfer", "wait")]
    quiet = text_of(page(manifest, [*rows, *split], "steps", verbosity=-1))
    assert quiet.startswith("Time: where a step goes")
    assert "Not applicable" not in quiet
    names = [line.split()[0] for line in quiet.splitlines() if line.startswith("  time.")]
    own = "step compute_only overlapped exposed_comm exposed_wait exposed_transfer exposed_unmatched"
    assert names == [f"time.{name}" for name in (*own.split(), "exposed_copy", "idle")]


def test_a_fall_back_to_the_whole_trace_is_said(manifest: dict[str, Any], row: Callable[..., Row]) -> None:
    whole = [row("time.step", 0.5, window="trace")]
    assert "steps    none used: figures are for the whole trace" in text_of(page(manifest, whole, "trace"))


def test_bars_are_in_proportion_and_legible_without_colour(rows: list[Row]) -> None:
    header, rank0, rank1, legend = (line.plain for line in chart(rows, unicode=False))
    # Rank 0's 100 ms are 36 cells: parts end at 40, 50, 70, 75, 100 ms, so at cells 14.4, 18, 25.2, 27, 36.
    assert rank0[8:44] == "#" * 14 + "%" * 4 + "=" * 7 + "-" * 2 + "." * 9
    # Rank 1's 50 ms are 18: 25, 30, 40, 40, 50 ms end at cells 9, 10.8, 14.4, 14.4, 18.
    assert rank1[8:44] == "#" * 9 + "%" * 2 + "=" * 3 + "." * 4 + " " * 18
    assert rank0.split()[-7:] == ["100", "ms", "40", "10", "20", "5", "25"]
    assert rank1.split()[-7:] == ["50.0", "ms", "50", "10", "20", "0", "20"]
    assert header.split() == ["step", "#", "%", "=", "-", ".", "%"]
    assert legend == "# compute only   % overlapped   = exposed comm.   - exposed copy   . idle"
    glyphs = list(chart(rows, unicode=True))[-1].plain.split("   ")
    assert len({word[0] for word in glyphs}) == 5


def parts_of(row: Callable[..., Row], rank: int, seconds: float) -> list[Row]:
    names = ("compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle")
    return [row(f"time.{name}", seconds / 5, rank=rank) for name in names]


def test_of_many_ranks_the_slowest_and_fastest_are_shown(row: Callable[..., Row]) -> None:
    rows = [one for rank in range(40) for one in parts_of(row, rank, 1.0 + rank)]
    lines = [line.plain for line in chart(rows, unicode=True)]
    named = [int(line.split()[1]) for line in lines if line.startswith("rank ")]
    assert named == [*range(8), *range(32, 40)]
    assert "24 ranks between the longest and the shortest window not shown (-v: all)" in lines
    every = [line.plain for line in chart(rows, unicode=True, every_rank=True)]
    assert len([line for line in every if line.startswith("rank ")]) == 40
    assert list(chart([row("time.idle", 1.0, rank=0), row("time.step", 2.0)], unicode=True)) == []


def test_the_largest_parts_come_first_and_finer_ones_only_when_asked(
    manifest: dict[str, Any], rows: list[Row], shown: str
) -> None:
    categories = [line.split()[0] for line in shown.splitlines() if line.startswith("    c") and "%" in line]
    assert [name for name in categories if name != "cv"] == ["c9", "c8", "c7", "c6", "c5"]
    assert "all_gather 0-1" not in shown
    verbose = text_of(page(manifest, rows, "steps", verbosity=1))
    assert "    all_gather 0-1                     2.00 GB" in verbose
    assert "    rank 1                             50.0 ms" in verbose
    assert "rank 0   rank0.json.gz (2.50 MB, kineto): 1,000 kernel, 12 copy, 20,000 op;" in verbose


def test_names_are_cut_in_the_middle_and_no_markup(manifest: dict[str, Any], row: Callable[..., Row]) -> None:
    """Nor do they steer the terminal."""
    kernel = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8"
    manifest["notes"] = ["from \x1b[31mred\x07"]
    rows = [
        row("compute.dominant_kernel", 0.5, "1", category=f"void cutlass::Kernel<{kernel}>(Params)"),
        row("compute.category_share", 0.4, "1", category="[red]k[/red][/]"),
        row("compute.category_share", 0.3, "1", category="\x1b]0;title\x07", reason="\x9b31m"),
    ]
    text = text_of(page(manifest, rows, "steps"))
    (line,) = (line for line in text.splitlines() if "50.0 %" in line)
    assert line.startswith("    void cutlass...align8>(Params) ")
    assert line.index("50.0 %") < 60
    assert "[red]k[/red][/]" in text
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "from \\x1b[31mred" in text


def test_a_summary_names_what_is_in_figures(manifest: dict[str, Any], entry: Any, rows: list[Row]) -> None:
    """What ranks say alike but for its numbers is one note."""
    scope = Results.from_rows(figures(rows)).scope
    found = summarise_run(record(manifest), scope, "steps")
    assert (found.ranks, found.ranks_found, found.world_size) == ([0, 1], [0, 1], 4)
    assert (found.steps, found.window, found.windows) == ([3, 4, 5], "steps", ["steps"])
    assert (found.accelerators, found.libraries) == (["NVIDIA H100 80GB HBM3"], ["nccl 2.27.3"])
    assert found.unclassified_share == 0.012
    assert found.notes == ["rank 1: kernels without a launch: 3"]
    manifest["ranks"] = [
        entry(0, notes=["stream 7 lost 1,200 of 5,000 rows", "odd"]),
        entry(1, notes=["stream 7 lost 900 of 5,000 rows", "stream 13 lost 8 of 5,000 rows", "sm_90 only"]),
        entry(2, notes=["odd", "sm_80 only"]),
    ]
    expected = ["rank 0-1: stream 7 to 13 lost 8 to 1,200 of 5,000 rows", "rank 0, 2: odd"]
    expected += ["rank 1: sm_90 only", "rank 2: sm_80 only"]
    assert summarise_run(record(manifest), scope, "steps").notes == expected


def first_screen(manifest: dict[str, Any], rows: list[Row], *causes: Finding) -> str:
    return text_of(answer.first_screen(record(manifest), Results.from_rows(figures(rows)), "steps", causes))


ABOUT = {"confidence": "high", "because": "it is recorded", "claim": "It waits.", "lost_s": 0.01}
ITEM = {"name": "aten::item", "kind": "op", "rank": 0, "count": 8, "total_s": 0.01, "longest_s": 0.001}
CULPRIT = Culprit(**ITEM, share=0.5, steps=1, of_steps=1)  # type: ignore[arg-type]
GAIN: Any = {"gain_s": (0.02, 0.03), "gain_share": 0.3, "culprit": CULPRIT, **ABOUT}


def test_the_first_line_says_how_long_and_what_holds_it(manifest: dict[str, Any], rows: list[Row]) -> None:
    gain = Finding(name="host_bound", **GAIN)
    first = words_of(first_screen(manifest, rows, gain).split("run  ")[0])
    said = "A step takes 100 ms; up to 30.0 % of it to gain."
    assert first == f"{said} The host is too slow for the device (8 × aten::item)."
    unknown = Finding(name="device_stalls", no_gain="it is unknown", **ABOUT)  # type: ignore[arg-type]
    stalls = words_of(first_screen(manifest, rows, unknown, gain).split("run  ")[0])
    assert stalls.startswith("A step takes 100 ms; 10.0 ms of it, gain unknown. The device is idle although")
    screen = first_screen(manifest, [row | {"window": "trace"} for row in rows])
    assert screen.startswith("The capture takes 100 ms.\n")
    assert "\ncapture                          100 ms" in screen


def test_without_communication_long_kernels_show(manifest: dict[str, Any], row: Callable[..., Row]) -> None:
    shares = {"void at::native::reduce<float>(int)": 0.5, "gemm": 0.4, "softmax": 0.3}
    kernels = [row("compute.dominant_kernel", share, "1", category=name) for name, share in shares.items()]
    few = [row("memory.hbm_utilization", 0.0004, "1"), row("overlap.ratio", 0.0, "1")]
    roof = row("compute.roofline_efficiency", 0.4, "1", coverage=0.5, coverage_time=0.75)
    found = [row("time.step", 0.1), row("comm.volume", 0.0, "B"), *few, *kernels, roof]
    screen = first_screen(manifest, found)
    assert "of all kernels' time (FLOPs and bytes known for 75.0 %)" in screen
    listed = [line.split() for line in screen.splitlines() if line.startswith("  ") and "0 %" in line]
    assert listed == [["50.0", "%", "reduce<float>"], ["40.0", "%", "gemm"], ["30.0", "%", "softmax"]]
    assert "comm.volume" not in screen
    assert "hbm_utilization" not in screen
    assert "overlap.ratio                       0 %" in screen


def test_notes_are_whole_missing_figures_first(manifest: dict[str, Any], entry: Any, rows: list[Row]) -> None:
    long = "kernels have their own colours in this trace, which is of no importance to any figure at all"
    manifest["ranks"] = [entry(0, notes=[long, "7 rows lost"])]
    manifest["notes"] = ["traces of 1 of 4 ranks: the others are missing, not assumed"]
    words = words_of(first_screen(manifest, rows))
    assert f"note 7 rows lost note {long}" in words
    assert "not assumed" not in words


def test_a_step_time_that_is_no_bars_is_explained(row: Callable[..., Row]) -> None:
    """Ranks 0 and 1 are slowest in turn: 120 ms on average, 100 ms each."""
    bars = [one for rank in (0, 1) for one in parts_of(row, rank, 0.1)]
    last = [list(chart([*bars, row("time.step", s)], unicode=False))[-1].plain for s in (0.12, 0.1)]
    assert last[0] == "Bars: means of each rank. time.step, 120 ms: mean of each step's slowest rank."
    assert last[1].startswith("# compute only")


def test_a_run_as_a_page_says_that_its_only_step_is_open(
    call: Call, trace: Path, tmp_path: Path, document: dict[str, Any]
) -> None:
    path = tmp_path / "run.html"
    answer = call("report", trace, "-o", path)
    assert (answer.code, answer.out, answer.err) == (0, "", f"wrote {path}\n")
    text = path.read_text(encoding="utf-8")
    # the kernel table, a metric, what is missing and why
    for words in ("ampere_sgemm_128x64_nn", "time.exposed_comm", "needs a workload card"):
        assert words in text
    rows = document["traceEvents"]
    document["traceEvents"] = [row for row in rows if row["name"] != "ProfilerStep#1"]
    trace.write_text(json.dumps(document))
    assert call("report", trace, "-o", tmp_path / "run.html").code == 0
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "last step incomplete: its end is not in the trace" in text


def test_a_report_adds_its_replay_to_the_store_alone(call: Call, trace: Path, tmp_path: Path) -> None:
    assert call("run", trace, "-q").code == 0
    (run,) = (path for path in (tmp_path / "store").iterdir() if path.is_dir())
    before = files(run)
    assert call("report", run.name, "-q", "-o", tmp_path / "a.html").code == 0
    after = files(run)
    assert {name for name in after if after[name] != before.get(name)} == {"results.parquet", GAINS_FILE}
    assert call("report", trace, "-q", "-o", tmp_path / "b.html").code == 0
    assert call("run", trace, "-q").code == 0
    assert files(run) == after
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_picture_of_one_step(call: Call, stored: str, trace: Path, tmp_path: Path) -> None:
    """As from a run in the store, in every form."""
    for suffix, begin in (("png", b"\x89PNG\r\n"), ("svg", b"<?xml version"), ("pdf", b"%PDF-")):
        path = tmp_path / f"picture.{suffix}"
        answer = call("timeline", trace, "-o", path)
        assert (answer.code, answer.out, answer.err) == (0, "", f"wrote {path}\n")
        assert path.read_bytes().startswith(begin)
    assert call("timeline", stored, "-o", tmp_path / "a.png").code == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "picture.png").read_bytes()


def test_the_picture_names_step_rank_and_what_it_lacks(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    assert call("timeline", trace, "-o", path, "--step", 1, "--ranks", 0).code == 0
    text = path.read_text()
    # One rank of two: nothing says when the other came.
    lacks = "waiting and transfer cannot be separated"
    for words in (": step 1<", "rank 0", lacks, "communication, not matched"):
        assert words in text


PAGE = "is-it-the-network-or-the-straggler.md"


def plain(text: str) -> list[str]:
    """Lines without what differs from one version of cclbench to the next: the hash in a run's id."""
    return [re.sub(r"dlrm-[0-9a-f]{8}", "dlrm-ID", line).rstrip() for line in text.splitlines()]


def test_every_figure_of_the_page_is_a_commands(repository: Path, test_data: Path, tmp_path: Path) -> None:
    shutil.copytree(test_data / "kineto" / "dlrm_8xv100", tmp_path / "traces" / "dlrm")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    found = list(blocks((repository / "docs" / PAGE).read_text()))
    assert [kind for kind, _, _ in found].count("sh") == 9
    printed: list[str] = []
    for kind, _, block in found:
        if kind == "sh":
            printed = plain(printed_by(block, tmp_path, here(tmp_path)))
        elif kind == "text":
            assert [line for line in plain(block) if line not in [*printed, "..."]] == []
    assert (tmp_path / "docs" / "images" / "dlrm-timeline.png").stat().st_size < 200_000


def test_links_and_pictures_of_the_docs_are_there(repository: Path) -> None:
    for page in (repository / "README.md", *(repository / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_reader_is_documented_with_how_to_capture_it(repository: Path) -> None:
    page = (repository / "docs" / "what-cclbench-reads.md").read_text()
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    rows = {name: f"| `{name}` | {READERS.get(name).capture} |" for name in READERS}
    assert [name for name, row in rows.items() if row not in without_links] == []

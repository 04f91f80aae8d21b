# SPDX-License-Identifier: Apache-2.0
"""Jobs by NCCL's logs alone: who is in which communicator, what was called, between whom, what is missing."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.nccl_job import Process, fsdp2_pp4, interleaved
from rich.console import Console

import cclbench
from cclbench.comparison.build import run_subject
from cclbench.present.page import run_page
from cclbench.present.terminal.run import first_screen
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries

MIB = 1 << 20


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Run]:
    """A run of a folder of those files."""

    def ran(files: Mapping[str, str | bytes]) -> Run:
        folder = tmp_path / f"job-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return cclbench.run(folder, store=tmp_path / "store", metrics=["comm.*"])

    return ran


def a_file_each(job: Sequence[Process]) -> dict[str, str]:
    return {f"nccl-{one.pid}.log": one.text for one in job}


def values(run: Run, metric: str, **keys: Any) -> dict[tuple[Any, ...], float]:
    """A metric's numbers that those keys narrow, by group, kind, category, rank and stat."""
    found = {}
    for row in run.rows:
        asked = row["metric"] == metric and all(row[key] == value for key, value in keys.items())
        if asked and row["value"] is not None:
            told = tuple(row[key] for key in ("group", "collective", "category", "rank", "stat"))
            found[told] = row["value"]
    return found


def own(run: Run, metric: str, stat: str | None = None) -> float | None:
    """The run's own number."""
    return values(run, metric, stat=stat).get((None, None, None, None, stat))


def calls(run: Run) -> Counter[tuple[Any, ...]]:
    """Rows of `timings` without files and numbers of communicators."""
    of_call = ("rank", "kind", "group", "group_size", "seq", "src_rank", "dst_rank", "dtype", "bytes")
    columns = (*of_call, "library")
    return Counter(tuple(row[name] for name in columns) for row in run.evidence("timings").to_pylist())


def missing_calls(run: Run) -> dict[str, Any]:
    """The row of the one group that lacks calls."""
    (told,) = (r for r in run.rows if r["metric"] == "comm.missing_calls" and r["group"] and not r["stat"])
    return told


def test_fsdp_in_a_pipeline(ran: Callable[..., Run]) -> None:
    """Three steps: of a rank 3 × (all-gather, reduce-scatter, 2 all-reduces), 4 transfers an edge and way."""
    run = ran(a_file_each(fsdp2_pp4()))
    # 8 ranks × 3 × 4 collectives, and 3 × 3 edges × 2 pipelines × 2 ways × 2 micro-batches × 2 ends.
    assert own(run, "comm.count", "total") == 96 + 144
    assert own(run, "comm.count") == 30
    groups = {row["group"]: row["ranks"] for row in run.groups().to_pylist()}
    known = {"0-7": [*range(8)], "0-6:2": [0, 2, 4, 6], "1-7:2": [1, 3, 5, 7]}
    assert groups == known | {f"{first}-{first + 1}": [first, first + 1] for first in (0, 2, 4, 6)}
    count = values(run, "comm.count", stat="total", category=None)
    volume = values(run, "comm.volume", stat="total", category=None)
    for metric, expected in (
        (count, {("0-1", "all_gather"): 6, ("0-1", "all_reduce"): 6, ("0-7", "all_reduce"): 24}),
        # An all-gather of two ranks ends with 2 · 2^20 · 2 B, a reduce-scatter begins with 2 · 2^20 · 4 B.
        (volume, {("0-1", "all_gather"): 6 * 4 * MIB, ("6-7", "reduce_scatter"): 6 * 8 * MIB}),
        (volume, {("0-7", "all_reduce"): 24 * 4, ("0-6:2", "send"): 36 * MIB}),
    ):
        for (group, kind), value in expected.items():
            assert metric[group, kind, None, None, "total"] == value
    assert values(run, "comm.count", rank=0, collective=None, group=None)[None, None, None, 0, None] == 24
    sizes = values(run, "comm.count", group="0-1", collective="all_gather", stat="total")
    assert sizes["0-1", "all_gather", "4MiB-16MiB", None, "total"] == 6
    # 9 edges one way: 3 steps × 2 micro-batches.
    assert own(run, "comm.edges") == 12 * 6
    assert own(run, "comm.edges", "unmatched") == 0
    edges = values(run, "comm.edges", stat=None, rank=None)
    assert edges[None, "send", "0->2", None, None] == edges[None, "recv", "0->2", None, None] == 6
    assert edges[None, "send", "2->0 1MiB", None, None] == 6
    assert (None, "send", "0->1", None, None) not in edges
    assert values(run, "comm.edges", stat="bytes")[None, "recv", "5->7", None, "bytes"] == 6 * MIB
    assert own(run, "comm.missing_calls") == 0
    assert run.record.notes == []
    row = next(row for row in run.rows if row["metric"] == "comm.count" and row["rank"] is None)
    assert (row["source"], row["reason"]) == (
        "nccl_log",
        "everything that the files list: 240 calls of 8 ranks on 11 communicators; the files mark no steps",
    )
    (time,) = (row for row in run.rows if row["metric"] == "comm.time")
    assert (time["value"], time["reason"]) == (None, "the run has no trace")


@pytest.mark.parametrize(
    "prefix",
    [
        *([""], ["0: ", "11: "], ["[rank0]:", "[default7]:"], ["[1,0]<stdout>:", "[1,12]<stderr>: "]),
        *(["[2026-05-03 02:49:22] ", "2026-05-03T02:49:22.123456Z "], ["\x1b[36m(worker pid=4001)\x1b[0m "]),
    ],
)
def test_one_file_says_the_same_as_one_a_process(ran: Callable[..., Run], prefix: list[str]) -> None:
    job = fsdp2_pp4()
    each, one = ran(a_file_each(job)), ran({"job.out": interleaved(job, prefix)})
    assert calls(one) == calls(each)
    assert [r for r in one.rows if r["value"] is not None] == [r for r in each.rows if r["value"] is not None]
    assert one.groups().to_pylist() == each.groups().to_pylist()
    if not any(prefix):  # compressed, too
        assert calls(ran({"job.out": gzip.compress(interleaved(job).encode())})) == calls(each)


def test_communicators_of_an_older_library(ran: Callable[..., Run]) -> None:
    """NCCL 2.18 to 2.22: splits have a commId, from the parent's and the color, and no count."""
    job = [Process(rank) for rank in range(4)]
    for one in job:
        stage, shard = divmod(one.rank, 2)
        about = f"cudaDev {one.rank} nvmlDev {one.rank} busId 1000"
        one.say(f"comm {one.pointer('w')} rank {one.rank} nranks 4 {about} commId 0x77 - Init START")
        one.say(
            f"ncclCommSplit comm {one.pointer('dp')} rank {stage} nranks 2 {about} parent {one.pointer('w')}"
            f" color {shard} key 0 commId 0x{90 + shard} - Init COMPLETE"
        )
        one.call("AllReduce", "dp", 2, 8)
    found = {(row[0], row[2]) for row in calls(ran(a_file_each(job)))}
    assert found == {(0, "0,2"), (2, "0,2"), (1, "1,3"), (3, "1,3")}


def test_communicators_of_a_newer_library(ran: Callable[..., Run]) -> None:
    """NCCL 2.29 puts the rank before the function, and calls the split's number otherwise."""
    job = fsdp2_pp4(steps=1)
    for one in job:
        for at, line in enumerate(one.lines):
            line = line.replace("INFO ncclComm", f"INFO [Rank {one.rank}] ncclComm")
            one.lines[at] = line.replace("splitCount", "childCount")
    assert calls(ran(a_file_each(job))) == calls(ran(a_file_each(fsdp2_pp4(steps=1))))


def test_communicators_without_ids_are_one_where_nothing_else_fits(ran: Callable[..., Run]) -> None:
    """Before NCCL 2.17 no id is logged: of all ranks there is one; of pairs nobody knows which are which."""
    job = [Process(rank) for rank in range(4)]
    for one in job:
        about = f"cudaDev {one.rank} busId 1000 - Init COMPLETE"
        one.say(f"comm {one.pointer('world')} rank {one.rank} nranks 4 {about}")
        one.say(f"comm {one.pointer('pair')} rank {one.rank % 2} nranks 2 {about}")
        one.call("AllReduce", "world", 4, 8)
        one.call("AllGather", "pair", 2, 8)
    run = ran(a_file_each(job))
    assert {row[:4] for row in calls(run)} == {
        *((rank, "all_reduce", "0-3", 4) for rank in range(4)),
        *((rank, "all_gather", None, 2) for rank in range(4)),
    }
    assert run.record.notes == [
        "who is in 4 of 8 communicators, each process's counted, is not known: the lines of their"
        " initialisation are not in the logs, or do not tell (NCCL_DEBUG_SUBSYS=INIT,COLL)"
    ]


def test_logs_that_begin_late(ran: Callable[..., Run]) -> None:
    """Without any line of an initialisation: the end of a communicator tells its rank, not since when."""
    job = fsdp2_pp4()
    for one in job:
        first = next(i for i, line in enumerate(one.lines) if "opCount" in line)
        del one.lines[:first]
    blind = ran(a_file_each(job))
    assert {(row[0], row[2], row[4]) for row in calls(blind)} == {(None, None, None)}
    assert own(blind, "comm.count") is None
    assert own(blind, "comm.count", "total") == 240
    assert "which rank of the job a process is" in blind.record.notes[0]
    assert not values(blind, "comm.edges")
    for one in job:
        one.destroy("world", one.rank, 8)
    seen = ran(a_file_each(job))
    assert {row[:3] for row in calls(seen) if row[3] == 8} == {(r, "all_reduce", "0-7") for r in range(8)}
    assert {(row[0] is None, row[2]) for row in calls(seen) if row[3] == 2} == {(False, None)}
    (missing,) = (row for row in seen.rows if row["metric"] == "comm.missing_calls")
    assert missing["reason"] == "no log contains all calls of a communicator with known ranks"


def test_a_pointer_that_comes_again(ran: Callable[..., Run]) -> None:
    """After its communicator is destroyed, or, where no line says so, initialised anew."""
    job = [Process(rank) for rank in range(4)]
    for one in job:
        one.init("world", one.rank, 4, commid="0x1")
        for time, (members, said) in enumerate((([0, 1], True), ([0, 2], False), ([0, 3], True))):
            if one.rank in members:
                place = members.index(one.rank)
                one.init("again", place, 2, commid=f"0x{time + 2}")
                one.call("AllReduce", "again", 2, 10 + time, dtype=7)
                if said:
                    one.destroy("again", place, 2)
    found = {(row[0], row[2], row[8]) for row in calls(ran(a_file_each(job)))}
    pairs = ((1, "0-1", 40), (2, "0,2", 44), (3, "0,3", 48))
    assert found == {(rank, group, size) for other, group, size in pairs for rank in (0, other)}


def test_calls_that_ranks_lack(ran: Callable[..., Run]) -> None:
    """Rank 3 stops before the last step's calls by all; a send of rank 0 has no receive."""
    job = fsdp2_pp4()
    job[3].lines.pop()
    at = next(i for i, line in enumerate(job[2].lines) if "Recv:" in line)
    del job[2].lines[at]
    run = ran(a_file_each(job))
    assert own(run, "comm.missing_calls") == 1
    told = missing_calls(run)
    assert (told["group"], told["collective"], told["reason"]) == ("0-7", "all_reduce", "rank 3 made 2 of 3")
    missing = values(run, "comm.missing_calls", stat="missing")
    assert missing == {("0-7", "all_reduce", "3", None, "missing"): 1}
    assert own(run, "comm.edges") == 72
    assert values(run, "comm.edges", stat="unmatched", collective="send") == {
        (None, "send", "0->2 1MiB", None, "unmatched"): 1
    }
    silent = fsdp2_pp4(steps=1)
    silent[5].lines = [line for line in silent[5].lines if "[nranks=8]" not in line]
    assert missing_calls(ran(a_file_each(silent)))["reason"] == "rank 5 made 0 of 1"


def test_some_ranks_logs_are_missing(ran: Callable[..., Run]) -> None:
    """Of six of eight processes: the world is known by its size, a pair of which one is missing is not."""
    run = ran(a_file_each(fsdp2_pp4()[1:7]))
    assert {row[2] for row in calls(run) if row[0] == 6 and row[3] == 2} == {None}
    assert {row[2] for row in calls(run) if row[0] == 6 and row[3] == 8} == {"0-7"}
    assert {row[2] for row in calls(run) if row[0] == 2 and row[3] == 2} == {"2-3"}
    assert run.record.notes == ["ranks are those in the largest communicator, of 8, of which 6 have a log"]
    # Rank 2 receives from rank 0 and sends to it, in whatever pipeline: rank 0's log is not there.
    assert own(run, "comm.edges", "unmatched") == 0
    assert own(run, "comm.missing_calls") == 0


@pytest.mark.parametrize("ended", [True, False])
def test_one_log_begins_late(ran: Callable[..., Run], ended: bool) -> None:
    """Rank 3 is the one that is left, as the end of its world communicator says, too; its pair is unknown."""
    job = fsdp2_pp4()
    job[3].lines = [line for line in job[3].lines if "opCount" in line]
    if ended:
        job[3].destroy("world", 3, 8)
    run = ran(a_file_each(job))
    found = calls(run)
    assert {row[0] for row in found} == set(range(8))
    assert {(row[0], row[2]) for row in found if row[3] == 8} == {(rank, "0-7") for rank in range(8)}
    assert {row[2] for row in found if row[0] in (2, 3) and row[3] == 2} == {None}
    assert {row[2] for row in found if row[0] == 4 and row[3] == 2} == {"4-5"}
    assert own(run, "comm.missing_calls") == 0
    assert own(run, "comm.edges", "unmatched") == 0
    assert [note[:6] for note in run.record.notes] == ["who is"]


def test_processes_of_two_jobs_have_no_common_ranks(ran: Callable[..., Run]) -> None:
    job = fsdp2_pp4(steps=1)
    other = Process(9)
    other.init("other", 0, 1, commid="0x5")
    other.call("AllReduce", "other", 1, 1)
    run = ran(a_file_each([*job, other]))
    assert {row[0] for row in calls(run)} == {None}
    assert run.record.notes == [
        "which rank of the job a process is, and who is in its groups, is not known: no communicator holds"
        " all 9 processes of the logs"
    ]


@pytest.mark.parametrize(("host", "known"), [("node-7", True), ("node-8", False)])
def test_devices_number_ranks_without_one_of_all(ran: Callable[..., Run], host: str, known: bool) -> None:
    """Pairs and pipelines by their own ids, as where a job never calls anything by all: on one host only."""
    job = [Process(rank) for rank in range(8)]
    for one in job:
        stage, shard = divmod(one.rank, 2)
        one.init("pair", shard, 2, commid=f"0x1{stage}")
        one.init("line", stage, 4, commid=f"0x2{shard}")
        one.call("AllReduce", "pair", 2, 1)
        if stage < 3:
            one.call("Send", "line", 4, 1 << 19, root=stage + 1)
        if stage:
            one.call("Recv", "line", 4, 1 << 19, root=stage - 1)
    files = a_file_each(job)
    files["nccl-4007.log"] = files["nccl-4007.log"].replace("node-7", host)
    run = ran(files)
    (note,) = run.record.notes
    assert note.endswith(": no communicator holds all 8 processes of the logs")
    assert note.startswith("ranks are the numbers of their devices" if known else "which rank of the job")
    assert own(run, "comm.edges") == (6 if known else None)
    assert {row[2] for row in calls(run)} == (
        {"0-1", "2-3", "4-5", "6-7", "0-6:2", "1-7:2"} if known else {None}
    )


def test_devices_in_another_order_number_no_ranks(ran: Callable[..., Run]) -> None:
    job = [Process(rank) for rank in range(4)]
    for one in job:
        pair, place = divmod(one.rank, 2)
        one.init("pair", 1 - place, 2, commid=f"0x1{pair}")
        one.call("AllReduce", "pair", 2, 1)
    assert {row[0] for row in calls(ran(a_file_each(job)))} == {None}


def test_one_process_with_several_devices(ran: Callable[..., Run]) -> None:
    """As ncclCommInitAll makes them: the ranks are the devices."""
    one = Process(0)
    for device in range(2):
        about = f"comm 0xa{device} rank {device} nranks 2 cudaDev {device} nvmlDev {device} busId 1"
        one.say(f"ncclCommInitAll {about} commId 0x9 - Init COMPLETE")
    for device in range(2):
        one.say(
            "AllReduce: opCount 5f sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0"
            f" comm 0xa{device} [nranks=2] stream 0x3"
        )
    found = {row[:3] for row in calls(ran({"job.log": one.text}))}
    assert found == {(0, "all_reduce", "0-1"), (1, "all_reduce", "0-1")}


def test_flight_recorder_dumps_list_the_last_calls(ran: Callable[..., Run]) -> None:
    """What is older is gone, so that no call is called missing or alone."""

    def dump(rank: int, *names: str) -> str:
        told: dict[str, Any] = {f"{side}_sizes": [[256]] for side in ("input", "output")}
        told |= {f"{side}_dtypes": ["Float"] for side in ("input", "output")}
        told |= {"process_group": ["0", "default_pg"], "state": "completed"}
        entries = [
            told | {"profiling_name": f"nccl:{n}", "collective_seq_id": i, "is_p2p": "-" in n}
            for i, n in enumerate(names)
        ]
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        return json.dumps({"version": "2.10", "rank": rank, "pg_config": groups, "entries": entries})

    first = dump(0, "all_reduce", "all_reduce", "send 0->1")
    run = ran({"nccl_trace_rank_0.json": first, "nccl_trace_rank_1.json": dump(1, "all_reduce", "recv 1<-0")})
    known: dict[Any, Any] = {(None, None, None, None, "total"): 5}
    known |= {(None, "all_reduce", None, None, "total"): 3, (None, "send", None, None, "total"): 1}
    known |= {(None, "recv", None, None, "total"): 1}
    assert values(run, "comm.count", stat="total", group=None, category=None) == known
    assert own(run, "comm.volume", "total") == 5 * 1024
    assert own(run, "comm.edges") == 1
    assert values(run, "comm.edges", stat="unmatched") == {}
    assert own(run, "comm.missing_calls") is None
    assert [row["descriptions"] for row in run.groups().to_pylist()] == [["default_pg"]]


def test_the_first_screen_says_what_logs_list(ran: Callable[..., Run]) -> None:
    """Sums of all ranks by group and kind, transfers by pair, and whose calls are missing; never a step."""
    job = fsdp2_pp4()
    job[3].lines.pop()
    folder = ran(a_file_each(job)).record.source
    run = cclbench.run(folder, store=Path(folder).parent / "store")
    drawn = Console(width=80, color_system=None)
    with drawn.capture() as captured:
        findings = run.findings
        summaries = source_summaries(run, run.figures)
        drawn.print(*first_screen(run.record, run.figures, run.window, findings, summaries=summaries))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    text = " ".join(" ".join(lines).split())
    assert "239 calls of collectives and transfers carry" in text
    (calls,) = (summary for summary in summaries if summary.heading == "Calls in its logs")
    rows = [row for table in calls.tables for row in table.rows]
    assert ("0-6:2", "send", 36, 36 * 2**20, "1MiB-4MiB") in rows, rows
    assert "0-1 reduce_scatter 6 50.3 MB 4MiB-16MiB" in text
    assert "0->2 6 6 6.29 MB 0" in text
    assert "In group 0-7 1 calls of all_reduce are missing: rank 3 made 2 of 3." in text
    assert "step" not in text
    assert len(lines) <= 40
    (found,) = run.findings
    assert (found.name, found.ranks, found.gain_s) == ("missing_calls", [3], None)
    assert run.sql(found.query)["calls"].to_pylist() == [2, *[3] * 7]
    page = run_page(run_subject("A", run))
    assert '<p class="verdict">239 calls of collectives and transfers carry' in page
    listed = page[page.index("Calls in its logs") : page.index("</section>", page.index("Calls in its logs"))]
    assert re.search(r"<td>0-6:2</td>.*send</td>.*36</td>.*37.7 MB</td>.*1MiB-4MiB</td>", listed)
    assert re.search(r"<td>0-&gt;2</td>.*6</td>.*6</td>.*6.29 MB</td>.*0</td>", listed)

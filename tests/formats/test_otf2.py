# SPDX-License-Identifier: Apache-2.0
"""OTF2 archives: messages matched one by one, waits known by hand, clocks, metrics, streams, damage."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.changed_bytes import changed_bytes
from helpers.otf2_archives import GHZ, Job, write_job

import cclbench
from cclbench.formats import Part, Rows, trace_reader
from cclbench.formats.otf2 import archive, process
from cclbench.formats.otf2.definitions import Clock
from cclbench.formats.otf2.sizes import collective_amounts, one_share
from cclbench.ground.errors import InputError
from cclbench.record.run import Run
from cclbench.replay.answer import Replay

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("otf2") is None, reason="needs the package otf2: pip install '.[otf2]'"
)
PING_PONG = Path("otf2") / "ping-pong-otf2"
COLUMNS = "rank, kind, src_rank, dst_rank, channel, seq, in_bytes, out_bytes, wait_ns, transfer_ns, instance"


def rows_of(run: Run) -> list[dict[str, Any]]:
    """The run's collectives in order of their start, which counts from the first one."""
    first = "start_ns - min(start_ns) OVER () AS start, end_ns - start_ns AS length"
    return run.sql(f"SELECT {COLUMNS}, {first} FROM collectives ORDER BY start, rank").to_pylist()  # noqa: S608


def read_rows(anchor: Path, member: int = 0) -> tuple[list[Rows | Any], Any]:
    """All batches of a process, and its trace."""
    reader = trace_reader("otf2")
    trace = reader.read(anchor, part=reader.parts(anchor)[member], allow_truncated=False)
    return list(trace.batches), trace


def test_a_ping_pong_is_matched_message_by_message(test_data: Path, tmp_path: Path) -> None:
    run = cclbench.run(test_data / PING_PONG, store=tmp_path)
    rows = rows_of(run)
    assert (len(rows), run.record.matching.instances, run.record.matching.complete) == (32, 16, 16)
    assert run.record.matching.unmatched == {}
    sizes = [16384 << n for n in range(8)]  # eight round trips, each of twice the size
    for sender, tag in ((0, 10), (1, 20)):
        sent = [row for row in rows if row["kind"] == "send" and row["rank"] == sender]
        assert [row["in_bytes"] for row in sent] == sizes
        assert [row["channel"] for row in sent] == [f"MPI_COMM_WORLD tag {tag}"] * 8
        received = {row["instance"]: row for row in rows if row["kind"] == "recv"}
        for number, row in enumerate(sent):
            other = received[row["instance"]]
            assert (other["rank"], other["out_bytes"], other["seq"]) == (1 - sender, sizes[number], number)
    # The first send begins at tick …382,750,926, its receive at …382,769,925, of 2,095,197,216 a second:
    # 18,999 ticks are 9,067.9 ns.
    assert rows[0]["wait_ns"] == 9068
    names = {
        name for (name,) in run.sql("SELECT DISTINCT name FROM events").to_pandas().itertuples(index=False)
    }
    assert {"compiler::int main(int, char**)", "MPI_Send", "MPI_Recv", "MPI_Init"} <= names


def synchronising(job: Job) -> None:
    """Four ranks arrive at an all-reduce of 4 KiB 100 ns apart, and leave together."""
    for rank in range(4):
        job.collective(rank, "Allreduce", (100 + 100 * rank, 500), 4 * 4096, 4 * 4096)


def buffered(job: Job) -> None:
    """A send that returns before its receive begins, a late sender, a late receiver."""
    for sent, received in (((600, 610), (700, 720)), ((900, 940), (800, 950)), ((1000, 1100), (1060, 1110))):
        job.send(0, 1, sent)
        job.receive(1, 0, received)


def broadcast(job: Job) -> None:
    """The root leaves at once; ranks 1 and 3 wait for it, rank 2 comes after all have left."""
    for rank, span in enumerate(((1200, 1210), (1150, 1230), (1300, 1320), (1190, 1240))):
        job.collective(rank, "Bcast", span, 4 * 256 if rank == 0 else 0, 256)


def reduced(job: Job) -> None:
    """Rank 3, the root, waits until rank 1 arrives; the others hand in and leave."""
    for rank, span in enumerate(((0, 10), (90, 95), (20, 30), (5, 100))):
        job.collective(rank, "Reduce", span, 64, 4 * 64 if rank == 3 else 0, root=3)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            synchronising,
            "all_reduce 0 300 100, all_reduce 1 200 100, all_reduce 2 100 100, all_reduce 3 0 100",
        ),
        (buffered, "send 0 0 10, recv 1 0 20, recv 1 100 50, send 0 0 40, send 0 60 40, recv 1 0 50"),
        (broadcast, "broadcast 1 50 30, broadcast 3 10 40, broadcast 0 0 10, broadcast 2 0 20"),
        (reduced, "reduce 0 5 5, reduce 3 85 10, reduce 2 0 10, reduce 1 0 5"),
    ],
    ids=["all-reduce", "messages", "broadcast", "reduce"],
)
def test_waits_are_those_known_by_hand(tmp_path: Path, events: Callable[[Job], None], expected: str) -> None:
    """Kind, rank, wait and transfer."""
    write_job(tmp_path / "job", events, ranks=4)
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store")
    told = ("kind", "rank", "wait_ns", "transfer_ns")
    assert ", ".join(" ".join(str(row[name]) for name in told) for row in rows_of(run)) == expected
    assert run.record.matching.contradicted_instances == 0


def crossing(job: Job) -> None:
    """Receives are posted in another order than their messages are sent, and complete in a third one."""
    sender, receiver = job.threads
    for request, posted in enumerate((10, 20, 30)):
        with job.inside(receiver, "MPI_Irecv", posted, posted + 5):
            receiver.mpi_irecv_request(posted + 5, 100 + request)
    for tag, begin, size in ((1, 100, 8), (2, 200, 16), (2, 300, 32)):
        with job.inside(sender, "MPI_Isend", begin, begin + 10):
            sender.mpi_isend(begin, 1, job.comms["world"], tag, size, 7)
    # The second receive with tag 2 completes first: its size shows that it is the second message.
    for begin, end, completed in ((40, 340, [(2, 32, 102)]), (350, 400, [(1, 8, 101), (2, 16, 100)])):
        with job.inside(receiver, "MPI_Waitall", begin, end):
            for tag, size, request in completed:
                receiver.mpi_irecv(end, 0, job.comms["world"], tag, size, request)


def test_messages_match_by_communicator_tag_and_the_order_in_which_they_are_posted(tmp_path: Path) -> None:
    write_job(tmp_path / "job", crossing)
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store")
    pairs: dict[int, dict[str, Any]] = {}
    for row in rows_of(run):
        pairs.setdefault(row["instance"], {})[row["kind"]] = row
    found = [
        (pair["send"]["in_bytes"], pair["recv"]["out_bytes"], pair["recv"]["start"])
        for pair in pairs.values()
    ]
    # Starts count from the first row, the wait that begins at 40.
    assert sorted(found) == [(8, 8, 310), (16, 16, 310), (32, 32, 0)]
    late = next(pair["recv"] for pair in pairs.values() if pair["recv"]["out_bytes"] == 32)
    assert (late["wait_ns"], late["transfer_ns"]) == (260, 40)  # its send begins at 300
    assert run.record.matching.unmatched == {}


def ring(job: Job) -> None:
    """Each rank sends to the next one and then receives: no send waits, or all would."""
    for step in range(3):
        begin = 1000 * step
        for rank, thread in enumerate(job.threads):
            with job.inside(thread, f"step {step}", begin, begin + 1000, paradigm="USER"):
                job.run(thread, "work", begin, begin + 300 + 100 * rank)
                job.send(rank, (rank + 1) % 3, (begin + 300 + 100 * rank, begin + 310 + 100 * rank))
                job.receive(rank, (rank - 1) % 3, (begin + 310 + 100 * rank, begin + (900, 500, 600)[rank]))


def test_a_ring_of_sends_that_do_not_wait_is_replayed_as_it_ran(tmp_path: Path) -> None:
    write_job(tmp_path / "job", ring, ranks=3)
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store")
    replay = Replay(run)
    assert replay.unchanged.step_ns == replay.measured_ns == 1000
    assert replay.graph.transfers.is_split.all()


def two_communicators(job: Job) -> None:
    """Collectives of two communicators with the same ranks, begun in another order on each rank."""
    for rank, order in enumerate((("world", "copy"), ("copy", "world"))):
        for place, comm in enumerate(order):
            job.collective(rank, "Barrier", (200 * place, 200 * place + 150), 0, 0, comm=comm)


def test_communicators_of_the_same_ranks_are_told_apart(tmp_path: Path) -> None:
    write_job(tmp_path / "job", two_communicators, comms={"copy": (0, 1)})
    reader = trace_reader("otf2")
    anchor = tmp_path / "job" / "traces.otf2"
    numbers = []
    for member in range(2):
        _, trace = read_rows(anchor, member)
        names = [list(trace.stated_payloads.payloads)[code].group_name for code in trace.stated_payloads.code]
        numbers.append(dict(zip(names, trace.stated_payloads.seq, strict=True)))
    assert numbers[0] == numbers[1] == {"world": 0, "copy": 1}
    assert [part.member for part in reader.parts(anchor)] == ["0", "1"]


def started(job: Job) -> None:
    """An all-reduce that is started, and computed beside, before it is waited for."""
    for rank, thread in enumerate(job.threads):
        with job.inside(thread, "MPI_Iallreduce", 100 + 50 * rank, 110 + 50 * rank):
            thread.non_blocking_collective_request(110 + 50 * rank, 5)
        job.run(thread, "kernel", 300, 600)
        with job.inside(thread, "MPI_Wait", 600, 700):
            operation = job.otf2.enums.CollectiveOp.ALLREDUCE
            thread.non_blocking_collective_complete(700, operation, job.comms["world"], 0, 3 * 64, 3 * 64, 5)


def test_a_collective_that_is_started_lasts_until_it_is_complete(tmp_path: Path) -> None:
    write_job(tmp_path / "job", started, ranks=3)
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store")
    whole = [row for row in rows_of(run) if row["kind"] == "all_reduce"]
    told = [(row["rank"], row["length"], row["wait_ns"]) for row in whole]
    assert told == [(0, 600, 100), (1, 550, 50), (2, 500, 0)]
    # 3 · 64 B of three ranks: 64 B, or 96 B in place.
    assert {row["in_bytes"] for row in whole} == {None}
    assert run.figures.ranks("time.overlapped")[0] == pytest.approx(300e-9)


@pytest.mark.parametrize(
    ("operation", "sent", "received", "is_root", "expected"),
    [
        (11, 4 * 1024, 4 * 1024, False, (1024, 1024)),  # all-reduce of 1 KiB; 4,096 is no multiple of 3
        (11, 3000, 3000, False, (1000, 1000)),  # in place; a multiple of 4 as well: see below
        (6, 4 * 100, 4 * 100, False, (100, 400)),  # all-gather
        (8, 4 * 100, 4 * 100, False, (400, 400)),  # all-to-all
        (1, 0, 256, False, (256, 256)),  # broadcast
        (1, 4 * 256, 256, True, (256, 256)),
        (2, 64, 4 * 64, True, (64, 256)),  # gather
        (2, 64, 0, False, (64, None)),
        (4, 4 * 64, 64, True, (256, 64)),  # scatter
        (12, 64, 4 * 64, True, (64, 64)),  # reduce
        (9, 400, 400, False, (None, None)),  # all-to-all of different sizes
        (0, 0, 0, False, (None, None)),
    ],
)
def test_bytes_of_a_call_are_those_of_one_rank_where_only_one_reading_fits(
    operation: int, sent: int, received: int, is_root: bool, expected: tuple[int | None, int | None]
) -> None:
    if (sent % 3, sent % 4) == (0, 0) and sent:
        expected = (None, None)  # four ranks, or three and in place
    assert collective_amounts(operation, 4, sent, received, is_root=is_root) == expected


def test_a_share_of_two_ranks_or_of_one_is_never_known() -> None:
    shares = [one_share(total, ranks) for total, ranks in ((128, 2), (64, 1), (0, 4), (7, 4))]
    assert shares == [None, 64, None, None]


@pytest.mark.parametrize("resolution", [GHZ, 2_095_197_216, 3, 10**12, 10**12 + 7, (1 << 62) + 1])
def test_ticks_become_whole_nanoseconds_exactly(resolution: int) -> None:
    ticks = np.array(
        [0, 1, 5, resolution - 1, resolution, 7 * resolution // 3, min(10**18, 9 * resolution)], np.uint64
    )
    for realtime in (None, 1_700_000_000_000_000_000):
        clock = Clock(resolution, 5, realtime)
        shift = 0 if realtime is None else realtime - 5 * GHZ // resolution
        assert clock.to_ns(ticks).tolist() == [int(tick) * GHZ // resolution + shift for tick in ticks]


def test_clocks_of_two_locations_are_those_that_the_archive_corrects(tmp_path: Path) -> None:
    """Rank 1's timer is 1,000 ticks ahead at 100 and 3,000 at 10,000; a tick is 0.5 ns."""
    import _otf2

    def events(job: Job) -> None:
        for at, offset in ((100, 0), (10_000, 0)):
            _otf2.DefWriter_WriteClockOffset(job.threads[0]._def_handle, at, offset, 0.0)
        for at, offset in ((100, -1000), (10_000, -3000)):
            _otf2.DefWriter_WriteClockOffset(job.threads[1]._def_handle, at, offset, 0.0)
        job.collective(0, "Barrier", (1000, 9000), 0, 0)
        job.collective(1, "Barrier", (5050, 10_000), 0, 0)

    write_job(tmp_path / "job", events, resolution=2 * GHZ)
    rows = rows_of(cclbench.run(tmp_path / "job", store=tmp_path / "store"))
    # Half-way between the two, at 5,050, the offset is −2,000 ticks: 3,050 and 7,000 on rank 0's clock.
    assert [(row["rank"], row["start"], row["length"]) for row in rows] == [(0, 0, 4000), (1, 1025, 1975)]
    assert [row["wait_ns"] for row in rows] == [1025, 0]


def test_regions_nest_and_a_user_s_regions_are_steps(tmp_path: Path) -> None:
    def events(job: Job) -> None:
        for rank, thread in enumerate(job.threads):
            for step in range(4):
                begin = 1000 * step
                with job.inside(thread, f"step {step}", begin, begin + 1000, paradigm="USER"):
                    with job.inside(thread, "solve", begin + 100, begin + 500 + 100 * rank):
                        job.run(thread, "kernel", begin + 200, begin + 300)
                    job.collective(rank, "Allreduce", (begin + 500 + 100 * rank, begin + 700), 128, 128)

    write_job(tmp_path / "job", events)
    run = cclbench.run(tmp_path / "job", store=tmp_path / "store")
    assert run.sql("SELECT count(step) AS steps FROM steps GROUP BY rank").to_pylist() == [{"steps": 4}] * 2
    # A step of 1,000 ns, all of it the program's but the 200 ns in the call.
    assert run.figures.ranks("time.compute_only")[0] == pytest.approx(800e-9)
    assert run.figures.ranks("time.exposed_comm")[0] == pytest.approx(200e-9)
    parents = run.sql(
        "SELECT DISTINCT o.name, p.name AS parent FROM operators o JOIN operators p"
        " ON o.parent = p.operator AND o.rank = p.rank"
    ).to_pylist()
    assert {"name": "compiler::kernel", "parent": "compiler::solve"} in parents


def test_metrics_are_counters_of_the_time_that_their_mode_says(tmp_path: Path) -> None:
    def events(job: Job) -> None:
        enums, defs = job.otf2.enums, job.trace.definitions
        told = {"value_type": enums.Type.UINT64, "exponent": 1}
        metrics = [
            defs.metric(name, metric_mode=getattr(enums.MetricMode, mode), unit=unit, **told)
            for name, mode, unit in (("total", "ACCUMULATED_START", "#"), ("level", "ABSOLUTE_POINT", "W"))
        ]
        for at, value in ((100, 7), (200, 10), (350, 15)):
            for metric in metrics:
                job.threads[0].metric(at, metric, value)
        job.run(job.threads[0], "main", 400, 500)

    batches, _ = read_rows(write_job(tmp_path / "job", events, ranks=1))
    tables = [batch for batch in batches if not isinstance(batch, Rows)]
    found = [row for table in tables for row in table.to_pylist()]
    first = min(row["start_ns"] for row in found)
    told = {
        (row["counter"], row["unit"], row["start_ns"] - first, row["end_ns"] - first, row["value"])
        for row in found
    }
    # In tens, as the exponent says; a total becomes differences.
    assert told == {
        ("total", "count", 0, 100, 30.0),
        ("total", "count", 100, 250, 50.0),
        ("level", "W", 0, 0, 70.0),
        ("level", "W", 100, 100, 100.0),
        ("level", "W", 250, 250, 150.0),
    }


def test_streams_of_an_accelerator_run_kernels(tmp_path: Path) -> None:
    def events(job: Job) -> None:
        for thread, stream in zip(job.threads, job.streams, strict=True):
            job.run(thread, "cudaLaunchKernel", 0, 10, paradigm="CUDA")
            job.run(stream, "COMPUTE IDLE", 0, 20, paradigm="CUDA", role="ARTIFICIAL")
            job.run(stream, "gemm", 20, 120, paradigm="CUDA")
            job.run(stream, "cudaMemcpyAsync", 120, 150, paradigm="CUDA", role="DATA_TRANSFER")

    batches, trace = read_rows(write_job(tmp_path / "job", events, streams=True))
    kinds = {
        (rows.kind, rows.side, name, rows.device[0] if rows.device else None, int(rows.dur_ns[0]))
        for rows in batches
        for name in [list(rows.names)[rows.codes[0]]]
    }
    assert kinds == {
        ("op", "host", "cuda::cudaLaunchKernel", None, 10),
        ("kernel", "device", "gemm", 1, 100),
        ("copy", "device", "cudaMemcpyAsync", 1, 30),
    }
    assert trace.dropped == {"regions of streams in which nothing runs": 1}


def test_where_the_tracer_paused_calls_have_no_numbers(tmp_path: Path) -> None:
    def events(job: Job) -> None:
        synchronising(job)
        off = job.otf2.enums.MeasurementMode.OFF
        job.threads[0].measurement_on_off(600, off)

    anchor = write_job(tmp_path / "job", events, ranks=4)
    numbers = [list(read_rows(anchor, member)[1].stated_payloads.seq) for member in range(2)]
    assert numbers == [[-1], [0]]


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut(name: str, keep: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:keep])

    return change


def unnested(job: Job) -> None:
    job.threads[0].enter(0, job.region("outer"))
    job.threads[0].enter(10, job.region("inner"))
    job.threads[0].leave(20, job.region("outer"))


def empty(job: Job) -> None:
    del job


@pytest.mark.parametrize(
    ("events", "change", "says"),
    [
        (buffered, remove("traces.def"), "cannot be read: "),
        (buffered, cut("traces.otf2", 40), "cannot be read: "),
        (buffered, cut("traces.def", 200), "cannot be read: "),
        (buffered, remove("traces/0.evt"), "cannot be read: "),
        (buffered, cut("traces/0.evt", 100), "cannot be read: "),
        (unnested, None, "a region ends that is not the innermost one"),
        (empty, None, "has no process with events"),
    ],
    ids=["no definitions", "cut anchor", "cut definitions", "no events", "cut events", "nesting", "empty"],
)
def test_a_damaged_archive_is_refused_with_its_reason(tmp_path, events, change, says):
    anchor = write_job(tmp_path / "job", events)
    if change is not None:
        change(anchor.parent)
    with pytest.raises(InputError) as refused:
        [read_rows(anchor, member) for member in range(2)]
    assert says in str(refused.value)
    assert str(anchor) in str(refused.value)
    assert "\n" not in str(refused.value).splitlines()[0]


def test_archives_with_changed_bytes_are_read_or_refused(test_data: Path, tmp_path: Path) -> None:
    shutil.copytree(test_data / PING_PONG, tmp_path / "job")
    shutil.copytree(test_data / PING_PONG, tmp_path / "whole")
    for name in ("traces.otf2", "traces.def", "traces/0.def", "traces/0.evt"):
        file = tmp_path / "job" / name
        file.chmod(0o644)
        whole = (tmp_path / "whole" / name).read_bytes()
        for content in changed_bytes(whole, 37, 4):
            file.write_bytes(content)
            with suppress(InputError):
                trace = trace_reader("otf2").read(tmp_path / "job" / "traces.otf2", part=Part("0"))
                list(trace.batches)
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("signal", "says"),
    [("SIGABRT", "library fails on it"), ("SIGXCPU", "library was ended, it takes too long")],
)
def test_a_library_that_crashes_or_never_ends_is_its_own_process_alone(tmp_path, monkeypatch, signal, says):
    anchor = write_job(tmp_path / "job", buffered)
    program = tmp_path / "crash.py"
    program.write_text(f"import os, signal; os.kill(os.getpid(), signal.{signal})")
    monkeypatch.setattr(archive, "__file__", str(program))
    with pytest.raises(InputError, match=says):
        read_rows(anchor)


def test_without_the_package_the_archive_is_named_and_the_extra_too(tmp_path, monkeypatch):
    anchor = write_job(tmp_path / "job", buffered)
    monkeypatch.setattr(process, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="the package otf2 is not installed") as refused:
        read_rows(anchor)
    assert "'.[otf2]'" in str(refused.value)


def test_the_archive_of_the_repository_has_no_other_texts_than_its_program(repository: Path) -> None:
    content = (repository / "traces" / "mpi-training-4-cpu" / "traces.def").read_bytes()
    regions = "forward|backward|update|late|step [0-9]+|MPI_(Bcast|Allreduce|Barrier|Irecv|Isend|Waitall)"
    others = "node|MPI Rank [0-3]|Master thread|world|MPI_COMM_WORLD"
    texts = [text.decode().strip() for text in re.findall(rb"[\t -~]{4,}", content)]
    assert len(texts) > 20
    assert [text for text in texts if not re.search(f"^.?({regions}|{others})$", text)] == []


def test_an_archive_is_one_source_and_cannot_be_contributed(tmp_path: Path) -> None:
    anchor = write_job(tmp_path / "job", buffered)
    reader = trace_reader("otf2")
    names = sorted(path.name for path in reader.companions(anchor))
    assert names == ["0.def", "0.evt", "1.def", "1.evt", "traces.def"]
    with pytest.raises(InputError, match="texts of OTF2 archives cannot be redacted"):
        reader.rewrite(anchor, None, None)  # type: ignore[arg-type] - not reached

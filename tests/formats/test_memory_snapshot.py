# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory snapshots: every layout by hand, stacks as lines, and pickles that would do harm."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, memory_snapshot, pickled, recognise_format
from cclbench.formats.memory_snapshot import MemorySnapshot
from cclbench.formats.memory_snapshot.stacks import Stacks, path_in_package
from cclbench.ground.errors import InputError

Read = Callable[..., Evidence]
SITE = {"name": "forward", "filename": "/home/user/job/model.py", "line": 7}
STEP = {"name": "step", "filename": "/opt/v/lib/python3.12/site-packages/torch/optim/adam.py", "line": 9}
MIB = 1 << 20


def block(address: int, size: int, state: str = "active_allocated", **changes: Any) -> dict[str, Any]:
    told = {"address": address, "size": size, "requested_size": size, "state": state, "frames": [SITE]}
    return {key: value for key, value in (told | changes).items() if value != "absent"}


def segment(*blocks: dict[str, Any], address: int = 4096, **changes: Any) -> dict[str, Any]:
    told = {"device": 0, "address": address, "total_size": sum(one["size"] for one in blocks)}
    return told | {"stream": 0, "segment_type": "large", "blocks": list(blocks)} | changes


def event(action: str, addr: int, size: int, time_us: int = 1_000_000, **changes: Any) -> dict[str, Any]:
    told = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": [SITE]}
    return {key: value for key, value in (told | changes).items() if value != "absent"}


def snapshot(
    segments: list[dict[str, Any]] | None = None, *traces: list[dict[str, Any]], **changes: Any
) -> dict[str, Any]:
    """A snapshot of those segments and each device's events; by default of a few allocations on one device.

    Before it there are 100 B at 4096 and 50 B at 5096; 300 B at 6096 come and stay, 200 B at 8096 come and
    go, as the 50 B do: the peak is 100 + 50 + 300 + 200 = 650 B, of 8,192 B reserved.
    """
    if segments is None:
        blocks = block(4096, 1000, requested_size=100, frames=[]), block(6096, 2000, requested_size=300)
        gone = block(5096, 1000, "inactive", requested_size=50), block(8096, 4192, "inactive")
        segments = [segment(blocks[0], gone[0], blocks[1], gone[1] | {"requested_size": 200})]
        came = event("alloc", 6096, 300, 1), event("segment_alloc", 8096, 4192, 2)
        trace = [*came, event("alloc", 8096, 200, 2, frames=[STEP, SITE])]
        for address, size, at in ((5096, 50, 3), (8096, 200, 4)):
            trace += [event(f"free_{done}", address, size, at) for done in ("requested", "completed")]
        traces = (trace,)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False", "expandable_segments": False}
    told = {"segments": segments, "device_traces": list(traces), "allocator_settings": settings}
    return {key: value for key, value in (told | changes).items() if value != "absent"}


@pytest.fixture
def read(written: Callable[..., Path]) -> Read:
    """Reads a snapshot that `pickle` wrote."""
    name = "rank3_memory_snapshot.pickle"
    return lambda told, name=name, protocol=4: MemorySnapshot().read(
        written(pickle.dumps(told, protocol=protocol), name)
    )


def rows(found: Evidence, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in getattr(found, table).to_pylist()]


@pytest.mark.parametrize("protocol", [2, 4])
def test_events_and_blocks(read: Read, protocol: int) -> None:
    found = read(snapshot(), protocol=protocol)
    own = {"rank": 3, "device": 0, "event": 2, "time_ns": 2000, "action": "alloc", "address": 8096}
    own |= {"size": 200, "stream": 0, "call_site": "step torch/optim/adam.py:9 < forward model.py:7"}
    assert found.allocations.to_pylist()[2] == dict.fromkeys(found.allocations.column_names) | own
    own = {"rank": 3, "device": 0, "segment": 4096, "address": 6096, "size": 2000, "requested": 300}
    own |= {"stream": 0, "pool": "large", "state": "active_allocated", "call_site": "forward model.py:7"}
    assert found.memory_blocks.to_pylist()[2] == dict.fromkeys(found.memory_blocks.column_names) | own
    assert rows(found, "memory_blocks", "state", "requested", "call_site")[1] == ("inactive", None, None)
    assert found.facts == {"allocator_settings": "expandable_segments:False", "expandable_segments": "no"}
    assert (found.notes, found.left_out) == ([], {})


def test_several_devices_of_which_one_did_nothing(read: Read) -> None:
    """A segment of no device is of the first; each time the memory was exhausted counts."""
    oom = {"action": "oom", "size": 9, "device_free": 3, "stream": 0}
    unnamed = segment(block(8192, 8), address=8192)
    del unnamed["device"]
    segments = [segment(block(4096, 8), device=2), unnamed]
    found = read(snapshot(segments, [], [], [event("alloc", 4096, 5), oom]))
    assert rows(found, "allocations", "device", "event", "address") == [(2, 0, 4096), (2, 1, None)]
    assert rows(found, "memory_blocks", "device") == [(2,), (0,)]
    assert found.notes == ["the allocator ran out of memory 1 time"]
    assert read(snapshot([unnamed], [oom, oom])).notes == ["the allocator ran out of memory 2 times"]


def test_old_layouts(read: Read) -> None:
    """Without settings, times, addresses, streams, stacks; stacks in a history; segments alone."""
    history = {"frames": "absent", "history": [{"addr": 0, "real_size": 300, "frames": [STEP]}]}
    blocks = [block(4096, 512), block(4608, 512, "active_awaiting_free", requested_size="absent", **history)]
    for one in blocks:
        del one["address"]
    bare = event("alloc", 1, 2, time_us="absent", stream="absent", frames="absent")
    found = read(snapshot([segment(*blocks)], [bare], allocator_settings="absent"))
    assert rows(found, "allocations", "time_ns", "stream", "call_site") == [(None, None, None)]
    assert rows(found, "memory_blocks", "address", "requested", "state", "call_site") == [
        (4096, 512, "active_allocated", "forward model.py:7"),
        (4608, 300, "active_pending_free", "step torch/optim/adam.py:9"),
    ]
    assert found.facts == {}
    assert rows(read([segment(*blocks)]), "memory_blocks", "size") == [(512,), (512,)]


def test_without_a_history_or_without_memory(read: Read) -> None:
    unrecorded = read(snapshot([segment(block(4096, 512, frames="absent"))], []))
    assert rows(unrecorded, "memory_blocks", "call_site") == [(None,)]
    assert unrecorded.notes == [
        "no history was recorded: torch.cuda.memory._record_memory_history() before the work has it"
    ]
    assert "holds no segments" in read(snapshot([], [])).notes[0]


def test_an_action_that_nobody_knows_is_counted_and_no_path_leaves(read: Read) -> None:
    found = read(snapshot([], [event("user_defined", 0, 0), event("alloc", 1, 2)]))
    assert rows(found, "allocations", "event", "action") == [(1, "alloc")]
    assert found.left_out == {"events of an action that is not read": 1}
    found = read(snapshot())
    told = str((found.allocations.to_pylist(), found.facts, found.notes))
    assert not any(secret in told for secret in ("home", "user", "/opt/v"))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        *(("rank12_memory_snapshot.pickle", 12), ("job-rank_3.pkl", 3), ("snapshot.pickle", None)),
        *(("frank7", 7), ("rank1234567", 1_234_567), ("rank12345678", None)),
    ],
)
def test_the_rank_is_in_the_files_name(read: Read, name: str, rank: int | None) -> None:
    assert rows(read(snapshot(), name), "memory_blocks", "rank")[0] == (rank,)


def test_recognised_in_each_layout() -> None:
    told = snapshot(), snapshot([], []), [segment(block(4096, 8))]
    readers = [recognise_format(Path("x"), pickle.dumps(one, n)) for one in told for n in (2, 4)]
    assert [reader and reader.name for reader in readers] == ["memory_snapshot"] * 6


def _itself() -> dict[str, Any]:
    told = snapshot()
    told["segments"][0]["blocks"][0]["frames"] = told["segments"]
    return told


REFUSED = {
    "runs": (snapshot([segment(block(4096, 8, state=Path("x")))]), "more than data"),
    "refers to itself": (_itself(), "refers to itself"),
    "a text": ("segments", "Expected `object`|Expected 'object'"),
    "no segments": ({"device_traces": []}, "required field 'segments'"),
    "unfilled": (snapshot([segment(block(4096, 8), total_size=9)]), "its blocks do not fill"),
    "elsewhere": (snapshot([segment(block(4096, 8), block(5000, 8))]), "its blocks do not fill"),
    "state": (snapshot([segment(block(4096, 8, "lost"))]), "Invalid enum value 'lost'"),
    "huge": (snapshot([], [event("alloc", 1, 1 << 70)]), "out of range|Expected 'int' <="),
    "no size": (snapshot([], [{"action": "alloc"}]), "required field 'size'"),
    "frames": (snapshot([], [event("alloc", 1, 1, frames="none")]), "Expected 'array"),
    "a frame": (snapshot([], [event("alloc", 1, 1, frames=[3])]), "Expected 'object'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_with_one_line(read: Read, tmp_path: Path, name: str) -> None:
    told, why = REFUSED[name]
    assert re.search(why, refused(lambda _: read(told, "a.pickle"), tmp_path / "a.pickle"))


def test_what_blocks_and_devices_share_is_not_read_for_each_of_them(read: Read) -> None:
    """By reference a snapshot has as many entries as the product of what refers and what is referred to."""
    shared = [{"real_size": 5}, "never looked at"]
    found = read(snapshot([segment(block(4096, 8, requested_size="absent", history=shared))]))
    assert rows(found, "memory_blocks", "requested") == [(5,)]
    trace = [event("alloc", 1, 1)] * 100
    assert read(snapshot([], *[trace] * 5)).allocations.num_rows == 500
    with pytest.raises(InputError, match=r"has more than 1,\d\d\d entries"):
        read(snapshot([], *[trace] * 50))


ONE = event("alloc", 1, 1)
TWO = segment(block(4096, 8), block(4104, 8))


@pytest.mark.parametrize(
    ("believed", "beyond"),
    [
        (snapshot([TWO, segment(block(4096, 8))], []), snapshot([TWO, TWO], [])),
        (snapshot([], [ONE, ONE], [ONE]), snapshot([], [ONE, ONE], [ONE, ONE])),
        (snapshot([segment()] * 3, []), snapshot([segment()] * 4, [])),
    ],
    ids=["blocks of all segments", "events of all devices", "segments without blocks"],
)
def test_entries_are_bounded(read: Read, monkeypatch: pytest.MonkeyPatch, believed: Any, beyond: Any) -> None:
    monkeypatch.setattr(memory_snapshot, "_MOST_ENTRIES", 3)
    read(believed)
    with pytest.raises(InputError, match="more than 3 entries"):
        read(beyond)


def frame(name: str, file: str = "??", line: int = 0) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


def shown(stack: list[dict[str, Any]]) -> str:
    code = (stacks := Stacks()).stack_code(stack)
    return list(stacks.names)[code]


class TestStacks:
    """A stack as one line."""

    def test_pythons_frames_follow_the_operator(self) -> None:
        stack = [
            frame("torch::unwind::unwind()"),
            frame("at::_ops::add_Tensor::redispatch(c10::DispatchKeySet)"),
            *(frame("at::_ops::iadd::call()"), SITE, frame("_call_impl", STEP["filename"], 3)),
            frame("<module>", "<string>", 1),
        ]
        assert shown(stack) == "at::add_Tensor < forward model.py:7 < <module> <string>:1"

    def test_without_python_the_programs_functions_stay(self) -> None:
        names = [
            "c10::cuda::CUDACachingAllocator::Native::malloc(void**)",
            *(f"at::_ops::empty_strided::{what}(int)" for what in ("redispatch", "call")),
            "void torch::autograd::AccumulateGrad::accumulateGrad<std::function<void (int)>>(int)",
            *("at::(anonymous namespace)::helper(int)", "torch::autograd::Engine::thread_main()", "_start"),
        ]
        assert shown([frame(name) for name in names]) == (
            "at::empty_strided < torch::autograd::AccumulateGrad::accumulateGrad < at::helper"
        )

    def test_what_tells_nothing_and_what_is_equal(self) -> None:
        assert Stacks().stack_code([]) is None
        assert shown([frame("??")]) == "the runtime alone"
        assert shown([frame("f\x1b[2J", "a.py", 1)]) == r"f\x1b[2J a.py:1"
        stacks = Stacks()
        one, other = [SITE, STEP], [dict(SITE), dict(STEP)]
        assert [stacks.stack_code(frames) for frames in (one, other, [SITE], one)] == [0, 0, 1, 0]

    def test_twelve_frames_are_a_whole_line(self) -> None:
        stack = [frame(f"f{n}", "a.py", n) for n in range(12)]
        assert shown(stack) == " < ".join(f"f{n} a.py:{n}" for n in range(12))
        assert shown([*stack, stack[0]]) == shown(stack) + " < …"

    @pytest.mark.parametrize(
        ("stack", "line"),
        [
            ([frame("n" * 60, "a.py", 1)], "n" * 60 + " a.py:1"),
            ([frame("n" * 61, "a.py", 1)], "n" * 59 + "… a.py:1"),
            ([{"name": "f", "filename": "a.py"}], "f a.py:0"),
            ([frame("_start")] * 4095 + [frame("f", "a.py")], "f a.py:0"),
            ([frame("_start")] * 4096 + [frame("f", "a.py")], "the runtime alone"),
            ([frame("f", "/" + "d" * 5000 + "/a.py")], "f a.py:0"),
        ],
        ids=["60 characters", "61 characters", "no line", "4,096 frames", "4,097 frames", "a long path"],
    )
    def test_bounds_of_a_line(self, stack: list[dict[str, Any]], line: str) -> None:
        assert shown(stack) == line

    @pytest.mark.parametrize(
        ("file", "shown"),
        [
            ("/home/me/env/lib/python3.12/site-packages/torch/nn/functional.py", "torch/nn/functional.py"),
            ("/usr/lib/python3/dist-packages/a.py", "a.py"),
            ("/usr/lib/python3.11/json/decoder.py", "json/decoder.py"),
            *(("/home/me/secret/train.py", "train.py"), ("C:\\Users\\me\\train.py", "train.py")),
        ],
    )
    def test_of_a_path_only_what_is_a_packages_own_stays(self, file: str, shown: str) -> None:
        assert path_in_package(file) == shown


def test_contributed_without_the_paths_of_people(tmp_path: Path) -> None:
    """Stacks are shared in the file that is published as they are in the original, and read the same."""
    source, target = tmp_path / "rank3.pickle", tmp_path / "redacted" / "rank3.pickle"
    target.parent.mkdir()
    stack = [SITE, STEP] * 20
    told = snapshot([], [event("alloc", 4096, 8, frames=stack, user_metadata="by /home/user/x")] * 300)
    source.write_bytes(pickle.dumps(told))
    redact_evidence(source, target)
    assert b"/home/user/" not in target.read_bytes()
    assert target.stat().st_size < 2 * source.stat().st_size
    new = pickled.load_plain(target.read_bytes())
    assert new["device_traces"][0][7]["frames"][0]["filename"] == "model.py"  # without its folders
    own, copied = (MemorySnapshot().read(path).allocations for path in (source, target))
    assert copied.num_rows == own.num_rows > 0


LATEST_US = (1 << 61) // 1000
MOST, MOST_SIZE = (1 << 63) - 1, 1 << 50


def allocated(address: int = 1, size: int = 1, time_us: int = 1, count: int = 1, **changes: Any) -> Any:
    return snapshot([], [event("alloc", address, size, time_us, **changes) for _ in range(count)])


def placed(address: int = 4096, **changes: Any) -> Any:
    return snapshot([segment(block(address, 8), address=address, **changes)])


BELIEVED: dict[str, tuple[Any, Any]] = {
    "address of an event": (allocated(MOST), allocated(MOST + 1)),
    "address": (placed(MOST), placed(MOST + 1)),
    "no address": (allocated(0), allocated(-1)),
    "size": (allocated(size=MOST_SIZE), allocated(size=MOST_SIZE + 1)),
    "no size": (allocated(size=0), allocated(size=-1)),
    "time": (allocated(time_us=LATEST_US), allocated(time_us=LATEST_US + 1)),
    "no time": (allocated(time_us=0), allocated(time_us=-1)),
    "stream": (allocated(stream=MOST), allocated(stream=MOST + 1)),
    "least stream": (allocated(stream=-MOST - 1), allocated(stream=-MOST - 2)),
    "device": (placed(device=1023), placed(device=1024)),
    "no device": (placed(device=0), placed(device=-1)),
    "devices": (snapshot([], *[[]] * 1024), snapshot([], *[[]] * 1025)),
    "sizes together": (allocated(size=MOST_SIZE, count=4096), allocated(size=MOST_SIZE, count=4097)),
    "blocks together": (
        snapshot([segment(block(4096, MOST_SIZE)) for _ in range(4096)]),
        snapshot([*(segment(block(4096, MOST_SIZE)) for _ in range(4096)), segment(block(4096, 1))]),
    ),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_bounds_of_what_is_believed(read: Read, name: str) -> None:
    believed, beyond = BELIEVED[name]
    read(believed)
    with pytest.raises(InputError, match=r"; write it again with torch.cuda.memory._dump_snapshot; a snapsh"):
        read(beyond)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"PYTORCH_ALLOC_CONF": "a:b"}, {"allocator_settings": "a:b"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "old", "PYTORCH_ALLOC_CONF": "new"}, {"allocator_settings": "new"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "old", "PYTORCH_ALLOC_CONF": ""}, {"allocator_settings": "old"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": 7}, {}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "x" * 300}, {"allocator_settings": "x" * 200}),
        *(({"expandable_segments": True}, {"expandable_segments": "yes"}), ({"expandable_segments": 1}, {})),
    ],
)
def test_settings_of_the_allocator(read: Read, settings: dict[str, Any], facts: dict[str, str]) -> None:
    assert read(snapshot(allocator_settings=settings)).facts == facts

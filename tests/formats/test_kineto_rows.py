# SPDX-License-Identifier: Apache-2.0
"""Which row each variant of a Kineto event becomes."""

from __future__ import annotations

import pytest
from helpers.refused import refused

from cclbench.formats import json_events
from cclbench.ground.errors import InputError


def test_kernels_with_and_without_args(read, write, event):
    args = {"correlation": 31, "device": 2, "stream": 20, "grid": [4, 3, 2]}
    (row,) = read(write([event("kernel", "gemm", 10.5, 2.25, pid=9, tid=9, **args)])).rows
    known = {"kind": "kernel", "side": "device", "name": "gemm", "start_ns": 10_500, "dur_ns": 2_250}
    known |= {"track": 20, "device": 2, "correlation": 31}
    known |= {"grid_x": 4, "grid_y": 3, "grid_z": 2, "blocks": 24}
    assert {name: value for name, value in row.items() if value is not None} == known
    (row,) = read(write(['{"ph":"X","cat":"kernel","name":"k","pid":3,"tid":7,"ts":1,"dur":1}'])).rows
    assert (row["correlation"], row["device"], row["track"], row["blocks"]) == (None, 3, 7, None)


@pytest.mark.parametrize(
    ("stream", "record", "told"),
    [
        *((20, 1385, (20, 1385)), (0, 0, (0, 0)), (-1, -1, (None, None))),
        (4294967294, 4294967296, (4294967294, 4294967296)),
        *((4294967295, 4294967295, (None, None)), ("20", None, (None, None)), (20.5, 1385.5, (None, None))),
    ],
)
def test_a_wait_says_what_it_waits_for(read, write, event, stream, record, told):
    args = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": record}
    wait = event("cuda_sync", "Stream Wait Event", 10, 2, stream=24, correlation=1389, device=0, **args)
    (row,) = read(write([wait])).rows
    assert (row["track"], row["correlation"]) == (24, 1389)
    assert (row["event_stream"], row["event_record"]) == told


ON_DEVICES = {"kernel", "Kernel", "mtia_ccp_events", "cuda_sync", "gpu_user_annotation"}
ON_DEVICES |= {"gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


@pytest.mark.parametrize(
    ("kind", "category", "name"),
    [
        *(("kernel", category, "k") for category in ("kernel", "Kernel", "mtia_ccp_events")),
        *(("sync", "mtia_ccp_events", name) for name in ("event_wait", "event_record")),
        *(("sync", "cuda_sync", "Stream Synchronize"), ("copy", "mtia_ccp_events", "dma_request")),
        *(("copy", "gpu_memcpy", "Memcpy HtoD"), ("copy", "Memcpy", "Memcpy HtoD")),
        *(("memset", "gpu_memset", "Memset"), ("memset", "Memset", "Memset")),
        ("annotation", "gpu_user_annotation", "ProfilerStep#3"),
        *(("annotation", category, "ProfilerStep#3") for category in ("user_annotation", "Operator")),
        ("annotation", "Operator", "enumerate(DataLoader)#_Iter.__next__"),
        *(("op", "user_annotation", "gloo:all_reduce"), ("op", "cpu_op", "aten::mm")),
        *(("op", "Operator", "aten::mm"), ("python", "python_function", "train.py(3): step")),
        ("launch", "cuda_runtime", "cudaGraphLaunch"),
        *(("launch", "cuda_runtime", f"hip{what}") for what in ("ExtModuleLaunchKernel", "MemcpyWithStream")),
        *(("launch", "cuda_runtime", "cudaLaunchKernel"), ("launch", "cuda_driver", "cuLaunchKernelEx")),
        ("launch", "Runtime", "cudaMemsetAsync"),
        ("launch", "mtia_runtime", "runFunction - job_prep_and_submit_for_execution"),
        ("launch", "mtia_runtime", "enqueueCommand memcpyHtoDAsync"),
        *(("sync", "cuda_runtime", "cudaDeviceSynchronize"), ("sync", "mtia_runtime", "synchronizeStream")),
        *(("other", "cuda_runtime", "cudaMalloc"), ("other", "mtia_runtime", "recordEvent")),
        ("other", "overhead", "Resource"),
        # by kineto's plug-in for XPU: Unified Runtime, Level Zero, oneCCL's calls on the host
        *(("launch", "xpu_runtime", f"urEnqueue{what}") for what in ("KernelLaunch", "USMMemcpy", "USMFill")),
        ("launch", "xpu_driver", "zeCommandListAppendMemoryCopy"),
        *(("sync", "xpu_runtime", name) for name in ("urQueueFinish", "urEventWait")),
        *(("sync", "xpu_sync", "zeEventHostSynchronize"), ("other", "collective_comm", "xccl::allreduce")),
    ],
)
def test_kind_of_each_category(read, write, event, kind, category, name):
    (row,) = read(write([event(category, name)])).rows
    side = "device" if category in ON_DEVICES else "host"
    assert (row["kind"], row["side"], row["name"]) == (kind, side, name)


def test_rows_that_are_no_work_are_counted_by_reason(read, write, event):
    events = [
        event("kernel", "k"),
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python", "labels": "CPU"}},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 0, "tid": 0, "ts": 1},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 0, "tid": 0, "ts": 1, "bp": "e"},
        {"ph": "C", "name": "power", "pid": 0, "ts": 1, "args": {"W": 3}},
        {"ph": "i", "name": "Iteration Start", "ts": 1, "s": "g"},
        {"ph": "i", "cat": "kernel", "name": "[memory]"},
        {"ph": "i", "cat": "kernel", "name": "other", "ts": 1},
        {"ph": "X", "cat": "kernel", "name": "no time", "pid": 0, "tid": 0},
        {"ph": "X", "cat": "kernel", "name": "no duration", "ts": 1},
        {"ph": "X", "cat": "kernel", "name": "no begin", "dur": 1},
        {"ph": "B", "cat": "kernel", "name": "x", "ts": 1, "dur": 1},
        *(event("Trace", f"PyTorch Profiler ({i})") for i in range(3)),
        {},
    ]
    found = read(write(events))
    assert [row["name"] for row in found.rows] == ["k"]
    known = {"label": 1, "flow arrow": 2, "counter": 1, "instant": 3, "row without a time or duration": 3}
    assert found.trace.dropped == known | {"profiler span": 3, "phase ''": 1, "phase 'B'": 1}


def test_memory_instants_keep_bytes_and_device_beside_other_rows(read, write, event):
    def memory(ts, device_type, device, total):
        args = {"Device Type": device_type, "Device Id": device, "Total Allocated": total, "Bytes": 512}
        args |= {"Addr": 7, "Total Reserved": 8192 if device_type else 0}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": ts, "tid": 1, "args": args}

    events = [event("cuda_runtime", "cudaMalloc", correlation=4), memory(1, 1, 3, 4096), memory(2, 0, -1, 64)]
    rows = read(write(events)).of("other")
    told = [tuple(r[name] for name in ("bytes", "device", "correlation", "change", "address")) for r in rows]
    assert told == [*((None, None, 4, None, None), (4096, 3, None, 512, 7), (64, None, None, 512, 7))]
    assert [r["dur_ns"] for r in rows[1:]] == [0, 0]
    # The CPU's allocator reserves nothing, of which torch writes 0.
    assert [r["reserved"] for r in rows] == [None, 8192, None]


@pytest.mark.parametrize(
    ("name", "kind", "direction"),
    [
        *(("Memcpy HtoD (Pageable -> Device)", None, "h2d"), ("Memcpy DtoH (Device -> Pinned)", None, "d2h")),
        *(("Memcpy DtoD (Device -> Device)", None, "d2d"), ("Memcpy PtoP (Device -> Device)", None, "p2p")),
        *(("CopyHostToDevice", None, "h2d"), ("hipMemcpy", "DeviceToHost", "d2h"), ("Memcpy", None, None)),
        *(("Memcpy PeerToPeer", None, "p2p"), ("x DtoD HtoD", None, "h2d")),
        ("Memcpy DeviceToDevice PtoP", None, "p2p"),
    ],
)
def test_copy_direction(read, write, event, name, kind, direction):
    args = {} if kind is None else {"kind": kind}
    (row,) = read(write([event("gpu_memcpy", name, bytes=4096, **args)])).rows
    assert (row["copy_direction"], row["bytes"]) == (direction, 4096)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy M2D (MEMORY -> DEVICE)", "h2d"),
        ("Memcpy D2H (DEVICE -> HOST)", "d2h"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "d2d"),
        ("Memcpy S2D (SHARED -> DEVICE)", None),
    ],
)
def test_rows_of_an_xpu(read, write, event, name, direction):
    """As kineto's plug-in writes them (libkineto/src/plugin/xpupti): the queue is the tid, and no stream."""
    args = {"correlation": 5, "device": 1, "sycl queue": 2, "l0 queue": "0x0000000000000001"}
    rows = [event("kernel", "gemm_kernel", 2, 3, pid=1, tid=2, **args)]
    rows += [event("gpu_memcpy", name, 6, 1, pid=1, tid=2, bytes=4096, **args)]
    header = {"deviceProperties": [{"id": 1, "name": "Intel(R) X", "vendor": "Intel(R) Corporation"}]}
    found = read(write(rows, **header))
    (kernel,), (copy,) = found.of("kernel"), found.of("copy")
    assert (kernel["kind"], kernel["device"], kernel["track"], kernel["correlation"]) == ("kernel", 1, 2, 5)
    assert (copy["bytes"], copy["copy_direction"]) == (4096, direction)
    assert (found.trace.facts.vendor, found.trace.facts.device_name) == ("intel", "Intel(R) X")


def test_mtia_waits_and_transfers(read, write, event):
    """As a real inference trace has them: 48 of its 1,313 rows wait, 877 are transfers."""
    wait = {"stream": 108, "wait_on_stream": 104, "seq_num": 550218, "sqid": 11, "host_ctx": 1}
    transfer = {"stream": 105, "direction": "DEVICE_TO_HOST", "size": 1024, "sqid": 8}
    transfer["correlation"] = 20200002
    events = [
        event("mtia_ccp_events", "event_wait", 0, 15863.105, pid=17, tid=3774, **wait),
        event("mtia_ccp_events", "dma_request", 1, 5.24, pid=17, tid=3672, **transfer),
        event("mtia_ccp_events", "dma_request", 9, 1, pid=17, tid=801, direction="HOST_TO_DEVICE", size="16"),
    ]
    found = read(write(events))
    (waits,), (down, up) = found.of("sync"), found.of("copy")
    assert (waits["track"], waits["event_stream"], waits["event_record"]) == (108, 104, None)
    assert (down["bytes"], down["copy_direction"], down["correlation"]) == (1024, "d2h", 20200002)
    assert (up["bytes"], up["copy_direction"], up["track"]) == (None, "h2d", 801)
    assert found.of("kernel") == []


def test_an_op_that_inductor_compiled_states_its_grid_as_text(read, write, event):
    op = event("cpu_op", "triton_poi_fused_add_0", grid="grid(100,)", kernel_backend="triton")
    assert [row["kind"] for row in read(write([op])).rows] == ["op"]
    with pytest.raises(InputError, match=r"impossible grid: 'grid\(100,\)'"):
        read(write([{**op, "cat": "kernel"}]))


class TestOf2026:
    """What kineto writes since: of its source alone, no such trace has been seen."""

    @pytest.mark.parametrize(
        ("name", "tid", "args", "track"),
        [
            *(("Stream Sync", 1_000_020, {"stream": 20}, 20), ("Stream Sync", 1_000_020, {}, 20)),
            *(("Stream Sync", 20, {}, 20), ("Stream Sync", 999_999, {}, 999_999)),
            *(("Stream Sync", 1_000_000, {}, 0), ("Stream Sync", "1000020", {}, 1_000_020)),
            ("Context Sync", 1_000_020, {}, 1_000_020),
        ],
    )
    def test_stream_syncs_are_of_their_stream(self, read, write, event, name, tid, args, track):
        (row,) = read(write([event("cuda_sync", name, tid=tid, **args)])).rows
        assert (row["kind"], row["track"]) == ("sync", track)

    @pytest.mark.parametrize("stream", [2**31, 94_213_337_120_784, 2**63 - 1, -(2**63)])
    def test_stream_ids_of_64_bits(self, read, write, event, stream):
        rows = read(write([event("kernel", "k", stream=stream), event("gpu_memcpy", "c", tid=stream)])).rows
        assert [row["track"] for row in rows] == [stream, stream]


class TestBackward:
    """Rows that end before they begin."""

    @staticmethod
    def rows(event, count, *, backward, category="kernel"):
        lengths = [-0.004] * backward + [1] * (count - backward)
        return [event(category, f"k{i}", i, n, stream=7, correlation=i) for i, n in enumerate(lengths)]

    @pytest.mark.parametrize(("count", "backward"), [(1000, 1), (1999, 1), (2000, 2)])
    def test_one_in_a_thousand_is_set_aside_and_counted(self, read, write, event, count, backward):
        found = read(write(self.rows(event, count, backward=backward)))
        assert (len(found.rows), found.rows[0]["correlation"]) == (count - backward, backward)
        assert found.trace.dropped == {"negative duration": backward}

    @pytest.mark.parametrize(("count", "backward"), [(1, 1), (999, 1), (1999, 2)])
    def test_more_of_them_are_damage(self, read, write, event, count, backward):
        path = write(self.rows(event, count, backward=backward))
        refused(read, path, "impossible time: ts 0, dur -0.004 of 'k0'")

    def test_the_first_of_them_is_named_and_a_row_of_no_duration_is_one(self, read, write, event):
        empty = event("kernel", "empty", 1, 0)
        assert [row["dur_ns"] for row in read(write([empty])).rows] == [0]
        rows = [empty, event("kernel", "bad", 2, -3), event("kernel", "worse", 3, -4)]
        with pytest.raises(InputError, match=r"impossible time: ts 2, dur -3 of 'bad'"):
            read(write(rows))

    def test_what_is_told_stays_with_its_row(self, read, write, event):
        events = self.rows(event, 5000, backward=0, category="cpu_op")
        with pytest.raises(InputError, match="impossible time"):
            read(write([*events, *self.rows(event, 999, backward=1)]))
        events += self.rows(event, 1000, backward=1)
        assert read(write(events)).trace.dropped == {"negative duration": 1}
        told = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2}
        events = self.rows(event, 1000, backward=1)
        events.append(event("kernel", "nccl", 2000, **told))
        found = read(write(events))
        ((_, row, _),) = found.stated_payloads
        assert found.of("kernel")[row]["name"] == "nccl"


class TestMergedRanks:
    """Traces of several ranks put into one file, as viewers like them: no rank's trace."""

    @pytest.mark.parametrize(
        ("category", "pids", "named"),
        [
            *(("cpu_op", (12, 100_000_012), "100000012 and 12"), ("cpu_op", (12, "[TP01] 12"), ".*")),
            ("kernel", (0, 100_000_000), "0 and 100000000"),
        ],
    )
    def test_rows_of_two_processes(self, read, write, event, category, pids, named):
        events = [event(category, "x", pid=pid, device=0) for pid in pids]
        says = f"several processes, {named}: it was merged from traces of several"
        with pytest.raises(InputError, match=says):
            read(write(events, distributedInfo={"rank": 1}))

    def test_in_parts_of_a_large_file(self, tmp_path, write, event, monkeypatch):
        import cclbench
        import cclbench.formats.kineto as kineto

        monkeypatch.setattr(kineto, "PART_BYTES", 1 << 12)
        ops = [event("cpu_op", "aten::mm", i, pid=12 + i // 50) for i in range(100)]
        path = write(ops)
        assert len(kineto.Kineto().parts(path)) == 2
        says = "several processes, 12 and 13: it was merged from traces of several"
        with pytest.raises(InputError, match=says):
            cclbench.run(path, store=tmp_path / "store")

    def test_two_devices_of_one_process_are_no_merge(self, read, write, event):
        events = [event("cpu_op", "o", pid=12), *(event("kernel", "k", pid=i, device=i) for i in (0, 1))]
        assert [row["device"] for row in read(write(events)).of("kernel")] == [0, 1]


@pytest.mark.parametrize(
    ("category", "args", "operator", "shapes"),
    [
        ("cpu_op", {"External_id": 5, "Input_Dims": [[2, 3], [], [[3]]]}, 5, "[[2,3],[],[[3]]]"),
        *(("cpu_op", {"External_id": 5, "Input_Dims": []}, 5, "[]"), ("cpu_op", {"Ev_Idx": 5}, None, None)),
        ("Operator", {"External_id": 5, "Input_dims": [[2, 3]]}, 5, "[[2,3]]"),  # torch 1.8
        *(("kernel", {"External_id": 5}, 5, None), ("gpu_memcpy", {"External_id": 5}, 5, None)),
        *(("gpu_memset", {"External_id": 5}, 5, None), ("kernel", {"External_id": 0}, None, None)),
        *(("Kernel", {"external id": 5}, 5, None), ("kernel", {"External_id": -1}, None, None)),
        *(("kernel", {"External_id": 1 << 64}, None, None), ("kernel", {"External_id": "5"}, None, None)),
    ],
)
def test_operators_and_what_they_launched(read, write, event, category, args, operator, shapes):
    (row,) = read(write([event(category, "x", 10, **args)])).rows
    assert (row["operator"], row["shapes"]) == (operator, shapes)


@pytest.mark.parametrize(
    ("percent", "warps", "share"),
    [
        (50, 32.0, 0.5),
        (0, 0.2, 0.0),  # a few threads of a large device
        (0, 12.0, None),  # a product whose blocks have 226 KiB of shared memory each
        (0, None, None),
        (-99, -1.0, None),  # the device is unknown
        (101, 70.0, None),
        (None, None, None),  # AMD
    ],
)
def test_an_occupancy_that_the_profiler_could_not_estimate_is_none(read, write, event, percent, warps, share):
    stated = {"est. achieved occupancy %": percent, "warps per SM": warps}
    args = {name: value for name, value in stated.items() if value is not None}
    beside = {"est. achieved occupancy %": 3, "warps per SM": 2.0}
    rows = read(write([event("kernel", "k", **args), event("kernel", "k", **beside)])).rows
    assert [row["occupancy"] for row in rows] == [share, 0.03]


def test_operations_and_launched_kernels_as_stated(read, write, event):
    ops = [event("cpu_op", "aten::mm", flops=1024), event("cpu_op", "aten::view")]
    rows = read(write([*ops, event("kernel", "a", flops=64), event("kernel", "b")])).rows
    assert sorted(((r["kind"], r["flops"]) for r in rows), key=str) == [
        *(("kernel", 64.0), ("kernel", None), ("op", 1024.0), ("op", None))
    ]
    calls = [event("cuda_runtime", "hipLaunchKernel", i, kernel=k) for i, k in enumerate(("gemm", 5))]
    rows = read(write([*calls, event("cuda_runtime", "hipMemcpy", 3)])).rows
    assert [row["kind"] for row in rows] == ["launch"] * 3
    assert [row["launched"] for row in rows] == ["gemm", None, None]


class TestTime:
    """µs in the file, int64 ns in the rows, to the nanosecond."""

    @pytest.mark.parametrize(
        ("ts", "start_ns"),
        [
            ("1621401187223197", 1_621_401_187_223_197_000),
            ("1712195495519689.047", 1_712_195_495_519_689_047),
            ("1712195495519689.001", 1_712_195_495_519_689_001),
            ("1712195495519689.999", 1_712_195_495_519_689_999),
            ("1.712195495519689047e15", 1_712_195_495_519_689_047),
            *(("4376279982142.243", 4_376_279_982_142_243), ("0.001", 1)),
            # What is less than a nanosecond is rounded to the nearest one, as far as a float64 tells it.
            *(("10.0006", 10_001), ("10.0004", 10_000), ("4398046511105.0009", 4_398_046_511_105_001)),
            *(("-3.5", -3_500), ("7", 7_000)),
        ],
    )
    def test_exact(self, read, write, ts, start_ns):
        text = f'{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":0.013}}'
        (row,) = read(write([text])).rows
        assert (row["start_ns"], row["dur_ns"]) == (start_ns, 13)

    @pytest.mark.parametrize("sign", ["", "-"])
    def test_every_nanosecond_on_both_sides_of_the_exact_bound(self, read, write, sign):
        """2⁴³ µs, from where on a float64 does not tell one nanosecond from the next."""
        known = [4_398_046_511_104_000 + i for i in (0, 1, 2, 3, 998, 999)]
        known += [8_796_093_022_208_001, 8_796_093_022_208_003, 8_796_093_022_209_997]
        texts = [
            f'{{"ph":"X","cat":"kernel","name":"k","tid":1,"ts":{sign}{ns // 1000}.{ns % 1000:03},"dur":1}}'
            for ns in known
        ]
        starts = [row["start_ns"] for row in read(write(texts)).rows]
        assert starts == [-start if sign else start for start in known]

    def test_the_latest_time_and_the_longest_duration(self, read, write, event):
        most = (1 << 61) // 1000
        (row,) = read(write([event("kernel", "k", most, most)])).rows
        assert (row["start_ns"], row["dur_ns"]) == (most * 1000, most * 1000)
        (row,) = read(write([event("kernel", "k", -most, 0)])).rows
        assert (row["start_ns"], row["dur_ns"]) == (-most * 1000, 0)
        for ts, dur, said in ((most + 1, 1, most + 1), (-most - 1, 1, -most - 1), (1, most + 1, most + 1)):
            path = write([event("kernel", "a", 1, 1), event("kernel", "k", ts, dur)])
            assert refused(read, path) == (
                f"{path}: within 1 MiB after byte 17: impossible time: {said} µs; is the file damaged?"
            )

        for ts, dur in (("1", "1e300"), ("9" * 40, "1"), ("1", "9" * 30)):
            row = f'{{"ph":"X","cat":"kernel","name":"k","tid":1,"ts":{ts},"dur":{dur}}}'
            refused(read, write([row]), "impossible time")

    @pytest.mark.parametrize(("sign", "ts"), [(1, 1), (-1, -1)])
    def test_the_latest_time_since_a_base(self, read, write, event, sign, ts):
        base = sign * ((1 << 61) - 1000)
        (row,) = read(write([event("kernel", "k", ts)], baseTimeNanoseconds=base)).rows
        assert row["start_ns"] == sign << 61
        rows = [event("kernel", "a", 0), event("kernel", "late" * 20, ts * 1.001, 2), event("kernel", "b", 0)]
        with pytest.raises(InputError) as caught:
            read(write(rows, baseTimeNanoseconds=base))
        assert caught.value.what == f"impossible time: ts {ts * 1.001}, dur 2 of {'late' * 15!r}"


class TestOrder:
    """What a cut file's horizon rests on."""

    @pytest.mark.parametrize(
        ("rows", "ordered"),
        [
            ((("kernel", 1), ("gpu_memcpy", 2), ("kernel", 3)), True),
            ((("kernel", 1), ("gpu_memcpy", 5), ("kernel", 3)), False),
            ((("kernel", 1), ("gpu_memset", 1)), True),
            ((("kernel", 9), ("cuda_sync", 1), ("cpu_op", 0)), True),  # which no horizon needs
        ],
    )
    def test_across_kinds(self, read, write, event, rows, ordered):
        events = [event(category, "x", start) for category, start in rows]
        assert read(write(events), allow_truncated=True).trace.device_rows_in_order is ordered

    @pytest.mark.parametrize(("last", "ordered"), [(6, False), (7, True), (8, True)])
    def test_across_chunks(self, read, write, event, monkeypatch, last, ordered):
        monkeypatch.setattr(json_events, "CHUNK", 100)
        rows = ("kernel", 5), ("kernel", 7), ("cpu_op", 9), ("kernel", last)
        events = [event(category, "x", start) for category, start in rows]
        assert read(write(events), allow_truncated=True).trace.device_rows_in_order is ordered


MOST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("category", "args", "told"),
    [
        *(("gpu_memset", {"bytes": 9, "size": 5}, 9), ("gpu_memset", {"size": 5}, 5)),
        *(("gpu_memcpy", {"bytes": told}, told) for told in (0, MOST)),
        *(("gpu_memcpy", args, None) for args in ({}, {"bytes": -1}, {"bytes": 4.0})),
        *(("gpu_memcpy", {"size": size}, None) for size in (MOST + 1, "5")),
    ],
)
def test_bytes_of_copies_and_fills(read, write, event, category, args, told):
    (row,) = read(write([event(category, "x", **args)])).rows
    assert row["bytes"] == told

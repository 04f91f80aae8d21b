# SPDX-License-Identifier: Apache-2.0
"""What each finding rests on, in the order shown: the row it is about first, then what explains it."""

from __future__ import annotations

import pytest
from helpers.hand_results import Row, a_rank, by_rank, found, row

GIVEN = """
held: time.idle_host 0.3 0.3 | data.stall 0.5 | memory.peak_reserved 0.5 | launch.delay 0.5
held: launch.queue_length 3
short: time.idle_device 0.001 0.001 | launch.short_kernels 0.6 | compute.launch_bound_share 0.6
short: compute.kernel_time 5e-6 | compute.kernel_count 1000
waits: time.exposed_wait 0.3 0 | balance.load_imbalance 0.2 | comm.skew 0.2 | overlap.pipeline_bubble 0.2
waits: compute.moe_share 0.2 | compute.category_share 0.2 category=moe
transfers: time.exposed_transfer 0.1 0.1 +link | comm.transfer 0.2 +link | comm.busbw 0.2 +link
transfers: comm.alpha 0.2 +link | comm.beta 1e-9 +link | overlap.same_stream 0.1
transfers: comm.bandwidth_utilization 0.5
kernels: compute.time 0.8 0.8 | compute.gemm_efficiency 0.4 | memory.bound_share 0.3
kernels: memory.hbm_utilization 0.3 | compute.roofline_efficiency 0.3
data_loading: +held | time.idle_host_by 0.2 0.2 category=loader
device_allocation: +held | time.idle_host_by 0.2 0.2 category=allocation
cold_start: +held | time.idle_host_by 0.2 0.2 category=cold_start
synchronization: +held | time.idle_host_by 0.2 0.2 category=sync
before_capture: +held | time.idle_host_by 0.2 0.2 category=capture
host_bound: +held | time.idle_host_by 0.2 0.2 category=python | time.idle_host_by 0.2 0.2 category=operators
host_bound: time.idle_host_by 0.2 0.2 category=unrecorded | time.idle_host_by 0.2 0.2 category=launch
short_kernels: +held | +short | time.idle_host_by 0.2 0.2 category=launch
short_kernels: time.idle_host_by 0.2 0.2 category=operators
pipeline_bubble: +waits | time.exposed_wait 0.3 0 collective=recv | time.exposed_wait 0.1 collective=send
expert_imbalance: +waits | time.exposed_wait 0.3 0 collective=all_to_all
late_rank: +waits | time.exposed_wait 0.3 0 collective=all_reduce | balance.caused_wait 0.25 category=1
late_rank: balance.straggler_rank 1 reason=rank~1~is~late~by~250~ms | balance.straggler_rank 1 category=1
late_rank: balance.straggler_rank 0.25 category=1 stat=late_by
late_rank: balance.straggler_rank 0.001 category=1 stat=p_value
late_rank: balance.straggler_rank 0.2 category=1 stat=excess_compute
uneven_ranks: +waits | time.exposed_wait 0.3 0 collective=all_reduce
uneven_ranks: balance.straggler_rank 0.4 reason=no~rank~stands~out
small_messages: +transfers | comm.count 20 +link | comm.volume 2e3 +link
exposed_communication: +transfers | comm.count 2 +link | comm.volume 2e9 +link
low_gemm_efficiency: +kernels | compute.roofline_efficiency 0.2 category=gemm
low_gemm_efficiency: compute.category_share 0.3 0.3 category=gemm
low_gemm_efficiency: compute.above_roofline 0.2 0.2 category=gemm
low_attention_efficiency: +kernels | compute.category_share 0.3 0.3 category=attention
low_attention_efficiency: compute.roofline_efficiency 0.2 category=attention
low_attention_efficiency: compute.above_roofline 0.2 0.2 category=attention
below_roofline: +kernels | compute.category_share 0.3 0.3 category=convolution
below_roofline: compute.roofline_efficiency 0.2 category=convolution
below_roofline: compute.above_roofline 0.2 0.2 category=convolution
memory_bound: +kernels | compute.category_share 0.3 0.3 category=elementwise
memory_bound: compute.category_share 0.3 0.3 category=copy
memory_bound: compute.category_share 0.3 0.3 category=normalization
memory_bound: compute.category_share 0.3 0.3 category=reduction
tensor_cores: compute.product_time 0.3 0.3 category=without_tensor_cores stat=fp32
tensor_cores: compute.product_time 0.5 | compute.gemm_efficiency 0.9
misaligned_products: compute.product_time 0.2 0.1 category=misaligned stat=bf16
misaligned_products: compute.product_time 0.3 0.3 category=misaligned stat=fp16 | compute.gemm_efficiency 0.9
double_precision: compute.precision_time 0.4 0.4 category=fp64 | compute.time 0.8 0.8
double_precision: compute.precision_time 0.7
contention: compute.contention 1.2 1.2 | compute.contention 0.08 0.08 stat=excess unit=s
contention: time.overlapped 0.5 0.5 | compute.achieved_flops 1e12
recompute: compute.time 0.8 0.8 | compute.recompute_share 0.2 0.2
recompute: memory.peak_allocated 2 | memory.peak_reserved 3
device_stalls: time.idle_device 0.2 0.1 | compute.kernel_count 100
fragmentation: memory.reserved_unused 3e9 | memory.fragmentation 0.3 unit=1
fragmentation: memory.peak_reserved 10e9 | memory.peak_allocated 7e9
memory_leak: memory.leak 3e6 | memory.leak 1e6 category=f1~a.py:1 | memory.leak 2e6 category=f2~a.py:2
out_of_memory: memory.out_of_memory 1 reason=too~much~is~held | memory.out_of_memory 1e9 stat=asked
out_of_memory: memory.out_of_memory 1e9 stat=largest_free | memory.out_of_memory 1e9 stat=unused
out_of_memory: memory.out_of_memory 2e9 stat=held category=f~a.py:1
exposed_copies: time.exposed_copy 0.1 0.1 | time.exposed_copy 0.01 category=d2d
exposed_copies: time.exposed_copy 0.04 category=h2d~pinned | time.exposed_copy 0.02 category=memset
exposed_copies: time.exposed_copy 0.03 category=d2h | memory.copy_bandwidth 1e9
exposed_copies: memory.copy_bandwidth 1e9 category=d2d | memory.copy_bandwidth 1e9 category=d2h
exposed_copies: memory.copy_bandwidth 1e9 category=h2d
slow_device: balance.kernel_speed 1 category=0 | balance.kernel_speed 1 category=1
slow_device: balance.kernel_speed 1.25 category=2 | balance.kernel_speed 1.25
slow_device: balance.kernel_speed 1.2 category=2 stat=gemm | balance.kernel_speed 1.2 category=2 stat=norm
slow_device: compute.time 0.7 0.7 0.9 | balance.load_imbalance 1.2
slow_link: time.exposed_transfer 0.2 0.2 +link | comm.busbw 40 +link category=1~MiB | comm.busbw 40 +link
slow_link: comm.busbw 100 +link group=2-3 category=1~MiB | comm.busbw 100 +link group=2-3
slow_link: comm.busbw 110 +link group=4-5 category=1~MiB | comm.busbw 110 +link group=4-5
slow_network: time.exposed_transfer 0.2 0.2 +link | comm.busbw 2e9 +link category=64MiB-256MiB
slow_network: comm.bandwidth_utilization 0.04 +link category=64MiB-256MiB
throttling: compute.drift 1.2 1.2 | compute.drift 1 1 stat=later_longer | compute.time 0.8 0.8
host_pauses: +held | time.idle_host_by 0.2 0.2 category=python
host_pauses: time.idle_host_by 0.2 0.2 category=unrecorded
warm_up: time.step 5 step=0 | time.step 1 step=1 | time.step 1 step=2 | time.step 1 step=3
warm_up: time.step 1 stat=p50 | time.step 5 stat=max
missing_ranks: time.exposed_unmatched 0.1 0.1
unlinked_launches: time.idle_unknown 0.2 | time.idle 0.3
"""
"""Rows: a metric, its value or those of two ranks, and its keys. `+` stands for the rows of that name."""

SHOWN = """
data_loading: time.idle_host | time.idle_host_by loader | data.stall
device_allocation: time.idle_host | time.idle_host_by allocation | memory.peak_reserved
cold_start: time.idle_host | time.idle_host_by cold_start
synchronization: time.idle_host | time.idle_host_by sync | launch.delay
before_capture: time.idle_host | time.idle_host_by capture
host_bound: time.idle_host | time.idle_host_by python | time.idle_host_by unrecorded
host_bound: time.idle_host_by operators | time.idle_host_by launch | launch.delay | launch.queue_length
short_kernels: time.idle_host_by launch | time.idle_host_by operators | time.idle_device
short_kernels: launch.short_kernels | compute.kernel_time | compute.launch_bound_share
pipeline_bubble: time.exposed_wait send | time.exposed_wait recv | overlap.pipeline_bubble
expert_imbalance: time.exposed_wait all_to_all | balance.load_imbalance | compute.moe_share
late_rank: balance.straggler_rank 1 | balance.straggler_rank 1 late_by | balance.straggler_rank 1 p_value
late_rank: balance.straggler_rank 1 excess_compute | balance.caused_wait 1 | time.exposed_wait
late_rank: balance.load_imbalance
uneven_ranks: time.exposed_wait | balance.straggler_rank | balance.load_imbalance | comm.skew
small_messages: comm.count all_reduce 0-1 | comm.volume all_reduce 0-1 | comm.alpha all_reduce 0-1
small_messages: comm.beta all_reduce 0-1 | time.exposed_transfer all_reduce 0-1
exposed_communication: time.exposed_transfer all_reduce 0-1 | comm.transfer all_reduce 0-1
exposed_communication: comm.busbw all_reduce 0-1 | overlap.same_stream | comm.bandwidth_utilization
low_gemm_efficiency: compute.gemm_efficiency | compute.roofline_efficiency gemm
low_gemm_efficiency: compute.above_roofline gemm | compute.category_share gemm
low_attention_efficiency: compute.roofline_efficiency attention | compute.above_roofline attention
low_attention_efficiency: compute.category_share attention
below_roofline: compute.roofline_efficiency convolution | compute.above_roofline convolution
below_roofline: compute.category_share convolution
memory_bound: compute.category_share elementwise | compute.category_share copy
memory_bound: compute.category_share normalization | compute.category_share reduction | memory.bound_share
memory_bound: memory.hbm_utilization | compute.roofline_efficiency
tensor_cores: compute.product_time without_tensor_cores fp32 | compute.product_time
tensor_cores: compute.gemm_efficiency
misaligned_products: compute.product_time misaligned bf16 | compute.product_time misaligned fp16
misaligned_products: compute.gemm_efficiency
double_precision: compute.precision_time fp64 | compute.precision_time | compute.time
contention: compute.contention | time.overlapped
recompute: compute.recompute_share | memory.peak_allocated | memory.peak_reserved
device_stalls: time.idle_device | compute.kernel_count
fragmentation: memory.reserved_unused | memory.fragmentation | memory.peak_reserved
fragmentation: memory.peak_allocated
memory_leak: memory.leak | memory.leak f2 a.py:2 | memory.leak f1 a.py:1
out_of_memory: memory.out_of_memory | memory.out_of_memory asked | memory.out_of_memory unused
out_of_memory: memory.out_of_memory largest_free | memory.out_of_memory f a.py:1 held
exposed_copies: time.exposed_copy | time.exposed_copy h2d pinned | time.exposed_copy d2h
exposed_copies: time.exposed_copy memset | memory.copy_bandwidth h2d | memory.copy_bandwidth d2h
slow_device: balance.kernel_speed | balance.kernel_speed 2 | balance.load_imbalance
slow_link: comm.busbw all_reduce 0-1 | time.exposed_transfer all_reduce 0-1
slow_network: comm.bandwidth_utilization 64MiB-256MiB all_reduce 0-1
slow_network: comm.busbw 64MiB-256MiB all_reduce 0-1 | time.exposed_transfer all_reduce 0-1
throttling: compute.drift
host_pauses: time.idle_host | time.idle_host_by python | time.idle_host_by unrecorded | launch.delay
warm_up: time.step | time.step p50 | time.step max
missing_ranks: time.exposed_unmatched
unlinked_launches: time.idle_unknown | time.idle
"""
"""What is shown of a finding, in this order: a metric and its keys."""


def of(name: str, table: str) -> list[str]:
    """What a table has of that name."""
    lines = [line.removeprefix(f"{name}: ") for line in table.split("\n") if line.startswith(f"{name}: ")]
    return " | ".join(lines).split(" | ")


def given(name: str) -> list[Row]:
    """The rows of that name."""
    rows: list[Row] = []
    for told in of(name, GIVEN):
        metric, *words = told.replace("+link", "collective=all_reduce group=0-1").split()
        values = [float(word) for word in words if "=" not in word]
        texts = dict(word.replace("~", " ").split("=", 1) for word in words if "=" in word)
        keys = texts | {key: int(texts[key]) for key in ("step", "rank") if key in texts}
        if metric.startswith("+"):
            rows += given(metric[1:])
        else:
            rows += by_rank(metric, *values, **keys) if len(values) > 1 else [row(metric, *values, **keys)]
    return rows


STEP = by_rank("time.step", 1.0, 1.0)
NAMES = dict.fromkeys(line.partition(":")[0] for line in SHOWN.splitlines() if line)
PAUSES = [row("time.idle_host_by", n % 2 * 0.8, rank=rank, step=n) for rank in (0, 1) for n in range(4)]


def test_what_communication_rests_on_that_nobody_can_tell_from_waiting() -> None:
    rows = [*by_rank("time.exposed_unmatched", 0.2, 0.2), row("time.exposed_comm", 0.3)]
    rows += [row("overlap.ratio", 0.5)]
    one = found(*STEP, *rows)["exposed_communication"]
    shown = ["time.exposed_unmatched", "time.exposed_comm", "overlap.ratio"]
    assert [e.metric for e in one.evidence] == shown


@pytest.mark.parametrize("name", NAMES)
def test_what_a_finding_rests_on(name: str) -> None:
    on = "host" if name == "double_precision" else "device"
    ranks = [a_rank(one, facts={"works_on": on, "world_size": 4}) for one in range(2)]
    rows = [*STEP, *given(name), *(PAUSES if name == "host_pauses" else ())]
    one = found(*rows, ranks=ranks)[name]
    keys = ((e.metric, e.category, e.collective, e.group, e.stat) for e in one.evidence)
    assert [" ".join(filter(None, key)) for key in keys] == of(name, SHOWN)

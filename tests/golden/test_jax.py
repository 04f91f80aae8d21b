# SPDX-License-Identifier: Apache-2.0
"""Jobs of JAX: figures, memory of programs and input pipelines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cclbench.analyzers.view.histories import run_histories
from cclbench.cli import main
from cclbench.formats.xplane.collectives import DeviceMember, program_payload
from cclbench.formats.xplane.space import XSpace
from cclbench.operator_table import operator_costs_by
from cclbench.present.program_memory import peak_allocation, program_documents, program_rows
from cclbench.record.run import Run

from .conftest import Measure

ID = "tiny-jax-dp2-tp4-cpu"
DEVICES, STEPS = range(8), range(2, 14)
HIDDEN, VOCABULARY, LAYERS, BATCH, SEQUENCE, DP, TP = 128, 1024, 1, 4, 128, 2, 4
FLOAT = 4
ACTIVATIONS = BATCH // DP * SEQUENCE * HIDDEN * FLOAT
LAYER_WEIGHTS = LAYERS * 12 * HIDDEN * HIDDEN // TP * FLOAT
SHARED_WEIGHTS_AND_LOSS = (2 * VOCABULARY * HIDDEN + 1) * FLOAT


@dataclass(frozen=True)
class Op:
    """An op of a device, ps after the profile's begin."""

    name: str
    device: int
    run: int
    begin: int
    end: int


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value, at

    at = 0
    while at < len(message):
        tag, at = varint(at)
        if tag & 7 == 0:
            value, at = varint(at)
            yield tag >> 3, value
        else:
            length, at = varint(at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            yield tag >> 3, message[at : at + length]
            at += length


def planes(path: Path) -> dict[str, bytes]:
    """The planes of a profile by name."""
    found = [plane for number, plane in fields(path.read_bytes()) if number == 1]
    return {dict(fields(plane))[2].decode(): plane for plane in found}


def named(plane: bytes, field: int) -> dict[int, str]:
    """A plane's names of events (4) or stats (5) by id."""
    found = (dict(fields(entry)) for number, entry in fields(plane) if number == field)
    return {entry.get(1, 0): dict(fields(entry[2])).get(2, b"").decode() for entry in found}


@cache
def ops(path: Path) -> list[Op]:
    """All ops of the profile."""
    plane = planes(path)["/host:CPU"]
    events, stats = named(plane, 4), named(plane, 5)
    begun: list[tuple[dict[str, Any], int, int]] = []
    ended: dict[int, int] = {}
    for number, line in fields(plane):
        if number != 3:
            continue
        since = dict(fields(line)).get(3, 0) * 1000
        for inner, event in fields(line):
            if inner != 4:
                continue
            own = dict(fields(event))
            told = {}
            for part, stat in fields(event):
                if part == 4:
                    (at, value) = (found := dict(fields(stat))).pop(1), next(iter(found.values()))
                    told[stats[at]] = stats[value] if stats[at] == "hlo_op" else value
            begin = since + own.get(2, 0)
            if "hlo_op" in told:
                begun.append((told, begin, begin + own.get(3, 0)))
            elif events[own[1]].startswith("end: "):
                ended[told["_c"]] = begin
    return [
        Op(told["hlo_op"], told.get("device_ordinal", 0), told["run_id"], begin, max(end, ended[told["_p"]]))
        for told, begin, end in begun
    ]


def communicates(op: Op) -> bool:
    return op.name.partition(".")[0] in ("all_gather", "reduce_scatter", "all-reduce")


@cache
def epoch(path: Path) -> int:
    """When the profile began, ns."""
    plane = planes(path)["Task Environment"]
    stats = named(plane, 5)
    told = {stats[dict(fields(stat))[1]]: dict(fields(stat)) for number, stat in fields(plane) if number == 6}
    return int(next(value for at, value in told["profile_start_time"].items() if at != 1))


def union(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Length of the union within [begin, end)."""
    total, reached = 0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        total, reached = total + max(last - first, 0), max(reached, last)
    return total


def partition(path: Path, device: int) -> dict[int, dict[str, int]]:
    """ns of each part by step: begins and ends rounded down to ns, as int64 ns has them."""
    own = [
        (op, op.begin // 1000 + epoch(path), op.end // 1000 + epoch(path))
        for op in ops(path)
        if op.device == device
    ]
    starts: dict[int, int] = {}
    for op, begin, _ in own:
        starts[op.run] = min(begin, starts.get(op.run, begin))
    last = max(end for _, _, end in own)
    begins = sorted(starts.values())
    transfer = [(begin, end) for op, begin, end in own if communicates(op)]
    work = [(begin, end) for op, begin, end in own if not communicates(op)]
    found = {}
    for step, begin, end in zip(STEPS, begins, [*begins[1:], last], strict=True):
        c, k, both = (union(spans, begin, end) for spans in (work, transfer, work + transfer))
        found[step] = {
            "time.step": end - begin, "time.compute_only": both - k, "time.overlapped": c + k - both,
            "time.exposed_comm": both - c, "time.exposed_copy": 0, "time.idle": end - begin - both,
        }  # fmt: skip
    return found


@pytest.fixture
def run(repository: Path, measure: Measure) -> Run:
    """The data point's run, through its card."""
    return measure(repository / "workload_cards" / f"{ID}.yaml")


@pytest.fixture
def profile(repository: Path) -> Path:
    """Its trace."""
    return repository / "traces" / ID / "tiny_jax.xplane.pb"


@pytest.mark.parametrize("device", DEVICES)
def test_times_are_those_of_a_sweep_over_the_events(run: Run, profile: Path, device: int) -> None:
    by_hand = partition(profile, device)
    assert {row["step"] for row in run.rows if row["rank"] == device} - {None} == set(STEPS)
    for step, parts in by_hand.items():
        measured = {
            row["metric"]: round(row["value"] * 1e9)
            for row in run.rows
            if (row["rank"], row["step"]) == (device, step) and row["metric"] in parts
        }
        assert measured == parts, step
        assert min(parts["time.compute_only"], parts["time.overlapped"], parts["time.exposed_comm"]) > 0


def test_products_count_the_flops_of_the_model_and_phases_sum_to_all_time(run: Run) -> None:
    """2·M·N·K of each product in a step of a device, by the model's own sizes.

    Weights: forward, and a product for either gradient. Attention: two products forward, four backward. The
    forward product of the vocabulary runs in one kernel with two operations of the loss.
    """
    by_op, by_phase = operator_costs_by(run, ("op", "phase"))
    (products,) = (row for row in by_op.rows if row.key == "dot_general")
    tokens, heads_size = BATCH // DP * SEQUENCE, HIDDEN // TP
    weights = 3 * 2 * tokens * 12 * HIDDEN**2 // TP
    attention = 6 * 2 * (BATCH // DP) * SEQUENCE**2 * heads_size
    vocabulary = (3 * 2 * HIDDEN + 2) * (tokens // TP) * VOCABULARY
    steps = by_op.windows
    assert steps == 88
    assert products.flops == steps * (LAYERS * (weights + attention) + vocabulary)
    assert by_op.linked_share == 1
    assert {row.key for row in by_phase.rows} == {"forward", "backward", "other"}
    assert sum(row.time_ns for row in by_phase.rows) == sum(row.time_ns for row in by_op.rows)
    table = run.operators().to_pandas()
    (line,) = set(table[table.shapes == "[[256,32],[32,128]]"].call_site)
    assert line == "tiny_jax.py(83): attention"


def test_every_collective_is_matched_on_all_devices_of_its_group(run: Run, profile: Path) -> None:
    calls = run.collectives().to_pandas()
    assert len(calls) == sum(map(communicates, ops(profile))) == 8 * 12 * (4 * 4 * LAYERS // 2 + 2)
    assert calls["instance"].notna().all()
    members = {group["group"]: group["ranks"] for group in run.groups().to_pylist()}
    assert sorted(map(tuple, members.values())) == sorted(
        [(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7), tuple(DEVICES)]
    )
    for _, parts in calls.groupby("instance"):
        assert parts["group"].nunique() == parts["kind"].nunique() == parts["seq"].nunique() == 1
        assert sorted(parts["rank"]) == members[parts["group"].iloc[0]]
        assert parts["wait_ns"].min() == 0  # of who comes last


def test_the_program_s_replica_groups_are_whom_devices_met(profile: Path) -> None:
    """The groups of HLO, through the device assignment, are those that the rendezvous' names list."""
    ran = XSpace(profile).host_profile
    met = [op for op in ran.ops if op.meeting]
    assert len(met) == 960
    for op in met:
        program = ran.programs[op.program]
        known, ids = program.instructions[op.name], program.device_ids
        assert ids is not None
        payload = program_payload(known, op.program, DeviceMember(op.device, {op.program: ids}))
        assert sorted(payload.ranks or ()) == sorted(op.meeting.devices)


def test_payloads_are_those_of_the_model(run: Run) -> None:
    """A layer gathers its input twice and scatters its output twice, forward and again backward."""
    calls = run.collectives().to_pandas()
    members = {group["group"]: len(group["ranks"]) for group in run.groups().to_pylist()}
    said = [set(calls[column]) for column in ("dtype", "payload_source", "library")]
    assert said == [{"f32"}, {"hlo"}, {"xla"}]
    for _, own in calls.groupby(["rank", "step"]):
        columns = own["kind"], own["group"].map(members), own["in_bytes"], own["out_bytes"]
        assert Counter(zip(*(column.tolist() for column in columns), strict=True)) == {
            ("all_gather", TP, ACTIVATIONS // TP, ACTIVATIONS): 4 * LAYERS,
            ("reduce_scatter", TP, ACTIVATIONS, ACTIVATIONS // TP): 4 * LAYERS,
            ("all_reduce", DP, LAYER_WEIGHTS, LAYER_WEIGHTS): 1,
            ("all_reduce", DP * TP, SHARED_WEIGHTS_AND_LOSS, SHARED_WEIGHTS_AND_LOSS): 1,
        }


def test_each_device_ran_the_same_ops_and_all_are_classified(run: Run, profile: Path) -> None:
    names: dict[int, Counter[str]] = defaultdict(Counter)
    for op in ops(profile):
        names[op.device][op.name] += 1
    assert set(names) == set(DEVICES)
    assert len({frozenset(counted.items()) for counted in names.values()}) == 1
    for entry in run.manifest["ranks"]:
        assert entry["rows"]["kernel"] == sum(names[entry["rank"]].values())
        assert entry["unclassified"] == {"share": 0.0, "names": []}
        assert entry["steps"]["left_out"] == {}
    assert run.manifest["matching"]["matched"] == len(run.collectives())


def by_kind(program: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        f"{row['kind']} {row['memory_space']}": (row["allocations"], row["bytes"])
        for row in program["buffers"]
    }


def test_a_training_step_on_an_h100(measure: Any, repository: Path) -> None:
    run = measure(repository / "traces/tiny-jax-h100")
    (program,) = program_documents(run)
    assert (program["module"], program["bytes"], program["reasons"]) == ("jit_train_step", 4_666_540_952, [])
    kinds = {"parameter 0": (2, 65_536), "parameter_output 0": (18, 209_715_200), "output 0": (2, 156)}
    kinds |= {"temporary 0": (1, 4_456_759_568), "thread_local 0": (123, 492)}
    assert by_kind(program) == kinds
    assert sum(row["bytes"] for row in program["buffers"]) == program["bytes"]
    peak = program["peak"]
    live = sum(row["bytes"] for row in peak["live"])
    assert (len(peak["live"]), live, peak["untraced"], peak["unused"]) == (68, 4_456_742_912, 1056, 15_600)
    # Scores and probabilities of attention in each of 4 layers: 16 sequences, 16 heads, 512² of float32.
    attention = [row for row in peak["live"] if row["bytes"] == 16 * 16 * 512 * 512 * 4]
    sites = {f"tiny_jax.py({line}): attention" for line in (79, 81)}
    assert {row["call_site"] for row in attention} == sites
    (history,) = run_histories(run)
    held = {"bytes": 4_456_759_808, "assigned": 4_456_759_568}
    assert peak_allocation(history, [program]) == {"module": "jit_train_step", "kind": "temporary", **held}


def test_its_rows_and_page_say_that_they_are_compiled(measure: Any, repository: Path, tmp_path: Path) -> None:
    source = repository / "traces/tiny-jax-h100"
    rows = list(program_rows(program_documents(measure(source))))
    assert {(row["source"], row["module"]) for row in rows} == {("compiler", "jit_train_step")}
    sizes = {row["buffers"]: (row["blocks"], row["bytes"]) for row in rows}
    assert sizes["temporaries"] == (1, 4_456_759_568)
    assert sum(size for _, size in sizes.values()) == 4_666_540_952
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    page = tmp_path / "page.html"
    assert main(["report", str(source), "-o", str(page), "--store", str(tmp_path / "runs"), "-q"]) == 0
    _, _, rest = page.read_text(encoding="utf-8").partition('<section id="programs">')
    section = rest.partition("</section>")[0]
    assert "as compiled, not measured" in section
    assert "4,456,759,568 bytes, assigned by the compiler" in section
    assert "tiny_jax.py(79): attention" in section  # it holds most of them
    unknown = {
        "provenance": "compiler", "module": "jit_f", "bytes": None, "buffers": [], "reasons": ["a", "b"],
    }  # fmt: skip
    assert list(program_rows([unknown])) == [{"source": "compiler", "module": "jit_f", "reason": "a; b"}]


def test_a_training_step_on_cpu_devices(measure: Any, repository: Path) -> None:
    (program,) = program_documents(measure(repository / "traces/tiny-jax-dp2-tp4-cpu"))
    assert (program["module"], program["bytes"]) == ("jit_train_step", 4_282_280)
    assert by_kind(program)["temporary 0"] == (1, 3_036_256)
    assert sum(row["bytes"] for row in program["peak"]["live"]) == 3_036_160


def test_a_convolution_on_eight_gpus(measure: Any, test_data: Path) -> None:
    run = measure(test_data / "xprof" / "mi300x_8gpu_jax_conv.xplane.pb")
    programs = program_documents(run)
    assert (len(programs), programs[0]["module"]) == (8, "jit_forward_3d_conv")
    matched = [peak_allocation(history, programs) for history in run_histories(run)]
    expected = {"module": "jit_forward_3d_conv", "kind": "temporary", "bytes": 579_072_256}
    assert matched == [expected | {"assigned": 579_072_256}] * 8


def test_parameters_in_the_memory_of_a_tpus_host(measure: Any, test_data: Path) -> None:
    run = measure(test_data / "xprof" / "tpu_v6e_4plane_host_offload_psum.xplane.pb")
    program = program_documents(run)[0]
    assert program["module"] == "jit_f"
    assert by_kind(program)["parameter_output 5"] == (3, 3 * 5 * 1 << 30)
    assert by_kind(program)["temporary 1"] == (1, 0)

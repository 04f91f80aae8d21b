# SPDX-License-Identifier: Apache-2.0
"""Files that hold several ranks, folders that hold several kinds of files: by readers made for the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

import cclbench
import cclbench.card_facts
from cclbench import formats
from cclbench.analyzers.view.sources import side_by_side
from cclbench.ground.errors import InputError
from cclbench.ground.evidence_schema import COUNTERS, SERVING
from cclbench.record.facts import TraceFacts
from cclbench.record.rows import Row as Figure

Row = dict[str, Any]


class Toy(formats.Reader):
    """A trace in JSON: members, each with kernels, device steps and samples of counters."""

    description = "toy traces"
    extensions = (".toy",)
    versions = "1"
    tested = "documentation: this file"

    def __init__(self, name: str) -> None:
        self.name = name

    def sniff(self, head: bytes) -> float:
        return 1.0 if head.startswith(b'{"' + self.name.encode()) else 0.0

    def parts(self, path: Path) -> list[formats.Part]:
        """Two parts a member: its kernels one after the other."""
        members = json.loads(path.read_text())[self.name]
        return [formats.Part(name, begin, begin + 1) for name in members for begin in range(2)]

    def read(self, path: Path, *, part: formats.Part, allow_truncated: bool = False) -> formats.Trace:
        assert not allow_truncated or part.is_whole
        member = json.loads(path.read_text())[self.name][part.member]
        kernels = member["kernels"] if part.is_whole else member["kernels"][part.begin : part.end]
        first = part.begin == 0 or part.is_whole
        facts = TraceFacts(local_rank=member["local"], hbm_bytes_per_s=member.get("hbm"))
        trace = formats.Trace(batches=iter(()), facts=facts)
        trace.batches = self.batches(kernels, member.get("counters", ()) if first else ())
        trace.device_steps = [formats.DeviceStep(*step) for step in member.get("steps", ()) if first]
        trace.notes = [f"toy of {part.member}"]
        for row, kernel in enumerate(kernels):
            if "comm" in kernel:
                told = {"in_bytes": 8, "ranks": tuple(kernel["comm"])}
                payload = formats.Payload(source="hlo", collective="all_reduce", **told)
                trace.stated_payloads.add_payload(payload, row=row)
        return trace

    def batches(self, kernels: list[Row], counters: list[Row]) -> Iterator[formats.Rows | pa.Table]:
        names = formats.Names()
        codes = np.array([names[k["name"]] for k in kernels], np.int32)
        times = {
            f"{key}_ns": np.array([k[of] for k in kernels]) for key, of in (("start", "at"), ("dur", "for"))
        }
        track, moved = np.zeros(len(kernels), np.int64), pa.array([k.get("hbm") for k in kernels], pa.int64())
        categories = {names[k["name"]]: k["category"] for k in kernels if "category" in k}
        more: Row = {**times, "track": track, "hbm_bytes": moved, "name_categories": categories}
        yield formats.Rows(kind="kernel", side="device", names=names, codes=codes, **more)
        if counters:
            columns = {f.name: [c.get(f.name) for c in counters] for f in COUNTERS}
            yield pa.Table.from_pydict(columns, schema=COUNTERS)


class Client(formats.EvidenceReader):
    """A serving client's file: its first word is `client`, then its mean time to the first token."""

    name = "client"
    description = "toy benchmarks"
    extensions = (".client",)
    versions = "1"
    tested = "documentation: this file"

    def sniff(self, head: bytes) -> float:
        return 1.0 if head.startswith(b"client") else 0.0

    def read(self, path: Path) -> formats.Evidence:
        row = {"benchmark": 0, "figure": "ttft", "stat": "mean", "value": float(path.read_text().split()[1])}
        table = pa.Table.from_pylist([dict.fromkeys(SERVING.names) | row | {"unit": "s"}], schema=SERVING)
        return formats.Evidence(
            serving=table, facts={"engine": "toy"}, left_out={"blank": 1}, notes=["a note"]
        )


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers of this file, known for the length of a test."""
    iter(formats.READERS)
    known = {**formats.READERS._known, "toy": Toy("toy"), "other": Toy("other"), "client": Client()}
    monkeypatch.setattr(formats.READERS, "_known", known)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., cclbench.Run]:
    """Runs the folder `job`."""
    (tmp_path / "job").mkdir()
    return lambda **options: cclbench.run(tmp_path / "job", store=tmp_path / "store", **options)


def kernel(name: str, at: int, length: int, **other: Any) -> Row:
    return {"name": name, "at": at, "for": length, **other}


def write(folder: Path, name: str, kind: str = "toy", **members: Any) -> None:
    (folder / "job" / name).write_text(json.dumps({kind: members}))


def value(run: cclbench.Run, metric: str, **keys: Any) -> Any:
    keys = dict.fromkeys(("rank", "step", "group", "collective", "category", "stat")) | keys
    (row,) = [r for r in run.rows if r["metric"] == metric and all(r[k] == v for k, v in keys.items())]
    return row["reason"] if row["value"] is None else row["value"]


PAIR = {"b": {"local": 1, "kernels": [kernel("gemm", 0, 30), kernel("all-reduce", 40, 60, comm=[0, 1])]}}
PAIR |= {"a": {"local": 0, "kernels": [kernel("gemm", 0, 80), kernel("all-reduce", 80, 20, comm=[0, 1])]}}


def test_members_of_a_file_are_ranks_that_match(tmp_path, run):
    """The second member came 40 ns earlier to the all-reduce: it waited, and both transferred for 20."""
    write(tmp_path, "both.toy", **PAIR)
    found = run()
    expected = [(0, "order of devices"), (1, "order of devices")]
    assert [(r["rank"], r["facts"]["rank_source"]) for r in found.manifest["ranks"]] == expected
    assert found.manifest["ranks"][0]["notes"] == ["toy of a"]
    assert value(found, "time.compute_only", rank=0) == 80e-9
    assert value(found, "time.compute_only", rank=1) == 30e-9
    assert found.manifest["matching"]["complete"] == 1
    assert value(found, "time.exposed_wait", rank=1) == 40e-9
    assert value(found, "time.exposed_transfer", rank=1) == 20e-9
    assert {row["source"] for row in found.rows if row["rank"] is not None} == {"toy"}
    assert found.collectives()["payload_source"].to_pylist() == ["hlo", "hlo"]


@pytest.mark.usefixtures("run")
def test_a_card_names_the_ranks_of_a_file_in_the_order_of_its_devices(tmp_path):
    write(tmp_path, "both.toy", **PAIR)
    card = tmp_path / "job" / "card.yaml"
    card.write_text(
        "version: 2\nid: card\ndescription: a test\nworkload: {phase: training}\n"
        "evidence: {traces: [{path: both.toy, format: toy, ranks: [9, 8]}]}\n"
    )
    found = cclbench.run(card, store=tmp_path / "store", metrics=["time.compute_only"])
    expected = [(8, "card"), (9, "card")]
    assert [(r["rank"], r["facts"]["rank_source"]) for r in found.manifest["ranks"]] == expected
    assert [value(found, "time.compute_only", rank=rank) for rank in (8, 9)] == [80e-9, 30e-9]


def test_several_hosts_files_form_one_run(tmp_path, run):
    write(tmp_path, "host1.toy", **{k: v for k, v in PAIR.items() if k == "b"})
    write(tmp_path, "host0.toy", **PAIR)
    found = run(metrics=["time.compute_only"])
    expected = [(0, "host0.toy"), (1, "host0.toy"), (2, "host1.toy")]
    assert [(r["rank"], r["files"][0]["name"]) for r in found.manifest["ranks"]] == expected
    assert [value(found, "time.compute_only", rank=r) for r in range(3)] == [80e-9, 30e-9, 30e-9]


@pytest.mark.parametrize(
    ("steps", "windows"),
    [
        # Numbered steps reach to the next one's begin; the last, to its own end, is open and in no mean.
        ([["s", 0, 30, 7], ["s", 50, 90, 8], ["main", 0, 99, None]], [(7, 0, 50), (8, 50, 90)]),
        # Without numbers, the runs of the module that takes longest.
        ([["main", 5, 40], ["side", 41, 44], ["main", 50, 95]], [(0, 5, 50), (1, 50, 95)]),
        ([["none", 5, 5]], []),
    ],
)
def test_steps_by_the_devices_own_rows(tmp_path, run, steps, windows):
    member = {"local": 0, "kernels": [kernel("gemm", 5, 20), kernel("gemm", 60, 30)], "steps": steps}
    write(tmp_path, "one.toy", a=member)
    found = run(metrics=["time.compute_only"])
    table = found.steps().to_pylist()
    assert [(s["step"], s["start_ns"], s["end_ns"]) for s in table if s["source"] == "module"] == windows
    assert value(found, "time.compute_only") == (20e-9 if windows else 50e-9)
    steps_of = [event["step"] for event in found.events(kinds=["kernel"]).to_pylist()]
    assert steps_of == [w[0] for w in windows or [(None,)] * 2]


def test_counters_and_categories_and_peaks_of_a_trace(tmp_path, run):
    times = {"start_ns": 0, "end_ns": 5}
    counters = [times | {"counter": "sm_active", "device": 0, "unit": "1", "value": 0.5}]
    counters.append(times | {"counter": "nic_tx_bytes", "unit": "B", "value": 8})
    kernels = [kernel("x", 0, 60, hbm=40, category="moe"), kernel("y", 60, 40, hbm=10)]
    write(tmp_path, "one.toy", a={"local": 0, "hbm": 1e9, "kernels": kernels, "counters": counters})
    found = run(metrics=["memory.hbm_utilization", "compute.category_share"])
    # 50 bytes in 100 ns, of a peak of a byte a nanosecond.
    assert value(found, "memory.hbm_utilization") == 0.5
    assert value(found, "compute.category_share", category="moe") == 0.6
    # What is counted on no device is the host's, not the rank's.
    samples = found.evidence("counters").to_pylist()
    expected = [(0, "toy", "one.toy", 0.5), (None, "toy", "one.toy", 8.0)]
    assert [(s["rank"], s["source"], s["file"], s["value"]) for s in samples] == expected
    assert found.sql("SELECT count(*) AS n FROM counters")["n"].to_pylist() == [2]


def test_evidence_beside_a_trace(tmp_path, run):
    write(tmp_path, "one.toy", a={"local": 0, "kernels": [kernel("x", 0, 60), kernel("y", 60, 40)]})
    (tmp_path / "job" / "bench.client").write_text("client 0.25")
    found = run()
    (entry,) = found.manifest["evidence"]
    assert (entry["name"], entry["reader"], entry["rows"]) == ("bench.client", "client", {"serving": 1})
    expected = ({"engine": "toy"}, {"blank": 1}, ["a note"])
    assert (entry["facts"], entry["left_out"], entry["notes"]) == expected
    schema = json.loads((Path(cclbench.__file__).parent / "schemas" / "manifest.json").read_text())
    jsonschema.Draft7Validator(schema).validate(found.manifest)
    assert value(found, "serving.ttft") == 0.25
    assert found.evidence("serving")["file"].to_pylist() == ["bench.client"]


def test_evidence_alone_is_a_run(tmp_path, run):
    (tmp_path / "job" / "bench.client").write_text("client 0.25")
    found = run()
    assert found.manifest["ranks"] == []
    assert value(found, "serving.ttft") == 0.25
    assert value(found, "time.step") == "the run has no trace"
    assert found.groups().num_rows == 0
    assert "0 ranks" in repr(found)
    with pytest.raises(InputError, match="no trace to create a card from"):
        cclbench.card_facts.card_facts(tmp_path / "job", store=tmp_path / "store")


def test_traces_of_two_kinds_are_shown_side_by_side(tmp_path, run):
    write(tmp_path, "one.toy", "toy", a={"local": 0, "kernels": [kernel("x", 0, 60), kernel("y", 70, 30)]})
    write(tmp_path, "two.toy", "other", a={"local": 0, "kernels": [kernel("x", 0, 50), kernel("y", 50, 50)]})
    found = run(metrics=["time.compute_only"])
    assert found.manifest["sources"] == ["toy"]
    assert {entry["files"][0]["reader"] for entry in found.manifest["ranks"]} == {"other"}
    assert value(found, "time.compute_only") == 100e-9
    assert value(found, "time.compute_only", stat="toy") == 90e-9
    (own,) = [r for r in found.rows if r["rank"] is None and r["stat"] is None]
    assert own["reason"].endswith("and counts as compute; other is preferred; toy states 90.0 ns")
    assert len(found.events(kinds=["kernel"])) == 2


def test_a_metric_one_source_cannot_give_is_the_others():
    def row(source: str, value: float | None, reason: str | None = None, by: str = "measured") -> Figure:
        told = {"provenance": None if value is None else by, "source": source, "reason": reason}
        status = "not_applicable" if value is None else "ok"
        return Figure(metric="m.x", value=value, unit="s", status=status, window="steps", version=1, **told)

    (told,) = side_by_side([row("a", None, "no bytes")], {"b": [row("b", 2.0)]})
    assert (told.value, told.source, told.reason) == (2.0, "b", "by b: a has no value (no bytes)")
    modelled = row("a", 7.0, by="modelled")
    (told,) = side_by_side([modelled], {"b": [row("b", 2.0)]})
    assert (told.value, told.reason) == (2.0, "by b: a has no value")
    assert side_by_side([row("a", 2.0)], {"b": [row("b", 7.0, by="modelled")]}) == [row("a", 2.0)]
    nobody = side_by_side([row("a", None, "no bytes")], {"b": [row("b", None, "none")]})
    assert [r.reason for r in nobody] == ["no bytes"]


def test_a_damaged_range_is_read_again_in_order(tmp_path, run, monkeypatch):
    write(tmp_path, "one.toy", a={"local": 0, "kernels": [kernel("x", 0, 60), kernel("y", 70, 30)]})
    whole = Toy.read

    def broken(self: Toy, path: Path, *, part: formats.Part, allow_truncated: bool = False) -> formats.Trace:
        if part.begin == 1:
            raise InputError("damaged")
        return whole(self, path, part=part, allow_truncated=allow_truncated)

    monkeypatch.setattr(Toy, "read", broken)
    assert value(run(metrics=["time.compute_only"]), "time.compute_only") == 90e-9

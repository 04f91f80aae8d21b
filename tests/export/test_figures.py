# SPDX-License-Identifier: Apache-2.0
"""Figures for tools that record metrics: exact texts by hand, and what those tools' own libraries read."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.analyzers.metric import METRICS
from cclbench.cli import main
from cclbench.export.figures import Figure, figures_of, keyed_values, step_values
from cclbench.export.otlp import otlp_text
from cclbench.export.prometheus import prometheus_name, prometheus_text
from cclbench.record.metric_name import MetricName
from cclbench.record.rows import Row

Export = Callable[..., Path]


def row(metric: str, value: float | None, unit: str = "s", **changes: Any) -> Row:
    known = {"status": "ok", "provenance": "measured"} if value is not None else {"status": "not_applicable"}
    fields = {"window": "steps", "version": 1, **known, **changes}
    return Row(metric=MetricName(metric), value=value, unit=unit, **fields)


ROWS = [row("mine.step", 0.25), row("mine.step", 0.5, rank=3), row("mine.step", 0.125, step=7)]
ROWS += [row("mine.busbw", 3e11, "B/s", collective='all"\\reduce', status="partial", provenance="modelled")]
ROWS += [row("mine.busbw", None, "B/s", reason="no calls\nare recorded")]


def test_a_textfile_by_hand() -> None:
    assert prometheus_text("job-1", figures_of(ROWS)) == (
        r"# mine.busbw has no value: not_applicable: no calls\nare recorded" + "\n"
        "# HELP cclbench_mine_busbw_bytes_per_second \n"
        "# TYPE cclbench_mine_busbw_bytes_per_second gauge\n"
        r'cclbench_mine_busbw_bytes_per_second{run="job-1",collective="all\"\\reduce",window="steps",'
        'provenance="modelled",status="partial"} 300000000000.0\n'
        "# HELP cclbench_mine_step_seconds \n"
        "# TYPE cclbench_mine_step_seconds gauge\n"
        'cclbench_mine_step_seconds{run="job-1",window="steps",provenance="measured"} 0.25\n'
        'cclbench_mine_step_seconds{run="job-1",rank="3",window="steps",provenance="measured"} 0.5\n'
    )


def test_opentelemetry_by_hand() -> None:
    (resource,) = json.loads(otlp_text("job-1", {}, 5, figures_of(ROWS)))["resourceMetrics"]
    bandwidth, step = resource["scopeMetrics"][0]["metrics"]
    assert (bandwidth["name"], bandwidth["unit"], step["unit"]) == ("cclbench.mine.busbw", "By/s", "s")
    valued, missing = bandwidth["gauge"]["dataPoints"]
    assert (valued["asDouble"], valued["timeUnixNano"]) == (3e11, "5")
    assert ("asDouble" in missing, missing["flags"]) == (False, 1)
    assert {"key": "status", "value": {"stringValue": "not_applicable"}} in missing["attributes"]


def test_keys_without_labels_are_unique_and_plain() -> None:
    names = ("a=1", "a/1", "é", "a" * 999)
    rows = [row("mine.step", float(n), category=name) for n, name in enumerate(names)]
    values = keyed_values(figures_of([*rows, *ROWS]), ".")
    assert {key: values[key] for key in list(values)[:2]} == {
        "mine.busbw_bytes_per_second.collective.all__reduce": 3e11,
        "mine.step_seconds.category.a_1": 0.0,
    }
    assert (values["mine.step_seconds.category.a_1.2"], values["mine.step_seconds"]) == (1.0, 0.25)
    assert all(re.fullmatch(r"[\w.-]{1,210}", key, re.ASCII) for key in values)
    assert step_values(ROWS) == {"mine.step": {7: 0.125}}


def test_all_metrics_have_names_of_their_own() -> None:
    figures = [Figure(name, METRICS.get(name).unit, "", ()) for name in METRICS]
    names = [prometheus_name(figure) for figure in figures]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z_:][a-z0-9_:]*", name) for name in names)
    assert "cclbench_overlap_ratio" in names  # its unit is not repeated
    assert not any(name.endswith(("_total", "_sum", "_bucket")) for name in names)  # of other types


@pytest.fixture(scope="module")
def run(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    """A data point that the repository ships."""
    store = tmp_path_factory.mktemp("figures") / "runs"
    return cclbench.run(repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml", store=store)


@pytest.fixture
def export(run: cclbench.Run, tmp_path: Path) -> Export:
    """`cclbench export --to` a form, to a path that it returns."""

    def exported(form: str, *options: str) -> Path:
        path = tmp_path / "new" / form if form in ("mlflow", "wandb") else tmp_path / form
        place = ("--store", str(run.store), "-o", str(path))
        assert main(["export", run.id, "--to", form, *place, *options]) == 0
        return path

    return exported


def test_prometheus_reads_the_textfile(run: cclbench.Run, export: Export) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = export("prometheus").read_text()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert {family.type for family in families.values()} == {"gauge"}
    whole = families["cclbench_time_step_seconds"].samples[0]
    assert (whole.value, whole.labels["run"]) == (run["time.step"].value, run.id)
    assert sum(len(family.samples) for family in families.values()) == sum(
        one.has_value and one.step is None for one in run.figures.summary
    )
    assert all(math.isfinite(one.value) for family in families.values() for one in family.samples)
    assert "# comm.nic_bytes has no value: not_applicable: the run has no NIC counters" in text


def test_opentelemetry_reads_the_request(run: cclbench.Run, export: Export) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    request = json_format.Parse(export("otlp").read_text(), service.ExportMetricsServiceRequest())
    metrics = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    point = metrics["cclbench.time.step"].gauge.data_points[0]
    assert point.as_double == run["time.step"].value
    assert point.time_unix_nano > 1_700_000_000_000_000_000
    assert metrics["cclbench.comm.nic_bytes"].gauge.data_points[0].flags == 1


def test_mlflow_reads_the_files(run: cclbench.Run, export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=export("mlflow").as_uri())
    (recorded,) = client.search_runs([client.get_experiment_by_name("cclbench").experiment_id])
    assert recorded.info.run_name == run.id
    assert recorded.info.status == "FINISHED"
    assert recorded.data.metrics["time.step_seconds"] == run["time.step"].value
    steps = client.get_metric_history(recorded.info.run_id, "time.step_seconds.by_step")
    assert [one.step for one in steps] == run.figures.scope.steps
    assert recorded.data.tags["missing.comm.nic_bytes"].startswith("not_applicable: the run has no NIC")
    assert recorded.data.params["card"] == "tiny-llama-ddp4-gloo-cpu"


def offline_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file, a log of LevelDB's: in blocks of 32 KiB, whole or in parts."""
    place, record = 7, b""  # after the file's own header
    while place < len(data):
        if (left := 32_768 - place % 32_768) < 7:
            place += left
            continue
        _, length, part = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if part in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_weights_and_biases_reads_the_offline_run(run: cclbench.Run, export: Export) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = {one.resolve() for one in export("wandb").rglob("run-*.wandb")}
    summary: dict[str, str] = {}
    history, texts = 0, ""
    for data in offline_records(path.read_bytes()):
        record = Record.FromString(data)
        texts += str(record.run.config)
        history += record.WhichOneof("record_type") == "history"
        summary |= {one.key or one.nested_key[0]: one.value_json for one in record.summary.update}
    assert json.loads(summary["time.step_seconds"]) == run["time.step"].value
    assert history == len(run.figures.scope.steps)
    assert "no NIC counters" in texts


def test_options_of_others(run: cclbench.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", run.id, "--store", str(run.store), "-o", str(tmp_path / "x")]
    assert main([*words, "--to", "otlp", "--system", "aws-p5"]) == 2
    assert "--system is of graphs, and otlp are figures" in capsys.readouterr().err
    assert main([*words, "--to", "chakra", "--metric", "time.*"]) == 2
    assert "--metric is of figures, and chakra is a graph" in capsys.readouterr().err

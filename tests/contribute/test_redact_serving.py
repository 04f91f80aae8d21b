# SPDX-License-Identifier: Apache-2.0
"""Serving evidence with planted secrets: none is published, and every figure stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from formats import test_guidellm as guidellm
from formats import test_inferencex as inferencex
from formats import test_prometheus as prometheus
from formats import test_request_trace as request_trace
from helpers import redact_planted as planted

from cclbench.contribute.redaction import collect_identities, has_token, redact_file
from cclbench.formats import READERS

SECRETS = [secret for of in planted.SECRETS.values() for secret in of if "\n" not in secret]
TABLES = ("requests", "serving", "server_metrics", "request_trace")


def report() -> str:
    """A report whose texts and settings are secrets, beside a text that names them."""
    request = guidellm.request("1", "2", "3", "4", 3)
    successful = [request | {"output": secret, "request_args": secret} for secret in SECRETS]
    benchmark = guidellm.BENCHMARK | {"requests": {"successful": successful}}
    config = {"backend": {"target": SECRETS, "extras": SECRETS}, "data": [{"prompts": SECRETS}]}
    return json.dumps(
        guidellm.REPORT | {"config": config, "benchmarks": [benchmark], "notes": planted.TEXT}, indent=1
    )


def results() -> str:
    """Results with secrets in what is not read."""
    return json.dumps([inferencex.ONE_NODE | {"image": s, "router": {"name": s}} for s in SECRETS])


def metrics() -> str:
    """Samples with secrets as labels and in comments."""
    quoted = [secret.replace("\\", "\\\\").replace('"', '\\"') for secret in SECRETS]
    samples = (
        f'vllm:prompt_tokens_total{{engine="{secret}",instance="{secret}"}} {n}'
        for n, secret in enumerate(quoted)
    )
    return "\n".join([*(f"# {line}" for line in planted.TEXT.splitlines()), *samples, prometheus.SNAPSHOT])


def trace() -> str:
    """Requests with secrets in keys that the format does not have."""
    own = json.loads(request_trace.LINE)
    return "".join(f"{json.dumps(own | {'prompt': secret})}\n" for secret in SECRETS)


@pytest.mark.parametrize(
    ("reader", "name", "content"),
    [
        ("guidellm", "report.json", report),
        ("inferencex", "agg.json", results),
        ("prometheus", "metrics.prom", metrics),
        ("request_trace", "trace.jsonl", trace),
    ],
)
def test_no_planted_secret_is_left_and_every_figure_stays(
    tmp_path: Path, reader: str, name: str, content: Callable[[], str]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "copy").mkdir()
    source, target = tmp_path / "own" / name, tmp_path / "copy" / name
    source.write_text(content())
    redact_file(source, target, identities=collect_identities([source]))
    assert planted.left_in(target) == []
    before, after = (READERS.get(reader).read(path) for path in (source, target))
    for table in TABLES:
        assert getattr(after, table) == getattr(before, table)
    public = {key: value for key, value in after.facts.items() if not has_token(str(value))}
    assert public.items() <= before.facts.items()
    assert after.facts.keys() == before.facts.keys()

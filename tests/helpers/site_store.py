# SPDX-License-Identifier: Apache-2.0
"""A store for sites: hostile jobs, nights of a job, servers' benchmarks, and published rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cclbench.api import run
from cclbench.record.published import Published, write_published_run
from cclbench.record.rows import Row
from cclbench.record.store import Store
from helpers import hostile_job
from helpers.hostile_job import SHORT

DEFECT = "longer than the step itself"


def published_row(store: Store, number: int, **metadata: Any) -> str:
    """A published row: a step, tokens/s and device, a flagged figure, one without a number; its run."""

    def figure(metric: Any, value: float | None, unit: str, reason: str | None = None) -> Row:
        status, provenance = ("ok", "published") if value is not None else ("not_applicable", None)
        better = "lower" if unit == "s" else "higher"
        about = {"status": status, "provenance": provenance, "reason": reason, "better": better}
        about |= {"window": "annotations", "version": 1, "source": "paper"}
        return Row(metric=metric, value=value, unit=unit, **about)  # type: ignore[arg-type]

    name = f"paper-{number:05}"
    figures = [
        figure("time.step", 0.5 + number / 1000, "s"),
        figure("throughput.tokens_per_device", 1000.0 - number, "1/s"),
        figure("comm.time", 0.9, "s", DEFECT),
        figure("compute.mfu", None, "1", "not published: its tool gave no number"),
    ]
    published = Published("paper", None, "0" * 64, number, metadata, [])
    hashed = f"{number:064x}"
    write_published_run(store, name, hashed, published=published, file="table.json", figures=figures)
    return name


def write_store(folder: Path) -> Path:
    """The store, with hostile texts wherever strangers write."""
    store = folder / "runs"
    for name, layers in (("hostile", 2), ("other", 3)):
        run(hostile_job.write(folder, name, layers=layers), store=store)
    line = " iteration {:8}/ 20 | consumed samples: {:12} | elapsed time per iteration (ms): {}.0 |"
    line += " global batch size: 64 | lm loss: {:.6E} |\n"
    for night in range(1, 5):
        log = folder / f"nightly-{night}.log"
        log.write_text("".join(line.format(n, n * 64, 400 + night + n % 3, 8 / n) for n in range(1, 21)))
        run(log, store=store, labels={"date": f"2026-10-0{night}", "commit": f"c0ffee{night}"})
    for number in (1, 2):
        client = {"tokenizer_id": "t", "model_id": "llama", "num_prompts": 10, "completed": 10}
        client |= {"duration": 5.0 / number, "total_input_tokens": 100, "total_output_tokens": 500}
        client |= {"request_throughput": 2.0 * number, "output_throughput": 100.0 * number}
        client |= {"mean_ttft_ms": 20.0 * number, "p99_ttft_ms": 40.0 * number}
        (folder / f"client-{number}.json").write_text(json.dumps(client))
        run(folder / f"client-{number}.json", store=store)
    opened = Store(store)
    for number, text in enumerate(SHORT):
        published_row(opened, number, model_family=text, phase="training", framework=text, note=text)
    return store

# SPDX-License-Identifier: Apache-2.0
"""Result files of the serving benchmarks of vLLM and SGLang, measured by a client.

vLLM (benchmarks/benchmark_serving.py, later vllm/benchmarks/serve.py) writes one JSON object, one on each
line with --append-result, or a list of them (`vllm bench sweep`); SGLang (python/sglang/bench_serving.py)
appends one object a line.  Both contain figures in milliseconds and, with --save-detailed or
--output-details, measurements of each request in seconds.  Generated texts and error texts are skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import CAPTURED, COMMAND_LINE, SOURCE_PATH, SYSTEM
from cclbench.formats.serving import figures
from cclbench.formats.serving.lines import WrittenResult, written_results
from cclbench.formats.texts import strip_decoration
from cclbench.ground.evidence_schema import SERVING

_MARKS: Final = (
    (b'"tokenizer_id"', b'"num_prompts"'),
    (b'"backend"', b'"dataset_name"', b'"request_rate"'),
    (b'"duration"', b'"completed"', b'"request_throughput"'),
)
_FIGURE: Final = re.compile(rb'\s*\{[^{}\[\]]*"(?:mean|p99)_ttft_ms"\s*:')
"""A figure of the outer object, not of one inside it."""

Setting = str | int | float


class Serving(EvidenceReader):
    """Reader of serving benchmarks' result files."""

    name = "serving"
    description = "results of vllm bench serve and SGLang bench_serving (JSON, JSON lines)"
    extensions: tuple[str, ...] = (".json", ".jsonl")
    capture = (
        "`vllm bench serve --save-result --save-detailed`,"
        " SGLang's `bench_serving --output-file ... --output-details`"
    )
    versions = "vLLM 2024 (request_inthroughput) to 2026 (latencies); SGLang 2024 to 2026"
    tested = "documentation: the sources of vLLM and SGLang, and published result lines of both"

    withheld: Mapping[str, str] = {
        "generated_texts": CAPTURED,
        "tokenizer_id": SOURCE_PATH,
        "dataset_path": SOURCE_PATH,
        "server_info": SYSTEM,
        "server_args": COMMAND_LINE,
        "command": COMMAND_LINE,
    }

    def sniff(self, head: bytes) -> float:
        """Sure of the settings that either client writes first, and of figures in a shortened file."""
        head = strip_decoration(head)
        has_settings = head.lstrip(b"[ \t\r\n")[:1] == b"{" and any(
            all(key in head for key in keys) for keys in _MARKS
        )
        return 0.9 if has_settings or _FIGURE.match(head) else 0.0

    def read(self, path: Path) -> Evidence:
        """The requests and figures of every benchmark in the file, numbered from 0."""
        tables, rows, settings = list[pa.Table](), list[dict[str, Any]](), list[dict[str, Setting]]()
        left_out, notes = Counter[str](), list[str]()
        for number, written in enumerate(written_results(path)):
            tables.append(figures.request_table(written, number))
            figure_list, skipped = figures.figure_rows(written, number)
            settings.append(figures.benchmark_settings(written))
            rows += [*figure_list, *figures.load_rows(settings[-1], number)]
            left_out += skipped
            if not len(tables[-1]) and not figure_list:
                raise written.entry_error("has no figure and no request of a serving benchmark")
            if note := _completion_disagreement(written, tables[-1]):
                notes.append(f"benchmark {number + 1}: {note}")
        return Evidence(
            requests=pa.concat_tables(tables),
            serving=pa.Table.from_pylist(rows, schema=SERVING),
            facts=_merge_settings(settings),
            left_out=dict(left_out),
            notes=notes,
        )


def _completion_disagreement(written: WrittenResult, table: pa.Table) -> str | None:
    completed, answered = written.entries.get("completed"), sum(filter(None, table["success"].to_pylist()))
    if completed in (None, answered) or table["success"].null_count == len(table):
        return None
    return f"the file states {completed} completed requests, its lists have {answered}"


def _merge_settings(settings: list[dict[str, Setting]]) -> dict[str, Setting | list[str]]:
    """Each setting once if all benchmarks share it, else its values in order of appearance."""
    merged: dict[str, Setting | list[str]] = {}
    for name in dict.fromkeys(name for setting in settings for name in setting):
        values = list(dict.fromkeys(setting[name] for setting in settings if name in setting))
        merged[name] = values[0] if len(values) == 1 else [str(value) for value in values]
    return merged


READERS.add(Serving.name, Serving(), origin=__name__)

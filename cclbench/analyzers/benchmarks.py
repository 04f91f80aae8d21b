# SPDX-License-Identifier: Apache-2.0
"""The serving benchmarks of a run, and the latencies of the requests that were answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S

_LAST_NUMBER: Final = re.compile(r"\d+(?=\D*$)")
_KEY: Final = pa.schema([("file", pa.string()), ("benchmark", pa.int64())])

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """One benchmark: its requests, rows of `schema.REQUESTS`, and what its file states of it."""

    label: str
    requests: pa.Table
    stated: dict[tuple[str, str | None], float]
    settings: str | None = None
    """What its client was asked for, as JSON; None where that is not known, or differs within its file."""

    @property
    def answered_requests(self) -> pa.Table:
        """The requests that were answered."""
        return self.requests.filter(pc.fill_null(self.requests["success"], False))

    @property
    def left_out(self) -> dict[str, int]:
        """How many requests were not, by why."""
        success = self.requests["success"]
        return {"failed": pc.sum(pc.invert(success)).as_py() or 0, "of unknown outcome": self.unknown_count}

    @property
    def unknown_count(self) -> int:
        """Requests of which nobody knows whether they were answered."""
        return int(self.requests["success"].null_count)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A latency as the requests have it, in s, and how many have none, by reason."""

    values: Seconds
    requests: int
    """How many requests they are of."""
    left_out: dict[str, int]
    unknown: int
    """Requests that have such a latency which nobody knows."""
    provenance: Literal["measured", "derived"] = "measured"


def run_benchmarks(run: RunView) -> list[Benchmark]:
    """The run's benchmarks, by file and their order in it; the label of one in many has its number."""
    requests, serving = run.table("requests"), run.table("serving")
    keys = {key for table in (requests, serving) for key in zip(*_key_columns(table), strict=True)}
    files = [file for file, _ in keys]
    found = []
    for file, number in sorted(keys, key=lambda key: (key[0] or "", key[1])):
        rows = _rows_of_file(serving, file, number).select(["figure", "stat", "value"]).to_pylist()
        found.append(
            Benchmark(
                label=f"{file}#{number + 1}" if files.count(file) > 1 else str(file),
                requests=_rows_of_file(requests, file, number),
                stated={(row["figure"], row["stat"]): row["value"] for row in rows},
                settings=_settings_text(run.settings.get(file or "", {})),
            )
        )
    return found


def _settings_text(told: Mapping[str, object]) -> str | None:
    several = any(isinstance(value, list) for value in told.values())
    return json.dumps(told, sort_keys=True) if told and not several else None


def repeated_benchmarks(found: Sequence[Benchmark]) -> list[list[Benchmark]]:
    """Benchmarks that repeat one another: called the same but for the last number, of equal settings."""
    series: dict[tuple[str, str], list[Benchmark]] = {}
    for one in found:
        if one.settings is not None:
            series.setdefault((_LAST_NUMBER.sub("#", one.label), one.settings), []).append(one)
    return [own for own in series.values() if len(own) > 1]


def pool_benchmarks(parts: Sequence[Benchmark]) -> Benchmark | None:
    """All requests of several benchmarks as those of one; None where one of them lists none."""
    if not parts or not all(len(one.requests) for one in parts):
        return None
    return Benchmark(parts[0].label, pa.concat_tables([one.requests for one in parts]), {})


def _key_columns(table: pa.Table) -> tuple[list[str | None], list[int]]:
    distinct = table.select(["file", "benchmark"]).cast(_KEY).group_by(["file", "benchmark"]).aggregate([])
    return distinct["file"].to_pylist(), distinct["benchmark"].to_pylist()


def _rows_of_file(table: pa.Table, file: str | None, number: int) -> pa.Table:
    names = table["file"].cast(pa.string())
    here = pc.equal(names, file) if file is not None else pc.is_null(names)
    return table.filter(pc.and_(here, pc.equal(table["benchmark"], number)))


def ttft_of(answered: pa.Table) -> Samples:
    """Time from sending each request to its first token."""
    known = answered["ttft_ns"].drop_null()
    lacking = len(answered) - len(known)
    return Samples(_as_seconds(known), len(known), {"without a time to first token": lacking}, lacking)


def itl_of(answered: pa.Table) -> Samples:
    """Every gap between what the client received one after another of a request."""
    lists = answered["itl_ns"]
    lacking = lists.null_count
    return Samples(
        _as_seconds(pc.list_flatten(lists)),
        len(lists) - lacking,
        {"without a list of gaps": lacking},
        lacking,
    )


def e2e_of(answered: pa.Table) -> Samples:
    """Time from sending each request to its last token, as listed, else first token + Σ gaps."""
    known = _request_latencies(answered).drop_null()
    stated = answered["e2e_ns"].null_count < len(answered)
    lacking = len(answered) - len(known)
    return Samples(
        _as_seconds(known),
        len(known),
        {"without a latency": lacking},
        lacking,
        "measured" if stated else "derived",
    )


def tpot_of(answered: pa.Table) -> Samples:
    """(latency − first token) / (tokens − 1); an answer that came in one piece has no such time."""
    tokens = pc.fill_null(answered["output_tokens"], 0)
    several = answered.filter(pc.greater(tokens, 1))
    whole = pc.fill_null(pc.equal(pc.list_value_length(several["itl_ns"]), 0), False)
    streamed = several.filter(pc.invert(whole))
    decoding = pc.subtract(_request_latencies(streamed), streamed["ttft_ns"])
    each = pc.divide(decoding.cast(pa.float64()), pc.subtract(streamed["output_tokens"], 1))
    known = each.drop_null()
    forward = known.filter(pc.greater_equal(known, 0))
    left_out = {
        "of one output token or of unknown length": len(answered) - len(several),
        "answered in one piece": len(several) - len(streamed),
        "without a latency": len(streamed) - len(known),
        "with the last token before the first": len(known) - len(forward),
    }
    unknown = len(streamed) - len(forward) + answered["output_tokens"].null_count
    return Samples(_as_seconds(forward), len(forward), left_out, unknown, "derived")


def _request_latencies(requests: pa.Table) -> pa.ChunkedArray:
    """End-to-end ns of each request, null where neither the file nor its gaps tell."""
    gaps = requests["itl_ns"].combine_chunks()
    sums = np.zeros(len(requests), np.int64)
    np.add.at(sums, pc.list_parent_indices(gaps).to_numpy(), pc.list_flatten(gaps).to_numpy())
    streamed = pc.add(requests["ttft_ns"], pa.array(sums, mask=gaps.is_null().to_numpy(zero_copy_only=False)))
    return pc.coalesce(requests["e2e_ns"], streamed)


def _as_seconds(ns: pa.ChunkedArray) -> Seconds:
    seconds: Seconds = ns.to_numpy().astype(np.float64) / NS_PER_S
    return seconds

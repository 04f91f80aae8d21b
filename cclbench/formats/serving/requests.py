# SPDX-License-Identifier: Apache-2.0
"""The lists of a result, one entry a request: tokens, and times from seconds to whole nanoseconds."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from cclbench.formats.serving.lines import Written, is_number
from cclbench.schema import REQUESTS

LISTS: Final = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "errors")
_LONGEST_WAIT_S: Final = 86_400

Column = list[int | None]


def table(written: Written, benchmark: int) -> pa.Table:
    """Rows of `schema.REQUESTS`; none where the result has no lists.

    A time to first token or a latency of 0 is what the clients begin with: nothing came, so it is null.
    """
    lists = {name: values for name in LISTS if (values := written.list_of(name)) is not None}
    if len({len(values) for values in lists.values()}) > 1:
        lengths = ", ".join(f"{name} {len(values):,}" for name, values in lists.items())
        raise written.bad(f"its lists are about different numbers of requests: {lengths}")
    count = len(next(iter(lists.values()), []))
    nothing: list[None] = [None] * count
    output = _tokens(written, "output_lens", lists)
    ttft = [ns or None for ns in _nanoseconds(written, "ttfts", lists.get("ttfts", []))] or nothing
    e2e = [ns or None for ns in _nanoseconds(written, "latencies", lists.get("latencies", []))] or nothing
    columns = {
        "benchmark": [benchmark] * count,
        "request": range(count),
        "success": _success(written, lists, output or [], [a or b for a, b in zip(ttft, e2e, strict=True)]),
        "input_tokens": _tokens(written, "input_lens", lists),
        "output_tokens": output,
        "ttft_ns": ttft,
        "e2e_ns": e2e,
        "itl_ns": _gaps(written, lists),
    }
    return pa.table({name: columns.get(name) or nothing for name in REQUESTS.names}, schema=REQUESTS)


def _tokens(written: Written, name: str, lists: dict[str, list[Any]]) -> Column | None:
    values = lists.get(name)
    if values is not None and any(type(v) is not int or not 0 <= v < 1 << 31 for v in values):
        raise written.bad(f"{name} holds something that is no number of tokens")
    return values


def _gaps(written: Written, lists: dict[str, list[Any]]) -> list[list[int]] | None:
    requests = lists.get("itls")
    if requests is None:
        return None
    if not all(isinstance(gaps, list) for gaps in requests):
        raise written.bad("itls holds something that is no list of times")
    return [_nanoseconds(written, "itls", gaps) for gaps in requests]


def _nanoseconds(written: Written, name: str, seconds: list[Any]) -> list[int]:
    """From the digits of the file."""
    if not all(is_number(value) and 0 <= value <= _LONGEST_WAIT_S for value in seconds):
        raise written.bad(f"{name} holds something that is no time from 0 s to a day")
    return [round(value * 10**9) for value in seconds]


def _success(
    written: Written, lists: dict[str, list[Any]], output: Column, times: Column
) -> list[bool | None]:
    """Whether each request was answered: without an error, with at least one token.

    Where neither is listed, whether it has a time, if as many have one as the client says completed.
    """
    if "errors" in lists and output:
        return [not error and tokens != 0 for error, tokens in zip(lists["errors"], output, strict=True)]
    if "errors" in lists:
        return [not error for error in lists["errors"]]
    if output:
        return [tokens != 0 for tokens in output]
    timed = [ns is not None for ns in times]
    return list(timed) if sum(timed) == written.entries.get("completed") else [None] * len(times)

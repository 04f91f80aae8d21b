# SPDX-License-Identifier: Apache-2.0
"""Spans of a request that two instances serve, a prefill and a decode one: its id, their roles and hosts.

A span's request is stated by itself or the nearest span around it: vLLM's proxies pass one `X-Request-Id` to
both instances (`gen_ai.request.id`), SGLang's router one bootstrap room.  Its role is in the name of SGLang's
request (`prefill Req ...`), or in the name of the service, as llm-d's guide sets it (`vllm-prefill`).  Its
host is OpenTelemetry's `host.id` or `host.name` of the resource, or SGLang's `host_id` of the thread.

Sources: SGLang, python/sglang/srt/observability/req_time_stats.py, trace.py and mooncake_trace.py; vLLM,
vllm/v1/engine/output_processor.py; llm-d, docs/resources/observability/tracing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

STAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("prefill_bootstrap", "prefill_waiting", "decode_bootstrap", "decode_waiting"), "queue"),
    **dict.fromkeys(("prefill_forward", "chunked_prefill"), "prefill"),
    **dict.fromkeys(("prefill_transfer_kv_cache", "mooncake_worker_send"), "transfer"),
    "decode_transferred": "kv_wait",
    **dict.fromkeys(("decode_forward", "fake_output"), "first_token"),
}
"""Stage by the name of SGLang's span."""
REQUEST_IDS: Final = ("bootstrap_room", "gen_ai.request.id", "rid")
"""Attributes that state the request, the one that both instances share first."""
HOSTS: Final = ("host.id", "host.name", "host_id")
_ROLE: Final = re.compile("prefill|decode", re.ASCII)
_SGLANG_REQUEST: Final = re.compile(r"(prefill|decode) Req ", re.ASCII)
_MOST_LEVELS: Final = 32
"""Most spans around one that are searched: SGLang's have two."""

SpanId = tuple[str, str]
"""Ids of the trace and of the span in it."""


@dataclass(frozen=True, slots=True)
class SpanOrigin:
    """What is known of where a span is from; None where nothing states it."""

    request: str | None = None
    role: str | None = None
    host: str | None = None


class SpanTree:
    """Spans of a file by id, in any order."""

    def __init__(self) -> None:
        self._origins: dict[SpanId, tuple[SpanId, SpanOrigin]] = {}
        self._hosts_within: dict[SpanId, set[str]] = {}

    def add_span(
        self, at: SpanId, parent: str, name: str, service: str | None, attributes: Mapping[str, str]
    ) -> None:
        """Note a span; `attributes` are its texts and, where it states none itself, its resource's."""
        stated = _SGLANG_REQUEST.match(name)
        roles = {stated[1]} if stated else set(_ROLE.findall((service or "").lower()))
        origin = SpanOrigin(
            request=next((attributes[key] for key in REQUEST_IDS if attributes.get(key)), None),
            role=roles.pop() if len(roles) == 1 else None,
            host=next((attributes[key] for key in HOSTS if attributes.get(key)), None),
        )
        around = at[0], parent
        self._origins[at] = around, origin
        if origin.host is not None:
            self._hosts_within.setdefault(around, set()).add(origin.host)

    def origin_of(self, at: SpanId) -> SpanOrigin:
        """By the span or the nearest one around it; a host also by the spans directly in it."""
        request, role, host, place = None, None, None, at
        for _ in range(_MOST_LEVELS):
            if place not in self._origins or request is not None:
                break
            place, origin = self._origins[place]
            request, role, host = origin.request, role or origin.role, host or origin.host
        within = self._hosts_within.get(at, set())
        if host is None and len(within) == 1:
            (host,) = within
        return SpanOrigin(request, role, host)


def number_of(name: str) -> int:
    """A number for a name, the same in all files; names themselves are not stored."""
    return int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1

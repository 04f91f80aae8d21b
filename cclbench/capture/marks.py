# SPDX-License-Identifier: Apache-2.0
"""The annotation that states a collective's process group, as it is written and read.

`cclbench.torch.collectives` describes its fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MARK: Final = "cclbench::collective "


def collective_mark(
    kind: str,
    seq: int,
    group: str,
    *,
    ranks: Iterable[int],
    description: str,
    peer: int | None = None,
    payload: tuple[int, int, str] | None = None,
    rows: int = 1,
    threads: Iterable[int] = (),
) -> str:
    """The annotation's name; `payload` is in_bytes, out_bytes and dtype, None for a barrier."""
    words = [f"{MARK}kind={kind} seq={seq}"]
    if peer is not None:
        words.append(f"peer={peer}")
    if payload is not None:
        words.append("in_bytes={} out_bytes={} dtype={}".format(*payload))
    words.append(f"rows={rows}")
    if thread_ids := ",".join(map(str, sorted(threads))):
        words.append(f"threads={thread_ids}")
    words.append(f"pg={group} ranks={','.join(map(str, ranks))} desc={description}")
    return " ".join(words)

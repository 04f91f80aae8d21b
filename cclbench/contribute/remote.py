# SPDX-License-Identifier: Apache-2.0
"""Fetch files of data points: https only, no more bytes than declared, and only with the right hash."""

from __future__ import annotations

import hashlib
import http.client
import shutil
from collections.abc import Iterator
from pathlib import Path

from cclbench.card import Card
from cclbench.card.evidence import fetched_copy
from cclbench.contribute.place import file_digest
from cclbench.engine import Progress
from cclbench.ground.errors import InputError
from cclbench.ground.file_names import path_of
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.remote.web import BadAnswerError, open_answer, read_bounded


def fetch_file(url: str, target: Path, *, sha256: str, size: int, progress: Progress | None = None) -> None:
    """Download `url` to `target`, completely or not at all.

    Requests use no credentials or proxy and go to public addresses only, also after a redirect.  Raises
    `InputError` for any other scheme, address, answer, size or SHA-256.
    """
    draft = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if size > (free := shutil.disk_usage(target.parent).free):
        raise _refusal_error(
            url, f"has {humanise(size, 'B')}, and {humanise(free, 'B')} are free on the disk"
        )
    try:
        with open_answer(url, {}, public=True) as response, draft.open("wb") as file:
            sum_ = hashlib.sha256()
            done = 0
            for piece in read_bounded(response, size):
                done += len(piece)
                if done > size:
                    raise _refusal_error(url, f"has more than the recorded {size:,} bytes")
                sum_.update(piece)
                file.write(piece)
                if progress:
                    progress(f"fetching {printable(target.name)}", done, size)
        if done < size:
            raise _refusal_error(url, f"has {done:,} bytes, but {size:,} are recorded")
        if sum_.hexdigest() != sha256:
            raise _refusal_error(url, f"its SHA-256 is {sum_.hexdigest()}, but {sha256} is recorded")
        draft.replace(target)
    except BadAnswerError as error:
        raise _refusal_error(url, str(error)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _refusal_error(url, f"cannot be fetched: {error}") from None
    finally:
        draft.unlink(missing_ok=True)


def fetch_to_cache(path: str, url: str, *, sha256: str, size: int, progress: Progress | None = None) -> Path:
    """The cache's copy of a card's file, downloaded unless it is there; see `fetch_file`."""
    target = fetched_copy(path, sha256)
    if not (target.is_file() and file_digest(target) == (sha256, size)):
        fetch_file(url, target, sha256=sha256, size=size, progress=progress)
    return target


def fetch_evidence(card: Card, progress: Progress | None = None) -> Iterator[tuple[str, Path]]:
    """Download the card's traces that have a URL and are not in their place; path in the card, and copy.

    A card whose trace has a URL without SHA-256 and size is no valid card.
    """
    for trace in card.evidence.traces:
        is_elsewhere = trace.url is not None and not (card.root / path_of(trace.path)).is_file()
        if is_elsewhere and trace.url and trace.sha256 and trace.bytes is not None:
            fetched = fetch_to_cache(
                trace.path, trace.url, sha256=trace.sha256, size=trace.bytes, progress=progress
            )
            yield trace.path, fetched


def _refusal_error(url: str, why: str) -> InputError:
    return InputError(printable(why), where=printable(url)[:300])

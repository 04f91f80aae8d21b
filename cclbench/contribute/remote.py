# SPDX-License-Identifier: Apache-2.0
"""Fetch a file of a data point: https only, no more bytes than declared, and only with the right hash."""

from __future__ import annotations

import hashlib
import http.client
from pathlib import Path

from cclbench.engine import Progress
from cclbench.ground.errors import InputError
from cclbench.ground.text import printable
from cclbench.remote.web import BadAnswerError, open_answer, read_bounded


def fetch_file(url: str, target: Path, *, sha256: str, size: int, progress: Progress | None = None) -> None:
    """Download `url` to `target`, completely or not at all.

    Requests use no credentials or proxy and go to public addresses only, also after a redirect.  Raises
    `InputError` for any other scheme, address, answer, size or SHA-256.
    """
    draft = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
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


def _refusal_error(url: str, why: str) -> InputError:
    return InputError(printable(why), where=printable(url)[:300])

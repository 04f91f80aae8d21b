# SPDX-License-Identifier: Apache-2.0
"""Detection of out-of-memory errors (memory, address space, threads) in the forms libraries report them."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Final

from cclbench.ground.errors import CclbenchError, InputError

LEAST_BYTES: Final = 500_000_000
"""Address space below which libraries abort the process while they load."""
_MESSAGES: Final = re.compile(
    r"failed to map segment|[Cc]annot allocate memory|can't start new thread|Failed to launch worker thread"
    r"|std::bad_alloc|Out of Memory"
)
"""Messages of the dynamic linker, the threading module, Arrow and DuckDB."""
_HINT: Final = "provide more memory, or use fewer processes: --jobs 1 or --memory SIZE"


class OutOfMemoryError(CclbenchError):
    """Out of memory, address space or threads."""

    exit_code = InputError.exit_code


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error or one of its causes is a lack of memory, address space or threads."""
    return any(
        isinstance(cause, MemoryError)
        or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        or (not isinstance(cause, CclbenchError) and _MESSAGES.search(str(cause)) is not None)
        for cause in _error_chain(error)
    )


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)


def out_of_memory_error(error: BaseException) -> OutOfMemoryError:
    """The error for the user in place of an out-of-memory error."""
    detail = next((line for line in str(error).strip().splitlines() if _MESSAGES.search(line)), None)
    limit = _address_space_limit()
    limited = "" if limit is None else f" (limited to {limit / 1e6:,.0f} MB by ulimit)"
    return OutOfMemoryError(
        f"out of memory{limited}{f': {detail.strip()[:200]}' if detail else ''}", hint=_HINT
    )


def require_memory() -> None:
    """`OutOfMemoryError` if the address space is limited to less than `LEAST_BYTES`."""
    limit = _address_space_limit()
    if limit is not None and limit < LEAST_BYTES:
        what = f"the address space is limited to {limit / 1e6:,.0f} MB"
        hint = f"at least {LEAST_BYTES / 1e6:,.0f} MB are required: ulimit -v"
        raise OutOfMemoryError(what, hint=hint)


def _address_space_limit() -> int | None:
    """The limit of this process's address space in bytes, None if there is none."""
    import resource

    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)

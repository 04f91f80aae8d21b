# SPDX-License-Identifier: Apache-2.0
"""Calls of tools, each in a process that is killed at its limits and when its client disconnects."""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cclbench.agents.answers import encode_answer
from cclbench.agents.tools import Tools
from cclbench.engine.processes import belong_to_parent, child_process
from cclbench.ground.errors import CclbenchError, UsageError
from cclbench.ground.out_of_memory import is_out_of_memory
from cclbench.ground.scratch import sweep, temporary_folder
from cclbench.ground.text import cut_text
from cclbench.record.files import UNFINISHED

if TYPE_CHECKING:
    from anyio import CapacityLimiter

TOGETHER: Final = 2
"""Calls that run concurrently."""
MOST_WAITING: Final = 100
"""Maximum number of waiting calls."""
_ANSWER, _ERROR = b"+", b"-"
_LAST_WORDS_S: Final = 5.0
"""Seconds that a process may take to print its traceback."""
_LESS_MEMORY: Final = "ask for less (a step, a rank, fewer columns), or raise --memory of `cclbench mcp`"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call: seconds since its arrival, and bytes of memory."""

    seconds: float
    memory_bytes: int


class ToolCalls:
    """Runs calls of `tools`, some concurrently, the others in order of arrival.

    `store` is the folder in which runs are written.
    """

    def __init__(self, tools: Tools, store: Path) -> None:
        from anyio import CapacityLimiter

        self._tools, self._store = tools, store
        self._turns: CapacityLimiter = CapacityLimiter(TOGETHER)

    async def answer(self, tool: str, limits: Limits, arguments: Mapping[str, Any]) -> bytes:
        """The JSON or picture that a tool answers; `CclbenchError` if it fails or exceeds a limit.

        When cancelled, it kills the call's process before it returns.
        """
        from anyio import fail_after

        turns = self._turns
        if turns.statistics().tasks_waiting >= MOST_WAITING:
            raise UsageError(
                f"{TOGETHER} calls are running and {MOST_WAITING} are waiting", hint="retry later"
            )
        started = False
        try:
            with fail_after(limits.seconds):
                async with turns:
                    started = True
                    return await self._run_process(tool, arguments, limits)
        except TimeoutError:
            if not started:
                hint = "retry when they have ended"
                raise UsageError(f"waited {limits.seconds:g} s for other calls", hint=hint) from None
            hint = "ask for less (a step, a rank, fewer rows), or raise --time-limit of `cclbench mcp`"
            raise UsageError(f"{tool} took longer than {limits.seconds:g} s", hint=hint) from None

    async def _run_process(self, tool: str, arguments: Mapping[str, Any], limits: Limits) -> bytes:
        from anyio import CancelScope, to_thread, wait_readable

        with temporary_folder() as folder:
            receiver, sender = Pipe(duplex=False)
            memory_bytes = limits.memory_bytes
            process = child_process(
                _run_call, sender, str(folder), memory_bytes, self._tools, tool, arguments
            )
            try:
                await to_thread.run_sync(process.start)
                sender.close()
                await wait_readable(receiver)
                message = receiver.recv_bytes()
            except EOFError:
                message = b""
                await to_thread.run_sync(process.join, _LAST_WORDS_S)
            finally:
                with CancelScope(shield=True):
                    code = await to_thread.run_sync(self._end_process, process)
                receiver.close()
                sender.close()
        if message.startswith(_ANSWER):
            return message[1:]
        raise CclbenchError(message[1:].decode() if message else _reason_of_end(tool, code, limits))

    def _end_process(self, process: BaseProcess) -> int | None:
        """Kill the process, remove its unfinished files from the store, and return its exit code."""
        if process.pid is None:
            return None
        # Its answer has arrived, or is no longer needed.
        process.kill()
        process.join()
        code = process.exitcode
        process.close()
        sweep(self._store, UNFINISHED)
        return code


def _reason_of_end(tool: str, code: int | None, limits: Limits) -> str:
    """Why a process ended without an answer."""
    if code is not None and code < 0:
        return (
            f"{tool}: its process was killed by signal {-code}, most likely out of memory (limit"
            f" {limits.memory_bytes / 1e9:g} GB); {_LESS_MEMORY}"
        )
    return f"{tool}: internal error, a defect of cclbench; see the traceback in the server's standard error"


def _run_call(
    sender: Connection, folder: str, memory_bytes: int, tools: Tools, tool: str, arguments: Mapping[str, Any]
) -> None:
    """Run one call in this process, and send its answer or its error."""
    belong_to_parent()
    _limit_memory(memory_bytes)
    tempfile.tempdir = folder
    # DuckDB draws progress bars on stdout if `__main__` has no file, as in a forked process.
    sys.modules["__main__"].__file__ = __file__
    try:
        answer = getattr(tools, tool)(**arguments)
        reply = _ANSWER + (answer if isinstance(answer, bytes) else encode_answer(answer))
    except CclbenchError as error:
        reply = _ERROR + cut_text(str(error)).encode()
    except RecursionError:
        reply = _ERROR + b"a value is nested too deeply for JSON; select its parts"
    except Exception as error:
        if is_out_of_memory(error):
            message = f"{tool} needs more than {memory_bytes / 1e9:g} GB of memory; {_LESS_MEMORY}"
        elif isinstance(error, OSError):
            message = f"{error.strerror or error}: {error.filename}"
        else:
            raise
        reply = _ERROR + cut_text(message).encode()
    sender.send_bytes(reply)


def _limit_memory(memory_bytes: int) -> None:
    """Limit what this process may still allocate, in private writable memory; Linux only."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[5])  # of data and stack
        limit = pages * resource.getpagesize() + memory_bytes
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

# SPDX-License-Identifier: Apache-2.0
"""The command `cclbench`, which is `python -m cclbench`."""

from __future__ import annotations

import os
import signal
import sys

# Arrow's own allocators keep what is freed: some 100 MB beside a trace of 300 MB.  Who chose one keeps it.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

_INTERRUPT = signal.getsignal(signal.SIGINT)
if _INTERRUPT is signal.default_int_handler:
    # Until a command runs that can clean up, Ctrl-C ends the process without a traceback of what loads.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from cclbench.cli import main as _main  # noqa: E402


def main() -> int:
    """Run the command line; the exit code."""
    signal.signal(signal.SIGINT, _INTERRUPT)
    return _main()


if __name__ == "__main__":
    sys.exit(main())

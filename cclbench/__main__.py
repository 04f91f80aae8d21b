# SPDX-License-Identifier: Apache-2.0
"""The command `cclbench`, which is `python -m cclbench`."""

from __future__ import annotations

import signal
import sys

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

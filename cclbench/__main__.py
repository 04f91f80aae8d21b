# SPDX-License-Identifier: Apache-2.0
"""`python -m cclbench` is `cclbench`."""

from __future__ import annotations

import sys

from cclbench.cli import main

if __name__ == "__main__":
    sys.exit(main())

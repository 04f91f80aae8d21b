# SPDX-License-Identifier: Apache-2.0
"""Makes `replay_rows`, the builder of ranks to replay, importable from the tests beside it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

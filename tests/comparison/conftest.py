# SPDX-License-Identifier: Apache-2.0
"""Makes `subjects`, the builder of subjects made by hand, importable from the tests beside it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

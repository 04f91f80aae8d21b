# SPDX-License-Identifier: Apache-2.0
"""Makes the package `synthetic` importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

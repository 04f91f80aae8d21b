# SPDX-License-Identifier: Apache-2.0
"""What is said of a file that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.ground.errors import InputError


def refused(read: Callable[[Path], Any], path: Path, says: str = "") -> str:
    """Reading the file fails with one line that names it and says that: the line."""
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert str(path) in message
    assert says in message
    assert "\n" not in message
    return message

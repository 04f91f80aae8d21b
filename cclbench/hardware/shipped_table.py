# SPDX-License-Identifier: Apache-2.0
"""Tables of learned figures that the package ships."""

from __future__ import annotations

from importlib.resources import files
from typing import TypeVar

import msgspec

Table = TypeVar("Table")


def read_shipped_table(name: str, kind: type[Table]) -> Table:
    """The YAML file of that name in this folder, as a `kind`."""
    import yaml  # lazily: most commands predict nothing

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files("cclbench.hardware").joinpath(name).read_text("utf-8")
    return msgspec.convert(yaml.load(text, loader), kind)  # noqa: S506 - both loaders are safe ones

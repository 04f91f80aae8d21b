# SPDX-License-Identifier: Apache-2.0
"""Problems of a card are those of any YAML file."""

from __future__ import annotations

from cclbench.problem import Path, Problem, check, dotted, printable, shown

__all__ = ["Path", "Problem", "check", "dotted", "printable", "shown"]

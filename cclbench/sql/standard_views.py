# SPDX-License-Identifier: Apache-2.0
"""Registers the views of cclbench; loaded with the first view asked for, since it reads their files."""

from __future__ import annotations

from cclbench.sql import add_views

add_views("cclbench.sql")

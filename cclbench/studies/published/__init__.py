# SPDX-License-Identifier: Apache-2.0
"""Figures that others published, as runs without traces: every value's provenance is `published`."""

from __future__ import annotations

from cclbench.studies.published.importing import Imported, ImportedRun, import_ccl_bench

__all__ = ["Imported", "ImportedRun", "import_ccl_bench"]

# SPDX-License-Identifier: Apache-2.0
"""Published results as runs without traces; the provenance of every value is `published`."""

from __future__ import annotations

from cclbench.studies.published.importing import Imported, ImportedRun, import_ccl_bench, import_ccl_search
from cclbench.studies.published.inferencex import import_inferencex
from cclbench.studies.published.mlperf import import_mlperf

__all__ = [
    "Imported",
    "ImportedRun",
    "import_ccl_bench",
    "import_ccl_search",
    "import_inferencex",
    "import_mlperf",
]

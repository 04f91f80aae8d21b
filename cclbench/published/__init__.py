# SPDX-License-Identifier: Apache-2.0
"""Figures that others published, as runs without traces: every value's provenance is `published`."""

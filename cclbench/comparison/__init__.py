# SPDX-License-Identifier: Apache-2.0
"""Comparison of two or more runs: which is faster, by how much, and where the difference lies."""

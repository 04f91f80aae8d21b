# SPDX-License-Identifier: Apache-2.0
"""Operators: the least cost of a call by its arguments; `families` has one file per family of formulas."""

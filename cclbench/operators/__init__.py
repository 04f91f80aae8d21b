# SPDX-License-Identifier: Apache-2.0
"""Operators: what a call takes by its arguments, one family of formulas a file in `families`."""

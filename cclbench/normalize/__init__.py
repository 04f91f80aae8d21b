# SPDX-License-Identifier: Apache-2.0
"""Normalize what readers of all formats return: rows, ranks, steps, collectives; one file per concern."""

# SPDX-License-Identifier: Apache-2.0
"""The report's charts, one a file: data from result rows, drawing by matplotlib, SVG for a page."""

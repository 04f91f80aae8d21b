# SPDX-License-Identifier: Apache-2.0
"""Charts of the report, one a file: data from result rows, drawn by matplotlib, as SVG for a page."""

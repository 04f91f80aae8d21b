# SPDX-License-Identifier: Apache-2.0
"""Built-in findings, one file per topic."""

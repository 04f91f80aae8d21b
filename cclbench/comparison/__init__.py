# SPDX-License-Identifier: Apache-2.0
"""Two or more runs beside each other: who is faster, by how much, and where the difference lies."""

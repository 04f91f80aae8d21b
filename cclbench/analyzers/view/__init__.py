# SPDX-License-Identifier: Apache-2.0
"""Views of a rank and a run for metrics, and quantities that several metrics share."""

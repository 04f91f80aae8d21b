# SPDX-License-Identifier: Apache-2.0
"""Shared by the captures of all frameworks: step times with and without the profiler, and the card."""

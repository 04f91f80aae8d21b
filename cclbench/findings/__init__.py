# SPDX-License-Identifier: Apache-2.0
"""Findings: what makes a run slow, how sure that is, what it would gain, what to try."""

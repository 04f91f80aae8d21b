# SPDX-License-Identifier: Apache-2.0
"""Proposed and failing networks: replay settings and collective algorithms, one per file."""

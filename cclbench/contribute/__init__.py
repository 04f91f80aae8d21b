# SPDX-License-Identifier: Apache-2.0
"""Contribute a data point: redact, hash, describe by a manifest, and verify from its evidence."""

# SPDX-License-Identifier: Apache-2.0
"""The base layer, without knowledge of traces: errors, units, intervals, schemas, texts, files."""

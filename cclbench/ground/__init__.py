# SPDX-License-Identifier: Apache-2.0
"""What everything stands on, without knowledge of traces: errors, units, intervals, schemas, texts, files."""

# SPDX-License-Identifier: Apache-2.0
"""Analyzers: one file per topic, one function per metric (definitions: `cclbench explain METRIC`)."""

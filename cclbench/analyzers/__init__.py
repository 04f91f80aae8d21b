# SPDX-License-Identifier: Apache-2.0
"""Analyzers: one file a topic, one function a metric (definitions: `cclbench explain METRIC`)."""

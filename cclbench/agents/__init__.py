# SPDX-License-Identifier: Apache-2.0
"""Tools for agents over the Model Context Protocol, with answers in small pages.

`server` registers the tools and states their limits, `calls` runs each call in its own process, which is
killed at its limits or when the client disconnects, `tools` computes the answers, `reach` decides which
sources may be read, `answers` escapes, truncates and encodes.
"""

# SPDX-License-Identifier: Apache-2.0
"""Tools over the Model Context Protocol: small answers, a page at a time, with their evidence.

`server` registers the tools and states their limits, `calls` runs each call in a process of its own that is
killed at its limits or when the client goes away, `tools` computes, `reach` says which sources may be read,
`answers` escapes, cuts and encodes.
"""

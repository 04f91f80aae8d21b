# SPDX-License-Identifier: Apache-2.0
"""Presentation: terminal, Markdown, HTML pages, pictures, Perfetto traces, from a run's results."""

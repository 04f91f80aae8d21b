# SPDX-License-Identifier: Apache-2.0
"""What people see: terminal, Markdown, HTML pages, pictures, Perfetto; made from a run's results alone."""

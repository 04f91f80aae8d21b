# SPDX-License-Identifier: Apache-2.0
"""The command line, for the tests of this folder."""

from helpers.command_line import call  # noqa: F401 - a fixture

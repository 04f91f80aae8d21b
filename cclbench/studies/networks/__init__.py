# SPDX-License-Identifier: Apache-2.0
"""Networks that papers propose, or that fail: settings of a replay and algorithms, one a file."""

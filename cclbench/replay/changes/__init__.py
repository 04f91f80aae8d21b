# SPDX-License-Identifier: Apache-2.0
"""Built-in settings of a replay, one file per topic."""

# SPDX-License-Identifier: Apache-2.0
"""Commands of the studies, one a file, by entry points of the group `cclbench.commands`."""

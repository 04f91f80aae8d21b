# SPDX-License-Identifier: Apache-2.0
"""Commands of the studies, one per file, registered in the entry-point group `cclbench.commands`."""

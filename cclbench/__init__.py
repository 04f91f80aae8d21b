# SPDX-License-Identifier: Apache-2.0
"""cclbench: why a workload is fast, from its traces."""

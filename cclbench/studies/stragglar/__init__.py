# SPDX-License-Identifier: Apache-2.0
"""StragglAR (Devraj et al., arXiv 2505.23523): the all-reduce algorithm, and a replay setting with it."""

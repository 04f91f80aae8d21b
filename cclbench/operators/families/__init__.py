# SPDX-License-Identifier: Apache-2.0
"""Cost models, one family of operators a file; each formula is registered by `cost_model`."""

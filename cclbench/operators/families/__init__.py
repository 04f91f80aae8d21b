# SPDX-License-Identifier: Apache-2.0
"""Cost models, one file per family of operators; each formula is registered by `cost_model`."""

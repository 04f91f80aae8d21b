# SPDX-License-Identifier: Apache-2.0
"""How a data point gets in: redacted, hashed, described by a manifest, and verified from its evidence."""

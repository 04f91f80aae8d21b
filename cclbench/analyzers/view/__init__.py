# SPDX-License-Identifier: Apache-2.0
"""What metrics stand on: a rank and a run as they see them, and quantities that several of them share."""

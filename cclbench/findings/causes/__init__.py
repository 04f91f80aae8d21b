# SPDX-License-Identifier: Apache-2.0
"""What findings look for, a file a topic."""

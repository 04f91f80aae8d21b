# SPDX-License-Identifier: Apache-2.0
"""What can be changed in a replay's graph; one setting a file, which registers itself."""

# SPDX-License-Identifier: Apache-2.0
"""A run as a Chrome trace for Perfetto's viewer: all ranks on one clock, written to a file or served."""

# SPDX-License-Identifier: Apache-2.0
"""XLA profiles (XSpace, `*.xplane.pb`): TPU, GPU and CPU."""

# SPDX-License-Identifier: Apache-2.0
"""What machines can do: a catalog with one YAML a machine (`data/`)."""

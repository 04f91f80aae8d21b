# SPDX-License-Identifier: Apache-2.0
"""Hardware: a catalog with one YAML file per machine (`data/`), and a cost model of collectives on it."""

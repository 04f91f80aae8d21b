# SPDX-License-Identifier: Apache-2.0
"""What every format goes through after its reader: rows, ranks, steps, collectives; one file a concern."""

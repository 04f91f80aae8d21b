# SPDX-License-Identifier: Apache-2.0
"""What captures of all frameworks share: steps timed with and without the profiler, and a card begun."""

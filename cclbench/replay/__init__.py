# SPDX-License-Identifier: Apache-2.0
"""What if: a run rebuilt as a dependency graph and replayed under other hardware.

`tables` reads a run's rows, `waits` finds who waited for whom, `graph` puts them together, `simulate`
replays, `scenario` says what changes, `critical_path` where the time goes, `answer` what people get.
"""

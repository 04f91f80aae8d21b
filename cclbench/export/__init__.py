# SPDX-License-Identifier: Apache-2.0
"""Export of a run's graph for simulators: Chakra execution traces, and further inputs of ASTRA-sim.

`tasks` converts a rank's part of the replay's graph to tasks that begin when their dependencies have ended;
`chakra` writes and reads them; `folder` writes the whole export; `astra_sim` describes the machine; `check`
replays the written files.
"""

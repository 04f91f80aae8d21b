# SPDX-License-Identifier: Apache-2.0
"""Export of a run: its graph for simulators (Chakra, ASTRA-sim), its figures for tools that record metrics.

`tasks` converts a rank's part of the replay's graph to tasks that begin when their dependencies have ended;
`chakra` writes and reads them; `folder` writes the whole export; `astra_sim` describes the machine; `check`
replays the written files.

`figures` chooses, names and labels figures; `prometheus`, `otlp`, `mlflow` and `wandb` write them, for
`figure_files`.
"""

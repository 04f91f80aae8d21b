# SPDX-License-Identifier: Apache-2.0
"""A run's graph in the files of other tools: Chakra execution traces, and what ASTRA-sim needs beside them.

`tasks` turns a rank's part of the replay's graph into tasks that begin when all they wait for has ended;
`chakra` writes and reads them; `folder` makes the whole; `astra_sim` describes the machine; `check` replays
what was written.
"""

# SPDX-License-Identifier: Apache-2.0
"""What others published, claimed and proposed, examined with cclbench: built on public modules alone.

`published` brings a leaderboard into a store, `claims` examines a paper's claims on its runs; `networks` and
`stragglar` are settings of a replay, and algorithms of collectives, that papers propose.  All register by
entry points (pyproject.toml), as a package of somebody else would: nothing in cclbench imports them.
"""

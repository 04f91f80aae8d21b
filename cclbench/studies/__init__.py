# SPDX-License-Identifier: Apache-2.0
"""Studies of published results, claims and proposals, built only on public modules of cclbench.

`published` imports a leaderboard into a store, `claims` examines a paper's claims on the store's runs;
`networks` and `stragglar` add replay settings and collective algorithms proposed in papers.  All register by
entry points (pyproject.toml), as third-party packages do: nothing in cclbench imports them.
"""

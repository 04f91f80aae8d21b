# SPDX-License-Identifier: Apache-2.0
"""The record of a run: its manifest, tables and result rows, and the store that holds them.

`manifest`, `facts` and `rows` are its types; `run` opens a run; `files` writes what is whole or absent;
`store` is a folder of runs; `selection` says what of a run is asked about.
"""

# SPDX-License-Identifier: Apache-2.0
"""Held against published jobs: spans of traced pipelines, and steps predicted from one measured layout.

`pipelines.py traces TRACE...` simulates pipelines whose operations were traced (tables of StragglerAnalysis);
`pipelines.py layouts JOBS.csv` predicts each layout of a table from each other one.
"""

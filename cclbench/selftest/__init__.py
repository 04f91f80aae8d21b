# SPDX-License-Identifier: Apache-2.0
"""Self-test: simulated jobs with a known cause, read and diagnosed like any other traces, and scored.

Nothing here shares code with the readers, metrics, findings or the replay: the truth about a job is a second
simulation of it without the cause, with the same random numbers.
"""

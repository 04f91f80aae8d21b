#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Appends a snapshot of all GPUs' NVLink byte counts, with its time, to FILE: once before a run, once
# after, or every so often.   sh nvlink_counters.sh FILE [SECONDS_BETWEEN_SNAPSHOTS]
file=${1:?usage: nvlink_counters.sh FILE [SECONDS]}
while :; do
  {
    echo "# time_ns $(date +%s%N)"
    nvidia-smi nvlink -gt d
  } >>"$file"
  [ -n "$2" ] || break
  sleep "$2"
done

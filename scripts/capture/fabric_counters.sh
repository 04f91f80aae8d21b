#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Appends a snapshot of all RDMA ports' counters, with its time, to FILE: once before a run, once after,
# or every so often.   sh fabric_counters.sh FILE [SECONDS_BETWEEN_SNAPSHOTS]
file=${1:?usage: fabric_counters.sh FILE [SECONDS]}
while :; do
  {
    echo "# time_ns $(date +%s%N)"
    grep -r . /sys/class/infiniband/*/ports/*/counters /sys/class/infiniband/*/ports/*/hw_counters 2>/dev/null
  } >>"$file"
  [ -n "$2" ] || break
  sleep "$2"
done

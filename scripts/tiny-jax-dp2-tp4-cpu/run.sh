#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the trace of tiny-jax-dp2-tp4-cpu again: run.sh [FOLDER], by default a new one here.
# Needs jax 0.10 and cclbench for the python on PATH, or for the one that PYTHON names.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/tiny-jax-dp2-tp4-cpu.XXXXXX")}
export JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8
"${PYTHON:-python}" "$workloads/tiny_jax.py" --dp 2 --tp 4 \
  --global-batch 4 --sequence-length 128 --layers 1 --heads 4 --head-dim 32 --steps 12 --output "$output"
echo "trace in $output"

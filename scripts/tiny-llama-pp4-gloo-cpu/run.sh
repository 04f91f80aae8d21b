#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the traces of tiny-llama-pp4-gloo-cpu again: run.sh [FOLDER], by default a new one here.
# Needs torch 2.14 (its torchrun on PATH), cclbench beside it, and Linux, where the loopback interface is lo.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/tiny-llama-pp4-gloo-cpu.XXXXXX")}
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
torchrun --standalone --nproc-per-node 4 "$workloads/tiny_pipeline.py" \
  --microbatches 6 --global-batch 12 --sequence-length 128 --layers 1 --heads 8 --head-dim 64 --steps 3 \
  --output "$output"
echo "traces in $output"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the trace of tiny-jax-h100 again: run.sh [FOLDER], by default a new one here.
# Needs jax 0.11 with CUDA 13, cclbench beside it, and one GPU.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/tiny-jax-h100.XXXXXX")}
python "$workloads/tiny_jax.py" --dp 1 --tp 1 --global-batch 16 --sequence-length 512 --layers 4 --heads 16 --head-dim 64 --output "$output"
echo "traces in $output"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the trace of llama-decode-h100 again: run.sh [FOLDER], by default a new one here.
# Needs torch 2.11 with CUDA 13, cclbench beside it, and one GPU.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/llama-decode-h100.XXXXXX")}
python "$workloads/one_gpu.py" decode --batch 8 --output "$output"
echo "traces in $output"

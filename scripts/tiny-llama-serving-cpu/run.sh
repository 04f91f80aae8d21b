#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the files of tiny-llama-serving-cpu again: run.sh [FOLDER], by default a new one here.
# Needs torch 2.14 (its Python on PATH), cclbench beside it, and port 8093.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/tiny-llama-serving-cpu.XXXXXX")}
export OMP_NUM_THREADS=1
python "$workloads/tiny_serving.py" serve --requests 16 --slots 4 --layers 1 --heads 8 --head-dim 64 \
  --output "$output" &
python "$workloads/tiny_serving.py" send --requests 16 --concurrency 6 --output "$output"
wait
echo "trace and client's result in $output"

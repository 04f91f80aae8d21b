#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the trace of llama-night-09-h100 again, and the logs of llama-nights-h100: run.sh [FOLDER], by default a new
# one here.
# Needs torch 2.11 (its Python on PATH), cclbench beside it, and a GPU.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/llama-nights-h100.XXXXXX")}
python "$workloads/nights.py" --output "$output" --nights 12 --changed 9
echo "logs and traces in $output"

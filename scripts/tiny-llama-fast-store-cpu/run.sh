#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the traces of tiny-llama-fast-store-cpu again: run.sh [FOLDER], by default a new one here.
# Needs torch 2.14 and cclbench beside it.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/tiny-llama-fast-store-cpu.XXXXXX")}
python "$workloads/file_loader.py" --output "$output"
echo "traces in $output"

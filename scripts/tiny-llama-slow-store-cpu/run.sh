#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the traces of tiny-llama-slow-store-cpu again: run.sh [FOLDER], by default a new one here.
# Needs torch 2.14, cclbench beside it, and FIO, which measures a store of that rate.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/tiny-llama-slow-store-cpu.XXXXXX")}
python "$workloads/file_loader.py" --output "$output" --store-rate 1e6
(cd "$(mktemp -d)" && fio --name=records --filename=fio.data --rw=read --bs=64k --size=4m --rate=1000000 \
  --output-format=json --output="$(realpath "$output")/fio.json")
echo "traces in $output"

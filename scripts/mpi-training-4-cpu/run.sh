#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make the archive of mpi-training-4-cpu again: run.sh [FOLDER], by default a new one here.
# Needs Open MPI (mpirun on PATH), and Python with mpi4py, numpy and otf2.
set -euo pipefail
workloads=$(cd "$(dirname "${BASH_SOURCE[0]}")/../workloads" && pwd)
output=${1:-$(mktemp -d "$PWD/mpi-training-4-cpu.XXXXXX")}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
mpirun --oversubscribe -n 4 python "$workloads/mpi_training.py" --output "$output/archive"
echo "archive in $output/archive"

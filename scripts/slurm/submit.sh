#!/bin/bash
# Reads a SOURCE by an array of Slurm jobs, and merges what they read once all of them are done.
#
#   scripts/slurm/submit.sh SOURCE STORE SHARDS [sbatch option]...
#
# Options, such as --partition=cpu --cpus-per-task=4 --time=30, go to both jobs. SOURCE and STORE must lie on a
# file system that all nodes see, and `cclbench` must be on the PATH of the jobs.
#
# Where a task of the array fails, the merge does not begin. Run the task again with the line that is printed,
# with --array=N instead, then the merge's line without its --dependency.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,4p' "$0" | cut -c3- >&2
  exit 2
fi
SOURCE=$(realpath "$1") STORE=$(realpath -m "$2") SHARDS=$3
shift 3
here=$(dirname "$(realpath "$0")")
mkdir -p "$STORE"
SHARD_FOLDER=$(mktemp -d "$STORE/.shards-XXXXXXXX")
export SOURCE STORE SHARDS SHARD_FOLDER
variables="SOURCE=$SOURCE STORE=$STORE SHARDS=$SHARDS SHARD_FOLDER=$SHARD_FOLDER"
array=(sbatch --parsable --export=ALL --array="1-$SHARDS" "$@" "$here/ingest.sbatch")
job=$("${array[@]}")
echo "$variables ${array[*]}"
merge=(sbatch --parsable --export=ALL --dependency="afterok:$job" --kill-on-invalid-dep=yes "$@" "$here/merge.sbatch")
merging=$("${merge[@]}")
echo "$variables ${merge[*]}"
echo "array $job, merge $merging"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Validates every card that differs from where HEAD branched off $BASE; names of files are arguments, never words of a command.
set -euo pipefail
cards=$(mktemp)
trap 'rm -f "$cards"' EXIT
git diff --name-only --diff-filter=d -z "$BASE...HEAD" -- 'workload_cards/*.yaml' > "$cards"
xargs --null --no-run-if-empty cclbench card validate -- < "$cards"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Appends to $GITHUB_STEP_SUMMARY, as Markdown: of each data point that differs from where HEAD branched off $BASE its comparison
# with the one there, of a new one its results.  What cannot be compared is said, and fails nothing: verifying is another step.
set -euo pipefail
work=$(mktemp -d)
base=$(git merge-base "$BASE" HEAD)
trap 'git worktree remove --force "$work/base" > /dev/null 2>&1 || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"
touch "$work/summary.md"

# Ids only: other names are no data points, and `cclbench verify` refuses them.
git diff --name-only -z "$base" HEAD -- workload_cards traces |
  sed --null-data --quiet --regexp-extended \
    -e 's#^workload_cards/([A-Za-z0-9][A-Za-z0-9._-]*)\.yaml$#\1#p' \
    -e 's#^traces/([A-Za-z0-9][A-Za-z0-9._-]*)/.*$#\1#p' |
  sort --zero-terminated --unique |
  while IFS= read -r -d '' id; do
    new="workload_cards/$id.yaml" former="$work/base/workload_cards/$id.yaml"
    if [ -f "$new" ] && [ -f "$former" ]; then
      printf '## %s, against the base\n\n' "$id"
      words=(compare "$former" "$new")
    elif [ -f "$new" ]; then
      printf '## %s, new\n\n' "$id"
      words=(run "$new")
    else
      printf '## %s, removed\n\n' "$id"
      continue
    fi
    if cclbench "${words[@]}" --store "$work/runs" --format md > "$work/part.md" 2> "$work/error"; then
      cat "$work/part.md"
    else
      # As code, without what would end it.
      printf 'Not compared:\n\n'
      tr -d '`' < "$work/error" | head -c 1000 | sed 's/^/    /'
    fi
    printf '\n'
  done > "$work/summary.md"
# A summary has 1 MiB at most.
head -c 1000000 "$work/summary.md" >> "$GITHUB_STEP_SUMMARY"

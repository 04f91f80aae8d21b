#!/usr/bin/env bash
# Resolves cclbench's wheel under each file of tests/constraints: the pins of container images, and the lowest
# versions that pyproject.toml names. Those given as arguments (lowest ngc-25.02 ...) are installed, and the main
# job is run there, outside of the checkout.
set -euo pipefail
repository="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-python3}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work" "$repository"
cd "$work"
for pins in "$repository"/tests/constraints/*.txt; do
  "$python" -m pip install --quiet --dry-run --ignore-installed --only-binary=:all: --constraint "$pins" ./*.whl
  echo "resolves under $(basename "$pins" .txt)"
done

for name in "$@"; do
  "$python" -m venv "$name"
  "$name/bin/pip" install --quiet --only-binary=:all: --constraint "$repository/tests/constraints/$name.txt" ./*.whl
  "$name/bin/cclbench" --help > /dev/null
  "$name/bin/cclbench" list metrics > /dev/null
  card="$repository/workload_cards/tiny-llama-fsdp2-tp2-gloo-cpu.yaml"
  "$name/bin/cclbench" run "$card" --store "$name/runs" --json --metric time.step > "$name/run.json"
  "$name/bin/cclbench" report "$card" --store "$name/runs" --output "$name/report.html" > /dev/null
  "$name/bin/cclbench" ops "$card" --store "$name/runs" > /dev/null
  "$name/bin/cclbench" sql "$card" "SELECT count(*) FROM events" --store "$name/runs" > /dev/null
  "$name/bin/python" -W error -c 'import sys, cclbench; print(cclbench.run(sys.argv[1], store=sys.argv[2]).results.shape)' \
    "$card" "$name/runs"
  echo "runs under $name"
done

#!/usr/bin/env bash
# Resolves cclbench's wheel under each file of tests/constraints: the pins of container images, the lowest versions
# that pyproject.toml names and the newest that there were, each for the Python in its first line. Those named as arguments
# (lowest ngc-25.02 ...) are also installed, and run outside of the checkout, where $PYTHON is that Python.
set -euo pipefail
repository="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-python3}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

version_of() { sed -n 's/^# Python \(3\.[0-9]*\).*/\1/p' "$repository/tests/constraints/$1.txt"; }

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work" "$repository"
cd "$work"
for pins in "$repository"/tests/constraints/*.txt; do
  name=$(basename "$pins" .txt)
  "$python" -m pip install --quiet --dry-run --ignore-installed --target "$work/none" --only-binary=:all: \
    --python-version "$(version_of "$name")" --constraint "$pins" ./*.whl
  echo "resolves under $name"
done

own=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
card="$repository/workload_cards/tiny-llama-fsdp2-tp2-gloo-cpu.yaml"
for name in "$@"; do
  if [ "$(version_of "$name")" != "$own" ]; then
    echo "does not run under $name: this is Python $own"
    continue
  fi
  "$python" -m venv "$name"
  "$name/bin/pip" install --quiet --only-binary=:all: --constraint "$repository/tests/constraints/$name.txt" ./*.whl
  "$name/bin/cclbench" --help > /dev/null
  "$name/bin/cclbench" list metrics > /dev/null
  "$name/bin/cclbench" run "$card" --store "$name/runs" --json > /dev/null
  "$name/bin/cclbench" report "$card" --store "$name/runs" --output "$name/report.html" > /dev/null 2>&1
  "$name/bin/cclbench" ops "$card" --store "$name/runs" > /dev/null
  "$name/bin/cclbench" sql "$card" "SELECT count(*) FROM events" --store "$name/runs" > /dev/null
  "$name/bin/python" -c 'import sys, cclbench; cclbench.run(sys.argv[1], store=sys.argv[2]).results' \
    "$card" "$name/runs"
  echo "runs under $name"
done

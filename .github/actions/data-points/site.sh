#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the collection's site into $SITE, if that is given and this cclbench has the command.
set -euo pipefail
if [ -z "$SITE" ]; then
  echo "no site was asked for"
elif cclbench site --help > /dev/null 2>&1; then
  cclbench site . --output "$SITE"
else
  echo "this cclbench builds no site"
fi

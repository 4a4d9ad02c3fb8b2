#!/usr/bin/env bash
# How many ranks scripts/train.sh starts by itself (scripts/lib.sh), on machines made of two commands.
set -euo pipefail

source scripts/lib.sh
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

# expect RANKS GPUS CORES: GPUS "-": no driver.
expect() {
  rm -f "$bin"/*
  ln -s "$(command -v grep)" "$(command -v seq)" "$bin" # nothing else is found: no GPU of this machine
  printf '#!/bin/sh\necho %s\n' "$3" >"$bin/nproc"
  if [[ $2 != - ]]; then
    printf '#!/bin/sh\nseq -f "GPU %%.0f: a name (UUID: x)" %s\n' "$2" >"$bin/nvidia-smi"
  fi
  find "$bin" -type f -exec chmod +x {} +
  hash -r
  local ranks
  ranks=$(PATH=$bin default_ranks)
  if [[ $ranks != "$1" ]]; then
    echo "FAILED: $2 GPUs, $3 cores: $ranks ranks, not $1"
    exit 1
  fi
}

expect 1 - 1
expect 2 - 2
expect 1 1 16
expect 2 2 16
expect 2 8 1
expect 2 0 4
echo "default ranks: fine"

#!/usr/bin/env bash
# Runs a test program as N MPI processes: mpi_test.sh N PROGRAM [ARG...]
set -euo pipefail

ranks=$1
program=$2
shift 2

options=(-n "$ranks" --oversubscribe --bind-to none)
# Everything is on this machine: shared memory only, and no ssh, no interface to choose.
options+=(--mca btl "self,vader" --mca plm isolated)
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Open MPI names sockets below TMPDIR; Bazel's is too long for a socket's path.
TMPDIR=$(mktemp -d /tmp/ym_mpi.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

status=0
mpirun "${options[@]}" "$program" "$@" </dev/null || status=$?

# Rank 0 writes the report of test cases. Where another rank failed it shows no failure:
# without it, Bazel writes one that does.
if [[ $status -ne 0 && -n ${XML_OUTPUT_FILE:-} && -f $XML_OUTPUT_FILE ]] &&
  ! grep -q '<failure' "$XML_OUTPUT_FILE"; then
  rm -f "$XML_OUTPUT_FILE"
fi
exit "$status"

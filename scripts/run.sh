#!/usr/bin/env bash
# Builds and runs yardmaster on N ranks: scripts/run.sh -n 2 train configs/tiny_deepseek_v3.yaml
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

usage() {
  cat <<END
usage: scripts/run.sh [-n RANKS] COMMAND [ARG...]
Builds //tools:yardmaster, says the mpirun line that it runs, and runs it. RANKS is 1 unless said.
  scripts/run.sh -n 2 train configs/tiny_deepseek_v3.yaml --set train.steps=100
END
}

# What mpirun counts as slots unless it is told more: cores, not hyperthreads.
physical_cores() {
  local cores
  cores=$(LC_ALL=C lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l) || cores=0
  ((cores > 0)) || cores=$(nproc)
  # A container or taskset may allow fewer.
  local allowed
  allowed=$(nproc)
  echo $((cores < allowed ? cores : allowed))
}

main() {
  local ranks=1
  while (($#)); do
    case $1 in
      -n) ranks=${2:-}; shift 2 || die "-n wants a number of ranks" ;;
      -h | --help) usage; exit 0 ;;
      --) shift; break ;;
      -*) usage >&2; exit 2 ;;
      *) break ;;
    esac
  done
  [[ $ranks =~ ^[1-9][0-9]*$ ]] || die "-n wants a number of ranks, not '$ranks'"
  (($#)) || { usage >&2; exit 2; }
  command -v mpirun >/dev/null || die "mpirun is not here" "Run scripts/setup.sh"

  # train.sh has just built, and said what there is to say about it.
  [[ -n ${YM_BUILT:-} ]] || build //tools:yardmaster

  local binary=bazel-bin/tools/yardmaster
  [[ $PWD == "$YM_ROOT" ]] || binary=$YM_ROOT/$binary
  # Open MPI ties one or two ranks to one core each, and a rank's other threads with it.
  local line=(mpirun -n "$ranks" --bind-to none)
  local cores
  cores=$(physical_cores)
  if ((ranks > cores)); then
    line+=(--oversubscribe)
    say "run: $ranks ranks on $cores cores: mpirun gets --oversubscribe"
  fi
  local variables=()
  if [[ $EUID -eq 0 ]]; then
    variables=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    export "${variables[@]}"
    say "run: as root, so mpirun gets OMPI_ALLOW_RUN_AS_ROOT"
  fi
  line+=("$binary" "$@")
  say "run:${variables[*]:+ ${variables[*]}} $(printf '%q ' "${line[@]}")"
  exec "${line[@]}"
}

main "$@"

# Sourced by the other scripts: messages, timed stages, Bazel. No settings of its own are kept.
# shellcheck shell=bash

YM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Debian's Bazel, even where a newer one (no WORKSPACE) comes first in PATH. BAZEL= overrides.
if [[ -z ${BAZEL:-} ]]; then
  BAZEL=bazel
  [[ -x /usr/bin/bazel ]] && BAZEL=/usr/bin/bazel
fi

say() { printf '%s\n' "$*"; }

# die WHAT [WHAT TO DO]...
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  if (($#)); then
    printf '       %s\n' "$@" >&2
  fi
  exit 1
}

# stage LABEL COMMAND [ARG...]: runs it and says how long it took.
stage() {
  local label=$1 start=$EPOCHREALTIME status=0
  shift
  say "== $label"
  "$@" || status=$?
  if ((status)); then
    say "== $label: ended with exit code $status after $(seconds_since "$start") s"
  else
    say "== $label: done in $(seconds_since "$start") s"
  fi
  return "$status"
}

# seconds_since EPOCHREALTIME: with one digit. The variable's decimal point follows the locale.
seconds_since() {
  local start=${1//[.,]/} now=${EPOCHREALTIME//[.,]/}
  local tenths=$(((now - start + 50000) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# GPUs that the driver shows; a machine without the driver has none.
gpu_count() {
  local count=0
  if command -v nvidia-smi >/dev/null; then
    count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
  fi
  echo "$count"
}

# Ranks of a run that was given no number: two, and one where there is one GPU, which two ranks would
# leave for the cpu, or one core and no GPU.
default_ranks() {
  local gpus
  gpus=$(gpu_count)
  if ((gpus == 1 || (gpus == 0 && $(nproc) < 2))); then
    echo 1
  else
    echo 2
  fi
}

# build TARGET...: quiet unless it fails; on a terminal Bazel shows its progress.
build() {
  local log status=0
  log=$(mktemp)
  if [[ -t 2 ]]; then
    (cd "$YM_ROOT" && "$BAZEL" build --ui_event_filters=-info "$@") || status=$?
  else
    (cd "$YM_ROOT" && "$BAZEL" build --curses=no --noshow_progress "$@") >"$log" 2>&1 || status=$?
    grep -h 'CPU-only build' "$log" | sed 's/.*CPU-only build/CPU-only build/' | head -n 1 || true
  fi
  if ((status)); then
    cat "$log" >&2
    rm -f "$log"
    die "the build failed ($BAZEL build $*, in $YM_ROOT)" "Its messages are above."
  fi
  rm -f "$log"
}

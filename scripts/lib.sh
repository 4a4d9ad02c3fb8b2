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

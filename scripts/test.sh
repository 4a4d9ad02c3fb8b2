#!/usr/bin/env bash
# Installs what is missing, builds everything, runs the tests. Ends with a line of counts.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# Set by the functions below: tests left out, Bazel's exit code, where it writes its events.
skipped=0
bazel_status=0
events=

usage() {
  cat <<END
usage: scripts/test.sh [--all] [TARGET...]
Runs the tests of //... (or TARGET...) and counts test cases. --all: the slow ones too (tag slow_all).
Tests tagged gpu are built, and run where there is a GPU.
END
}

# skipped_by TAG WHY TARGET...: says which tests a filter leaves out, and sets `skipped`.
skipped_by() {
  local tag=$1 why=$2 target
  shift 2
  while IFS= read -r target; do
    if [[ -n $target ]]; then
      say "skipped: $target ($why)"
      skipped=$((skipped + 1))
    fi
  done < <("$BAZEL" query --noshow_progress --ui_event_filters=-info \
    "attr(tags, '\\b$tag\\b', tests(set($*)))" 2>/dev/null)
}

# run_tests FILTER TARGET...: sets `bazel_status` to Bazel's exit code.
# shellcheck disable=SC2317 # called through stage
run_tests() {
  local filter=$1
  shift
  bazel_status=0
  # In a log, a line a minute shows that it is alive.
  local progress=(--curses=no --show_progress_rate_limit=60)
  [[ -t 2 ]] && progress=()
  # One target that does not build must not hide what the others say.
  "$BAZEL" test --keep_going "${progress[@]}" --test_summary=short \
    --build_event_json_file="$events" --test_tag_filters="$filter" -- "$@" || bazel_status=$?
}

# Sums up, after what Bazel's exit code says of the build: 0 fine, 3 tests failed, else not built.
finish() {
  local counts code=0
  counts=$(scripts/count_tests.sh "$events" "$skipped") || code=1
  if ((bazel_status == 0 || bazel_status == 3)); then
    say "$counts"
    exit $((bazel_status != 0 || code))
  fi
  if ((bazel_status == 4)); then
    say "$counts" # no tests in TARGET
    exit 1
  fi
  # What was not built is one failure more; the count of it would need Bazel to know its tests.
  say "$(sed '$d' <<<"$counts")"
  say "FAILED: the build ($BAZEL test, exit code $bazel_status); its messages are above"
  tail -n 1 <<<"$counts" | awk '{
    if ($3 == 1 && $1 == 0) $3 = 0
    $3 = $3 + 1
    print
  }'
  exit 1
}

main() {
  local all=0 targets=() filter=""
  while (($#)); do
    case $1 in
      --all) all=1 ;;
      -h | --help) usage; exit 0 ;;
      -*) usage >&2; exit 2 ;;
      *) targets+=("$1") ;;
    esac
    shift
  done
  ((${#targets[@]})) || targets=(//...)
  cd "$YM_ROOT"
  # Even where setup or the build fails, the last line counts.
  if ! stage setup scripts/setup.sh; then
    say "0 passed, 1 failed"
    exit 1
  fi
  events=$(mktemp)
  trap 'rm -f "$events"' EXIT
  if ! ((all)); then
    filter+=",-slow_all"
    skipped_by slow_all "slow: scripts/test.sh --all" "${targets[@]}"
  fi
  if [[ $(gpu_count) -eq 0 ]]; then
    filter+=",-gpu"
    skipped_by gpu "needs a GPU, this machine has none" "${targets[@]}"
  fi
  stage "build and test" run_tests "${filter#,}" "${targets[@]}"
  finish
}

main "$@"

#!/usr/bin/env bash
# Sums up a test run: count_tests.sh EVENTS [EXTRA_SKIPPED]. EVENTS is what Bazel's
# --build_event_json_file wrote, one event a line. Prints the failed test cases, then
# `N passed, N failed[, N skipped]`, counting test cases. Exits 1 where any failed or none ran.
set -euo pipefail

# Prints "STATUS TARGET XML" of every test that ran, cached or not.
test_results() {
  grep '^{"id":{"testResult":{' "$1" | while IFS= read -r event; do
    local status target xml
    status=$(sed -n 's/.*"testResult":{.*"status":"\([A-Z_]*\)".*/\1/p' <<<"$event")
    target=$(sed -n 's/.*"id":{"testResult":{"label":"\([^"]*\)".*/\1/p' <<<"$event")
    xml=$(grep -o '"uri":"file://[^"]*/test\.xml"' <<<"$event" | sed 's/"uri":"file:\/\///; s/"$//' || true)
    printf '%s %s %s\n' "${status:-UNKNOWN}" "${target:-unknown}" "${xml:--}"
  done
}

# Prints "TESTS FAILED SKIPPED" of one report.
xml_counts() {
  awk '
    function value(name,  at) {
      if (!match($0, " " name "=\"[0-9]+\"")) return 0
      at = substr($0, RSTART, RLENGTH)
      gsub(/[^0-9]/, "", at)
      return at + 0
    }
    /<testsuite / { tests += value("tests"); failed += value("failures") + value("errors"); skipped += value("skipped") }
    END { print tests + 0, failed + 0, skipped + 0 }' "$1"
}

failed_cases() {
  awk '
    /<testcase / { name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name) }
    /<failure|<error/ { print "       " name }' "$1" | uniq | head -n 50
}

main() {
  local events=$1 skipped=${2:-0} passed=0 failed=0 status target xml
  local tests bad left
  while read -r status target xml; do
    tests=0 bad=0 left=0
    if [[ -f $xml ]]; then
      read -r tests bad left < <(xml_counts "$xml")
    fi
    # A program that died, timed out or never started reports less than what happened.
    if [[ $status != PASSED && $bad -eq 0 ]]; then
      bad=1
      ((tests > left)) || tests=$((left + 1))
    fi
    if ((bad)); then
      echo "FAILED $target ($status)"
      [[ -f $xml ]] && failed_cases "$xml"
    fi
    passed=$((passed + tests - bad - left)) failed=$((failed + bad)) skipped=$((skipped + left))
  done < <(test_results "$events")
  if ((passed + failed == 0)); then
    echo "error: no test ran" >&2
    failed=1
  fi
  if ((skipped)); then
    echo "$passed passed, $failed failed, $skipped skipped"
  else
    echo "$passed passed, $failed failed"
  fi
  ((failed == 0))
}

main "$@"

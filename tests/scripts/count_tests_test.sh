#!/usr/bin/env bash
# scripts/count_tests.sh counts test cases, and never calls a failed run a good one.
set -euo pipefail

count=scripts/count_tests.sh
events=$TEST_TMPDIR/events.json
failures=0

# report NAME TESTS FAILED ERRORS SKIPPED: prints the path of a report like those of catch_main.
report() {
  local file=$TEST_TMPDIR/$1/test.xml
  mkdir -p "${file%/*}"
  {
    printf '<?xml version="1.0"?>\n<testsuites>\n'
    printf '<testsuite name="%s" tests="%d" failures="%d" errors="%d" skipped="%d">\n' "$@"
    printf '<testcase name="a case" classname="x">%s</testcase>\n' "$( (($3)) && echo '<failure>x</failure>')"
    printf '</testsuite>\n</testsuites>\n'
  } >"$file"
  echo "$file"
}

# event TARGET STATUS XML: adds a line like Bazel's.
event() {
  printf '{"id":{"testResult":{"label":"%s","run":1}},"testResult":{"testActionOutput":[{"name":"test.log","uri":"file:///x/test.log"},{"name":"test.xml","uri":"file://%s"}],"status":"%s","cachedLocally":true}}\n' \
    "$1" "$3" "$2" >>"$events"
}

# expect EXIT_CODE LAST_LINE [ARG...]
expect() {
  local want_code=$1 want=$2 code=0 output
  shift 2
  output=$("$count" "$events" "$@" 2>&1) || code=$?
  if [[ $code -ne $want_code || $(tail -n 1 <<<"$output") != "$want" ]]; then
    printf 'FAILED: wanted exit code %s and "%s", got %s and:\n%s\n' "$want_code" "$want" "$code" "$output"
    failures=$((failures + 1))
  fi
  : >"$events"
}

: >"$events"
event //a:a PASSED "$(report a 5 0 0 0)"
event //b:b PASSED "$(report b 3 0 0 1)"
echo '{"id":{"targetCompleted":{"label":"//a:a"}},"children":[{"testResult":{"label":"//a:a"}}]}' >>"$events"
expect 0 "7 passed, 0 failed, 1 skipped"

event //a:a PASSED "$(report a 5 0 0 0)"
expect 0 "5 passed, 0 failed"

event //a:a PASSED "$(report a 5 0 0 0)"
expect 0 "5 passed, 0 failed, 2 skipped" 2

event //a:a FAILED "$(report a 5 2 0 0)"
expect 1 "3 passed, 2 failed"

event //a:a FAILED "$(report a 1 0 1 0)"
expect 1 "0 passed, 1 failed"

# It died after its last case, or another rank did: the report alone looks fine.
event //a:a FAILED "$(report a 5 0 0 0)"
expect 1 "4 passed, 1 failed"

event //a:a TIMEOUT /nowhere/test.xml
event //b:b PASSED "$(report b 3 0 0 0)"
expect 1 "3 passed, 1 failed"

# Nothing ran at all.
expect 1 "0 passed, 1 failed"

if ((failures)); then
  exit 1
fi

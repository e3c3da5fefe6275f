#!/bin/sh
# Runs tests and prints one closing count of them all: run_tests.sh BUILD_DIR:LABEL ...
# A label is a regular expression of whole labels: build:'slow|release'.
#
# Two tests a core: ranks wait for one another, commands for drives and signals. TEST_JOBS=N says
# another number.
#
# ctest counts programs and cannot see the cases cmocka skips, so cases are counted from its log. A
# script that leaves something out says so in a line "skipped: WHAT (WHY)", which counts as one.
set -u
jobs=${TEST_JOBS:-$((2 * $(nproc)))}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
started=$(date +%s)
runs=0
for part in "$@"; do
  build=${part%%:*}
  label=${part##*:}
  runs=$((runs + 1))
  rm -f "$build/Testing/Temporary/LastTest.log"
  {
    ctest --test-dir "$build" -L "^($label)\$" -j "$jobs" --output-on-failure ||
      touch "$logs/failed"
  } 2>&1 | tee "$logs/$runs.1"
  cp "$build/Testing/Temporary/LastTest.log" "$logs/$runs.2" 2>/dev/null
done
[ $runs -gt 0 ] || { echo "run_tests.sh: expected BUILD_DIR:LABEL ..." >&2; exit 2; }
echo
echo "In $(($(date +%s) - started)) s:"
awk -f "$(dirname "$0")/count_tests.awk" "$logs"/*.* || touch "$logs/failed"
[ ! -e "$logs/failed" ]

#!/bin/sh
# Runs tests and prints one closing count of them all: run_tests.sh BUILD_DIR:LABEL ...
#
# ctest counts programs and cannot see the cases cmocka skips, so cases are counted from its log.
set -u
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
started=$(date +%s)
failed=0
runs=0
for part in "$@"; do
  build=${part%%:*}
  label=${part##*:}
  runs=$((runs + 1))
  ctest --test-dir "$build" -L "^$label\$" -j "${JOBS:-1}" --output-on-failure || failed=1
  if [ -f "$build/Testing/Temporary/LastTest.log" ]; then
    cp "$build/Testing/Temporary/LastTest.log" "$logs/$runs"
  fi
done
for log in "$logs"/*; do
  [ -f "$log" ] || { echo "run_tests.sh: no test ran" >&2; exit 1; }
done
echo
echo "In $(($(date +%s) - started)) s:"
awk -f "$(dirname "$0")/count_tests.awk" "$logs"/* || failed=1
exit $failed

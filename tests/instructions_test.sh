#!/bin/sh
# Every case that `make bench-check` counts runs, and has kept counts; nothing is counted here.
set -u
program="${LS_BUILD_DIR:?}/bench/instructions"
[ -x "$program" ] || { echo "skipped: $program is not built"; exit 77; }
failed=0
cases=$("$program") || exit 1
old_ifs=$IFS
IFS='
'
for name in $cases; do
  "$program" "$name" >/dev/null || { echo "FAILED: $name does not run"; failed=1; }
  grep -q "^[^,]*,$name,[^,]*,[1-9][0-9]*$" bench/instructions.csv ||
    { echo "FAILED: $name is not in bench/instructions.csv"; failed=1; }
done
IFS=$old_ifs
"$program" "no such case" 2>/dev/null && { echo "FAILED: a case that is none runs"; failed=1; }
exit $failed

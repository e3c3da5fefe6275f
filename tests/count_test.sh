#!/bin/sh
# The closing count of 'make check' over a log with every kind of outcome.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/printed" <<'LOG'
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] broken
1/6 Test #1: good_test ............   Passed    0.01 sec
3/6 Test  #3: absent_test ..........***Skipped   0.01 sec
7/7 Test  #7: gone_test ............***Skipped   0.01 sec
4/6 Test #14: missing_test .........***Not Run   0.00 sec
LOG
cat >"$work/log" <<'LOG'
1/6 Testing: good_test
[       OK ] first
[  SKIPPED ] second
[==========] 3 test(s) run.
[  PASSED  ] 2 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] second
Test Passed.
2/6 Testing: bad_test
[  PASSED  ] 4 test(s).
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] broken

 1 FAILED TEST(S)
Test Failed.
3/6 Testing: crash_test
[ RUN      ] first
Test Failed.
4/6 Testing: leak_test
[  PASSED  ] 5 test(s).
Test Failed.
5/6 Testing: script_test
skipped: a thing (no jq here)
prints skipped: amid a line
skipped: another thing (no MPI here)
Test Passed.
6/6 Testing: absent_test
Test Passed.
7/7 Testing: gone_test
skipped: no chromium here
Test Passed.
LOG
expected='skipped:
  good_test: second
  script_test: a thing (no jq here)
  script_test: another thing (no MPI here)
  absent_test
  gone_test: no chromium here
failed:
  bad_test: broken
  crash_test
  leak_test
  missing_test (not run)
12 passed, 4 failed, 5 skipped'
found=$(awk -f tools/count_tests.awk "$work/printed" "$work/log" "$work/printed") && { echo "failures must fail"; exit 1; }
[ "$found" = "$expected" ] || { echo "expected: $expected"; echo "found: $found"; exit 1; }
: >"$work/empty"
if awk -f tools/count_tests.awk "$work/empty" >/dev/null; then
  echo "no test at all must fail"
  exit 1
fi
echo "counted"

#!/bin/sh
# `lockstep bench` of a machine, whole: what it says and keeps. How fast anything is, is not looked at.
#  bench_slow_test.sh LOCKSTEP
set -u
. tests/support/bench_expect.sh

expect 0 "^kept in $work/cache/lockstep/machine-" bench --folder .
for word in "^matrix products" "^  fp32 2048x2048x2048 " "^  bf16" "^  triad " "^  16MiB, 4 ranks" \
  "^  write, fdatasync"; do
  grep -q "$word" output || fail "bench: no line with $word"
done
grep -q "^0/[0-9]*  drive of" errors || fail "no progress line"
grep -q "left" errors || fail "nothing says how long it takes"
[ "$(find cache/lockstep -type f | wc -l)" -eq 1 ] || fail "not one file is kept"
kept=$(echo cache/lockstep/*.json)
cp "$kept" before
expect 0 '"checksum"' bench --kept --json
cmp -s output "$kept" || fail "--json is not what is kept"
expect 0 "^  fp32 2048x2048x2048 " machines here
expect 0 '"checksum"' machines here --json
cmp -s output "$kept" || fail "machines here --json is not what is kept"
[ $failed -eq 0 ] && echo "bench: all as expected"
exit $failed

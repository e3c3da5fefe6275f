#!/bin/sh
# `lockstep bench` of a machine, whole: what it says and keeps. How fast anything is, is not looked at.
#  bench_slow_test.sh LOCKSTEP
set -u
case $1 in
  /*) lockstep=$1 ;;
  *) lockstep=$PWD/$1 ;;
esac
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE OMP_NUM_THREADS
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
  echo "FAILED: $1"
  [ ! -s errors ] || sed 's/^/  stderr: /' errors | tail -5
  failed=1
}

# expect STATUS PATTERN WORDS...: the exit status, and a line of the output (both streams).
expect() {
  status=$1
  pattern=$2
  shift 2
  "$lockstep" "$@" >output 2>errors
  got=$?
  [ "$got" -eq "$status" ] || fail "$*: exit status $got; expected $status"
  cat output errors | grep -q -e "$pattern" || fail "$*: no line with $pattern"
  [ "$status" -ne 2 ] || [ "$(wc -l <errors)" -eq 1 ] || fail "$*: more than one line"
}

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

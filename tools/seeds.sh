#!/bin/sh
# Random tests with new seeds: seeds.sh BUILD_DIR COUNT [NAME...]. What a test draws is the same
# each time in `make check`; here each program of those that take a seed runs COUNT times, or those
# whose names are given. LS_SEED: the first seed (the time); the next are one more each.
set -u
build=$1
count=$2
shift 2
first=${LS_SEED:-$(date +%s)}
if [ $# -eq 0 ]; then
  # Layouts that are drawn are run whole by make check-matrix, and kills have make check-kills.
  set -- $(grep -rlE 'test_seed(_untold)?\(|\$\{LS_SEED' --include='*_test.c' --include='*_test.sh' \
    src tests | sed 's#.*/##; s#\..*##' |
    grep -Ev '^(matrix_(axes|fast|options|)_?test|memory_slow_test|kills_command_test)$' | sort)
fi
[ $# -gt 0 ] || { echo "seeds.sh: no test takes a seed here; run it from the root of the tree" >&2; exit 2; }
failed=0
for name in "$@"; do
  began=$(date +%s)
  fell=
  for i in $(seq 0 $((count - 1))); do
    LS_SEED=$((first + i)) ctest --test-dir "$build" -R "^$name\$" --no-tests=error \
      --output-on-failure >"$build/seeds.log" 2>&1 && continue
    fell="$fell $((first + i))"
    cat "$build/seeds.log"
  done
  [ -z "$fell" ] || failed=1
  echo "$name: $count seeds from $first in $(($(date +%s) - began)) s${fell:+; FAILED with$fell}"
done
exit $failed

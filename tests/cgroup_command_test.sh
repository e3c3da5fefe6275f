#!/bin/sh
# Training in a cgroup with little memory: what is not refused ends as it should, and the kernel
# kills none of it.  cgroup_command_test.sh LOCKSTEP
set -eu
. tests/support/small_run.sh
if grep -q __asan_init "$lockstep"; then
  echo "skipped: a cgroup with little memory (sanitizers take more than devices do)"
  exit 77
fi
group=/sys/fs/cgroup/memory/lockstep-test-$$ limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/lockstep-test-$$ limit=memory.max
mkdir "$group" 2>/dev/null && [ -w "$group/$limit" ] || {
  rmdir "$group" 2>/dev/null || true
  echo "skipped: a cgroup with little memory (none can be made here)"
  exit 77
}
trap 'rmdir "$group"; rm -rf "$work"' EXIT

# within MIB: trains in so much memory; the exit status.
within() {
  echo $(($1 << 20)) >"$group/$limit"
  sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$lockstep" train keys.yaml \
    model=llama-3m out="runs/$1" data.seq_len=64 train.batch=4 train.steps=2 checkpoint.every=1 \
    device.threads=1 >output 2>log </dev/null || return $?
}

refused=0 trained=0
for size in 40 60 70 80 90 100 120 140 180; do
  code=0
  within $size || code=$?
  case $code in
    0) trained=$((trained + 1)) ;;
    1)
      grep -q "^lockstep train: memory: .* are there (memory that is left of the cgroup" log ||
        fail "$size MiB: $(cat log)"
      refused=$((refused + 1))
      ;;
    *) fail "$size MiB: exit status $code: $(cat log)" ;;
  esac
done
[ $refused -ge 2 ] && [ $trained -ge 2 ] || fail "$refused refused, $trained trained"
echo "cgroup: $refused refused, $trained trained, none killed"

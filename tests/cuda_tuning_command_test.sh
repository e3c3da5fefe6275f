#!/bin/sh
# Kernels of products as a person sees them timed, on stand-ins of NVIDIA's libraries: said once and
# kept, listed and cleared, the same bits again; under mpirun processes take what the first found,
# though the second's GPU would find another.
# $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
export XDG_CACHE_HOME="$work/cache"

settings=gpus=1,ways=8
keys="keys.yaml train.steps=3 checkpoint.every=0 device.kind=cuda"
losses() { grep -o '"loss": *[0-9.]*' "$1/metrics.jsonl"; }
silent() { if grep -q "the kernels of" log; then fail "timed again: $(cat log)"; fi; }
same() { [ "$(losses "$1")" = "$(losses "$2")" ] || fail "$2: $(losses "$2"), $1: $(losses "$1")"; }
products() { find "$XDG_CACHE_HOME" -name 'gpu-*.kept' -exec grep -l ': product of' {} + | wc -l; }

# shellcheck disable=SC2086
on_gpu 0 train $keys out=first
says "times the kernels of "
says " another is taken than the library's first guess, 20.0 % less time in all"
[ "$(products)" -gt 5 ] || fail "$(products) products are kept"
# shellcheck disable=SC2086
on_gpu 0 train $keys out=again
silent
same first again
on_gpu 0 cache
says "Stand-in GPU, driver 580.65.05, cuBLASLt 13.1.0: product of "
# shellcheck disable=SC2086
on_gpu 0 train $keys out=guessed device.tune=false
silent
on_gpu 0 cache clear
[ "$(products)" = 0 ] || fail "$(products) products are left"
# shellcheck disable=SC2086
on_gpu 0 train $keys out=anew
says "timed the kernels of "
same first anew
on_gpu 0 doctor
says "timed as a run begins, once; kept in $XDG_CACHE_HOME/lockstep"
settings=gpus=1,ways=8,cublaslt=130200
# shellcheck disable=SC2086
on_gpu 0 train $keys out=newer
says "timed the kernels of "
settings=gpus=1,ways=2
on_gpu 0 bench
on_gpu 0 cache
says "product of 192 x 192 x 192, bf16 to bf16"

launcher=${MPIRUN:-mpirun}
command -v "$launcher" >/dev/null || { echo "skipped: processes (no $launcher)"; exit 0; }
flags=${MPIRUN_FLAGS:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # memory that MPI keeps to its end
[ -n "$flags" ] || ! "$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE" || flags="--bind-to none"
for engine in staged nccl; do
  rm -rf "$XDG_CACHE_HOME" calls
  printf '%s' "gpus=2,ways=8,disagree=1,log=$work/calls" >settings
  # shellcheck disable=SC2086
  timeout 120 "$launcher" $flags -n 2 ./gpu train $keys out=two-$engine mesh.tp=2 \
    comm.engine=$engine >output 2>log </dev/null || fail "$engine: $(cat log)"
  if grep -q "has no MPI\|without MPI" log; then echo "skipped: processes (no MPI)"; exit 0; fi
  [ "$(grep -c '^times the kernels of' log)" = 1 ] || fail "told by both: $(cat log)"
  grep -q '^way 5 on GPU 1 ' calls || fail "GPU 1 took no way 5: $(cat calls)"
  ! grep -q '^way [2-48] on GPU 1 ' calls || fail "GPU 1 timed or took its own: $(cat calls)"
done
echo "$passed commands"

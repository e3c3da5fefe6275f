#!/bin/sh
# Training where NCCL carries data between GPUs, on strict stand-ins of NVIDIA's libraries
# (tests/support/stand_in/nccl.c): by threads of a process and by processes under mpirun it ends
# where the CPU's run ends. A collective that is missing or fails, a call that fails and a rank that
# is killed end all ranks within seconds, in a line that says which.
# $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
. "$tests/support/cpu_and_gpus.sh"
steps=3
. "$tests/support/gpu_processes.sh"

export GPUS="gpus=4,peers=none" GPUS_1=
on_gpus() { # STATUS words...: ranks are threads
  lockstep=$work/gpu
  run "$@"
  lockstep=$plain
}
by_nccl() { says "data between ranks goes by NCCL, which adds up in an order of its own"; }
# by_both BAND PROCESSES words...: on the CPU and by NCCL, as threads (0) or processes.
by_both() {
  band=$1 processes=$2
  shift 2
  [ "$processes" = 0 ] || [ $mpi = yes ] || return
  rm -rf cpu gpu-run
  run 0 train run.yaml out=cpu "$@"
  if [ "$processes" = 0 ]; then
    on_gpus 0 train run.yaml out=gpu-run device.kind=cuda "$@"
  else
    under "$processes" 0 train run.yaml out=gpu-run device.kind=cuda "$@"
    [ $mpi = yes ] || return
  fi
  by_nccl
  compare "$band" "$@"
}
by_both 5e-6 0 dtype=fp32 mesh.dp_shard=2 zero=3 mesh.tp=2 train.microbatches=2
by_both 5e-6 0 dtype=fp32 mesh.dp_replicate=2 mesh.pp=2 schedule=zbh1 train.microbatches=2
by_both 5e-6 0 dtype=fp32 model=tied.json mesh.pp=2 schedule=1f1b train.microbatches=4 post_validation=true train.clip=1000
by_both 5e-6 0 dtype=fp32 mesh.tp=4 sequence_parallel=true mesh.dp_shard=1
by_both 5e-6 0 dtype=fp32 optimizer.name=muon mesh.dp_shard=2 zero=3 mesh.tp=2
by_both 2e-2 0 dtype=bf16 mesh.dp_shard=3 zero=2 train.batch=6 offload.optimizer=host
GPUS="gpus=4,peers=none,seed=5,nccl_polls=20"
by_both 5e-6 2 dtype=fp32 mesh.dp_shard=2 zero=3 train.microbatches=2
GPUS="gpus=4,peers=none"
by_both 5e-6 2 dtype=fp32 mesh.pp=2 schedule=1f1b train.microbatches=2
by_both 5e-6 4 dtype=fp32 mesh.dp_shard=2 zero=1 mesh.tp=2
by_both 5e-6 2 dtype=fp32 optimizer.name=muon mesh.dp_shard=2 zero=1

# Over hosts, or as good as: no memory is shared, and MPI carries what the ranks say to each other.
export APART=yes
by_both 5e-6 2 dtype=fp32 mesh.dp_shard=2 zero=3 mesh.tp=2 train.microbatches=2 -n 4
by_both 5e-6 2 dtype=fp32 mesh.pp=2 schedule=zbh1 train.microbatches=4
if [ $mpi = yes ]; then
  rm -rf gpu-run
  under 2 0 train run.yaml out=gpu-run device.kind=cuda dtype=fp32 mesh.pp=2 schedule=zbh1 \
    train.microbatches=4 numerics=exact
  says "through the host's memory, which is slow"
  compare 5e-6 "staged, over hosts"
  rm -rf gpu-run
  GPUS="gpus=4"
  under 2 2 train run.yaml out=gpu-run device.kind=cuda mesh.dp_shard=2 comm.engine=peer
  says "comm.engine: peer does not carry the data of this run"
fi
APART=no
GPUS="gpus=4,peers=none"

# By choice where peers would serve; not with numerics: exact, nor where ranks share a GPU.
rm -rf gpu-run
on_gpus 0 train run.yaml out=gpu-run device.kind=cuda mesh.dp_shard=2 train.steps=1 comm.engine=nccl
by_nccl
rm -rf gpu-run
GPUS="gpus=4,peers=none"
on_gpus 0 train run.yaml out=gpu-run device.kind=cuda mesh.dp_shard=2 train.steps=1 numerics=exact
says "through the host's memory, which is slow"
refused() { # TEXT words...
  text=$1
  shift
  rm -rf gpu-run
  on_gpus 2 train run.yaml out=gpu-run mesh.dp_shard=2 "$@"
  says "$text"
  [ "$(grep -c '^lockstep train:' log)" = 1 ] || fail "more than a line: $(cat log)"
}
refused "comm.engine: nccl does not carry the data of this run" device.kind=cuda comm.engine=nccl numerics=exact
refused "comm.engine: peer does not carry the data of this run" device.kind=cuda comm.engine=peer
refused "comm.engine: nccl does not carry the data of this run" device.kind=cpu comm.engine=nccl
GPUS="gpus=2,nccl=21805"
refused "a GPU for each rank, NCCL 2.19 or newer, and numerics: fast" device.kind=cuda comm.engine=nccl

# ended SETTINGS TEXT words...: within the deadline and some seconds, with status 3.
ended() {
  GPUS="gpus=4,peers=none,$1" text=$2
  shift 2
  rm -rf gpu-run
  begun=$(date +%s)
  on_gpus 3 train run.yaml out=gpu-run device.kind=cuda dtype=fp32 mesh.dp_shard=2 zero=3 mesh.tp=2 "$@"
  [ $(($(date +%s) - begun)) -le 60 ] || fail "$GPUS: it took $(($(date +%s) - begun)) s"
  grep -q "^lockstep train: rank .*$text" log || fail "$GPUS: \"$text\" is not in: $(cat log)"
}
# A collective that one rank leaves out: the next one, which is another, meets it, or nothing does.
# A device that fails; calls that fail.
ended nccl_skip=5 "of .*: invalid usage: rank" comm.timeout=20 mesh.tp=1 zero=0
ended nccl_skip=40 "\(invalid usage: rank\|waited 6[.0-9]* s for the other ranks in\)" comm.timeout=6
# Whichever rank is told first: one that waits on its GPU, or one that waits for that one.
ended nccl_skip=12 "waited 6[.0-9]* s for .* in all-reduce of 1 " comm.timeout=6 \
  mesh.tp=1 zero=0 train.steps=1
ended nccl_async=60 "the stand-in's device of rank"

# Each message of a step changes places with the next one to its peer: other numbers come out; or,
# where there is no next one, what never comes is waited for no longer than comm.timeout.
numbers() { grep -o '"\(loss\|grad_norm\)": *[0-9.e-]*' gpu-run/metrics.jsonl; }
swapped() { # SETTINGS: to code
  GPUS="gpus=2,peers=none$1"
  rm -rf gpu-run
  code=0
  timeout 60 ./gpu train run.yaml out=gpu-run device.kind=cuda dtype=fp32 mesh.pp=2 schedule=gpipe \
    data.text="$tests/../README.md" train.microbatches=4 train.steps=1 comm.timeout=5 >output 2>log || code=$?
}
swapped ""
numbers >numbers-right
[ "$(wc -l <numbers-right)" = 2 ] || fail "no step: $(cat log)"
seen=0
for at in 1 2 3 4 5 6 7 8; do
  swapped ",nccl_swap=$at"
  case $code in
    0) ! numbers | cmp -s numbers-right - || fail "nobody saw that message $at came late"; seen=$((seen + 1)) ;;
    3) grep -q "^lockstep train: rank .*waited 5[.0-9]* s for .* in [a-z-]* of " log || fail "$at: $(cat log)" ;;
    *) fail "message $at: exit status $code: $(tail -n 3 log)" ;;
  esac
  passed=$((passed + 1))
done
[ $seen -ge 4 ] || fail "only $seen of 8 messages changed places"

for at in 2 4 7 12 20 30 50 80 140; do
  GPUS="gpus=4,peers=none,nccl_fail=$at"
  rm -rf gpu-run code
  code=0
  timeout 120 ./gpu train run.yaml out=gpu-run device.kind=cuda dtype=fp32 mesh.dp_shard=2 zero=3 \
    mesh.tp=2 comm.timeout=10 >output 2>log || code=$?
  case $code in
    0) grep -q '"step": *3' gpu-run/metrics.jsonl || fail "call $at failed in silence" ;;
    3) grep -q "unhandled cuda error\|rank 0 has no NCCL id" log || fail "call $at: $(cat log)" ;;
    *) fail "call $at: exit status $code: $(tail -n 3 log)" ;;
  esac
  passed=$((passed + 1))
done

# Processes: one of two leaves a collective out, one is killed.
if [ $mpi = yes ]; then
  GPUS="gpus=2,peers=none" GPUS_1="gpus=2,peers=none,nccl_skip=25"
  rm -rf gpu-run
  under 2 3 train run.yaml out=gpu-run device.kind=cuda dtype=fp32 mesh.dp_shard=2 zero=3
  grep -q "lockstep train: rank [01]: .* of .*\(layers\|head\|embedding\|loss_sum\|tokens\).*: invalid usage: rank" log ||
    fail "a collective was left out: $(cat log)"
  GPUS_1=
  rm -rf gpu-run pid-0 pid-1
  begun=$(date +%s)
  # shellcheck disable=SC2086
  timeout 120 "$launcher" $flags -n 2 "$work/gpu" train run.yaml out=gpu-run device.kind=cuda \
    dtype=fp32 mesh.dp_shard=2 zero=3 train.steps=1000 comm.timeout=300 >output 2>log </dev/null &
  running=$!
  while [ ! -s gpu-run/metrics.jsonl ] && kill -0 $running 2>/dev/null; do sleep 0.2; done
  kill -9 "$(cat pid-1)"
  code=0
  wait $running || code=$?
  running=
  [ $code -ne 0 ] && [ $code -ne 124 ] || fail "a rank was killed: exit status $code: $(cat log)"
  [ $(($(date +%s) - begun)) -le 90 ] || fail "a rank was killed: the others ended late"
  passed=$((passed + 2))
fi
echo "$passed runs"

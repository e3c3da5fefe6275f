#!/bin/sh
# Training with a GPU for each process, where GPUs read each other's memory, on strict stand-ins of
# NVIDIA's libraries: by peer copies between processes a run ends in the same bits as through the
# host's memory, by the CPU's engine, and as with all ranks in one process. What is missing for that
# is said and something else taken; a call of the driver that fails, a wait that is left out, a word
# that is written too early and a process that is killed are seen.
# $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
steps=2
. "$tests/support/gpu_processes.sh"
[ $mpi = yes ] || exit 77
printf 'numerics: exact\ndtype: fp32\n' >>run.yaml

export GPUS="gpus=4" GPUS_1=
# train COUNT STATUS words...: by processes.
train() {
  count=$1 expected=$2
  shift 2
  rm -rf gpu-run
  under "$count" "$expected" train run.yaml out=gpu-run device.kind=cuda "$@"
  [ $mpi = yes ] || exit 77
}
numbers() { grep -o '"\(loss\|grad_norm\)": *[0-9.e-]*' gpu-run/metrics.jsonl; }
alike() { # NAME
  numbers >"numbers-$1"
  cmp -s numbers-expected "numbers-$1" ||
    fail "$1: other bits than through the host: $(paste numbers-expected "numbers-$1")"
}
# everywhere PROCESSES words...: through the host, by threads (once) and by processes.
everywhere() {
  count=$1
  shift
  rm -rf gpu-run left
  lockstep=$work/gpu
  run 0 train run.yaml out=gpu-run device.kind=cuda comm.engine=staged "$@"
  numbers >numbers-expected
  [ "$(wc -l <numbers-expected)" = 4 ] || fail "no steps: $(cat log)"
  rm -rf gpu-run
  if [ $seed = 1 ]; then
    run 0 train run.yaml out=gpu-run device.kind=cuda comm.engine=peer "$@"
    alike threads
  fi
  lockstep=$plain
  GPUS="gpus=4,seed=$seed,left=$work/left,log=$work/calls"
  rm -f calls
  train "$count" 0 "$@" # without a word about the engine
  alike processes
  ! grep -qF "data between ranks goes" log || fail "another engine was taken: $(cat log)"
  [ ! -s left ] || fail "not given back: $(cat left)"
  for call in cuMemImportFromShareableHandle cuStreamWriteValue32_v2 cuStreamWaitValue32_v2; do
    [ "$(grep -c "^$call [1-9]" calls)" = "$count" ] || fail "$call: $(grep "^$call" calls)"
  done
  GPUS="gpus=4"
  seed=$((seed + 1))
}
seed=1
everywhere 2 mesh.dp_shard=2 zero=3 train.microbatches=2
everywhere 2 model=tied.json mesh.pp=2 schedule=1f1b train.microbatches=4 post_validation=true train.clip=1000
everywhere 4 dtype=bf16 mesh.dp_shard=2 zero=1 mesh.tp=2
everywhere 2 mesh.dp_shard=2 zero=1 mesh.tp=2 -n 4 # two threads in each process

# What is missing at one rank is said, and all go through the host.
train 2 0 mesh.dp_shard=2 comm.engine=staged
numbers >numbers-expected
instead() { # SETTINGS TEXT: of rank 1's
  GPUS_1="$1"
  rm -f left
  train 2 0 mesh.dp_shard=2
  says "$2"
  says "through the host's memory, which is slow"
  alike instead
  [ ! -s left ] || fail "$1: not given back: $(cat left)"
}
GPUS="gpus=4,left=$work/left"
none="gpus=4,left=$work/left"
instead "$none,exports=none" "rank 0: rank 1's GPU hands out no memory as files"
instead "$none,fail=1,only=cuMemExportToShareableHandle" "rank 1's GPU hands out no memory as files"
instead "$none,words=none" "rank 1's GPU takes no words of other processes: cuStreamWriteValue32_v2"
instead "$none,fail=1,only=cuMemImportFromShareableHandle" \
  "rank 1: rank 0's memory: cuMemImportFromShareableHandle of GPU 1"
instead "$none,fail=1,only=cuMemHostGetDevicePointer_v2" "cuMemHostGetDevicePointer_v2 of GPU 1"
GPUS="gpus=4,peers=none" GPUS_1=
train 2 0 mesh.dp_shard=2
says "rank 0: rank 1's memory: GPU 0 has no peer access to GPU 1"
alike apart
train 2 2 mesh.dp_shard=2 comm.engine=peer
says "comm.engine: peer does not carry the data of this run"
says "GPU 0 has no peer access to GPU 1"
GPUS="gpus=4"

# Each of the calls fails later, once, at one rank: all end, and say which.
for failing in cuMemExportToShareableHandle:2 cuMemImportFromShareableHandle:2 cuMemHostRegister_v2:3 \
  cuStreamWriteValue32_v2:8 cuStreamWaitValue32_v2:9; do
  call=${failing%:*}
  GPUS_1="gpus=4,left=$work/left,fail=${failing#*:},only=$call"
  rm -f left
  train 2 3 mesh.dp_shard=2 zero=3 comm.timeout=20
  grep -q "^lockstep train: .*\($call of GPU 1\|GPU hands out no memory as files\)" log ||
    fail "$failing: $(cat log)"
  [ ! -s left ] || fail "$failing: not given back: $(cat left)"
done

# A wait that is left out gives other bits where the one waited for is slow; a word that is written
# ahead of what it speaks of ends the run.
GPUS="gpus=4,slow=2000"
GPUS_1=
train 2 0 mesh.dp_shard=2 zero=1 train.steps=1
numbers >numbers-expected
for wait in 4 6 8 10 none; do
  [ $wait != none ] || fail "no wait for a word is missed"
  GPUS_1="gpus=4,drop_word=$wait"
  train 2 0 mesh.dp_shard=2 zero=1 train.steps=1
  numbers | cmp -s numbers-expected - || break
done
GPUS_1="gpus=4,slow=2000,early=4"
train 2 3 mesh.dp_shard=2 zero=1 train.steps=1 comm.timeout=8
grep -q "^lockstep train: .*rank [01]: waited 8[.0-9]* s for .* in .* of .* fp" log || fail "$(cat log)"

# A process is killed: the other ends soon and says which, in what.
GPUS="gpus=4" GPUS_1=
rm -rf gpu-run pid-0 pid-1
# shellcheck disable=SC2086
timeout 120 "$launcher" $flags -n 2 "$work/gpu" train run.yaml out=gpu-run device.kind=cuda \
  mesh.dp_shard=2 zero=3 train.steps=100000 comm.timeout=40 >output 2>log </dev/null &
running=$!
while [ ! -s gpu-run/metrics.jsonl ] && kill -0 $running 2>/dev/null; do sleep 0.2; done
begun=$(date +%s)
kill -9 "$(cat pid-1)"
code=0
wait $running || code=$?
running=
[ $code -ne 0 ] && [ $code -ne 124 ] || fail "a rank was killed: exit status $code: $(cat log)"
[ $(($(date +%s) - begun)) -le 40 ] || fail "a rank was killed: the other ended late"
# Its watch may see the death first, or a transfer the thread waits for.
died="rank 1: its process (pid $(cat pid-1)) died"
grep -q "^lockstep train: rank 0: [a-z-]* of .*: $died\|^lockstep train: $died; rank 0 noticed in [a-z-]* of " \
  log || fail "a rank was killed: $(cat log)"
passed=$((passed + 1))
echo "$passed runs"

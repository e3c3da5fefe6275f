#!/bin/sh
# Training on GPUs without one: the real host code and the real kernels on stand-ins of NVIDIA's
# libraries (tests/support/stand_in). A run ends where the CPU's run of the same file ends; what
# cannot be is refused in one line; every kind of call of the driver that fails ends the run.
# $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
. "$tests/support/gpu_models.sh"
. "$tests/support/cpu_and_gpus.sh"

steps=4
cat >run.yaml <<END
data: {text: text.txt, tokenizer: bytes, seq_len: 16, validation: 0}
train: {batch: 4, lr: 1e-3, steps: $steps, warmup: 1}
eval: {every: 0}
checkpoint: {every: 0}
END

both 5e-6 model=llama.json dtype=fp32
both 5e-6 model=llama.json dtype=fp32 mesh.dp_shard=2 zero=3 mesh.tp=2 recompute=full
both 5e-6 model=llama.json dtype=fp32 mesh.pp=2 mesh.dp_replicate=2 schedule=zbh1 train.microbatches=2
both 5e-6 model=llama.json dtype=fp32 mesh.dp_shard=2 zero=2 offload.optimizer=host
both 5e-6 model=gpt2.json dtype=fp32 mesh.tp=3
# 262 logits, or the 88 of a rank, in rows of 320 and 128.
both 5e-6 model=gpt2.json dtype=fp32 logits_rows=16
both 2e-2 model=gpt2.json dtype=bf16 mesh.tp=3 logits_rows=16
both 5e-6 model=gemma.json dtype=fp32 logits_rows=8
both 2e-2 model=llama.json dtype=bf16 mesh.tp=2 mesh.pp=2 train.microbatches=2
both 2e-2 model=llama.json dtype=fp16 mesh.dp_shard=3 zero=1 train.batch=6

# carried SETTINGS words...: the same run where data goes otherwise, to the same bits. In the second
# step weights are what the first has made of gradients that went there.
sed 's/"num_hidden_layers": 4/"num_hidden_layers": 2/' llama.json >half.json
numbers() { grep -o '"\(loss\|grad_norm\)": *[0-9.e-]*' gpu-run/metrics.jsonl; }
carried() {
  settings=$1
  shift
  rm -rf gpu-run
  on_gpu 0 train run.yaml out=gpu-run device.kind=cuda train.steps=2 "$@"
  numbers >"numbers-$carried"
  cmp -s numbers-0 "numbers-$carried" || fail "$settings: $*: other bits than through the host"
  carried=$((carried + 1))
}
# everywhere words...: through the host's memory; between GPUs whose streams run in other orders;
# four ranks on one GPU, or two on each of two.
everywhere() {
  carried=0
  carried gpus=4,peers=none comm.engine=staged "$@"
  says "through the host's memory"
  carried gpus=4,seed=2 "$@"
  ! grep -qF "through the host's memory" log || fail "peers are said to have no access: $(cat log)"
  carried gpus=1,seed=4 device.loopback=true "$@"
  carried gpus=2,seed=5 device.loopback=true "$@"
  settings=gpus=4
}
everywhere model=half.json dtype=fp32 mesh.dp_shard=2 zero=3 mesh.tp=2 recompute=full
everywhere model=half.json dtype=fp32 mesh.tp=4 sequence_parallel=true mesh.dp_replicate=1
everywhere model=half.json dtype=bf16 mesh.pp=2 mesh.dp_replicate=2 schedule=zbh1 train.microbatches=2
everywhere model=llama.json dtype=fp16 mesh.pp=4 schedule=1f1b train.microbatches=4 post_validation=true
# Nothing is clipped: the next step begins while this one's sums are under way.
everywhere model=llama.json dtype=fp32 mesh.pp=4 schedule=gpipe train.microbatches=2 post_validation=true train.clip=1000 \
  train.steps=3
everywhere model=half.json dtype=fp32 mesh.dp_shard=3 zero=2 train.batch=6 offload.optimizer=host

# Without a word about the device GPUs are taken, where they can be; the first line says so.
taken() { # TEXT words...
  text=$1
  shift
  rm -rf gpu-run
  on_gpu 0 train run.yaml out=gpu-run model=llama.json train.steps=1 "$@"
  head -n 1 log | grep -qF "$text" || fail "the first line: $(head -n 1 log)"
}
settings=gpus=2
taken "2 GPUs (Stand-in GPU) are visible and taken; device.kind=cpu leaves them" mesh.dp_shard=2
taken "2 GPUs (Stand-in GPU) are visible and not used, the CPU is: dtype: GPUs compute in fp32" dtype=fp64
settings=gpus=1,code=none
taken "1 GPU (Stand-in GPU) is visible and not used, the CPU is: "
no_code="sm_90, for which this build's kernels"
head -n 1 log | grep -q "this build has no CUDA kernels" && no_code="no nvcc was found" # at build time
head -n 1 log | grep -qF "$no_code" || fail "the first line: $(head -n 1 log)"
settings=gpus=4

# What has run on stand-ins alone is named as a run begins; the rest says nothing.
untried() { # TEXT words...; TEXT "": nothing
  text=$1
  shift
  rm -rf gpu-run
  on_gpu 0 train run.yaml out=gpu-run train.steps=1 device.kind=cuda "$@"
  [ -z "$text" ] || says "on stand-ins alone so far, never on hardware: $text; compare with device.kind=cpu"
  [ -n "$text" ] || ! grep -qF "never on hardware" log || fail "$*: $(cat log)"
}
settings=gpus=1
untried "" model=llama.json dtype=bf16 device.tune=false
untried "" model=gemma.json dtype=fp32 device.tune=false device.loopback=true mesh.dp_shard=2
untried "device.tune, dtype: fp8, this optimizer" model=llama.json dtype=fp8 optimizer.name=lion
settings=gpus=4
untried "several GPUs together" model=gpt2.json dtype=fp32 device.tune=false mesh.dp_shard=2
says "M parameters in fp32 on 2 GPUs (dp_replicate 1, dp_shard 2, tp 1, zero-3)"

# Presets as people name them, on one GPU and on eight.
settings=gpus=8 steps=2
for preset in "llama-3m mesh.dp_shard=4 mesh.tp=2 zero=3" "gpt2-10m mesh.dp_shard=2 mesh.pp=4 zero=2 train.microbatches=2"; do
  words="model=${preset%% *} dropout=0 dtype=fp32 train.batch=8 train.steps=2 train.warmup=0"
  both 5e-6 $words
  both 5e-6 $words ${preset#* }
done
settings=gpus=4 steps=4

# What is offloaded is pinned, moved and updated by the CPU's kernels.
both 5e-6 model=llama.json dtype=fp32 offload.optimizer=nvme offload.parameters=nvme offload.activations=host offload.path=.
both 5e-6 model=llama.json dtype=fp32 device.graphs=false train.microbatches=2

# Without cuDNN's handle our own kernels run attention, and a line says so.
settings=gpus=4,cudnn_fail=1
both 2e-2 model=llama.json dtype=bf16
says "attention runs on our own kernels: cuDNN gives no handle"
settings=gpus=4

# A run may change its device where it goes on, and back, and its layout with it.
rm -rf cpu gpu-run
constant="model=llama.json dtype=fp32 train.lr_schedule=constant"
run 0 train run.yaml out=cpu $constant
run 0 train run.yaml out=gpu-run $constant train.steps=1
on_gpu 0 train gpu-run train.steps=3 device.kind=cuda mesh.dp_shard=2 mesh.tp=2 train.micro_batch=2
run 0 train gpu-run train.steps=4 device.kind=cpu mesh.dp_shard=2 mesh.tp=1
compare 5e-5 "CPU, GPUs, CPU"

# refused STATUS TEXT words...: in one line.
refused() {
  status=$1 text=$2
  shift 2
  rm -rf gpu-run
  on_gpu "$status" train run.yaml out=gpu-run model=llama.json device.kind=cuda "$@"
  says "$text"
  [ "$(grep -c '^lockstep train:' log)" = 1 ] || fail "more than a line: $(cat log)"
}
settings=gpus=1
refused 2 "has no GPU of its own: 1 is visible; start as many" mesh.dp_shard=2
settings=gpus=1,held=80
refused 3 "lockstep doctor names who holds the device's memory"
settings=gpus=1,code=none
refused 2 "$no_code"
settings=gpus=1,pinnable=0
refused 3 "cannot be pinned: GPU 0's driver has no room for it: offload less" offload.optimizer=host
settings=gpus=1,fail=250,fail_with=214
refused 3 "its memory had an error that ECC could not correct: nvidia-smi --gpu-reset" dtype=fp32
settings=gpus=2
export CUDA_VISIBLE_DEVICES=
refused 2 'CUDA_VISIBLE_DEVICES is "" and leaves no GPU; unset it'
export CUDA_VISIBLE_DEVICES=7
refused 2 'CUDA_VISIBLE_DEVICES is "7" and leaves no GPU; unset it'
unset CUDA_VISIBLE_DEVICES
settings=gpus=1
refused 2 "GPUs compute in fp32, bf16 or fp16" dtype=fp64
settings=gpus=0
refused 2 "no GPU is visible"
settings=gpus=1,cc=75
refused 2 "expected sm_80"
settings=gpus=1,vmm=none
refused 2 "virtual memory"
lockstep=$plain
rm -rf gpu-run
run 2 train run.yaml out=gpu-run model=llama.json device.kind=cuda
says "NVIDIA driver"

# Calls that fail, one in each run: the first ones all, then some of the steps'.
for at in 1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 22 24 26 28 30 35 40 45 50 60 70 80 100 150 300 700; do
  rm -rf gpu-run code
  settings=gpus=1,fail=$at
  printf '%s' "$settings" >settings
  code=0
  timeout 60 ./gpu train run.yaml out=gpu-run model=half.json train.steps=2 device.kind=cuda dtype=fp32 >output 2>log || code=$?
  case $code in
    2 | 3) ;;
    0) grep -q '"step": *2' gpu-run/metrics.jsonl || fail "call $at failed in silence" ;;
    *) fail "call $at: exit status $code: $(tail -n 3 log)" ;;
  esac
  [ $code = 0 ] || grep -q '^lockstep train: ' log || fail "call $at: nothing is said: $(cat log)"
  passed=$((passed + 1))
done
echo "$passed runs"

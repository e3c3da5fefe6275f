#!/bin/sh
# `doctor`: this machine without GPUs, GPUs of the stand-ins in words and in JSON, exit status, and
# what a run says of GPUs that it does not use.
set -eu
. "$(dirname "$0")/support/small_run.sh"
stand_ins=${LS_BUILD_DIR:-$(dirname "$lockstep")}/tests/stand_in
unset CUDA_VISIBLE_DEVICES OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE CUDA_HOME VIRTUAL_ENV

run 2 doctor now
says "now: doctor takes no words"
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
  run 0 doctor
  says "NVIDIA GPUs           none: training runs on the CPU"
  says "instructions"
  says "oneDNN"
  says "NUMA nodes"
  says " 0 fail"
  run 0 train keys.yaml out=alone train.steps=1
  grep -q 'GPU' log && fail "a run without GPUs speaks of them: $(cat log)"
fi
[ -f "$stand_ins/libcuda.so.1" ] || { echo "skipped: the stand-ins are not built"; exit 77; }

# From here on the stand-ins are found first on the loader's path.
LD_LIBRARY_PATH=$stand_ins${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH LS_STAND_IN
LS_STAND_IN=gpus=8
run 0 doctor
says "ok       GPU 0-7 kind          Stand-in GPU, sm_90, 132 processors"
says "ok       links                 all pairs: peer access, NVLink (18 links)"
says "several together have run on stand-ins alone"
says "ok       generate, evaluate    take what training takes; they have run on stand-ins alone"
says "ok       never on hardware     bench, dtype: fp8, quantize, adapters, device.tune"
run 0 doctor --json
says '"verdict": "warning"'
says '"subject": "GPU 0-7 memory"'
LS_STAND_IN=driver=11080
run 1 doctor
says "is CUDA 11.8; expected CUDA 12.0 (driver 525.60.13)"
says "lockstep doctor: training would fail here"
[ "$(wc -l <log)" = 1 ] || fail "not one line: $(cat log)"
LS_STAND_IN=gpus=2,ecc=1
run 1 doctor --json
says '"verdict": "fail"'
says "nvidia-smi --gpu-reset"
LS_STAND_IN=gpus=2
CUDA_VISIBLE_DEVICES=0,5 run 1 doctor
says '"0,5": "5": there is no such GPU'

# The first line of a run.
run 0 train keys.yaml out=first train.steps=1
head -n 1 log | grep -q '^2 GPUs (Stand-in GPU) are visible and taken; device.kind=cpu leaves them$' ||
  head -n 1 log | grep -q '^2 GPUs (Stand-in GPU) are visible and not used, the CPU is: ' ||
  fail "the first line: $(head -n 1 log)"
run 0 train keys.yaml out=second train.steps=1 device.kind=cpu
grep -q 'GPU' log && fail "the CPU was asked for: $(cat log)"

# Where GPUs are there and none can be had a run on the CPU says so at once, and what to do.
not_used() { # SETTINGS TEXT [VISIBLE]
  LS_STAND_IN=$1
  unset CUDA_VISIBLE_DEVICES
  [ $# -lt 3 ] || export CUDA_VISIBLE_DEVICES="$3"
  rm -rf none
  run 0 train keys.yaml out=none train.steps=1
  unset CUDA_VISIBLE_DEVICES
  head -n 1 log | grep -qF "no GPU is used, the CPU is: $2" || fail "the first line: $(head -n 1 log)"
}
not_used gpus=2 'CUDA_VISIBLE_DEVICES is "" and leaves no GPU; unset it' ''
not_used gpus=2 'CUDA_VISIBLE_DEVICES is "7" and leaves no GPU; unset it' 7
not_used driver=11080 "NVIDIA driver: $stand_ins/libcuda.so.1 is CUDA 11.8; expected CUDA 12.0"
not_used gpus=1,fail=2 "cuInit: "
LS_STAND_IN=gpus=0
run 0 train keys.yaml out=fourth train.steps=1
grep -q 'GPU' log && fail "GPUs are spoken of where there are none: $(cat log)"
echo "ok: $passed runs"

#!/bin/sh
# `check` and `show` for devices that are not here (--on): what one needs, what it has, and refusals.
set -eu
. "$(dirname "$0")/support/small_run.sh"
model="keys.yaml model=gpt2-124m data.seq_len=1024 train.batch=64"

# The count is that of the devices unless -n says another; the dtype is what the device multiplies.
run 0 check keys.yaml dtype=auto train.batch=8 --on 8xH100-SXM
says "bf16 on 8 devices"
says "h100-sxm-80 (sm_90), MiB of a device:"
says "NCCL communicator"
says "cuBLAS documentation, cublasSetWorkspace"
grep -q "^  it has  *81559.0  NVIDIA H100 datasheet" output || fail "another memory: $(cat output)"
run 0 check keys.yaml --on 8xH100-SXM -n 2
says "on 2 devices"
run 0 check keys.yaml --on h100-sxm-80
says "on 1 device "
grep -q "NCCL" output && fail "one device has no communicator"

run 0 check keys.yaml mesh.pp=2 --on 2xh100-sxm-80
says "messages: proved on the queues of NCCL: one a peer and direction, held by each message"
says "collectives: proved on the queues of NCCL: one for each set of axes; at most"

run 0 check keys.yaml dtype=auto device.threads=3 --on 2xcpu-avx512_amx
says "bf16 on 2 devices"
says "cpu (avx512_amx), MiB of a device:"
run 0 check keys.yaml dtype=auto --on cpu-avx2
says "fp32 on 1 device "

# Of what is shown, the sum is what is held against the memory.
run 0 show $model mesh.pp=2 train.microbatches=4 --memory --on 4xa100-sxm-80
awk '/^  (arena|workspace of|CUDA|NCCL)/ {for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\.[0-9]$/) {sum += $i; break}}
     /^  in all/ {all = $3} END {exit !(all > 500 && sum > all - 0.3 && sum < all + 0.3)}' output ||
  fail "the parts are not the sum: $(cat output)"
run 0 show $model --memory --json --on 1xa100-sxm-40
says '"name": "a100-sxm-40"'

# Where transfers run beside compute they begin early: what that costs in memory, and what it looks like.
run 0 show $model --memory --on 8xh100-sxm
says "prefetch 1 "
run 0 show $model --memory --on 8xh100-sxm prefetch=0
grep -q "prefetch" output && fail "prefetch=0 costs something: $(cat output)"
run 0 show $model --memory --on 8xcpu-avx2
grep -q "prefetch" output && fail "a CPU gathers ahead: $(cat output)"
run 1 check keys.yaml model=llama3-8b dtype=auto data.seq_len=8192 recompute=full train.batch=8 \
  device.memory=21900MiB --on 8xh100-sxm
says "; prefetch=0: 21.13 GiB, which fits"
run 0 show $model --timeline gpu.json --on 8xh100-sxm
grep -q "gather of parameters of layers.1" gpu.json || fail "no gather beside compute"
run 0 show $model --timeline cpu.json --on 8xcpu-avx2
grep -q "gather of parameters" cpu.json && fail "a gather beside a CPU's compute"

# What does not fit: the sum, the largest categories, and what would.
run 1 check keys.yaml model=llama3-8b train.batch=2 --on 2xrtx4090
says "rtx4090: a device needs"
says "and may use 24564.0 (largest, MiB: "
run 1 check $model device.memory=2GiB --on a100-sxm-80
says "device.memory"
run 0 check $model recompute=budget train.batch=16 --on 1xrtx4090

# What cannot be: the nearest names, and the choice.
run 2 check keys.yaml --on 4xH10-SXM
says "no such accelerator; the nearest are h20-sxm-96, h100-sxm-80"
run 2 check keys.yaml --on 4xA100
says "expected one of a100-pcie-40, a100-sxm-40, a100-pcie-80, a100-sxm-80"
run 2 check keys.yaml --on 8xmi300x
says "no recipe is known for the AMD Instinct MI300X"
run 2 check keys.yaml --on 0xl40
says "expected a count and an accelerator"
run 2 check keys.yaml --on 4xl40 -n 8
says "-n 8 beside --on 4xl40: expected at most 4"
run 2 show keys.yaml --compare --on 2xl40
says "--on beside --compare"

echo "hardware_command_test: $passed commands said what they should"

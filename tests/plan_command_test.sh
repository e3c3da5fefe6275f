#!/bin/sh
# `plan`: the layouts it finds, the run file it writes, comparisons, refusals.
set -eu
. "$(dirname "$0")/support/small_run.sh"
# The output has a line of this pattern.
matches() {
  grep -q -e "$1" log output || fail "no line is as $1"
}
model="gpt2-124m train.batch=16 data.seq_len=512"

run 0 plan $model --on 4xA100-SXM-80 --tokens 1B -o best.yaml
says "those below are proved by check"
matches "measured, the first may take .* published runs on one host were within"
matches "5 devices, one more .* 16 sequences cannot be dealt to 5"
says "4xA100-SXM-80 over 2xA100-SXM-80 gains"
says "where the time goes"
says "what would buy more"
says "what it costs to change one choice"
step=$(sed -n 's/^ *\([0-9.]* ms\).*dp.*/\1/p' output | head -1)
run 0 simulate best.yaml --on 4xA100-SXM-80
says "step                   $step, simulated"
run 0 check best.yaml --on 4xA100-SXM-80 -n 4

run 0 plan $model --on 1xRTX4090 --on 2xRTX4090
matches "the second RTX4090 gains .* for 100 % more devices"
says "is the cheapest"
run 0 plan $model --on 2xRTX4090 --on 2xA100-80 --svg front.svg
grep -q "2xA100-80: .*GiB" front.svg || fail "the picture does not list the front"
grep -q "prefers-color-scheme:dark" front.svg || fail "the picture is not for dark"
run 0 plan $model --on 4xA100-SXM-80 --fix mesh.tp=2 --json
grep -q '"tp": 2' output || fail "what is fixed is not kept"
grep -q '"tp": [148]' output && fail "a layout that is not as fixed"
grep -q '"step_seconds_between"' output || fail "no error bar"
grep -q '"proved": false' output && fail "a layout that is not proved"
grep -q '"instructions": [1-9]' output || fail "no count of what was compiled"
grep -q '"offload_parameters": "device"' output || fail "JSON does not say where parameters are"
grep -q '"gather": "auto"' output || fail "JSON does not say when weights are gathered"
grep -q '"1024 GiB of memory a host"' output || fail "JSON does not say what is assumed"
run 0 plan $model --on 1xA100-SXM-80 train.micro_batch=4 --tokens 1B --json
grep -q '"tokens_seconds": [0-9]' output || fail "JSON does not say what 1B tokens take"
grep -q '"tokens_cost": [0-9]' output || fail "JSON does not say what 1B tokens cost"
run 0 plan $model --on 1xA100-SXM-80 train.micro_batch=16 offload.optimizer=none device.memory=4608MiB -o tight.yaml
matches "recompute budget"
run 0 simulate tight.yaml --on 1xA100-SXM-80
run 0 plan $model --on A100-SXM-80 --tokens 100B --within 3d
says "100B"
says "task pretrain (100B are 804 a parameter): optimizer.name=adamw"
run 0 plan $model --on A100-SXM-80 --tokens 100B --budget 400
grep -v " on 1 x NVIDIA" output | grep -q " x NVIDIA A100" || fail "money for more devices is left"

# sequences too long for one device, and experts of several: what is found is written, and compiles
run 0 plan llama3.1-8b --on 8xA100-SXM-80 data.seq_len=65536 train.batch=4 mesh.tp=1 mesh.pp=1 context=ring -o long.yaml
matches "cp [248] (ring), dp .*micro-batch 1"
grep -q "^  cp: [248]$" long.yaml || fail "ranks that share a sequence are not written"
grep -q "^context: ring$" long.yaml || fail "the way keys come is not written"
run 0 check long.yaml --on 8xA100-SXM-80 -n 8
run 0 plan mixtral-8x7b --on 32xH100-SXM data.seq_len=1024 train.batch=32 mesh.pp=4 zero=1 mesh.ep=4 -o mixture.yaml
matches "ep 4, dp .*zero-1"
says "waiting for expert parallelism"
grep -q "^  ep: 4$" mixture.yaml || fail "ranks that share out experts are not written"
run 0 check mixture.yaml --on 32xH100-SXM -n 32
run 0 plan mixtral-8x7b --on 16xH100-SXM data.seq_len=1024 train.batch=16 mesh.pp=4 mesh.tp=2 \
  zero=1 mesh.ep=4 experts.tensor_parallel=false -o whole.yaml
matches "tp 2, ep 4 over tp, dp 2 zero-1"
grep -q "^  tensor_parallel: false$" whole.yaml || fail "that experts are whole is not written"
run 0 check whole.yaml --on 16xH100-SXM -n 16
run 2 plan mixtral-8x7b --on 8xH100-SXM mesh.ep=3
says "no layout of 8 devices has mesh.ep=3"
run 2 plan $model --on 4xA100-SXM-80 mesh.ep=2
says "ep divides 0 experts"
run 2 plan $model --on 4xA100-SXM-80 experts.tensor_parallel=false
says "experts.tensor_parallel: expected a model with experts; leave it out"

run 2 plan $model --on 4xA100-SXM-80 --fix mesh.tp=5
says "mesh.tp=5 does not divide 4 devices; expected 1, 2 or 4"
run 2 plan $model --on 8xA100-SXM-80 --fix mesh.tp=4 --fix mesh.pp=4
says "with the other axes that are given 16 ranks, which do not divide 8 devices"
run 2 plan $model --on 8xA100-SXM-80 --fix mesh.pp=4 --fix mesh.pp=2
says "mesh.pp=4 and mesh.pp=2: expected one of them"
run 2 plan $model --on 2xRTX4009
says "the nearest are rtx4090"
run 2 plan $model --on 4xA100-SXM-80 schedule=zbw
says "zbv"
run 2 plan $model --on 4xA100-SXM-80 recompute=budget
says "weighs it beside none, selective and full"
run 2 plan $model --on 4xA100-SXM-80 train.microbatches=3
says "no layout of 4 devices has train.microbatches=3"
run 2 plan $model --on 4xA100-SXM-80 --within 3d
says "--within needs --tokens"
run 2 plan $model --on 4xA100-SXM-80 --objective speed
says "expected time, money or memory"
run 2 plan $model --on 8xA100-SXM-80 --fix schedule=zbv --fix chunks=4
says "no layout of 8 devices has schedule=zbv chunks=4: "
run 2 plan $model --on 4xA100-SXM-80 --svg front.png
says "--svg front.png: expected a name that ends with .svg"

# What money or a wait is counted by has to be known: nothing costs nothing, and no link is free.
run 2 plan $model --on RTX4080 --tokens 1B --budget 1
says "what it costs is not known, which --budget needs"
run 2 plan $model --on 1xRTX4080 --objective money
says "which --objective money needs"
printf 'accelerator: a100-sxm-80\ndevices: 4\nprice: {hour: 200, currency: JPY}\n' >yen.yaml
run 2 plan $model --on yen.yaml --on 4xRTX3090
says "yen.yaml costs JPY and 4xRTX3090 USD; expected prices in one currency"
run 2 plan $model --on A100-SXM-80 -n 8 --tokens 1B --within 3d
says "-n 8 beside --within: expected one of them"
run 2 plan $model --on 4xA100-SXM-80 --tokens 1B --within 3d
says "--on 4xA100-SXM-80: --within finds how many devices; expected --on A100-SXM-80"
for key in offload.optimizer=nvme offload.activations=nvme; do
  run 2 plan $model --on 4xA100-SXM-80 $key
  says "give drive.read_gb_per_s"
done
mkdir -p config/lockstep
printf 'accelerators:\n  ours: {cuda: 90, memory: {mib: 65536, gb_per_s: 2000}, tflops: {bf16: 400}}\n' \
  >config/lockstep/machines.yaml
run 0 plan $model --on 1xours
run 2 plan $model --on 2xours
says "ours: the catalog has no network between its hosts of 1"
run 2 plan $model --on 1xours offload.optimizer=host
says "give host.gb_per_s in a cluster's file"
rm config/lockstep/machines.yaml

run 1 plan llama3-8b data.seq_len=512 --on 1xRTX4080
says "no layout of 1 device fits"
matches "  [0-9]*xRTX4080 .* a step: "
run 1 plan llama3-8b --on 2xRTX4090
says "of the host's memory a device"
run 1 plan $model --on A100-SXM-80 --tokens 100T --within 1h
says "no number of devices is done with 100T tokens within 1h: the least time is"
run 1 plan $model --on A100-SXM-80 --tokens 100B --budget 3
matches "for 3: .*the least money is .* USD with"
echo "plan: $passed commands"

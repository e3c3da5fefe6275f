#!/bin/sh
# `simulate`: what it says of layouts on machines that are not here, its picture, JSON, refusals.
set -eu
. "$(dirname "$0")/support/small_run.sh"
model="keys.yaml model=llama3-8b data.seq_len=4096 dtype=auto zero=3"

run 0 simulate $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --tokens 1B
says "in bf16 on 64 devices"
says "hosts joined by InfiniBand NDR"
says "waiting: dp_shard, all-gather"
says "1B tokens "
says " USD"
says " published runs on several hosts"
grep -q "^  activations kept .*[0-9]" output || fail "no memory by category"
run 0 simulate $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --slow host3=0.5
says "waiting for host3: dp_shard, reduce-scatter"
says "speed of host3=0.5"
run 0 simulate $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --slow host3=0.9 --link ib=0.5 --html both.html
says "rate of ib=0.5"
grep -q "<td>rate of ib=0.5</td>" both.html || fail "the page does not say what was changed"
grep -q "h100-sxm-80, host3=0.9, ib=0.5<" both.html || fail "the picture does not say what was changed"
run 0 simulate $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --slow host3=0.5,host5=0.5 --json
says '"name": "waiting for host3 and others: dp_shard, reduce-scatter"'
says '"reason": "slow host"'
says '"slow": "host3=0.5,host5=0.5"'
says '"low_s": '
says '"first_stage": 0'
seconds() { # words...: of a step
  run 0 simulate "$@" --json
  sed -n 's/.*"step_seconds": \([0-9.e+-]*\).*/\1/p' output
}
shorter() { awk "BEGIN { exit !($1 < $2) }" || fail "$1 is not less than $2: $3"; }
whole=$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM)
slow=$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --slow host3=0.5)
thin=$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --link network=0.1,peer=0.5)
[ "$thin" = "$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --link ib=0.1,nvlink=0.5)" ] ||
  fail "--link: ib and nvlink are not network and peer"
few=$(seconds $model train.batch=64 mesh.dp_shard=8 train.microbatches=8 --on 8xH100-SXM)
shorter "$whole" "$slow" "a slow host"
shorter "$whole" "$thin" "a slow network"
shorter "$whole" "$few" "fewer devices"
run 0 simulate $model model=gpt2-124m data.seq_len=1024 mesh.pp=4 train.batch=16 train.microbatches=8 \
  --on 4xA100-SXM-80 --timeline step.svg
says "waiting: messages between stages"
grep -q "^bubble  *[0-9.]* % of the step" output || fail "no bubble: $(cat output)"
grep -q " stage 0 .* stage 3$" output || fail "no memory by stage: $(cat output)"
grep -q "simulated" step.svg || fail "the picture does not say what it is of"
run 0 simulate $model model=gpt2-124m data.seq_len=1024 mesh.pp=2 train.batch=8 --on 2xrtx4090 --timeline step.json
grep -q '"ph"' step.json || fail "no trace"

# A page of thousands of devices is no larger than one can open, and draws one lane a stage.
run 0 simulate $model model=gpt3-175b data.seq_len=2048 zero=1 mesh.pp=12 mesh.tp=8 mesh.dp_shard=32 \
  train.batch=1536 train.microbatches=48 --on 3072xH100-SXM --html step.html
[ "$(wc -c <step.html)" -lt 8000000 ] || fail "a page of $(wc -c <step.html) bytes"
[ "$(grep -c 'stage [0-9]*</text>' step.html)" -eq 12 ] || fail "not a lane a stage"
for what in "prefers-color-scheme: dark" "<th>MFU</th>" "waiting for other stages" "<th>stage 11</th>" "</html>"; do
  grep -q "$what" step.html || fail "the page has no $what"
done
run 0 simulate $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --slow host3=0.5 --timeline slow.svg
grep -q "rank 24<" slow.svg || fail "the slow host has no lane"

run 0 train keys.yaml trace=true out=traced
run 0 simulate keys.yaml --on 1xA100-SXM-80 --against traced
grep -q "^  the step .*%" output || fail "nothing beside what was measured: $(cat output)"
grep -q "^  attention " output || fail "no kinds of instruction: $(cat output)"
run 0 train keys.yaml -n 2 mesh.dp_shard=2 zero=3 trace=true out=two
run 0 simulate keys.yaml -n 2 mesh.dp_shard=2 zero=3 --on 2xA100-SXM-80 --against two
for kind in attention all-gather reduce-scatter "the step"; do
  grep -q "^  $kind .* [+-][0-9.]* %.* [+-][0-9.]* %" output || fail "no $kind beside two ranks: $(cat output)"
done
run 0 simulate keys.yaml -n 2 mesh.dp_shard=2 zero=3 --on 2xA100-SXM-80 --against two --tokens 1B --json
sed -n '1p;$p' output | tr -d '\n' >ends
[ "$(cat ends)" = "{}" ] || fail "--json beside a run is no JSON: $(tail -3 output)"
for key in step_measured_s '"kind": "attention"' tokens_seconds tokens_cost; do
  grep -q "$key" output || fail "no $key in: $(cat output)"
done
run 2 simulate keys.yaml --on 1xA100-SXM-80 --against nowhere
says "a run with trace=true leaves it"
[ ! -s output ] || fail "an answer before what is wrong with the question"

run 1 simulate $model train.batch=2 --on 2xRTX4090
says "which fits"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --slow host8=0.5
says "expected host0 to host7"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --slow rack1=0.5
says "expected hostN=FACTOR, a number above 0, as in host3=0.5"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --link wire=0.5
says "expected peer (nvlink), network (ib), host or drive"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --link ibb=0.5
says "expected peer (nvlink), network (ib), host or drive"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --link network=0
says "network=FACTOR, a number above 0"
run 2 simulate $model train.batch=8 --on 8xH100-SXM --slow host1=0.5
says "expected host0, the only one"
run 2 simulate $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --timeline step.png
says "expected a name that ends with .svg (a picture) or .json"
[ ! -e step.png ] || fail "a picture of another kind was written"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --tokens many
says "expected a count, as 1B"
run 2 simulate $model train.batch=8 mesh.dp_shard=8 offload.optimizer=nvme --on 8xH100-SXM
says "give drive.read_gb_per_s"
cat >ours.yaml <<'END'
accelerator: h100-sxm-80
devices: 8
drive: {read_gb_per_s: 9, write_gb_per_s: 8}
END
run 0 simulate $model train.batch=8 mesh.dp_shard=8 offload.optimizer=nvme --on ours.yaml
says "waiting: move"
mkdir -p config/lockstep
printf 'accelerators:\n  ours: {cuda: 90, memory: {mib: 65536, gb_per_s: 2000}, tflops: {bf16: 400}}\n' \
  >config/lockstep/machines.yaml
run 2 simulate keys.yaml offload.optimizer=host --on 1xours
says "how fast devices reach their host is not known; give host.gb_per_s"
run 2 simulate keys.yaml mesh.dp_shard=2 --on 2xours
says "no network between its hosts of 1"
rm config/lockstep/machines.yaml
run 2 simulate $model train.batch=8 --on cpu-avx2
says "how fast it is is not known"
run 2 simulate keys.yaml
says "lockstep bench"
echo "simulate_command_test: $passed commands said what they should"

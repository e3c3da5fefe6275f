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
seconds() { # words...: of a step
  run 0 simulate "$@" --json
  sed -n 's/.*"step_seconds": \([0-9.e+-]*\).*/\1/p' output
}
shorter() { awk "BEGIN { exit !($1 < $2) }" || fail "$1 is not less than $2: $3"; }
whole=$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM)
slow=$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --slow host3=0.5)
thin=$(seconds $model train.batch=64 mesh.dp_shard=64 --on 64xH100-SXM --link network=0.1,peer=0.5)
few=$(seconds $model train.batch=64 mesh.dp_shard=8 train.microbatches=8 --on 8xH100-SXM)
shorter "$whole" "$slow" "a slow host"
shorter "$whole" "$thin" "a slow network"
shorter "$whole" "$few" "fewer devices"
run 0 simulate $model model=gpt2-124m data.seq_len=1024 mesh.pp=4 train.batch=16 train.microbatches=8 \
  --on 4xA100-SXM-80 --timeline step.svg
says "waiting: messages between stages"
grep -q "simulated" step.svg || fail "the picture does not say what it is of"
run 0 simulate $model model=gpt2-124m data.seq_len=1024 mesh.pp=2 train.batch=8 --on 2xrtx4090 --timeline step.json
grep -q '"ph"' step.json || fail "no trace"

run 0 train keys.yaml trace=true out=traced
run 0 simulate keys.yaml --on 1xA100-SXM-80 --against traced
grep -q "^  the step .*%" output || fail "nothing beside what was measured: $(cat output)"
grep -q "^  attention " output || fail "no kinds of instruction: $(cat output)"
run 2 simulate keys.yaml --on 1xA100-SXM-80 --against nowhere
says "a run with trace=true leaves it"

run 1 simulate $model train.batch=2 --on 2xRTX4090
says "which fits"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --slow host8=0.5
says "expected host0 to host7"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --slow rack1=0.5
says "expected hostN=FACTOR, as in host3=0.5"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --link wire=0.5
says "expected peer, network, host or drive"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --link network=0
says "network=FACTOR"
run 2 simulate $model train.batch=64 --on 64xH100-SXM --tokens many
says "expected a count, as 1B"
run 2 simulate $model train.batch=8 --on cpu-avx2
says "how fast it is is not known"
run 2 simulate keys.yaml
says "lockstep bench"
echo "simulate_command_test: $passed commands said what they should"

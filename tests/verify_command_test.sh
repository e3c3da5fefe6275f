#!/bin/sh
# `lockstep verify`: its exit status, its table and its JSON.  verify_command_test.sh LOCKSTEP
set -u
lockstep=$1
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
traces=tests/data/traces
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
  echo "FAILED: $1"
  failed=1
}

# expect STATUS PATTERN WORDS...: the exit status, and a line of the output (both streams).
expect() {
  status=$1
  pattern=$2
  shift 2
  OMP_NUM_THREADS=1 "$lockstep" verify "$@" >"$folder/out" 2>&1
  got=$?
  [ "$got" -eq "$status" ] || fail "verify $*: exit status $got; expected $status"
  grep -q -e "$pattern" "$folder/out" || { cat "$folder/out"; fail "verify $*: no $pattern"; }
}

expect 0 "^gradients of step 0 .* ok " --trace $traces/gpt2-tied mesh.dp_shard=2
expect 0 "on 4 devices (dp_replicate 1, dp_shard 2, tp 2" --trace $traces/llama-gqa-tied \
  mesh.tp=2 -n 4
expect 0 '"ok": true' --trace=$traces/llama-gqa-free --json mesh.dp_shard=3
expect 0 "^usage: lockstep verify" --help

cp -r $traces/gpt2-tied "$folder/wrong"
sed 's/"lr": 0.002,/"lr": 0.0021,/' $traces/gpt2-tied/trace.json >"$folder/wrong/trace.json"
cmp -s $traces/gpt2-tied/trace.json "$folder/wrong/trace.json" && fail "nothing was spoilt"
expect 1 "^loss .* FAILED  step" --trace "$folder/wrong"
expect 1 "^lockstep verify: .*: loss: off by" --trace "$folder/wrong" mesh.dp_shard=2

# Rounding has 150 steps to grow in, and a wrong run is seen for all that.
expect 0 "^final parameters .* ok " --trace $traces/llama-long dtype=fp64 mesh.tp=2
cp -r $traces/llama-long "$folder/long"
sed 's/"lr": 0.001,/"lr": 0.00100000001,/' $traces/llama-long/trace.json >"$folder/long/trace.json"
expect 1 "^loss .* FAILED  step" --trace "$folder/long" dtype=fp64

# A trace says what it is: what cannot be repeated is refused by name, not called wrong.
told() { # SED PATTERN: trace.json changed by it is refused
  sed "$1" $traces/gpt2-tied/trace.json >"$folder/wrong/trace.json"
  cmp -s $traces/gpt2-tied/trace.json "$folder/wrong/trace.json" && fail "$1: nothing was changed"
  expect 2 "trace.json.*$2" --trace "$folder/wrong"
}
told 's/"source": /"kind": "t5", "source": /' '"kind" is "t5", which cannot be repeated'
told 's/"grad_clip": /"muon_lr": 1, "grad_clip": /' 'hyper.*"muon_lr" is not known'
told 's/"source": /"quantisation": {}, "source": /' '"quantisation" is not known'
told 's/"mean cross-entropy over/"sum of cross-entropy over/' '"loss" is "sum of cross-entropy'
told 's/"parameters with 2 or more/"all parameters with 2 or more/' '"weight_decay_on" is "all'
shared=../shared/data/traces
if [ -d $shared ]; then
  for each in "$shared"/*; do
    OMP_NUM_THREADS=1 "$lockstep" verify --trace "$each" >"$folder/out" 2>&1
    case $? in
      0) ;;
      2) grep -qE 'cannot be repeated|model_type: found' "$folder/out" || fail "$each: $(cat "$folder/out")" ;;
      *) fail "$each: $(tail -n 1 "$folder/out")" ;;
    esac
  done
else
  echo "skipped: the traces of others (no $shared)"
fi

# A run file's own layout: diverse ones, most of them of more devices than this machine should have.
cat >"$folder/run.yaml" <<'END'
model: llama3-8b
train: {batch: 96, microbatches: 6, steps: 1000, lr: 3e-4}
data: {seq_len: 100}
dtype: bf16
END
r=$folder/run.yaml
expect 0 "^mesh.dp_replicate  *64 -> 3 .*one between" "$r" mesh.dp_replicate=64 train.batch=384 -n 64
expect 0 "^dp_replicate 3, dp_shard 3, tp 1, zero-3, " "$r" mesh.dp_replicate=8 zero=3 \
  train.batch=480 -n 40
grep -q "^mesh.dp_shard  *5 -> 3 " "$folder/out" || fail "dp_shard is not shrunk"
expect 0 "^vocabulary .* even over tp=4, as over tp=32" "$r" mesh.tp=32 sequence_parallel=true -n 32
expect 0 "^KV heads .* fewer than tp" "$r" mesh.tp=32 mesh.dp_shard=2
expect 0 "(zbv), .* sequence parallel, recompute full" "$r" mesh.pp=8 schedule=zbv mesh.tp=4 \
  recompute=full
expect 0 "^train.microbatches .* uneven over 3 stages" "$r" mesh.pp=4 mesh.dp_shard=8 zero=2
expect 0 "^chunks  *4 -> 2 " "$r" mesh.pp=4 chunks=4 schedule=interleaved mesh.dp_shard=8
expect 0 "tied embeddings" model=gpt2-124m mesh.pp=3 mesh.tp=6 mesh.dp_replicate=2 train.batch=4 \
  optimizer.name=sgd
grep -q "^vocabulary .* uneven over tp=3, as over tp=6" "$folder/out" || fail "uneven vocabulary"
expect 0 "^stages " model=gpt2-124m mesh.pp=4 stages=none,0-3,4-7,8-11 train.batch=8 -n 32
expect 0 "^gradients, step 1 .* ok " model=$traces/llama-gqa-tied data.seq_len=16 mesh.tp=2 -n 4
expect 0 '"shrunk_devices": 2' model=gpt2-10m -n 2 dtype=fp32 --kernels --json
expect 0 "^parameters, step 5 .* ok " model=gpt2-10m mesh.tp=2 dtype=fp16 --kernels
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >"$folder/two.csv"
expect 0 "two.csv" model=gpt2-10m mesh.pp=2 schedule="$folder/two.csv" train.microbatches=2 -n 16
expect 0 "offload.path .* none -> /tmp" model=gpt2-10m offload.optimizer=nvme \
  offload.activations=host offload.parameters=host -n 2
expect 0 "gradients begin at" model=gpt2-10m train.clip=1000

one_line() {
  lines=$(wc -l <"$folder/out")
  [ "$lines" -eq 1 ] || fail "$lines lines where one is expected"
}
expect 2 "expected RUN.yaml, or --trace DIR" mesh.dp_shard=2
one_line
expect 2 "nothing.yaml: no such file" nothing.yaml
one_line
expect 2 "one run file" "$r" "$r"
one_line
expect 2 "use tp=1, 2, 4" "$r" mesh.tp=3
one_line
expect 2 "did you mean zbv" "$r" mesh.pp=2 schedule=zbw
one_line
expect 2 "stages x chunks for a model of" "$r" mesh.pp=40
one_line
printf '0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n' >"$folder/four.csv"
expect 2 "a schedule from a file keeps its 4 stages" model=gpt2-10m mesh.pp=4 mesh.dp_shard=2 \
  mesh.dp_replicate=2 mesh.cp=2 mesh.tp=2 schedule="$folder/four.csv" train.microbatches=1
one_line
expect 2 "a trace is always repeated" --trace $traces/gpt2-tied --kernels
one_line
expect 2 "no such folder" --trace "$folder/nothing"
one_line
expect 2 'nearest one is "mesh.dp_shard"' --trace $traces/gpt2-tied mesh.dp_shrad=2
one_line
expect 2 "8 rows" --trace $traces/gpt2-tied -n 3
one_line
expect 2 "the trace says it" --trace $traces/gpt2-tied train.lr=1
one_line
expect 2 "expected key=value" --trace $traces/gpt2-tied run.yaml
one_line

exit $failed

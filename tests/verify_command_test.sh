#!/bin/sh
# `lockstep verify`: its exit status, its table and its JSON.  verify_command_test.sh LOCKSTEP
set -u
lockstep=$1
[ -x "$lockstep" ] || { echo "no command $lockstep: skipped"; exit 77; }
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

one_line() {
  lines=$(wc -l <"$folder/out")
  [ "$lines" -eq 1 ] || fail "$lines lines where one is expected"
}
expect 2 "expected --trace DIR" mesh.dp_shard=2
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

#!/bin/sh
# A grid of tiny runs: each is trained once, what fails is a row, what was interrupted goes on.
set -eu
lockstep=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE
fail() { echo "sweep_command_test: $1" >&2; exit 1; }

cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
i=0
while [ $i -lt 300 ]; do echo "In the beginning was line $i."; i=$((i + 1)); done >"$work/text.txt"
cat >"$work/run.yaml" <<YAML
model: $work/config.json
data: {text: $work/text.txt, seq_len: 32, validation: 0.05}
train: {batch: 4, steps: 6}
eval: {every: 3, batches: 2}
out: $work/runs
YAML
sweep() { "$lockstep" sweep "$work/run.yaml" "$@" 2>"$work/errors"; }

# One of the runs was interrupted after two steps; one cannot be.
"$lockstep" train "$work/run.yaml" train.lr=1e-2 mesh.tp=1 train.steps=2 \
  out="$work/runs/train.lr=1e-2,mesh.tp=1" >"$work/log" 2>&1 || { cat "$work/log"; fail "the first training failed"; }
sweep train.lr=1e-4,1e-2 mesh.tp=1,3 >"$work/table" || fail "$(cat "$work/errors")"
[ "$(wc -l <"$work/table")" -eq 7 ] || fail "the table: $(cat "$work/table")"
[ "$(grep -c '^train.lr=1e-[24],mesh.tp=1 *6 *[0-9.]* *[0-9.]* *[0-9.]*$' "$work/table")" -eq 2 ] || fail "the table: $(cat "$work/table")"
[ "$(grep -c '^train.lr=1e-[24],mesh.tp=3 .*failed: tp=3 and 2 heads' "$work/table")" -eq 2 ] || fail "the table: $(cat "$work/table")"
grep -q '^best: train.lr=1e-2,mesh.tp=1, eval loss [0-9.]*$' "$work/table" || fail "the best: $(cat "$work/table")"
grep -q '<svg' "$work/runs/sweep.svg" || fail "no picture"
grep -q 'from .*step-2' "$work/runs/train.lr=1e-2,mesh.tp=1.log" || fail "it did not go on: $(cat "$work/runs/train.lr=1e-2,mesh.tp=1.log")"
! grep -q 'step-' "$work/runs/train.lr=1e-4,mesh.tp=1.log" || grep -q 'from scratch' "$work/runs/train.lr=1e-4,mesh.tp=1.log" || fail "it went on from nowhere"

# Nothing is trained again; what is told to go on with does; another run file is other runs.
cp "$work/table" "$work/before"
sweep train.lr=1e-4,1e-2 mesh.tp=1,3 >"$work/table" || fail "$(cat "$work/errors")"
cmp -s "$work/table" "$work/before" || fail "another table: $(cat "$work/table")"
[ "$(grep -c ', before' "$work/errors")" -eq 4 ] || fail "trained again: $(cat "$work/errors")"
words=$(sed -n 's/^go on with it: lockstep //p' "$work/table")
# shellcheck disable=SC2086
"$lockstep" $words >"$work/log" 2>&1 || fail "$words: $(cat "$work/log")"
sweep train.lr=1e-4,1e-2 mesh.tp=1,3 --retry >/dev/null || fail "$(cat "$work/errors")"
[ "$(grep -c ', before' "$work/errors")" -eq 2 ] || fail "--retry: $(cat "$work/errors")"
sweep train.lr=1e-4,1e-2 mesh.tp=1,3 train.steps=13 >"$work/table" || fail "$(cat "$work/errors")"
[ "$(grep -c '^train.lr=1e-[24],mesh.tp=1 *13 ' "$work/table")" -eq 2 ] || fail "more steps: $(cat "$work/table")"
[ "$("$lockstep" sweep "$work/run.yaml" train.lr=1e-4,1e-3,1e-2 train.batch=4,8 recompute='[swiglu,rmsnorm]' --plan | wc -l)" -eq 6 ] || fail "--plan"

# Two at once, each with half of the cores, are what they are one by one; the best goes on.
cores=$(nproc)
if [ "$cores" -ge 2 ]; then
  "$lockstep" sweep "$work/run.yaml" train.lr=1e-4,1e-2,3e-2 mesh.tp=1,3 dtype=fp64 out="$work/one" >"$work/one.table" 2>"$work/errors" || fail "$(cat "$work/errors")"
  "$lockstep" sweep "$work/run.yaml" train.lr=1e-4,1e-2,3e-2 mesh.tp=1,3 dtype=fp64 out="$work/two" --at-once 2 --continue 9 >"$work/two.table" 2>"$work/errors" || fail "$(cat "$work/errors")"
  [ "$(wc -l <"$work/two.table")" -eq 8 ] || fail "the table: $(cat "$work/two.table")"
  sed -n 2,7p "$work/one.table" | sed 's/ *[-0-9.]* *\(failed.*\)*$//' >"$work/one.losses"
  sed -n 2,7p "$work/two.table" | sed 's/ *[-0-9.]* *\(failed.*\)*$//' >"$work/two.losses"
  cmp -s "$work/one.losses" "$work/two.losses" || fail "two at once: $(cat "$work/one.losses" "$work/two.losses")"
  [ "$(grep -c ' \.\.\.$' "$work/errors")" -eq 6 ] || fail "beginnings: $(cat "$work/errors")"
  grep -q '^going on with it to step 9: .* loss [0-9.]*,' "$work/errors" || fail "it does not go on: $(cat "$work/errors")"
  best=$(sed -n 's/^best: \(.*\), eval loss.*/\1/p' "$work/two.table")
  [ "$(wc -l <"$work/two/$best/metrics.jsonl")" -eq 9 ] || fail "the best has $(wc -l <"$work/two/$best/metrics.jsonl") steps"
  code=0
  "$lockstep" sweep "$work/run.yaml" train.lr=1e-3,1e-2 out="$work/many" --at-once 1000 2>"$work/errors" || code=$?
  [ $code -eq 2 ] && grep -q 'at-once: found 1000; this process has' "$work/errors" && [ ! -e "$work/many" ] || fail "--at-once 1000: $code, $(cat "$work/errors")"
else
  echo "skipped: several runs at once (one core)"
fi

# So it is with GPUs, of which each run has so many as devices.
stand_in=$(dirname "$lockstep")/tests/stand_in
if [ "$cores" -ge 2 ] && nm -D "$stand_in/libcuda.so.1" 2>/dev/null | grep -q cuLaunchKernelEx && ! nm "$lockstep" | grep -q __asan; then
  LD_LIBRARY_PATH=$stand_in LS_STAND_IN=gpus=4 CUDA_VISIBLE_DEVICES=3,1,0,2 "$lockstep" sweep "$work/run.yaml" train.lr=1e-3,1e-2 \
    dtype=fp32 train.steps=2 eval.every=0 out="$work/gpus" -n 2 --at-once 2 >"$work/table" 2>"$work/errors" || fail "GPUs: $(cat "$work/errors")"
  [ "$(cat "$work"/gpus/*.log | grep -c '^2 GPUs .* are visible and taken')" -eq 2 ] || fail "GPUs: $(cat "$work"/gpus/*.log)"
  code=0
  LD_LIBRARY_PATH=$stand_in LS_STAND_IN=gpus=4 "$lockstep" sweep "$work/run.yaml" train.lr=1e-3,1e-2 out="$work/many" -n 3 --at-once 2 \
    >"$work/table" 2>"$work/errors" || code=$?
  [ $code -eq 2 ] && grep -q 'found 2 runs of 3 GPUs; 4 are visible' "$work/errors" || fail "too few GPUs: $code, $(cat "$work/errors")"
else
  echo "skipped: several runs on GPUs at once (no stand-ins that run kernels, or sanitizers)"
fi

# A signal stops it, and the run saves its state.
"$lockstep" sweep "$work/run.yaml" train.lr=1e-3,1e-2 train.steps=1000000 eval.every=1000000 out="$work/long" \
  >"$work/table" 2>"$work/errors" &
i=0
while [ ! -s "$work/long/train.lr=1e-3/metrics.jsonl" ]; do
  i=$((i + 1))
  [ $i -lt 600 ] || fail "it does not begin: $(cat "$work/errors")"
  sleep 0.1
done
kill -TERM $!
code=0
wait $! || code=$?
[ $code -eq 4 ] || fail "a signal: exit status $code, expected 4: $(cat "$work/errors")"
ls "$work/long/train.lr=1e-3/checkpoints" | grep -q step- || fail "the run's state is not saved"
[ ! -e "$work/long/train.lr=1e-2" ] || fail "it went on after the signal"

refused() { # words...: exit status 2, one line, and nothing is made
  code=0
  sweep "$@" out="$work/none" >"$work/output" || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  [ ! -e "$work/none" ] || fail "$*: something was written"
}
refused
refused train.lr=1e-3
refused train.lr=1e-3,
refused train.lr=1e-3,hot
refused train.lrr=1e-3,1e-2
refused train.lr=1e-3,1e-2 train.lr=1
refused train.lr=1e-3,1e-3
long=$(printf '%0250d' 0)
refused "embed.query_prompt=$long,x"
grep -q 'would have a name of 269 bytes; expected at most 251' "$work/errors" || fail "a long name: $(cat "$work/errors")"
refused train.lr=1e-3,1e-2 --at-once 0
refused train.lr=1e-3,1e-2 --at-once 1.5
refused train.lr=1e-3,1e-2 --continue much
refused train.steps=2,7 --continue 7
grep -q 'found 7, and train.steps=7 is trained to step 7; expected more' "$work/errors" || fail "$(cat "$work/errors")"
mkdir "$work/other"
echo '{"a": 1}' >"$work/other/sweep.json"
code=0
sweep train.lr=1e-3,1e-2 out="$work/other" >"$work/output" || code=$?
[ $code -eq 2 ] && grep -q 'none of a sweep' "$work/errors" || fail "a foreign sweep.json: $code, $(cat "$work/errors")"
code=0
sweep mesh.tp=3,5 out="$work/all" >"$work/output" || code=$?
[ $code -eq 3 ] || fail "no run could be trained: exit status $code, expected 3"
code=0
SLURM_NTASKS=2 "$lockstep" sweep "$work/run.yaml" train.lr=1e-3,1e-2 2>"$work/errors" || code=$?
[ $code -eq 2 ] || fail "under a launcher: exit status $code: $(cat "$work/errors")"
"$lockstep" sweep --help | grep -q 'examples:' || fail "--help has no examples"

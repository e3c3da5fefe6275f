#!/bin/sh
# Signals are heard wherever a run is: amid steps, an evaluation, the reading of texts. The state is
# saved where there is one, the exit status is 4, and going on gives the bits of a run that nobody
# stopped.
set -eu
lockstep=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "signals_command_test: $1" >&2; exit 1; }
passed=0
cd "$work"
export XDG_CACHE_HOME="$work/cache"

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 20000 >text.txt
cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
END
cat >run.yaml <<'END'
model: config.json
data: {text: text.txt, seq_len: 16, validation: 0.2}
train: {batch: 2, lr: 1e-3, steps: 20000000, warmup: 1, lr_schedule: constant}
eval: {every: 0}
checkpoint: {every: 0}
device: {threads: 1}
dtype: fp32
END
# start WORDS...: in the background
start() {
  "$lockstep" "$@" >output 2>log </dev/null &
  running=$!
}
# until COMMAND...: it holds, within a minute
until_holds() {
  waited=0
  until "$@" >/dev/null 2>&1; do
    kill -0 $running 2>/dev/null || fail "$*: the run ended before: $(cat log)"
    waited=$((waited + 1))
    [ $waited -lt 1200 ] || fail "$*: not within a minute: $(tail -3 log)"
    sleep 0.05
  done
}
# stops SIGNAL STATUS: the run ends with it, soon
stops() {
  begun=$(date +%s)
  kill -"$1" $running
  code=0
  wait $running || code=$?
  running=
  [ $code -eq "$2" ] || fail "$1: exit status $code, expected $2: $(tail -3 log)"
  # Far above what it takes, far below what an evaluation or the texts would.
  [ $(($(date +%s) - begun)) -lt 30 ] || fail "$1: heard after $(($(date +%s) - begun)) s"
  passed=$((passed + 1))
}
says() { grep -qF -e "$1" log output || fail "\"$1\" is not in: $(cat log)"; }
trained() { [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]; }

for signal in TERM INT USR1 HUP; do
  start train run.yaml "out=$signal"
  until_holds trained "$signal" 3
  stops "$signal" 4
  says "stopping as soon as the state can be saved"
  says "its checkpoint is saved"
  step=$(ls "$signal/checkpoints")
  [ "$step" = "step-$(wc -l <"$signal/metrics.jsonl")" ] || fail "$signal: $step"
done

# Stopped and gone on with is the same training.
steps=$(($(wc -l <TERM/metrics.jsonl) + 3))
"$lockstep" train run.yaml out=TERM train.steps=$steps >output 2>log || fail "$(cat log)"
"$lockstep" train run.yaml out=whole train.steps=$steps >output 2>log || fail "$(cat log)"
cmp "TERM/checkpoints/step-$steps/model.safetensors" "whole/checkpoints/step-$steps/model.safetensors" ||
  fail "a run that was stopped has other bits"
passed=$((passed + 1))

# An evaluation that would take hours.
start train run.yaml out=evaluating eval.every=2 eval.batches=100000000 data.validation=0.9
until_holds grep -q '^step 1/' log
sleep 0.3 # into it, most likely; right in any case
stops TERM 4
says "stopped after step"
[ -n "$(ls evaluating/checkpoints)" ] || fail "no checkpoint: $(ls evaluating)"

# Stopped again before it is made, the run makes no step without it.
saved=$(ls evaluating/checkpoints)
start train run.yaml out=evaluating eval.every=2 eval.batches=100000000 data.validation=0.9
until_holds grep -q 'resuming after' log
stops TERM 4
case $saved in step-2)
  [ "$(ls evaluating/checkpoints)" = step-2 ] || fail "a step was made: $(ls evaluating/checkpoints)" ;;
esac

# Who does not want it gets on without it.
cp -r evaluating unwanted
"$lockstep" train run.yaml out=unwanted eval.every=0 data.validation=0.9 train.steps=4 >output 2>log ||
  fail "$(cat log)"
[ -d unwanted/checkpoints/step-4 ] || fail "$(ls unwanted/checkpoints)"

# It is made when the run goes on, and gets into the line of its step.
validations() { grep -o '"step": [0-9]*,\|"validation_loss": .*' "$1/metrics.jsonl"; }
short="eval.every=2 eval.batches=3 data.validation=0.9 train.steps=4"
"$lockstep" train run.yaml out=evaluating $short >output 2>log || fail "$(cat log)"
"$lockstep" train run.yaml out=unstopped $short >output 2>log || fail "$(cat log)"
validations unstopped >expected
validations evaluating | cmp -s - expected ||
  fail "validation losses: $(validations evaluating), expected $(cat expected)"

# Texts that are read for long: nothing is trained, nothing is left.
i=0
while [ $i -lt 60 ]; do
  cat text.txt
  i=$((i + 1))
done >long.txt
start train run.yaml out=reading data.text=long.txt
until_holds sh -c 'ls cache/lockstep/*.bin.*'
stops TERM 4
says "stopped"
[ -z "$(ls cache/lockstep | grep -v '\.bin$' || true)" ] || fail "left: $(ls cache/lockstep)"

# What is ignored from the start stays ignored.
(trap '' HUP; exec "$lockstep" train run.yaml out=nohup >output 2>log </dev/null) &
running=$!
until_holds trained nohup 2
kill -HUP $running
n=$(wc -l <nohup/metrics.jsonl)
until_holds trained nohup $((n + 100))
stops TERM 4

# The second one ends the process at once, whatever it is at.
start train run.yaml out=twice eval.every=1 eval.batches=100000000
until_holds test -e twice/resolved.yaml
kill -STOP $running
kill -INT $running
kill -TERM $running
kill -CONT $running
code=0
wait $running || code=$?
running=
case $code in 130 | 143) passed=$((passed + 1)) ;; *) fail "two signals: exit status $code" ;; esac

# A kill leaves the last good checkpoint.
start train run.yaml out=killed checkpoint.every=50
until_holds sh -c '[ -n "$(ls killed/checkpoints | grep "^step-[0-9]*$")" ]'
kill -KILL $running
code=0
wait $running 2>/dev/null || code=$?
running=
[ $code -eq 137 ] || fail "KILL: exit status $code"
"$lockstep" train killed "train.steps=$(($(wc -l <killed/metrics.jsonl) + 60))" >output 2>log || fail "$(cat log)"
says "resuming after step"
[ -z "$(ls killed/checkpoints | grep tmp || true)" ] || fail "left: $(ls killed/checkpoints)"
passed=$((passed + 1))

echo "$passed passed, 0 failed"

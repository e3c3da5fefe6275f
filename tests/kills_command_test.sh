#!/bin/sh
# A run that is killed or stopped at random moments, saving included, ends with the bits of one that
# nobody touched: on one device, two layouts of threads, processes of MPI, and with state on a drive.
# LS_KILLS is how many kills there are over all layouts, LS_SEED what the moments are drawn from,
# LS_LAYOUT the one layout that is tried.
set -eu
lockstep=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
kills=${LS_KILLS:-15}
seed=${LS_SEED:-20261128}
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "kills_command_test: seed $seed: $1" >&2; exit 1; }
cd "$work"
export XDG_CACHE_HOME="$work/cache"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # some MPI libraries keep memory to the end
echo "seed $seed"

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 2000 >text.txt
cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
END
cat >run.yaml <<'END'
model: config.json
data: {text: text.txt, seq_len: 16, validation: 0.1}
train: {batch: 4, lr: 1e-3, steps: 100000000, warmup: 1, lr_schedule: constant}
eval: {every: 5, batches: 2, prompts: [the clocks], max_new_tokens: 4}
checkpoint: {every: 3, best: true}
device: {threads: 1}
dtype: fp32
END
mkdir nvme
draws=0
draw() { # LIMIT: a number below it, in $drawn
  draws=$((draws + 1))
  drawn=$(printf '%s %s' "$seed" "$draws" | cksum | cut -d' ' -f1)
  drawn=$((drawn % $1))
}
newest() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | tail -1; }

# start LAUNCHER OUT WORDS...: in the background, a process group of its own
start() {
  launcher=$1 out=$2
  shift 2
  # shellcheck disable=SC2086
  setsid $launcher "$lockstep" train run.yaml "out=$out" "$@" >output 2>log </dev/null &
  running=$!
}
# One process of the run, or all of them at once.
victims() {
  all=$(ps -o pid= -g "$running" 2>/dev/null || true)
  draw 2
  if [ $drawn = 0 ] || [ -z "$all" ]; then
    echo $all
    return
  fi
  draw "$(echo "$all" | wc -l)"
  echo "$all" | sed -n "$((drawn + 1))p"
}
# Whether a process of the run lives besides its launcher.
lives() {
  ps -o pid=,stat= -g "$running" 2>/dev/null | grep -v "^ *$running " | grep -qv ' Z'
}
strike() {
  draw 10
  case $drawn in
    0) signals="TERM" ;;
    1) signals="USR1" ;;
    2) signals="INT TERM" ;;
    *) signals="KILL" ;;
  esac
  for signal in $signals; do
    if [ $signal = KILL ]; then
      # shellcheck disable=SC2046
      kill -KILL $(victims) 2>/dev/null || true
    else
      kill -"$signal" $running 2>/dev/null || true
    fi
  done
  waited=0
  while kill -0 $running 2>/dev/null; do
    waited=$((waited + 1))
    [ $waited -lt 6000 ] || fail "$signals: the run has not ended: $(tail -3 log)"
    sleep 0.02
    # A launcher that is still starting its processes passes nothing on.
    [ -z "$launcher" ] || [ "$signals" != USR1 ] || [ $((waited % 100)) -ne 0 ] ||
      kill -USR1 $running 2>/dev/null || true
    # Of a process killed as it connects, Open MPI 4.1's launcher says UNREACHABLE, and may then wait
    # for a mutex of its own for ever (PMIx_server_finalize), when all it launched has ended.
    if [ "$launcher" ] && [ $waited -ge 500 ] && [ $((waited % 100)) -eq 0 ] && ! lives; then
      kill -KILL $running 2>/dev/null || true
    fi
  done
  code=0
  wait $running 2>/dev/null || code=$?
  # What is left of it under a launcher that was killed itself.
  left=$(ps -o pid= -g "$running" 2>/dev/null || true)
  # shellcheck disable=SC2086
  [ -z "$left" ] || kill -KILL $left 2>/dev/null || true
  while [ -n "$(ps -o pid= -g "$running" 2>/dev/null || true)" ]; do sleep 0.02; done
  running=
  # Saved and stopped, or ended by the signal itself; a launcher has statuses of its own.
  case $code in
    4 | 130 | 137 | 138 | 143) ;;
    *) [ "$launcher" ] || fail "$signals: exit status $code: $(tail -3 log)" ;;
  esac
}

told() { sed 's/.*"step": \([0-9]*\).*"loss": \([^,]*\).*"grad_norm": \([^,]*\).*/\1 \2 \3/; s/}.*//' "$1/metrics.jsonl"; }
judged() { tr -d '\n ' <"$1/checkpoints/step-$steps/state.json" | grep -o '"best":{[^}]*}'; }
validations() { grep -o '"step": [0-9]*,\|"validation_loss": [^,}]*' "$1/metrics.jsonl"; }

# try NAME KILLS LAUNCHER WORDS...
try() {
  name=$1 times=$2 launcher=$3
  shift 3
  [ "${LS_LAYOUT:-$name}" = "$name" ] || return 0
  k=0
  while [ $k -lt "$times" ]; do
    start "$launcher" "$name" "$@"
    draw 1400
    sleep "$((drawn / 1000)).$(printf %03d $((drawn % 1000)))"
    strike
    k=$((k + 1))
  done
  made=$(newest "$name")
  steps=$((${made:-0} + 7))
  for out in "$name" "$name-whole"; do
    # shellcheck disable=SC2086
    $launcher "$lockstep" train run.yaml "out=$out" "$@" train.steps=$steps >output 2>log </dev/null ||
      fail "$out: $(tail -3 log)"
  done
  for file in model.safetensors optimizer.safetensors; do
    cmp "$name/checkpoints/step-$steps/$file" "$name-whole/checkpoints/step-$steps/$file" ||
      fail "$name: other bits in $file after $times kills"
  done
  told "$name" >own
  told "$name-whole" | cmp -s - own || fail "$name: other metrics: $(told "$name-whole" | diff - own | head -5)"
  validations "$name" >own
  validations "$name-whole" | cmp -s - own ||
    fail "$name: other validation losses: $(validations "$name-whole" | diff - own | head -5)"
  [ "$(readlink "$name/best")" = "$(readlink "$name-whole/best")" ] &&
    cmp "$name/best/model.safetensors" "$name-whole/best/model.safetensors" ||
    fail "$name: another best: $(readlink "$name/best"), of the whole run $(readlink "$name-whole/best")"
  judged "$name" >own
  judged "$name-whole" | cmp -s - own || fail "$name: the best is counted otherwise: $(cat own)"
  cmp "$name/samples.jsonl" "$name-whole/samples.jsonl" || fail "$name: other samples"
  left=$(ls "$name/checkpoints" | grep -v '^step-[0-9]*$' || true)
  [ -z "$left" ] || fail "$name: left behind: $left"
  [ -z "$(ls nvme)" ] || fail "$name: left on the drive: $(ls nvme)"
  echo "$name: $times kills, $steps steps: the same bits"
  rm -rf "$name" "$name-whole"
}

each=$(((kills + 4) / 5))
try one "$each" ""
try shard "$each" "" -n 2 zero=3
try pipeline "$each" "" -n 4 mesh.pp=2 mesh.tp=2 mesh.dp_shard=1 train.microbatches=2
try offload "$each" "" -n 2 zero=1 offload.optimizer=nvme offload.path=nvme
if command -v mpirun >/dev/null; then
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  try mpi "$each" "mpirun -n 2" -n 2
else
  echo "skipped: kills under MPI (no mpirun)"
fi
echo "$((5 * each)) kills"

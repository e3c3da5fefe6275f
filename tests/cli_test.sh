#!/bin/sh
# The command as a person meets it: wrong input is answered in one line and leaves nothing behind; a
# run that is interrupted or started under MPI ends with the bits of one that was not.
# $1: the lockstep program. MPIRUN: the launcher; MPIRUN_FLAGS: its flags.
set -u
case $1 in
  /*) lockstep=$1 ;;
  *) lockstep=$PWD/$1 ;;
esac
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
# A launcher above this test is none of its runs' business.
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE XDG_CACHE_HOME
export OMP_NUM_THREADS=1
failed=0
passed=0

fail() {
  echo "FAILED: $1"
  [ ! -s errors ] || sed 's/^/  stderr: /' errors | head -12
  failed=$((failed + 1))
}
pass() {
  echo "ok: $1"
  passed=$((passed + 1))
}

mkdir model empty_folder drop few
cat >model/config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
 "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true}
JSON
mkdir four
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' model/config.json >four/config.json
sed 's/"vocab_size": 256/"vocab_size": 200/' model/config.json >few/config.json
cat >drop/config.json <<'JSON'
{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
 "vocab_size": 256, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
JSON
awk 'BEGIN { for (i = 0; i < 800; i++) print "line", i * i % 97, "of a text", i % 7, "and more" }' \
  >text.txt
: >nothing.txt
: >output
: >errors
: >before
: >after
echo "too short" >short.txt
cat >run.yaml <<'YAML'
model: model/config.json
data: {text: text.txt, tokenizer: bytes, seq_len: 32, validation: 0.1}
mesh: {dp_shard: -1}
dtype: fp32
device: {threads: 1}
train: {steps: 12, batch: 4, lr: 1e-3, warmup: 4}
eval: {every: 6, batches: 2}
checkpoint: {every: 0}
out: out
YAML
printf 'model: model/config.json\ndata:\n  txet: text.txt\n' >unknown.yaml
printf 'model: model/config.json\n\ntrain:\n  steps: soon\n' >type.yaml
printf 'model: model/config.json\ntrain: {steps: 3}\ntrain: {batch: 2}\n' >twice.yaml
printf 'model: model/config.json\ndata: {text: *.txt}\n' >alias.yaml

printf '{"text": "one"}\n{"txet": "two"}\n' >bad.jsonl
printf 'PAR1' >some.parquet

# All but what a run beside this one writes, and our own.
list_files() { find . -path ./cut -prune -o -type f ! -name before ! -name after -print | sort; }

# bad WHAT STATUS PATTERN WORD...: one line that matches, this exit status, no output, no new file.
bad() {
  what=$1
  expected=$2
  pattern=$3
  shift 3
  list_files >before
  "$lockstep" "$@" >output 2>errors
  status=$?
  list_files >after
  if [ $status != "$expected" ]; then
    fail "$what: exit status $status, not $expected"
  elif [ "$(wc -l <errors)" != 1 ]; then
    fail "$what: $(wc -l <errors) lines, not 1"
  elif ! grep -qE -e "$pattern" errors; then
    fail "$what: nothing like '$pattern'"
  elif [ -s output ]; then
    fail "$what: something on standard output"
  elif ! cmp -s before after; then
    fail "$what: files changed: $(diff before after | tr '\n' ' ')"
  else
    pass "$what: $(cat errors)"
  fi
}

bad "unknown command" 2 '"trian": did you mean "train"' trian run.yaml
bad "command of a later version" 2 'watch: not yet' watch run.yaml
bad "export of nothing" 2 'nowhere: no such folder; expected a run' export nowhere there
bad "export with a type that is none" 2 '--dtype: found int8; expected fp32, bf16' export . there --dtype int8
bad "inspection of nothing" 2 'nowhere: no such file or folder' inspect nowhere
bad "inspection of a text" 2 'text.txt: of no known kind; expected config.json' inspect text.txt
bad "unknown flag" 2 '--frehs: did you mean --fresh' train run.yaml --frehs
bad "flag without its value" 2 '-n: expected a value' train run.yaml -n
bad "no count of devices" 2 '-n: found "two"' train run.yaml -n two
bad "missing run file" 2 'absent.yaml: no such file; expected a run file' train absent.yaml
bad "two run files" 2 'one run file' train run.yaml unknown.yaml
bad "unknown key in the file" 2 'unknown.yaml:3: .*txet.*data.text' train unknown.yaml
bad "unknown key on the command line" 2 'train.step.*train.steps' train run.yaml train.step=3
bad "wrong type in the file" 2 'type.yaml:4: .*steps.*soon.*whole number' train type.yaml
bad "key given twice" 2 'twice.yaml:3: .*train' train twice.yaml
bad "unquoted glob" 2 'alias.yaml:2: .*quote' train alias.yaml
bad "wrong type on the command line" 2 'train.lr: found fast; expected a number above 0' train run.yaml train.lr=fast
bad "no model" 2 'model' train data.text=text.txt out=out
bad "missing model" 2 'nowhere' train run.yaml model=nowhere
bad "model folder without config" 2 'empty_folder.*config.json' train run.yaml model=empty_folder
bad "weights that are not there" 2 'model.safetensors' train run.yaml model=model init=weights
bad "vocabulary below the tokenizer's" 2 'vocabulary of 200' train run.yaml model=few
bad "missing text" 2 'none.txt' train run.yaml data.text=none.txt
bad "line without its text" 2 'bad.jsonl:2: found no key "text".*txet' train run.yaml data.text=bad.jsonl
bad "Parquet" 2 'some.parquet: .parquet files are not read; .*duckdb' train run.yaml data.text=some.parquet
bad "tp that does not divide the heads" 2 'tp=3 and 4 heads.*use tp=1, 2 or 4' \
  train run.yaml mesh.dp_shard=1 mesh.tp=3 -n 3
bad "batch that does not divide" 2 'train.batch: found 3.*use 2 or 4' train run.yaml train.batch=3 -n 2
bad "microbatch that does not divide" 2 'micro_batch: found 3' train run.yaml train.micro_batch=3 -n 1
bad "-n that is not the mesh" 2 'dp_shard 2 = 2 devices; expected 3' \
  train run.yaml mesh.dp_shard=2 -n 3
bad "more stages than layers" 2 '9 stages' train run.yaml mesh.pp=9 -n 9
bad "unknown schedule" 2 'gpipe' train run.yaml mesh.pp=2 schedule=gpip -n 2
bad "too few microbatches" 2 'microbatches' train run.yaml mesh.pp=2 schedule=dualpipev train.microbatches=2 -n 2
bad "peer's word" 2 'recompute' train run.yaml gradient_checkpointing=true
bad "dropout of all" 2 'dropout: found 1.5; expected a number from 0 to below 1' \
  train run.yaml model=drop dropout=1.5
bad "dropout in a ring" 2 'context=gather or ulysses, or dropout=0' \
  train run.yaml model=drop mesh.cp=2 context=ring -n 2
bad "memory limit too small" 1 'device.memory: a device needs' train run.yaml device.memory=64KiB
bad "memory limit too small, shown" 1 'device.memory' show run.yaml device.memory=64KiB
bad "memory limit too small, checked" 1 'device.memory' check run.yaml device.memory=64KiB
bad "no run file to check" 2 'model' check
bad "empty text" 2 'nothing.txt is empty' train run.yaml data.text=nothing.txt
bad "rank beyond the mesh" 2 '--rank 2' show run.yaml --rank 2 -n 2
bad "rank beyond what a number holds" 2 '--rank 4294967296: expected a rank from 0 to 1' \
  show run.yaml --rank 4294967296 -n 2
for picture in "--timeline none/x.svg" "--memory-map none/x.svg" "--html none/x.html"; do
  # shellcheck disable=SC2086
  bad "no folder for a picture" 2 'found no folder none' show run.yaml -n 2 $picture
done
for picture in "--timeline x.svg" "--memory-map x.svg" "--html x.html"; do
  # shellcheck disable=SC2086
  bad "a picture as JSON" 2 '--json beside --' show run.yaml -n 2 --json $picture
done
for form in --compare --floor "--timeline -" "--html x.html"; do
  # shellcheck disable=SC2086
  bad "--rank beside ${form%% *}" 2 "--rank beside ${form%% *}" show run.yaml -n 2 --rank 0 $form
done
bad "two answers" 2 '--compare beside --html' show run.yaml -n 2 --compare --html x.html
bad "nothing to sample from" 2 'absent' generate absent hello
bad "trace that is not there" 2 'absent' verify --trace absent
# The token file of a text is whole and is kept: what counts is that no run began.
"$lockstep" train run.yaml data.text=short.txt out=none/out >/dev/null 2>&1
bad "text shorter than a batch" 2 'data.text: found 10 tokens.*needs 129' \
  train run.yaml data.text=short.txt out=none/out

# A pipeline's run beside other layouts: its mesh, its stages and its schedule are its own.
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >two.csv
for pipeline in "train.microbatches=4" "stages=none,0-1" "schedule=two.csv train.microbatches=2" \
  "schedule=zbv chunks=2 train.microbatches=4 model=four"; do
  # shellcheck disable=SC2086
  if ! "$lockstep" show run.yaml mesh.pp=2 mesh.dp_shard=1 -n 2 --compare $pipeline \
    >output 2>errors; then
    fail "--compare of a pipeline's run, $pipeline"
  elif grep -q 'not possible' output || ! grep -q '^ .* TP+SP  *PP$' output; then
    fail "--compare of a pipeline's run, $pipeline: $(cat output)"
  else
    pass "--compare of a pipeline's run, $pipeline"
  fi
done
# --rank chooses the stage that numbers are of; what is sent is of the stage that sends most.
pipeline="run.yaml mesh.pp=4 mesh.dp_shard=1 -n 4 model=untied train.microbatches=4"
mkdir untied
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' four/config.json >untied/config.json
for rank in 0 1 2 3; do
  # shellcheck disable=SC2086
  "$lockstep" show $pipeline --rank $rank --json >stage.$rank 2>errors || fail "--rank $rank: $(cat errors)"
  # shellcheck disable=SC2086
  "$lockstep" show $pipeline --rank $rank --collectives >output 2>errors || fail "--rank $rank: $(cat errors)"
  grep -q "^stage $rank, of rank $rank" output || fail "--rank $rank --collectives: $(head -1 output)"
done
sent() { sed -n 's/^ *"bytes_sent": \([0-9.]*\).*/\1/p' "$1" | sort -n | tail -1; }
most=$(cat stage.[0-3] >stages && sent stages)
# shellcheck disable=SC2086
"$lockstep" show $pipeline --compare --json >output 2>errors || fail "--compare --json: $(cat errors)"
sed -n '/"this run"/,/^  }/p' output >own
if [ "$(sent own)" != "$most" ] || [ "$(sent stage.0)" = "$most" ]; then
  fail "--compare: this run sends $(sent own), its stages at most $most, the first $(sent stage.0)"
else
  pass "--compare has this run, and what its busiest stage sends"
fi
if ! "$lockstep" show run.yaml offload.optimizer=host -n 2 --compare >output 2>errors ||
  ! grep -q '^on the host besides  *[0-9]' output || grep -q '^optimizer moments' output; then
  fail "--compare with the optimizer's state on the host"
else
  pass "--compare with the optimizer's state on the host"
fi

# ran WHAT WORD...: must succeed.
ran() {
  what=$1
  shift
  "$lockstep" "$@" >output 2>errors || { fail "$what: exit status $?"; return 1; }
}
# The model that a run of so many steps ended with.
model_of() { echo "$1/checkpoints/step-$2/model.safetensors"; }
losses_of() { sed 's/,* *"[a-z_]*seconds*[a-z_]*": *[^,}]*//g; s/.*"step"/"step"/' "$1/metrics.jsonl" |
  grep -oE '"(step|loss|grad_norm|validation_loss)": *[^,}]+'; }

same_model() {
  if cmp -s "$(model_of "$2" "$4")" "$(model_of "$3" "$4")"; then
    pass "$1: the same bits"
  else
    fail "$1: $(model_of "$2" "$4") differs from $(model_of "$3" "$4")"
  fi
}

# wait_for_step OUT STEP: until the run's metrics have it, a minute at most.
wait_for_step() {
  tries=0
  while ! grep -qE "\"step\": *$2," "$1/metrics.jsonl" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || return 1
    sleep 0.1
  done
}

# proved WHAT PATTERN WORD...: proved, and the output has the pattern.
proved() {
  what=$1
  pattern=$2
  shift 2
  ran "$what" check "$@" || return 1
  if grep -qE -e "$pattern" output && grep -q "proved for" output; then
    pass "$what: $(tail -1 output)"
  else
    fail "$what: nothing like '$pattern' in: $(cat output)"
  fi
}
proved "check" '^instructions, as executed +[1-9]' run.yaml -n 2
proved "check of a pipeline" 'proved for 2 stages' run.yaml -n 8 mesh.pp=2 mesh.tp=2 \
  train.microbatches=2 schedule=zbv device.memory=1GiB
proved "check for 4,096 devices" 'on 4096 devices' run.yaml -n 4096 mesh.pp=2 train.batch=8192 \
  train.microbatches=4
ran "check --help" check --help && grep -q "usage: lockstep check" output && pass "check --help"

ran "train" train run.yaml -n 2 out=whole train.steps=400 && pass "trains"
if grep -qE '^checked in [0-9.]+ s: [0-9]+ instructions' errors; then
  pass "a run is checked: $(grep -m 1 '^checked' errors)"
else
  fail "a run is not checked first"
fi
proved "check of a run" ' on 2 devices' whole
ran "train to the end again" train run.yaml -n 2 out=whole train.steps=400 &&
  pass "a finished run has nothing left to do"
ran "inspect" inspect whole --json && grep -q '"step": 400' output && grep -q '"optimizer": {' output &&
  pass "inspect says what a run holds"
ran "export" export whole exported --dtype bf16 && ran "inspect an export" inspect exported &&
  grep -q '{"BF16":' output && [ -s exported/tokenizer.json ] && pass "export"
"$lockstep" train run.yaml -n 2 out=cut train.steps=400 >cut.output 2>cut.errors &
running=$!
wait_for_step cut 3 || fail "interrupted run: no step within a minute"
# While it runs, its folder is taken.
bad "two processes on one out" 2 'cut: another process is training there' \
  train run.yaml -n 2 out=cut train.steps=400
kill -INT $running
wait $running
status=$?
running=
cut_at=$(ls cut/checkpoints 2>/dev/null | head -1)
if [ $status = 4 ] && [ "$cut_at" != step-400 ]; then
  pass "SIGINT saves ($cut_at) and exits 4"
else
  fail "SIGINT: exit status $status at '$cut_at'"
fi
ran "resume" train run.yaml -n 2 out=cut train.steps=400 && same_model "interrupted" whole cut 400
losses_of whole >whole.losses
losses_of cut >cut.losses
if [ -s whole.losses ] && cmp -s whole.losses cut.losses; then
  pass "metrics of $(grep -c '"step"' whole.losses) steps are those of the uninterrupted run"
else
  fail "metrics differ: $(diff whole.losses cut.losses | head -4 | tr '\n' ' ')"
fi
bad "another learning rate in an old run" 2 'train.lr' train run.yaml -n 2 out=cut train.lr=0.5
ran "other layout" train run.yaml -n 1 out=cut train.steps=401 && pass "resumes on another layout"
ran "fresh" train run.yaml -n 2 out=cut --fresh && same_model "--fresh" cut cut 12

ran "threads" train run.yaml -n 2 out=threads2
ran "threads" train run.yaml -n 4 out=threads4
ran "sample" generate threads2 line --seed 1 --max-new-tokens 8 && pass "generates: $(tail -1 output)"

launcher=${MPIRUN:-mpirun}
flags=${MPIRUN_FLAGS:-}
# Open MPI alone refuses root and more ranks than cores, and pins ranks to one core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Some MPI libraries keep memory to the end; that is theirs to free.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
if [ -z "$flags" ] && "$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE"; then
  flags="--bind-to none"
fi
# launch PROCESSES WORD...
launch() {
  processes=$1
  shift
  # shellcheck disable=SC2086
  timeout 120 "$launcher" $flags -n "$processes" "$lockstep" "$@" >output 2>errors
}
mpi_tests() {
  if launch 2 train run.yaml -n 2 out=mpi2; then
    same_model "mpirun -n 2 with -n 2" threads2 mpi2 12
  elif grep -q "has no MPI\|without MPI" errors; then
    echo "skipped: MPI (this build has none)"
    return
  else
    fail "mpirun -n 2 with -n 2: exit status $?"
  fi
  if launch 2 train run.yaml -n 4 out=mpi4; then
    same_model "mpirun -n 2 with -n 4" threads4 mpi4 12
  else
    fail "mpirun -n 2 with -n 4: exit status $?"
  fi
  # Processes share a host's cores as threads of one process do.
  "$lockstep" train run.yaml -n 2 device.threads=auto train.steps=1 out=shared 2>errors >output
  each=$(sed -n 's/.*, \([0-9]* threads*\) each.*/\1/p' errors)
  launch 2 train run.yaml -n 2 device.threads=auto train.steps=1 out=mpi_shared
  if [ -n "$each" ] && grep -q ", $each each" errors; then
    pass "mpirun -n 2 shares the cores: $each each"
  else
    fail "mpirun -n 2: not $each each as in one process: $(grep each errors)"
  fi
  "$lockstep" train run.yaml -n 4 mesh.pp=2 mesh.dp_shard=2 schedule=zbh1 train.microbatches=2 \
    out=threads_pp >output 2>errors || fail "a pipeline on threads: $(tail -1 errors)"
  if launch 2 train run.yaml -n 4 mesh.pp=2 mesh.dp_shard=2 schedule=zbh1 train.microbatches=2 \
    out=mpi_pp; then
    same_model "a pipeline under mpirun -n 2 with -n 4" threads_pp mpi_pp 12
  else
    fail "a pipeline under mpirun: $(tail -1 errors)"
  fi
  for command in check show; do
    if ! { launch 2 $command run.yaml -n 2 && mv output mpi_output; } ||
      ! "$lockstep" $command run.yaml -n 2 >output 2>errors; then
      fail "mpirun -n 2 $command: exit status $?"
    elif [ "$(wc -l <mpi_output)" != "$(wc -l <output)" ]; then
      fail "mpirun -n 2 $command says it $(wc -l <mpi_output) lines, not $(wc -l <output)"
    else
      pass "mpirun -n 2 $command says it once"
    fi
  done
  if launch 2 train run.yaml -n 3 out=mpi3 train.batch=3; then
    fail "mpirun -n 2 with -n 3 was not refused"
  elif [ -e mpi3 ] || ! grep -q "OMPI_COMM_WORLD_SIZE says 2 processes\|PMI_SIZE says 2" errors; then
    fail "mpirun -n 2 with -n 3"
  else
    pass "mpirun -n 2 with -n 3: $(grep -m 1 "says 2" errors)"
  fi
}
if command -v "$launcher" >/dev/null; then
  mpi_tests
else
  echo "skipped: MPI (no $launcher here)"
fi
# A launcher that this program cannot join: as many runs as tasks, all in one folder.
export OMPI_COMM_WORLD_SIZE=2
"$lockstep" train run.yaml -n 2 out=alone >output 2>errors
status=$?
if [ $status != 0 ] && [ ! -e alone ]; then
  pass "a launcher's task on its own is refused: $(tail -1 errors)"
else
  fail "a launcher's task on its own: exit status $status"
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]

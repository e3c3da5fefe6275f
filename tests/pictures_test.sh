#!/bin/sh
# Pictures as a user gets them: of a planned schedule, of a traced run, of a device's memory.
# $1: the lockstep program. MPIRUN: the launcher; MPIRUN_FLAGS: its flags.
set -eu
lockstep=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE
fail() { echo "FAILED: $1" >&2; [ ! -s errors ] || sed 's/^/  stderr: /' errors >&2; exit 1; }

cat >config.json <<'JSON'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
i=0
while [ $i -lt 300 ]; do echo "In the beginning was line $i."; i=$((i + 1)); done >text.txt
cat >run.yaml <<'YAML'
model: ./config.json
data: {text: text.txt, seq_len: 32}
mesh: {pp: 4, dp_shard: 1}
device: {threads: 1}
dtype: fp32
train: {steps: 4, batch: 8, microbatches: 8, lr: 1e-3}
YAML

xmllint=$(command -v xmllint || true)
[ -n "$xmllint" ] || echo "skipped: that pictures are XML (no xmllint here)"
xml() { # FILE...: each is XML that another program can read
  for file in "$@"; do
    [ -s "$file" ] || fail "$file is not there"
    [ -z "$xmllint" ] || "$xmllint" --noout "$file" >errors 2>&1 || fail "$file is not XML"
  done
}
run() { "$lockstep" "$@" >output 2>errors || fail "lockstep $*: exit status $?"; }
refused() { # words...: exit status 2 and one line
  code=0
  "$lockstep" "$@" >output 2>errors || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2"
  [ "$(wc -l <errors)" -eq 1 ] || fail "$*: expected one line"
}

run show run.yaml -n 4 --timeline plan.svg
grep -q '^stage 3 ' output || fail "the timeline is not in the terminal"
xml plan.svg
run show run.yaml -n 4 --timeline plan.json
grep -q '"ph":"X"' plan.json || fail "no events in plan.json"
run show run.yaml -n 4 --memory-map memory.svg
xml memory.svg
grep -q 'peak .* bytes), in action' memory.svg || fail "no peak in memory.svg"
run show run.yaml -n 4 --memory-map last.svg --rank 3
grep -q 'memory of a device of stage 3' last.svg || fail "--rank 3 is not of stage 3"
run show run.yaml -n 4 --html page.html
for picture in plan.svg memory.svg page.html; do
  grep -q 'prefers-color-scheme: *dark' $picture || fail "$picture is not dark for who reads in the dark"
done
refused show run.yaml -n 4 --timeline plan.png
refused show run.yaml -n 4 --memory-map memory.png
refused show run.yaml -n 4 --memory-map memory.svg --rank 4

run train run.yaml -n 4 out=plain
[ ! -e plain/trace.json ] || fail "a trace that nobody asked for"
run train run.yaml -n 4 out=traced trace=true
grep -q 'step 3 traced: traced/timeline.svg' errors || fail "the trace is not said"
xml traced/timeline.svg
for process in 0 1 2 3; do
  grep -q "\"ph\":\"X\",\"pid\":$process," traced/trace.json || fail "no rank $process in the trace"
done
cmp plain/checkpoints/step-4/model.safetensors traced/checkpoints/step-4/model.safetensors ||
  fail "tracing changed the model"

# Traces are written over, and nothing else of that name: before anything is trained.
run train run.yaml -n 4 out=traced trace=true train.steps=8
grep -q 'step 7 traced: traced/timeline.svg' errors || fail "a run that goes on is not traced: $(cat errors)"
for name in trace.json timeline.svg; do
  mkdir -p notes
  echo '{"mine": true}' >notes/$name
  refused train run.yaml -n 4 out=notes trace=true
  grep -q "notes/$name: is not one that lockstep wrote, and would be overwritten" errors || fail "$(cat errors)"
  grep -q mine notes/$name || fail "notes/$name is lost"
  [ ! -e notes/resolved.yaml ] || fail "a refused run has begun"
  run train run.yaml -n 4 out=notes train.steps=1
  grep -q mine notes/$name || fail "notes/$name is lost without a trace"
  run train run.yaml -n 4 out=notes trace=true --fresh
  grep -q mine notes/${name%.*}.old-*.${name#*.} || fail "notes/$name is not kept"
  rm -r notes
done

launcher=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
if ! command -v "$launcher" >/dev/null; then
  echo "skipped: a trace under MPI (no $launcher here)"
# shellcheck disable=SC2086
elif timeout 120 "$launcher" ${MPIRUN_FLAGS:-} -n 2 "$lockstep" train run.yaml -n 4 out=mpi \
  trace=true >output 2>errors; then
  xml mpi/timeline.svg
  events() { grep -c '"ph":"X"' "$1"; }
  [ "$(events mpi/trace.json)" = "$(events traced/trace.json)" ] ||
    fail "the trace under MPI has other events"
else
  grep -q "has no MPI\|without MPI" errors || fail "a trace under MPI"
  echo "skipped: a trace under MPI (this build has none)"
fi
echo "pictures: ok"

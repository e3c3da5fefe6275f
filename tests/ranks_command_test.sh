#!/bin/sh
# Ranks that stop, die or freeze under MPI: the others are told, the run ends, and what is safe is
# named.
set -eu
lockstep=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
launcher=${MPIRUN:-mpirun}
flags=${MPIRUN_FLAGS:-}
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "ranks_command_test: $1" >&2; exit 1; }
passed=0
cd "$work"
export XDG_CACHE_HOME="$work/cache"
# Open MPI alone refuses root and more ranks than cores, and pins ranks to one core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Some MPI libraries keep memory to the end; that is theirs to free.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
command -v "$launcher" >/dev/null || { echo "skipped: MPI (no $launcher)"; exit 77; }
if [ -z "$flags" ] && "$launcher" --version 2>&1 | grep -q "Open MPI\|OpenRTE"; then
  flags="--bind-to none"
fi

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 2000 >text.txt
cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
END
cat >run.yaml <<'END'
model: config.json
data: {text: text.txt, seq_len: 16, validation: 0}
mesh: {dp_shard: 2}
train: {batch: 2, lr: 1e-3, steps: 100000000, warmup: 1}
eval: {every: 0}
checkpoint: {every: 50}
comm: {timeout: 4}
device: {threads: 1}
dtype: fp32
END
# start OUT: two processes, until they have saved a checkpoint; their numbers in $first and $second
start() {
  # shellcheck disable=SC2086
  "$launcher" $flags -n 2 "$lockstep" train run.yaml "out=$1" -n 2 >output 2>log </dev/null &
  running=$!
  waited=0
  until ls -d "$1"/checkpoints/step-*0 >/dev/null 2>&1; do
    grep -q "has no MPI\|without MPI" log && { echo "skipped: MPI (this build has none)"; exit 77; }
    kill -0 $running 2>/dev/null || fail "$1: the run ended before: $(cat log)"
    waited=$((waited + 1))
    [ $waited -lt 1200 ] || fail "$1: no checkpoint within a minute: $(cat log)"
    sleep 0.05
  done
  # Of this run alone: the folder's name is on its command line.
  ranks=$(for each in /proc/[0-9]*; do
    tr '\0' ' ' 2>/dev/null <"$each/cmdline" | grep -q "^$lockstep train run.yaml out=$1 " &&
      [ "$(readlink "$each/cwd")" = "$work" ] && echo "${each#/proc/}" || true
  done)
  [ "$(echo "$ranks" | wc -w)" -eq 2 ] || fail "$1: found ranks $ranks"
  second=$(echo "$ranks" | tail -n 1)
}
ends() { # SECONDS: far more than it takes
  begun=$(date +%s)
  code=0
  wait $running || code=$?
  running=
  [ $code -ne 0 ] || fail "the launcher's status is 0: $(cat log)"
  [ $(($(date +%s) - begun)) -lt "$1" ] || fail "ended after $(($(date +%s) - begun)) s: $(cat log)"
  passed=$((passed + 1))
}
says() { grep -qE -e "$1" log output || fail "\"$1\" is not in: $(cat log)"; }

start killed
kill -KILL "$second"
ends 60
says "its process \(pid $second\) died"
says "the last checkpoint is killed/checkpoints/step-"

start frozen
kill -STOP "$second"
ends 60
says "warning: rank [01] has waited .* for rank [01] in [a-z-]+ of [0-9]+ [a-z]+[0-9]+ \(.*\); the run ends after 4 s"
says "waited [0-9.]+ s for rank [01] in [a-z-]+ of [0-9]+ [a-z]+[0-9]+ \("
says "the last checkpoint is frozen/checkpoints/step-"
kill -KILL "$second" 2>/dev/null || true

# A signal to one of them is a stop of all.
start one
kill -USR1 "$second"
ends 60
says "its checkpoint is saved"
! grep -q "abort\|died" log || ! grep -qi "MPI_ABORT" log || fail "a stop is an abort: $(cat log)"
saved=$(ls one/checkpoints | sort -t- -k2n | tail -n 1)
"$lockstep" train one -n 2 "train.steps=$((${saved#step-} + 2))" >output 2>log || fail "$(cat log)"
says "resuming after step ${saved#step-}"
passed=$((passed + 1))

# A text of two processes is that of one. One of them dies while the other waits for a question.
asked="one --greedy --max-new-tokens 12"
# shellcheck disable=SC2086
"$lockstep" generate $asked "It was" >alone 2>log || fail "$(cat log)"
# shellcheck disable=SC2086
printf 'It was' | "$launcher" $flags -n 2 "$lockstep" generate $asked - >output 2>log || fail "$(cat log)"
cmp -s alone output || fail "two processes: $(cat output), expected $(cat alone)"
echo '{%- for m in messages %}{{ m.content }}{% endfor %}' >plain.jinja
mkfifo lines
# shellcheck disable=SC2086
"$launcher" $flags -n 2 "$lockstep" generate $asked --interactive --template plain.jinja <lines >answer 2>log &
running=$!
exec 3>lines
echo 'It was' >&3
waited=0
until [ -s answer ]; do
  kill -0 $running 2>/dev/null && [ $waited -lt 1200 ] || fail "no answer: $(cat log)"
  waited=$((waited + 1))
  sleep 0.05
done
second=$(for each in /proc/[0-9]*; do
  tr '\0' ' ' 2>/dev/null <"$each/cmdline" | grep -q "^$lockstep generate one .*--interactive" &&
    [ "$(readlink "$each/cwd")" = "$work" ] && echo "${each#/proc/}" || true
done | tail -n 1)
kill -KILL "$second"
(echo 'It was' >&3) 2>/dev/null || true
exec 3>&-
ends 60
says "its process \(pid $second\) died|exited on signal 9"

# What all processes find alike, or one of them alone, is said once.
once() { # TEXT WORDS...
  expected=$1 code=0
  shift
  # shellcheck disable=SC2086
  "$launcher" $flags -n 4 "$lockstep" train run.yaml -n 4 mesh.dp_shard=4 train.batch=4 "$@" >output 2>log </dev/null || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2: $(cat log)"
  [ "$(grep -c '^lockstep train: ' log)" -eq 1 ] || fail "$*: said more than once: $(cat log)"
  says "$expected"
  passed=$((passed + 1))
}
once 'unknown key "train.bach"' out=once train.bach=4
once "which do not divide evenly" out=once train.batch=3
once "missing.txt: no file matches" out=once data.text=missing.txt
mkdir foreign
echo "my: notes" >foreign/resolved.yaml
once "foreign/resolved.yaml: is not one that lockstep wrote" out=foreign

echo "$passed passed, 0 failed"

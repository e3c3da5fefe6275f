#!/bin/sh
# Calls of the system that fail, one at a time, while `lockstep train` runs, of memory in a compile
# and in `lockstep tokenizer train` too: a full drive, a broken one, no memory. Each run ends with
# 0, where the call was none that counts, or with 3 and a line that says why; a checkpoint that was published stays, and the same command again ends with the
# bits of a run that nothing happened to.
# $1: the lockstep program. LS_FAULTS=all: every call fails once, in place of one of each kind.
set -u
case $1 in
  /*) lockstep=$1 ;;
  *) lockstep=$PWD/$1 ;;
esac
preload=$(dirname "$lockstep")/tests/libfaults_preload.so
example=$(dirname "$lockstep")/examples/00_compile
if [ ! -x "$lockstep" ] || [ ! -e "$preload" ]; then
  echo "skipped: $lockstep or $preload is not built"
  exit 77
fi
work=$(mktemp -d /var/tmp/lockstep-inject-test-XXXXXX)
trap 'rm -rf "$work"' EXIT
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE
# Beside a sanitizer's runtime, which wants to be the first library.
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=0 ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
files=open,write,pwrite,fsync,ftruncate,fallocate,rename,mkdir,unlink,rmdir
full=open,write,pwrite,fallocate,mkdir # what a full drive refuses
cases=0
failed=0
fail() {
  echo "FAILED: $1"
  sed 's/^/  stderr: /' "$work/errors" | tail -n 5
  failed=$((failed + 1))
}

cat >"$work/config.json" <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
END
yes 'It was a bright cold day in April.' | head -n 40 >"$work/text.txt"
keys=
# train OUT [NAME=VALUE...]: with these settings of the preloaded faults; into $code and $work/errors
train() {
  out=$work/$1
  shift
  code=0
  preloaded=
  [ $# -eq 0 ] || preloaded="LD_PRELOAD=$preload"
  # shellcheck disable=SC2086 # words
  timeout 60 env XDG_CACHE_HOME="$out-cache" $preloaded "$@" "$lockstep" train \
    model="$work/config.json" data.text="$work/text.txt" data.seq_len=16 train.batch=2 \
    data.validation=0 eval.every=0 dtype=fp32 device.threads=1 mesh.dp_shard=2 train.steps=4 \
    checkpoint.every=2 checkpoint.keep=1 out="$out" $keys >"$work/output" 2>"$work/errors" \
    </dev/null || code=$?
}
same() { # OUT: what it trained is what $work/whole did
  for name in model optimizer; do
    cmp -s "$work/$1/checkpoints/step-4/$name.safetensors" \
      "$work/whole/checkpoints/step-4/$name.safetensors" || return 1
  done
}
# What a run must be after a call failed; $1 names the case.
check_run() {
  case $code in
    0) same run || fail "$1: other bits" ;;
    1) grep -q "^lockstep train: offload.path: $work/run-offload: No space left" "$work/errors" ||
      fail "$1: no room, and no word of where" ;;
    3) [ "$(tail -n 1 "$work/errors" | grep -cE '^lockstep train: .*(/|out of memory)')" -eq 1 ] ||
      fail "$1: the last line does not say what failed" ;;
    *) fail "$1: exit status $code, expected 0 or 3" ;;
  esac
  published=$(awk -v at="$at" '$1 != at && $2 == "rename" && $3 ~ /\/checkpoints\/step-[0-9]*$/' "$work/calls")
  [ -z "$published" ] || ls "$work"/run/checkpoints/step-*[0-9]/state.json >"$work/output" 2>&1 ||
    fail "$1: a checkpoint was lost"
  train run
  [ "$code" -eq 0 ] || fail "$1: the command again: exit status $code"
  same run || fail "$1: the command again: other bits"
  for left in "$work"/run/checkpoints/*.tmp-* "$work"/run/*.tmp-*; do
    [ ! -e "$left" ] || fail "$1: $left is left"
  done
  cases=$((cases + 1))
}
# The numbers of the calls to fail: one of each kind, by the file's name but for numbers in it; of
# these every $1th.
chosen() {
  if [ "${LS_FAULTS:-}" = all ]; then
    awk '{ print $1 }' "$work/whole-calls"
  else
    awk -v stride="$1" '{ kind = $2 " " $3
      sub(/ .*\//, " ", kind); gsub(/[0-9a-f]*[0-9][0-9a-f]*/, "N", kind)
      if (!seen[kind]++ && kinds++ % stride == 0) print $1 }' "$work/whole-calls"
  fi
}
# every STRIDE CALLS ERRNO [ever]: in turn
every() {
  stride=$1 calls=$2 number=$3
  shift 3
  under=LS_FAULT_UNDER=$work/run # and what begins with it
  rm -rf "$work"/run "$work"/run-cache "$work/whole-calls"
  train run LS_FAULT_CALLS="$calls" LS_FAULT_LOG="$work/whole-calls" $under
  [ "$code" -eq 0 ] || fail "a run whose calls are counted: exit status $code"
  for at in $(chosen "$stride"); do
    rm -rf "$work"/run "$work"/run-cache "$work/calls"
    train run LS_FAULT_CALLS="$calls" LS_FAULT_LOG="$work/calls" $under LS_FAULT_AT="$at" \
      LS_FAULT_ERRNO="$number" ${1:+LS_FAULT_EVER=1}
    check_run "$(awk -v at="$at" '$1 == at { print $2, $3 }' "$work/calls") ${1:-once}"
  done
}

train whole
[ "$code" -eq 0 ] || { fail "a run without faults"; exit 1; }
every 2 $files 28
every 7 $files 5 # as a broken drive
every 8 $full 28 ever
mkdir "$work/run-offload"
keys="offload.optimizer=nvme offload.path=$work/run-offload"
every 9 ${files%,unlink*} 28
every 1 fallocate,pwrite 28
ls "$work"/run-offload/* >/dev/null 2>&1 && fail "$work/run-offload: not empty"
keys=

# Memory: where the command itself asks for it. Sanitizers have their own malloc.
rm -f "$work/calls"
train run LS_FAULT_CALLS=malloc LS_FAULT_LOG="$work/calls"
if [ -s "$work/calls" ]; then
  every 8 malloc 12
  count() { LS_FAULT_CALLS=malloc LD_PRELOAD="$preload" env "$@" "$example" >"$work/output" 2>"$work/errors"; }
  rm -f "$work/calls"
  count LS_FAULT_LOG="$work/calls" || fail "$example: $?"
  total=$(wc -l <"$work/calls")
  [ "$total" -gt 20 ] || fail "$example: $total calls for memory"
  for at in $(seq 1 $((total > 20 ? total / 20 : 1)) "$total"); do
    code=0
    count LS_FAULT_AT="$at" || code=$?
    [ $code -le 3 ] || fail "$example: memory $at of $total: exit status $code"
    cases=$((cases + 1))
  done
  # Threads that each ask for memory: of a text of different words.
  awk 'BEGIN { for (i = 0; i < 60000; i++) printf "w%d%s", i, i % 10 == 9 ? "\n" : " " }' >"$work/words.txt"
  words() { # NAME [NAME=VALUE...]: of these threads
    code=0
    out=$work/$1
    shift
    LS_FAULT_CALLS=malloc LS_FAULT_ERRNO=12 LD_PRELOAD="$preload" timeout 60 env "$@" "$lockstep" \
      tokenizer train "$work/words.txt" --threads 4 --vocab 300 -o "$out" >"$work/output" \
      2>"$work/errors" </dev/null || code=$?
  }
  rm -f "$work/calls"
  words whole-tokens LS_FAULT_LOG="$work/calls"
  [ "$code" -eq 0 ] || fail "tokenizer train: exit status $code"
  total=$(wc -l <"$work/calls")
  [ "$total" -gt 60 ] || fail "tokenizer train: $total calls for memory"
  for at in $(seq 1 $((total > 15 ? total / 15 : 1)) "$total"); do
    for ever in '' ever; do
      rm -rf "$work"/tokens*
      words tokens LS_FAULT_AT="$at" ${ever:+LS_FAULT_EVER=1}
      what="tokenizer train: memory $at of $total ${ever:-once}"
      case $code in
        0) diff -r "$work/tokens" "$work/whole-tokens" >"$work/errors" 2>&1 || fail "$what: another" ;;
        3)
          grep -q '^lockstep tokenizer: out of memory' "$work/errors" || fail "$what: no word of it"
          for left in "$work"/tokens*; do [ ! -e "$left" ] || fail "$what: $left is left"; done
          ;;
        *) fail "$what: exit status $code" ;;
      esac
      cases=$((cases + 1))
    done
  done
else
  echo "inject_command_test: skipped: failing memory, beside a sanitizer"
fi

echo "$cases faults, $failed failed"
[ $failed -eq 0 ]

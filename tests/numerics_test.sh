#!/bin/sh
# numerics=exact trains to the same bits with any number of threads, and without it to the same bits
# with the same number.
set -eu
lockstep=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "numerics_test: $1" >&2; exit 1; }
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 2000 >"$work/text.txt"

train() { # NAME THREADS keys...: the weights after some steps
  name=$1
  threads=$2
  shift 2
  "$lockstep" train "data.text=$work/text.txt" data.validation=0 eval.every=0 train.steps=2 dropout=0 \
    "device.threads=$threads" "out=$work/$name" "$@" >"$work/log" 2>&1 || fail "$name: $(cat "$work/log")"
  mv "$work/$name"/checkpoints/*/model.safetensors "$work/$name.weights"
  rm -rf "${work:?}/$name"
}
same() { cmp -s "$work/$1.weights" "$work/$2.weights" || fail "$1 and $2 differ: $3"; }

for dtype in fp32 bf16; do
  keys="dtype=$dtype model=gpt2-10m data.seq_len=96 train.batch=2"
  train one 1 $keys numerics=exact
  train two 2 $keys numerics=exact
  train five 5 $keys numerics=exact
  same one two "$keys, exact, 1 and 2 threads"
  same one five "$keys, exact, 1 and 5 threads"
  train again 2 $keys
  train first 2 $keys
  same again first "$keys, twice with 2 threads"
done
echo "numerics_test: equal bits in fp32 and bf16 with 1, 2 and 5 threads"

#!/bin/sh
# Dropout as a user trains with it: each step and each seed drops something else, every layout the
# same, and a run that goes on what it would have dropped.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >drops.json <<'JSON'
{"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16,
 "vocab_size": 256, "resid_pdrop": 0.2, "embd_pdrop": 0.1, "attn_pdrop": 0.3}
JSON
# Batches of equal sequences, of which nothing is learned: losses differ by what is dropped alone.
yes 'sixteen letters' | head -c 65 >batch.txt
words="model=drops.json data.text=batch.txt data.tokenizer=bytes data.seq_len=16 data.validation=0 train.batch=4"
words="$words train.lr=1e-30 train.warmup=0 train.steps=4 eval.every=0 checkpoint.every=0 dtype=fp32"
losses() { sed 's/.*"loss": *\([^,]*\),.*/\1/' "$1/metrics.jsonl"; }
far() { # FILE: how far the least and the largest are from each other
  awk 'NR == 1 || $1 < a { a = $1 } NR == 1 || $1 > b { b = $1 } END { print b - a }' "$1"
}
differ() { awk "BEGIN { exit !($1 > 1e-3) }"; }
agree() { awk "BEGIN { exit !($1 < 1e-5) }"; }

run 0 train $words out=drops
says "dropout: embedding 0.1, branches 0.2, attention 0.3"
losses drops >drops.losses
differ "$(far drops.losses)" || fail "steps drop the same: $(cat drops.losses)"
run 0 train $words out=none dropout=0
losses none >none.losses
agree "$(far none.losses)" || fail "without dropout steps differ: $(cat none.losses)"

# same RUN: its losses are those of one device, step by step.
same() {
  losses "$1" >"$1.losses"
  paste drops.losses "$1.losses" | awk '{ n++; if (($1 - $2) ^ 2 > 1e-12) bad = 1 } END { exit bad || n != 4 }' ||
    fail "$1: $(paste drops.losses "$1.losses")"
}
run 0 train $words out=tensor mesh.tp=2 -n 2
same tensor
run 0 train $words out=context mesh.cp=2 context=ulysses recompute=full -n 2
same context
run 0 train $words out=stages mesh.pp=2 train.microbatches=4 mesh.dp_shard=1 -n 2
same stages
run 0 train $words out=parts train.steps=2
run 0 train $words out=parts mesh.dp_shard=2 zero=3 -n 2
says "resuming after step 2"
same parts
echo "dropout_command_test: $passed commands"

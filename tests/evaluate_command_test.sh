#!/bin/sh
# `lockstep evaluate`: the loss that a run found, on any layout, of any text, in little memory.
set -eu
. "$(dirname "$0")/support/small_run.sh"
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
value() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" output; }
same() { # NUMBER NUMBER: to rounding of fp32
  awk -v a="$1" -v b="$2" 'BEGIN { exit !(a - b < 1e-6 && b - a < 1e-6 && a > 0) }' ||
    fail "$3: $1 and $2"
}

cat >wide.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 32}
END
run 0 train keys.yaml model=wide.json out=a eval.every=2 eval.batches=1000 data.validation=0.2
known=$(sed -n '4s/.*"validation_loss": \([^,}]*\).*/\1/p' a/metrics.jsonl)

# What the run keeps for validation: its own last loss, on every layout.
run 0 evaluate a --json
same "$(value loss)" "$known" "the run's own validation loss"
tokens=$(value tokens)
for layout in "mesh.dp_shard=3 train.batch=3 -n 3" "mesh.dp_shard=2 mesh.tp=2 -n 4" \
  "mesh.dp_shard=1 mesh.tp=4 sequence_parallel=false -n 4" \
  "mesh.pp=2 mesh.dp_shard=1 train.microbatches=2 -n 2" \
  "mesh.pp=2 mesh.dp_shard=2 schedule=zbv train.batch=8 train.microbatches=4 -n 4" \
  "mesh.cp=2 mesh.dp_shard=1 context=ulysses -n 2" "mesh.cp=4 mesh.pp=2 mesh.dp_shard=1 train.microbatches=2 -n 8" \
  "zero=1 mesh.dp_shard=2 -n 2" "recompute=full offload.optimizer=host" \
  "offload.parameters=host" "train.freeze=embedding optimizer.name=sgd"; do
  # shellcheck disable=SC2086
  run 0 evaluate a --json $layout
  same "$(value loss)" "$known" "$layout"
  [ "$(value tokens)" = "$tokens" ] || fail "$layout: $(value tokens) tokens, not $tokens"
done

# A text: every token but the first is asked about once, or left out and counted.
bytes=$(wc -c <text.txt)
run 0 evaluate a data.text=text.txt --json
[ $(($(value tokens) + $(value left_out))) -eq $((bytes - 1)) ] || fail "tokens: $(cat output)"
[ "$(value documents)" = 1 ] || fail "documents: $(cat output)"
whole=$(value loss)
run 0 evaluate a/checkpoints/step-4 data.text=text.txt data.seq_len=16 train.batch=7 dtype=fp32
says "loss $(printf %.4f "$whole"), perplexity"
says "tokens at the end left out"
says "sequences of 16 (data.seq_len: given)"
run 0 evaluate a/checkpoints/step-4 data.text=text.txt train.batch=7 dtype=fp32
says "sequences of 32 (data.seq_len: all that the model allows)"
run 0 evaluate a data.text=text.txt
says "sequences of 16 (data.seq_len: the run's)"

# Documents one by one: each as it is alone, in pieces where it is longer than a sequence; all of them
# together have the sum; the same on every layout.
for words in "one" "two three, and four more words that are longer than a sequence is" "five six" "s"; do
  echo "{\"text\": \"$words\"}"
done >documents.jsonl
run 0 evaluate a data.text=documents.jsonl data.seq_len=16 --per-document --json
cp output each
[ "$(wc -l <each)" -eq 4 ] || fail "lines: $(cat each)" # the last document is of one token
[ "$(sed -n 's/.*"document": \([0-9]*\),.*"tokens": \([0-9]*\).*/\1 \2/p' each | tr '\n' ' ')" = "1 2 2 64 3 7 " ] ||
  fail "documents: $(cat each)"
awk -F'[:,}] *' '/"document"/ { sum += $4 * $8; count += $8 } /"documents"/ { d = $2 - sum / count; exit !(d < 1e-6 && d > -1e-6 && $6 == count) }' each ||
  fail "documents do not add up: $(cat each)"
sed -n 3p documents.jsonl >alone.jsonl
run 0 evaluate a data.text=alone.jsonl data.seq_len=16 --per-document --json
same "$(value loss | head -n 1)" "$(sed -n 's/.*"document": 3, "loss": \([^,]*\),.*/\1/p' each)" "a document alone"
for layout in "mesh.dp_shard=3 train.batch=3 -n 3" "mesh.dp_shard=2 mesh.tp=2 -n 4" \
  "mesh.pp=2 mesh.dp_shard=1 train.microbatches=2 -n 2"; do
  # shellcheck disable=SC2086
  run 0 evaluate a data.text=documents.jsonl data.seq_len=16 --per-document --json $layout
  for n in 1 2 3; do
    same "$(value loss | sed -n ${n}p)" "$(sed -n "s/.*\"document\": $n, \"loss\": \([^,]*\),.*/\1/p" each)" "$layout"
  done
done
# Rows for experts that find no slot have a batch read again.
cat >mixture.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 32, "num_local_experts": 6, "num_experts_per_tok": 2}
END
run 0 train keys.yaml model=mixture.json out=mixed train.steps=1
run 0 evaluate mixed data.text=documents.jsonl data.seq_len=16 --per-document --json
cp output each
run 0 evaluate mixed data.text=documents.jsonl data.seq_len=16 --per-document --json \
  mesh.dp_shard=2 mesh.ep=2 experts.bound=0.01 -n 2
for n in 1 2 3; do
  same "$(value loss | sed -n ${n}p)" "$(sed -n "s/.*\"document\": $n, \"loss\": \([^,]*\),.*/\1/p" each)" "no slots"
done
run 3 evaluate mixed data.text=documents.jsonl data.seq_len=16 --per-document \
  mesh.dp_shard=2 mesh.ep=2 experts.bound=0.01 experts.again=0.02 -n 2
says "batch 1: more rows for the experts of one rank than experts.again has slots for"
printf '{"text": "seventeen letters"}' >letters.jsonl # as without the flag, where it is one sequence
run 0 evaluate a data.text=letters.jsonl data.seq_len=16 --json
letters=$(value loss)
run 0 evaluate a data.text=letters.jsonl data.seq_len=17 --per-document --json
same "$(value loss | head -n 1)" "$letters" "a document of one sequence"
run 0 evaluate a data.text=documents.jsonl --per-document
says "document 2: loss "
run 0 evaluate a --per-document
says "document "
run 2 evaluate a data.text=documents.jsonl --per-document eval.batches=3
says "eval.batches: found with --per-document"
run 2 evaluate a data.text=documents.jsonl --per-document mesh.cp=2 -n 2
says "mesh.cp: found 2 with --per-document"
run 2 evaluate a data.text=documents.jsonl --per-document data.seq_len=1
says "data.seq_len: found 1 with documents one by one"
run 2 evaluate a data.text=documents.jsonl --per-document task=dpo
says "task: found a run that is not of the next token with --per-document"
run 0 evaluate a data.text=text.txt eval.batches=3
says "; 3 of "
run 0 evaluate a data.text=text.txt data.documents=masked

# Weights alone: neither gradients nor moments, which training has, are there.
weights=$(awk 'BEGIN { print int(4 * (256 * 64 + 4 * 4 * 64 * 64 + 4 * 3 * 64 * 128)) }')
sed 's/"hidden_size": 16, "intermediate_size": 24/"hidden_size": 64, "intermediate_size": 128/' \
  wide.json >heavy.json
run 0 train keys.yaml model=heavy.json out=heavy train.steps=1 data.validation=0.2
room=$((2 * weights))B
run 1 train keys.yaml model=heavy.json out=heavy-2 device.memory="$room"
run 0 evaluate heavy device.memory="$room"

if command -v mpirun >/dev/null 2>&1; then
  # MPI keeps memory to its end.
  ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 \
    "$lockstep" evaluate a mesh.dp_shard=2 --json >output 2>log </dev/null || fail "$(cat log)"
  same "$(value loss)" "$known" "mpirun -n 2"
  [ "$(wc -l <output)" -eq 1 ] || fail "one rank was to speak: $(cat output)"
else
  echo "skipped: evaluate under mpirun (mpirun is not here)"
fi

refused() { # TEXT words...
  text=$1
  shift
  run 2 evaluate "$@"
  says "$text"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
}
run 0 train keys.yaml out=unkept
mkdir empty
refused "expected one run"
refused "leave the key out" a model=config.json
refused "keeps nothing for validation" unkept
refused "data.text" unkept/checkpoints/step-4 data.seq_len=16
refused "empty" empty data.text=text.txt
refused "change -n" a mesh.tp=3 mesh.dp_shard=1 -n 2
cp -r a/checkpoints/step-4 damaged
last=$(wc -c <damaged/model.safetensors)
printf 'x' | dd of=damaged/model.safetensors bs=1 seek=$((last - 3)) conv=notrunc 2>/dev/null
refused "damaged" damaged data.text=text.txt data.seq_len=16
run 0 evaluate damaged data.text=text.txt data.seq_len=16 --trust
printf '\nPASSED: %d commands\n' "$passed"

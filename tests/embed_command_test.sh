#!/bin/sh
# Vectors of texts as a user asks for them: from scratch and with adapters, the same on every layout
# and after a stop; accuracy is told; an export is what sentence-transformers reads; what is wrong is
# named.
set -eu
. "$(dirname "$0")/support/small_run.sh"

i=0
while [ $i -lt 60 ]; do
  echo "{\"query\": \"$i\", \"positive\": \"no $i\", \"negative\": \"no $((i + 1))\"}"
  i=$((i + 1))
done >pairs.jsonl
keys="task=embed data.text=pairs.jsonl data.seq_len=32 data.validation=0.3 train.batch=4 train.steps=8 \
embed.negatives=1 embed.pairs=3 train.lr=2e-2 train.lr_schedule=constant train.warmup=0 eval.every=4 dtype=fp64"
column() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses and accuracies
  for what in loss validation_loss validation_accuracy; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-9 || d < -1e-9) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}

run 0 train model=config.json $keys out=runs/one
says "pairs of texts: "
says "step 8: validation loss "
says "accuracy "
[ "$(column one validation_accuracy | wc -l)" -eq 2 ] || fail "accuracies: $(column one validation_accuracy)"
made=runs/one/checkpoints/step-8
grep -qF '"text_vectors"' $made/config.json || fail "no text_vectors in $(cat $made/config.json)"
! grep -aqF lm_head $made/model.safetensors || fail "the head of tokens is still there"
n=0
for layout in "mesh.dp_shard=4 zero=3 -n 4" "mesh.dp_replicate=2 mesh.dp_shard=2 zero=1 -n 4" \
  "mesh.tp=2 mesh.cp=2 mesh.dp_shard=1 -n 4"; do
  n=$((n + 1))
  run 0 train model=config.json $keys $layout out=runs/many$n
  same one many$n
done
run 0 train model=config.json $keys train.steps=5 out=runs/part
run 0 train model=config.json $keys out=runs/part
says "resuming after step 5"
cmp -s $made/model.safetensors runs/part/checkpoints/step-8/model.safetensors || fail "resumed, the model is another"

# Groups of a step's sequences: any number of microbatches that keeps them whole.
run 0 train model=config.json $keys embed.group=2 out=runs/grouped
run 0 train model=config.json $keys embed.group=2 train.microbatches=2 out=runs/halves
same grouped halves
run 2 train model=config.json $keys embed.group=2 train.microbatches=4 out=runs/none
says "1 sequences at a time, over all ranks, are no whole groups of 2 (embed.group)"
says "use train.microbatches=2"
run 2 train model=config.json $keys embed.group=3 out=runs/none
says "embed.group: found 3 sequences, which do not divide the 4 of a step (train.batch); use 2 or 4"

run 0 evaluate runs/one
says " texts find their answer; "
run 0 evaluate runs/one --json
says '"accuracy": '
first=$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' output)
run 0 evaluate runs/one --json mesh.dp_shard=2 -n 2
second=$(sed -n 's/.*"loss": \([^,]*\),.*/\1/p' output)
awk "BEGIN {d = $first - $second; exit d > 1e-9 || d < -1e-9}" || fail "$first is not $second"

# As sentence-transformers has it; what was exported goes on without being told the task.
run 0 train model=config.json $keys embed.pooling=mean embed.query_prompt='q: ' train.steps=2 eval.every=0 out=runs/told
run 0 export runs/told exported
for part in modules.json 1_Pooling/config.json sentence_bert_config.json config_sentence_transformers.json; do
  [ -s exported/$part ] || fail "no exported/$part"
done
grep -qF '"pooling_mode_mean_tokens": true' exported/1_Pooling/config.json || fail "$(cat exported/1_Pooling/config.json)"
grep -qF '"query": "q: "' exported/config_sentence_transformers.json || fail "$(cat exported/config_sentence_transformers.json)"
grep -qF '"max_seq_length": 32' exported/sentence_bert_config.json || fail "$(cat exported/sentence_bert_config.json)"
run 0 train model=exported data.text=pairs.jsonl data.seq_len=32 data.validation=0 train.batch=2 train.steps=1 \
  embed.negatives=1 eval.every=0 dtype=fp32 out=runs/further
grep -qF 'pooling: mean' runs/further/resolved.yaml || fail "$(cat runs/further/resolved.yaml)"
grep -qF 'q: ' runs/further/resolved.yaml || fail "$(cat runs/further/resolved.yaml)"
run 0 train model=exported $keys lora.rank=2 train.steps=2 eval.every=0 out=runs/adapters
run 0 export runs/adapters merged --merge
[ -s merged/modules.json ] || fail "no merged/modules.json"
run 0 evaluate merged data.text=pairs.jsonl data.seq_len=32 embed.negatives=1 train.batch=2

# A folder of sentence-transformers' own says its pooling, of which others than ours are refused.
mkdir -p theirs/1_Pooling
cp config.json theirs/
printf '{"word_embedding_dimension": 16, "pooling_mode": "mean"}' >theirs/1_Pooling/config.json
cp exported/model.safetensors theirs/
run 0 train model=theirs $keys train.steps=1 eval.every=0 out=runs/theirs
grep -qF 'pooling: mean' runs/theirs/resolved.yaml || fail "$(cat runs/theirs/resolved.yaml)"
printf '{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}' >theirs/1_Pooling/config.json
run 2 train model=theirs $keys out=runs/none
says "theirs/1_Pooling/config.json: found another pooling than one of last token"

# What is wrong is one line.
wrong() { # SAYS keys...
  what=$1
  shift
  run 2 train model=config.json $keys "$@" out=runs/none
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  says "$what"
}
wrong "embed.pooling: found cls with a decoder" embed.pooling=cls
wrong "data.documents: found stream with task=embed" data.documents=stream
wrong 'pairs.jsonl:1: "negative": found 1 wrong answer; expected 0, as embed.negatives says' embed.negatives=0
wrong "embed.scale: found a value without task=embed" task=next_token embed.negatives=0 embed.pairs=16 embed.scale=3
run 2 generate exported "a"
says "makes embeddings and writes no text"
run 2 train model=exported data.text=text.txt task=mlm out=runs/none
says "makes embeddings and has no head: give task=embed"

echo "$passed passed, 0 failed"

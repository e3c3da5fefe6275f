#!/bin/sh
# Texts are told apart as a user asks for it: from scratch, from a base without a head and from a
# classifier, the same on every layout and after a stop; accuracy is told; what is wrong is named.
set -eu
. "$(dirname "$0")/support/small_run.sh"

i=0
while [ $i -lt 48 ]; do
  case $((i % 3)) in 0) what=worst label=bad ;; 1) what=usual label=fair ;; *) what=better label=good ;; esac
  echo "{\"text\": \"$i $what\", \"label\": \"$label\"}"
  i=$((i + 1))
done >reviews.jsonl
keys="task=classify data.text=reviews.jsonl data.seq_len=32 data.validation=0.3 train.batch=4 train.steps=8 \
train.lr=2e-2 train.lr_schedule=constant train.warmup=0 eval.every=4 dtype=fp64"
column() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses and accuracies
  for what in loss validation_loss validation_accuracy; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}

run 0 train model=config.json $keys out=runs/one
says "texts of 3 classes (bad, fair, good): "
says "step 8: validation loss "
says "accuracy "
[ "$(column one validation_accuracy | wc -l)" -eq 2 ] && [ "$(column one validation_accuracy | tail -n 1)" = 1 ] || fail "accuracies: $(column one validation_accuracy)"
made=runs/one/checkpoints/step-8
for part in '"LlamaForSequenceClassification"' '"1": "fair"' '"good": 2' '"num_labels": 3' \
  '"problem_type": "single_label_classification"'; do
  grep -qF "$part" $made/config.json || fail "no $part in $(cat $made/config.json)"
done
grep -aqF '"score.weight"' $made/model.safetensors || fail "no score.weight"
! grep -aqF lm_head $made/model.safetensors || fail "the head of tokens is still there"
n=0
for layout in "mesh.tp=2 mesh.cp=2 mesh.dp_shard=1 -n 4" "mesh.dp_shard=2 zero=3 -n 2"; do
  n=$((n + 1))
  run 0 train model=config.json $keys $layout out=runs/many$n
  same one many$n
done
# Rows for experts that find no slot have a batch read again, whose predictions count.
cat >mixture.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 32, "num_local_experts": 6, "num_experts_per_tok": 2}
END
run 0 train model=mixture.json $keys out=runs/mixed
run 0 train model=mixture.json $keys mesh.dp_shard=2 mesh.ep=2 experts.bound=0.01 -n 2 out=runs/again
same mixed again
run 0 train model=config.json $keys train.steps=5 out=runs/part
run 0 train model=config.json $keys out=runs/part
says "resuming after step 5"
cmp -s $made/model.safetensors runs/part/checkpoints/step-8/model.safetensors || fail "resumed, the model is another"

# A base that writes text gets a head; a classifier goes on with its own, whatever the task says.
run 0 train model=config.json data.text=text.txt data.seq_len=16 train.steps=1 train.batch=2 dtype=fp32 \
  data.validation=0 eval.every=0 out=runs/base
run 0 train model=runs/base/checkpoints/step-1 $keys train.steps=2 eval.every=0 out=runs/tuned
says "starting from the weights in runs/base/checkpoints/step-1"
case $(column tuned loss | head -n 1) in 1.09861228866*) fail "the new head is all zeros" ;; esac
head -n 9 reviews.jsonl | sed 's/"label": "bad"/"label": 0/' >numbers.jsonl
run 0 train model=$made $keys data.text=numbers.jsonl task=next_token data.validation=0 eval.every=0 train.steps=1 \
  train.batch=1 out=runs/on
says "texts of 3 classes (bad, fair, good): 9 examples"
run 0 export runs/tuned exported-tuned
run 0 evaluate exported-tuned data.text=reviews.jsonl data.seq_len=32
says "texts correct"
run 0 export runs/one exported
grep -qF '"label2id"' exported/config.json || fail "the exported config.json has no classes"

# Evaluated as a run, a checkpoint, an export, on layouts: the same.
run 0 evaluate runs/one data.text=reviews.jsonl --json
cp output first
for word in $made "exported mesh.tp=2 -n 2" "$made mesh.dp_shard=2 mesh.cp=2 -n 4"; do
  run 0 evaluate $word data.text=reviews.jsonl data.seq_len=32 dtype=fp64 --json
  for what in accuracy correct examples; do
    [ "$(sed "s/.*\"$what\": \([^,]*\),.*/\1/" output)" = "$(sed "s/.*\"$what\": \([^,]*\),.*/\1/" first)" ] ||
      fail "$word: $(cat output), not $(cat first)"
  done
done
run 0 evaluate runs/one
says "texts correct"
run 0 check model=config.json $keys mesh.pp=1 mesh.dp_shard=2 -n 2
says "proved"

# Classes that count more or less: numbers, or those that make up for how many there are, which a run
# keeps for what evaluates it.
sed '2~9d; 3~9d; 6~9d' reviews.jsonl >unlike.jsonl
weighted="model=config.json $keys data.text=unlike.jsonl classes.weights=balanced"
run 0 train $weighted out=runs/weighted
says "texts of 3 classes (bad x 0.6458, fair x 1.033, good x 2.067)"
run 0 train $weighted mesh.tp=2 mesh.dp_shard=2 zero=3 train.micro_batch=1 -n 4 out=runs/weighted2
same weighted weighted2
run 0 evaluate runs/weighted --json
[ "$(sed 's/.*"loss": *\([0-9]*\.[0-9]\{8\}\).*/\1/' output)" = "$(column weighted validation_loss | tail -n 1 | cut -c 1-10)" ] ||
  fail "evaluated: $(cat output), not $(column weighted validation_loss)"
run 0 evaluate runs/weighted classes.weights=none --json
[ "$(sed 's/.*"loss": *\([0-9]*\.[0-9]\{8\}\).*/\1/' output)" != "$(column weighted validation_loss | tail -n 1 | cut -c 1-10)" ] ||
  fail "evaluated without weights: $(cat output)"

# Adapters, with a head beside them: one run and two on other layouts, as PEFT keeps them, merged.
words="model=runs/base/checkpoints/step-1 lora.rank=2 lora.alpha=8 lora.targets=[q_proj,down_proj]"
run 0 train $words $keys out=runs/adapted
says "adapters and head: "
run 0 train $words $keys mesh.tp=2 -n 2 train.steps=4 out=runs/adapted2
run 0 train $words $keys mesh.dp_shard=2 zero=3 -n 2 out=runs/adapted2
says "resuming after step 4"
same adapted adapted2
made_adapted=runs/adapted/checkpoints/step-8
[ ! -e $made_adapted/model.safetensors ] || fail "a checkpoint has the frozen weights"
run 0 export runs/adapted pefts
for folder in $made_adapted pefts; do
  grep -qF '"task_type": "SEQ_CLS"' $folder/adapter_config.json || fail "$(cat $folder/adapter_config.json)"
  tr -d ' \n' <$folder/adapter_config.json | grep -qF '"modules_to_save":["score"]' || fail "$(cat $folder/adapter_config.json)"
  grep -aqF '"base_model.model.score.weight"' $folder/adapter_model.safetensors || fail "$folder: no head"
  ! grep -aqF '"base_model.model.score.lora' $folder/adapter_model.safetensors || fail "$folder: adapters of the head"
done
run 0 export runs/adapted merged --merge
grep -aqF '"score.weight"' merged/model.safetensors || fail "merged: no score.weight"
! grep -aqF lm_head merged/model.safetensors || fail "merged: the head of tokens is still there"
rm -f told
for folder in runs/adapted pefts merged "merged mesh.tp=2 -n 2" "pefts mesh.dp_shard=2 -n 2"; do
  run 0 evaluate $folder data.text=reviews.jsonl data.seq_len=32 dtype=fp64 --json
  sed 's/.*"loss": *\([^,]*\),.*"accuracy": *\([^,]*\),.*/\1 \2/' output >>told
done
awk 'NR == 1 { a = $1; b = $2 } ($1 - a) ^ 2 > 1e-18 || $2 != b || !($1 > 0) { exit 1 }' told || fail "evaluated: $(cat told)"
# Adapters go on with their head; beside a classifier its own is the beginning.
run 0 train model=pefts $keys train.steps=1 out=runs/adapted_on
says "adapters and head: "
run 0 train model=merged $keys train.steps=1 lora.rank=2 out=runs/beside
run 0 export runs/beside beside --merge
# A folder as PEFT leaves it, without a config.json of its own.
rm pefts/config.json
sed 's/"bad"/0/; s/"fair"/1/; s/"good"/2/' reviews.jsonl >plain.jsonl
run 0 evaluate pefts data.text=plain.jsonl data.seq_len=32 dtype=fp64 --json
says '"accuracy"'
sed 's/"score"/"norm"/' pefts/adapter_config.json >one && mv one pefts/adapter_config.json
run 2 evaluate pefts data.text=numbers.jsonl data.seq_len=32
says "modules_to_save: found norm; expected modules of the head over classes, score"

refused() { # WORDS of the message, keys...
  words=$1
  shift
  run 2 train model=config.json $keys out=runs/x "$@"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  says "$words"
  [ ! -e runs/x ] || fail "something is left of a refused run"
}
sed '5s/"label": "[a-z]*"/"label": 7/' reviews.jsonl >mixed.jsonl
refused "mixed.jsonl:5: \"label\": found a number where others are names" data.text=mixed.jsonl
sed '7s/"text"/"txt"/' reviews.jsonl >missing.jsonl
refused "missing.jsonl:7: found no key \"text\"" data.text=missing.jsonl
sed '5s/"label": "[a-z]*"/"label": "worse"/' reviews.jsonl >other.jsonl
refused "other.jsonl:5: \"label\": found worse; expected one of the classes bad, fair, good" data.text=other.jsonl \
  model=$made
: >empty.jsonl
refused "empty.jsonl" data.text=empty.jsonl
refused "text.txt: found a plain text" data.text=text.txt
refused "data.documents: found stream with task=classify" data.documents=stream
refused "data.loss_on" data.loss_on=all
refused "classes.weights: found 2 items; expected balanced, or 3 numbers: one for each class" classes.weights=[1,2]
refused "classes.weights: found -1; expected a number above 0, at most 1e9" classes.weights=[1,2,-1]
refused "classes.weights: found a value without task=classify" task=next_token classes.weights=balanced
grep -v fair reviews.jsonl >without.jsonl
refused "classes.weights: found balanced, and no example of the class fair in data.text" data.text=without.jsonl \
  model=$made classes.weights=balanced
run 2 evaluate $made data.text=reviews.jsonl data.seq_len=32 classes.weights=balanced
says "classes.weights: found balanced, which is of the texts that are trained on"
refused "data.label_key: found a value without task=classify" task=next_token data.label_key=stars
refused "has a head over classes and writes no tokens" model=$made task=dpo
run 2 evaluate runs/base/checkpoints/step-1 task=classify data.text=reviews.jsonl
says "has no head over classes"
run 2 generate $made "It was"
says "has a head over 3 classes, and writes no text"
echo "$passed passed, 0 failed"

#!/bin/sh
# Texts that may have any of the classes, as transformers' multi_label_classification has them: of a
# decoder and of an encoder, the same on every layout and after a stop; what is wrong is named.
set -eu
tests=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/support/small_run.sh"

mkdir bert
cp "$tests/data/tokenizers/word-piece/tokenizer.json" bert/
echo '{"model_type": "bert", "vocab_size": 520, "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 32,
  "intermediate_size": 48, "max_position_embeddings": 34, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}' >bert/config.json
i=0
while [ $i -lt 48 ]; do
  case $((i % 4)) in 0) what=neither labels= ;; 1) what=cold labels='"cold"' ;; 2) what=wet labels='"wet"' ;;
  3) what="cold and wet" labels='"wet", "cold"' ;; esac
  echo "{\"text\": \"$i $what\", \"label\": [$labels]}"
  i=$((i + 1))
done >weather.jsonl
keys="task=classify classes.several=true data.text=weather.jsonl data.seq_len=32 data.validation=0.3 train.batch=4 train.steps=6 \
train.lr=2e-2 train.lr_schedule=constant train.warmup=0 eval.every=3 dtype=fp64"
column() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses and accuracies
  for what in loss validation_loss validation_accuracy; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}

run 0 train model=config.json $keys out=runs/one
says "texts of any of 2 classes (cold, wet): "
made=runs/one/checkpoints/step-6
grep -qF '"problem_type": "multi_label_classification"' $made/config.json || fail "$(cat $made/config.json)"
run 0 train model=config.json $keys mesh.tp=2 mesh.cp=2 mesh.dp_shard=1 -n 4 out=runs/many
same one many
run 0 train model=config.json $keys train.steps=3 out=runs/part
run 0 train model=config.json $keys mesh.dp_shard=2 zero=3 -n 2 out=runs/part
says "resuming after step 3"
same one part
run 0 train model=bert $keys classes.pooling=mean out=runs/bert
run 0 train model=bert $keys classes.pooling=mean mesh.tp=2 mesh.dp_shard=2 zero=1 -n 4 out=runs/bert2
same bert bert2
run 0 train model=config.json $keys dtype=bf16 out=runs/narrow

# More classes than bits of a word, and classes that weigh: torch's pos_weight.
i=0
while [ $i -lt 200 ]; do echo "{\"text\": \"it was $i\", \"label\": [\"$i\", \"$((i * 7 % 200))\"]}" | sed 's/\["0", "0"\]/["0"]/; s/\["100", "100"\]/["100"]/' && i=$((i + 1)); done >classes.jsonl
run 0 train model=config.json $keys data.text=classes.jsonl train.steps=3 out=runs/wide
says "texts of any of 200 classes (0, 1, 10, "
run 0 train model=config.json $keys data.text=classes.jsonl train.steps=3 mesh.cp=2 mesh.dp_shard=2 zero=3 -n 4 out=runs/wide2
same wide wide2
run 0 train model=config.json $keys 'classes.weights=[2.5,0.5]' out=runs/weigh
says "(cold x 2.5, wet x 0.5)"
! cmp -s runs/one/metrics.jsonl runs/weigh/metrics.jsonl || fail "weights change nothing"
run 0 train model=config.json $keys 'classes.weights=[2.5,0.5]' mesh.tp=2 mesh.dp_shard=2 -n 4 out=runs/weigh2
same weigh weigh2
grep -v '"wet", "cold"' weather.jsonl >one-each.jsonl
run 0 train model=config.json $keys data.text=one-each.jsonl classes.weights=balanced out=runs/balanced
says "(cold x 2, wet x 2)"
run 0 evaluate runs/balanced --json
sed 's/.*"loss": *\([^,]*\),.*/\1/' output >found
run 0 evaluate runs/balanced 'classes.weights=[2,2]' --json
sed 's/.*"loss": *\([^,]*\),.*/\1/' output | cmp -s - found || fail "a run's weights are not kept: $(cat output found)"

# A model that has such a head goes on with it, whatever the run says; so it is evaluated.
run 0 train model=$made $keys classes.several=false train.steps=1 eval.every=0 out=runs/on
says "texts of any of 2 classes (cold, wet): "
run 0 evaluate runs/one --json
cp output first
run 0 export runs/one exported
run 0 evaluate exported data.text=weather.jsonl data.seq_len=32 mesh.tp=2 -n 2
says ", micro F1 "
says " of 48 texts correct"
grep -qF '"micro_f1": ' first || fail "$(cat first)"
run 0 check model=$made $keys mesh.dp_shard=2 mesh.pp=1 -n 2
says "proved"

refused() { # WORDS of the message, keys...
  words=$1
  shift
  run 2 train model=config.json $keys out=runs/x "$@"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  says "$words"
  [ ! -e runs/x ] || fail "something is left of a refused run"
}
sed '5s/\[.*\]/"wet"/' weather.jsonl >one.jsonl
refused "one.jsonl:5: \"label\": found a text; expected a list of the classes that the text has, which may be empty" data.text=one.jsonl
sed '4s/\[.*\]/["wet", "wet"]/' weather.jsonl >twice.jsonl
refused "twice.jsonl:4: \"label\": found the class wet twice; expected each once" data.text=twice.jsonl
sed '6s/\[.*\]/["wet", null]/' weather.jsonl >null.jsonl
refused "null.jsonl:6: \"label\": found null; expected the name or the number of a class" data.text=null.jsonl
sed '7s/\[.*\]/["dry"]/' weather.jsonl >other.jsonl
refused "other.jsonl:7: \"label\": found dry; expected one of the classes cold, wet" data.text=other.jsonl model=$made
refused "weather.jsonl:1: \"label\": found a list; expected one class: several labels of a text are of classes.several=true" \
  classes.several=false
refused "classes.weights: found 3 items; expected balanced, or 2 numbers" 'classes.weights=[1,2,3]'
grep cold weather.jsonl >all-cold.jsonl
refused "classes.weights: found balanced, and no text without the class cold in data.text" classes.weights=balanced data.text=all-cold.jsonl
refused "classes.several: found true with classes.pooling=tokens" model=bert classes.pooling=tokens
refused "classes.several: found a value without task=classify" task=next_token
sed 's/multi_label_classification/single_label_classification/' $made/config.json >exported/config.json
refused "classes.several: found true with a model whose head predicts one class of a text" model=exported
echo "$passed passed, 0 failed"

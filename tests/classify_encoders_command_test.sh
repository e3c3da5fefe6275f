#!/bin/sh
# Encoders tell texts apart as transformers' ...ForSequenceClassification do: from a base of masked
# language modelling, alone or with adapters, the same on every layout; and decoders by the mean.
set -eu
tests=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/support/small_run.sh"

sizes='"vocab_size": 520, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 34'
make_base() { # MODEL_TYPE more of config.json...
  mkdir "$1"
  cp "$tests/data/tokenizers/word-piece/tokenizer.json" "$1/"
  echo "{\"model_type\": \"$1\", $sizes, $2}" >"$1/config.json"
}
wide='"hidden_size": 32, "intermediate_size": 48'
still='"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0'
make_base bert "$wide, $still, \"classifier_dropout\": 0.1"
make_base roberta "$wide, $still, \"type_vocab_size\": 1"
make_base distilbert '"dim": 32, "hidden_dim": 48, "dropout": 0, "attention_dropout": 0'
make_base modernbert "$wide, \"classifier_pooling\": \"mean\", \"local_attention\": 8"

i=0
while [ $i -lt 40 ]; do
  case $((i % 2)) in 0) what=worst label=bad ;; *) what=better label=good ;; esac
  echo "{\"text\": \"$what of $i\", \"text_pair\": \"the $what\", \"label\": \"$label\"}"
  i=$((i + 1))
done >pairs.jsonl
head -n 60 "$tests/../README.md" >text.txt
keys="task=classify data.text=pairs.jsonl data.seq_len=32 data.validation=0.3 train.batch=4 train.steps=4 \
train.lr=1e-2 train.lr_schedule=constant train.warmup=0 eval.every=4 dtype=fp64"
column() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN
  for what in loss validation_loss validation_accuracy; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}
has() { # FOLDER STEM names...
  file=$1/$2.safetensors
  shift 2
  for name in "$@"; do grep -aqF "\"$name\"" "$file" || fail "$file: no $name"; done
}

for family in bert roberta distilbert modernbert; do
  run 0 train model=$family task=mlm data.text=text.txt data.seq_len=24 train.steps=1 train.batch=2 eval.every=0 \
    data.validation=0 out=runs/$family-base
  base=runs/$family-base/checkpoints/step-1
  run 0 train model=$base $keys out=runs/$family
  says "texts of 2 classes (bad, good)"
  run 0 train model=$base $keys mesh.tp=2 mesh.cp=2 sequence_parallel=false mesh.dp_shard=1 -n 4 out=runs/$family-cut
  same $family $family-cut
  made=runs/$family/checkpoints/step-4
  case $family in
    bert) class=BertForSequenceClassification modules='"classifier","pooler"' dense=bert.pooler.dense out=classifier
      targets=[query,output.dense] ;;
    roberta) class=RobertaForSequenceClassification modules='"classifier"' dense=classifier.dense out=classifier.out_proj
      targets=[query,dense] ;;
    distilbert) class=DistilBertForSequenceClassification modules='"classifier","pre_classifier"' dense=pre_classifier
      out=classifier targets=all-linear ;;
    modernbert) class=ModernBertForSequenceClassification modules='"classifier","head"' dense=head.dense out=classifier
      targets=[Wo] ;;
  esac
  grep -qF "\"$class\"" $made/config.json || fail "$family: $(cat $made/config.json)"
  has $made model $dense.weight $out.weight $out.bias
  for other in cls. lm_head vocab_ decoder. score; do
    ! grep -aqF "\"$other" $made/model.safetensors || fail "$family: $other is still there"
  done
  run 0 train model=$base $keys lora.rank=2 lora.targets=$targets out=runs/$family-adapted
  says "adapters and head: "
  adapted=runs/$family-adapted/checkpoints/step-4
  tr -d ' \n' <$adapted/adapter_config.json | grep -qF "\"modules_to_save\":[$modules]" ||
    fail "$family: $(cat $adapted/adapter_config.json)"
  has $adapted adapter_model base_model.model.$dense.weight base_model.model.$out.weight base_model.model.$out.bias
  run 0 export runs/$family-adapted merged-$family --merge
  has merged-$family model $dense.weight $out.weight
  rm -f told
  for model in runs/$family-adapted merged-$family; do
    run 0 evaluate $model data.text=pairs.jsonl data.seq_len=32 dtype=fp64 --json
    sed 's/.*"loss": *\([^,]*\),.*"accuracy": *\([^,]*\),.*/\1 \2/' output >>told
  done
  awk 'NR == 1 { a = $1; b = $2 } ($1 - a) ^ 2 > 1e-18 || $2 != b { exit 1 }' told || fail "$family: $(cat told)"
  run 0 train model=merged-$family $keys train.steps=1 out=runs/$family-on
done
grep -qF '"target_modules": [' runs/bert-adapted/checkpoints/step-4/adapter_config.json
grep -qF '"output.dense"' runs/bert-adapted/checkpoints/step-4/adapter_config.json ||
  fail "PEFT would have adapters of the pooler: $(cat runs/bert-adapted/checkpoints/step-4/adapter_config.json)"

# What a class is told by, as a run asks.
run 0 train model=config.json $keys classes.pooling=mean out=runs/mean
grep -qF '"classifier_pooling": "mean"' runs/mean/checkpoints/step-4/config.json || fail "the mean is not told"
run 0 train model=config.json $keys classes.pooling=mean mesh.dp_shard=2 zero=3 -n 2 out=runs/mean2
same mean mean2
run 0 train model=config.json $keys out=runs/last
! cmp -s runs/mean/metrics.jsonl runs/last/metrics.jsonl || fail "the mean is the last token"
run 2 train model=runs/mean/checkpoints/step-4 $keys classes.pooling=last out=runs/x
says "classes.pooling: found another than the model's head was trained with"
run 2 train model=config.json $keys classes.pooling=mean mesh.tp=2 mesh.cp=2 mesh.dp_shard=1 -n 4 out=runs/x
says "give sequence_parallel=false"
run 2 train model=config.json $keys classes.pooling=cls out=runs/x
says "classes.pooling: found cls with a decoder"
run 2 train model=config.json task=next_token data.text=text.txt classes.pooling=mean out=runs/x
says "classes.pooling: found a value without task=classify"
# PEFT alone would leave out the pooler, which the base then must have.
run 0 export runs/bert-adapted lacking
rm lacking/config.json
sed 's/"pooler"/"score"/' lacking/adapter_config.json >one && mv one lacking/adapter_config.json
run 2 evaluate lacking data.text=pairs.jsonl data.seq_len=32
says "no tensor bert.pooler.dense.weight"
sed 's/"mean"/"most"/' modernbert/config.json >one && mv one modernbert/config.json
run 2 train model=modernbert $keys out=runs/x
says 'classifier_pooling: found "most"; expected last, cls or mean'
[ ! -e runs/x ] || fail "something is left of a refused run"
echo "$passed passed, 0 failed"

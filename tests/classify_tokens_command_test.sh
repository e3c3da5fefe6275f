#!/bin/sh
# Models tell the words of a text apart as transformers' ...ForTokenClassification do: encoders from a
# base of masked language modelling, decoders from one of text, alone or with adapters, the same on
# every layout; what is wrong is named.
set -eu
tests=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/support/small_run.sh"

sizes='"vocab_size": 520, "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 34'
make_base() { # MODEL_TYPE more of config.json...
  mkdir "$1"
  cp "$tests/data/tokenizers/word-piece/tokenizer.json" "$1/"
  echo "{\"model_type\": \"$1\", $sizes, $2}" >"$1/config.json"
}
wide='"hidden_size": 32, "intermediate_size": 48'
still='"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0'
make_base bert "$wide, $still"
make_base roberta "$wide, $still, \"type_vocab_size\": 1"
make_base distilbert '"dim": 32, "hidden_dim": 48, "dropout": 0, "attention_dropout": 0'
make_base modernbert "$wide, \"local_attention\": 8"
make_base llama "$wide, \"num_key_value_heads\": 2"
make_base gpt2 '"n_embd": 32, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0'

i=0
while [ $i -lt 40 ]; do
  echo "{\"tokens\": [\"the\", \"worst\", \"of\", \"$i\", \"better\"], \"ner_tags\": [\"O\", \"bad\", \"O\", null, \"good\"]}"
  i=$((i + 1))
done >words.jsonl
head -n 60 "$tests/../README.md" >text.txt
keys="task=classify classes.pooling=tokens data.text=words.jsonl data.text_key=tokens data.label_key=ner_tags data.seq_len=32 \
data.validation=0.3 train.batch=4 train.steps=4 train.lr=1e-2 train.lr_schedule=constant train.warmup=0 eval.every=4 dtype=fp64"
told="data.text=words.jsonl data.text_key=tokens data.label_key=ner_tags data.seq_len=32 dtype=fp64"
column() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN
  for what in loss validation_loss validation_accuracy; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}

for family in bert roberta distilbert modernbert llama gpt2; do
  case $family in llama | gpt2) task=next_token ;; *) task=mlm ;; esac
  run 0 train model=$family task=$task data.text=text.txt data.seq_len=24 train.steps=1 train.batch=2 eval.every=0 \
    data.validation=0 out=runs/$family-base
  base=runs/$family-base/checkpoints/step-1 made=runs/$family/checkpoints/step-4
  run 0 train model=$base $keys out=runs/$family
  says "words of 3 classes (O, bad, good): "
  run 0 train model=$base $keys mesh.tp=2 mesh.cp=2 mesh.dp_shard=1 -n 4 out=runs/$family-cut
  same $family $family-cut
  case $family in
    bert) class=BertForTokenClassification modules='"classifier"' targets=[query,output.dense] ;;
    roberta) class=RobertaForTokenClassification modules='"classifier"' targets=[query,output.dense] ;;
    distilbert) class=DistilBertForTokenClassification modules='"classifier"' targets=all-linear ;;
    modernbert) class=ModernBertForTokenClassification modules='"classifier","head"' targets=[Wo] ;;
    llama) class=LlamaForTokenClassification modules='"score"' targets=[q_proj] ;;
    gpt2) class=GPT2ForTokenClassification modules='"classifier"' targets=[c_fc] ;;
  esac
  grep -qF "\"$class\"" $made/config.json || fail "$(cat $made/config.json)"
  ! grep -qF problem_type $made/config.json || fail "$(cat $made/config.json)"
  head=classifier
  [ $family != llama ] || head=score
  grep -aqF "\"$head.weight\"" $made/model.safetensors || fail "$family: no $head.weight"
  grep -aqF "\"$head.bias\"" $made/model.safetensors || fail "$family: no $head.bias"
  for other in pooler pre_classifier lm_head cls. vocab_projector; do
    ! grep -aqF "\"$other" $made/model.safetensors || fail "$family: $other is still there"
  done
  # A classifier of tokens goes on with its own, whatever the run says of what it reads.
  run 0 train model=$made $keys classes.pooling=auto train.steps=1 eval.every=0 out=runs/$family-on
  says "words of 3 classes (O, bad, good): "
  run 0 train model=$base $keys lora.rank=2 lora.targets=$targets out=runs/$family-adapted
  says "adapters and head: "
  run 0 export runs/$family-adapted $family-peft
  tr -d ' \n' <$family-peft/adapter_config.json | grep -qF "\"modules_to_save\":[$modules]" ||
    fail "$(cat $family-peft/adapter_config.json)"
  grep -qF '"task_type": "TOKEN_CLS"' $family-peft/adapter_config.json || fail "$(cat $family-peft/adapter_config.json)"
  run 0 export runs/$family-adapted $family-merged --merge
  rm -f found
  for folder in runs/$family-adapted $family-peft "$family-merged mesh.tp=2 -n 2"; do
    run 0 evaluate $folder $told --json
    sed 's/.*"loss": *\([^,]*\),.*"accuracy": *\([^,]*\),.*/\1 \2/' output >>found
  done
  awk 'NR == 1 { a = $1; b = $2 } ($1 - a) ^ 2 > 1e-18 || $2 != b || !($1 > 0) { exit 1 }' found || fail "$family: $(cat found)"
  # As PEFT leaves it, the classes are counted in the head; their names are lost.
  rm -f $family-peft/config.json
  sed 's/"O"/0/g; s/"bad"/1/; s/"good"/2/' words.jsonl >numbers.jsonl
  run 0 evaluate $family-peft $told data.text=numbers.jsonl --json
  grep -qF '"examples": 160' output || fail "$family: $(cat output)"
done
{ cat words.jsonl; echo '{"tokens": ["the"], "ner_tags": [-100]}'; } >one-more.jsonl
run 0 train model=bert $keys data.text=one-more.jsonl data.validation=0 eval.every=0 train.steps=1 out=runs/one-more
says "; 160 words have a class; 1 left out, none of whose words has a class"
run 0 evaluate runs/bert $told
says ", macro F1 "
says " of 160 words correct"

refused() { # WORDS of the message, keys...
  words=$1
  shift
  run 2 train model=bert $keys out=runs/x "$@"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  says "$words"
  [ ! -e runs/x ] || fail "something is left of a refused run"
}
make_base olmo2 "$wide"
refused "classes.pooling: found tokens with the family olmo2, of which transformers has no head of tokens" model=olmo2
refused "classes.pooling: found another than the model's head was trained with" model=runs/bert/checkpoints/step-4 \
  classes.pooling=mean
sed '5s/null/"O", "O"/' words.jsonl >longer.jsonl
refused "longer.jsonl:5: \"ner_tags\": found 6 classes of 5 words" data.text=longer.jsonl
sed '6s/"ner_tags": .*/"ner_tags": "O"}/' words.jsonl >one.jsonl
refused "one.jsonl:6: \"ner_tags\": found one class; expected a list" data.text=one.jsonl
refused "words.jsonl:1: \"ner_tags\": found a list; expected one class" classes.pooling=auto
echo "$passed passed, 0 failed"

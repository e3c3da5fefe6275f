#!/bin/sh
# A small model learns of a larger one as a user asks for it: the same on every layout and after every
# stop, beside the same teacher alone, and no checkpoint has a teacher; what is wrong is named.
set -eu
. "$(dirname "$0")/support/small_run.sh"

sed -i 's/hidden_layers": 1/hidden_layers": 2/' config.json
mkdir -p large
sed 's/hidden_layers": 2/hidden_layers": 3/; s/"hidden_size": [0-9]*/"hidden_size": 48/' config.json >large/config.json
text="data.text=text.txt data.tokenizer=bytes data.seq_len=16 train.batch=4 train.lr_schedule=constant \
train.warmup=0 eval.every=0"
run 0 train model=large/config.json $text train.steps=6 train.lr=3e-3 dtype=fp32 out=runs/large
teacher=runs/large/checkpoints/step-6
keys="model=config.json $text task=distill train.lr=3e-3 train.steps=6 dtype=fp64"
column() { sed "s/.*\"$2\": \([^,}]*\)[,}].*/\1/" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses and norms within 1e-10
  for what in loss grad_norm; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}

run 0 train $keys teacher=$teacher eval.every=3 data.validation=0.2 out=runs/one
says "teacher $teacher: "
says "frozen; 50% of the loss, at temperature 2"
says "step 3: validation loss"
grep -q perplexity log && fail "a perplexity of a teacher's share"
n=0
for layout in "mesh.dp_shard=2 zero=3" "mesh.tp=2 mesh.dp_shard=1 recompute=full" "mesh.pp=2 mesh.dp_shard=1" \
  "mesh.cp=2 context=ring mesh.dp_shard=1"; do
  n=$((n + 1))
  run 0 train $keys teacher=$teacher eval.every=3 data.validation=0.2 $layout -n 2 out=runs/many$n
  same one many$n
done

# All of the loss is the text's, as without a teacher.
run 0 train $keys teacher=$teacher distill.mix=0 out=runs/text
run 0 train $keys task=next_token out=runs/plain
same text plain

# Stopped and gone on with: the same bits, beside the same teacher alone, which no checkpoint has.
run 0 train $keys teacher=$teacher out=runs/whole
run 0 train $keys teacher=$teacher train.steps=3 out=runs/part
run 0 train $keys teacher=$teacher mesh.dp_shard=1 out=runs/part
says "resuming after step 3"
cmp -s runs/whole/checkpoints/step-6/model.safetensors runs/part/checkpoints/step-6/model.safetensors ||
  fail "resumed, the model is another"
grep -q teacher runs/whole/checkpoints/step-6/model.safetensors && fail "a teacher in the checkpoint"
run 0 train $keys teacher=$teacher train.steps=3 out=runs/other
cp -r $teacher taught
run 0 train model=large/config.json $text train.steps=7 train.lr=3e-3 dtype=fp32 out=runs/large
rm -rf taught && cp -r runs/large/checkpoints/step-7 taught
mv $teacher kept && cp -r taught $teacher
run 2 train $keys teacher=$teacher out=runs/other
says "teacher"
says "has other weights now than those that"
rm -rf $teacher && mv kept $teacher
run 0 train $keys teacher=$teacher out=runs/other

# Adapters learn of it too; what is evaluated is the model alone; programs are proved and compared.
run 0 train $keys model=runs/plain/checkpoints/step-6 teacher=$teacher lora.rank=2 out=runs/adapters
run 0 evaluate runs/whole
says perplexity
run 0 check $keys teacher=$teacher mesh.tp=2 mesh.dp_shard=2 zero=3 -n 4
says "teacher $teacher: "
run 0 show $keys teacher=$teacher --memory
says "more than without the teacher"
run 0 verify $keys teacher=$teacher mesh.tp=2 mesh.dp_shard=1 -n 2

# What is wrong: one line, exit 2, and no run's folder.
sed 's/"vocab_size": [0-9]*/"vocab_size": 300/' config.json >wide.json
run 0 train model=wide.json $text train.steps=1 dtype=fp32 out=runs/wide
refuses() { # WORD... -- what is said: $1
  said=$1
  shift
  run 2 train $keys out=runs/refused "$@"
  says "$said"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  [ ! -e runs/refused ] || fail "a run's folder was made"
}
refuses "found distill without a teacher; expected the folder of a larger model"
refuses "nowhere is no folder; expected one with config.json and weights" teacher=nowhere
refuses "large has no model.safetensors; expected a trained model's folder" teacher=large
refuses "holds adapters; expected whole weights" teacher=runs/adapters/checkpoints/step-6
refuses "has a vocabulary of 300; expected the" teacher=runs/wide/checkpoints/step-1
cp -r $teacher runs/classes
sed -i 's/"model_type"/"architectures": ["LlamaForSequenceClassification"], "model_type"/' runs/classes/config.json
refuses "has a head over classes; expected a model that continues a text" teacher=runs/classes
refuses "distill.mix" teacher=$teacher distill.mix=1.5
refuses "distill.temperature" teacher=$teacher distill.temperature=0
refuses "distill.temperature" teacher=$teacher distill.temperature=1e4
refuses "found a value without task=distill; expected that too" task=next_token teacher=$teacher
refuses "distill.mix: found a value without task=distill" task=next_token distill.mix=0.3
echo "$passed passed, 0 failed"

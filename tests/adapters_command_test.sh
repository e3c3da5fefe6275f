#!/bin/sh
# Adapters as a user trains them: beside the weights of a first run, resumed on another layout,
# exported as PEFT's folder and merged, generated from.
set -eu
. "$(dirname "$0")/support/small_run.sh"

run 0 train keys.yaml train.steps=60 train.lr=1e-2 checkpoint.every=0 out=first
run 0 export first base
losses() { sed 's/.*"loss":\([^,]*\),.*/\1/' "$1/metrics.jsonl"; }

# What is not right is refused in one line, before a folder is made.
refused() { # WHAT words...
  what=$1
  shift
  run 2 train keys.yaml model=base out=none "$@"
  says "$what"
  [ "$(wc -l <log)" -eq 1 ] || fail "$*: expected one line: $(cat log)"
  [ ! -e none ] || fail "$*: made a folder"
}
refused "lora.targets: no product of a llama model is called q_prj; the nearest is q_proj" \
  lora.rank=2 "lora.targets=[q_prj]"
refused "found a value without lora.rank" lora.alpha=3
refused "gives none: name a folder with model.safetensors" lora.rank=2 model=config.json
refused "gives none: name a folder with model.safetensors" lora.rank=2 init=scratch
refused "lora.rank" lora.rank=0

# Six steps in one go, and in two on other layouts: the same losses but for rounding.
words="model=base lora.rank=2 lora.alpha=6 lora.targets=all-linear train.lr=3e-2 dropout=0.1 lora.dropout=0.2"
run 0 train keys.yaml $words train.steps=6 out=whole
says "frozen: "
says "dropout: embedding 0.1, branches 0.1, attention 0.1, adapters 0.2"
run 0 train keys.yaml $words train.steps=2 out=parts -n 2
run 0 train keys.yaml $words train.steps=6 out=parts mesh.tp=2 -n 2
says "resuming after step 2"
losses whole >whole.losses
losses parts >parts.losses
[ "$(wc -l <parts.losses)" -eq 6 ] || fail "steps: $(cat parts.losses)"
paste whole.losses parts.losses |
  awk '{ if (($1 - $2) ^ 2 > 1e-10) exit 1 }' || fail "losses: $(paste whole.losses parts.losses)"
sed -n 1p whole.losses >one; sed -n 6p whole.losses >six
awk 'NR == 1 { a = $1 } NR == 2 { exit !($1 < a - 0.01) }' one six || fail "nothing is learned: $(cat whole.losses)"

# Another mathematics is another run.
run 2 train keys.yaml $words lora.rank=4 train.steps=8 out=whole
says "lora.rank"

# So is another base in the same place.
run 0 train keys.yaml train.steps=61 train.lr=1e-2 checkpoint.every=0 out=first
run 0 export first other
mv base right
mv other base
run 2 train keys.yaml $words train.steps=8 out=whole
says "has other weights now than those that"
rm -r base
mv right base

# A checkpoint has the adapters and their moments, not what they are beside.
checkpoint=whole/checkpoints/step-6
for file in adapter_model.safetensors adapter_config.json optimizer.safetensors config.json; do
  [ -e $checkpoint/$file ] || fail "no $file in a checkpoint: $(ls $checkpoint)"
done
[ ! -e $checkpoint/model.safetensors ] || fail "a checkpoint has the frozen weights"

# The run, PEFT's folder of it and the merged model say the same.
run 0 export whole adapters
[ -e adapters/adapter_config.json ] && [ -e adapters/adapter_model.safetensors ] &&
  [ ! -e adapters/config.json ] && [ ! -e adapters/model.safetensors ] || fail "$(ls adapters)"
grep -q '"lora_dropout": 0.2' adapters/adapter_config.json || fail "$(cat adapters/adapter_config.json)"
run 0 export whole merged --merge
[ -e merged/model.safetensors ] && [ ! -e merged/adapter_config.json ] || fail "$(ls merged)"
for model in base whole adapters merged; do
  run 0 generate $model "It was a bright" --max-new-tokens 12 --greedy
  cp output $model.text
done
cmp -s whole.text adapters.text || fail "the exported adapters say something else"
cmp -s whole.text merged.text || fail "the merged model says something else"
run 2 export base again --merge
says "has no adapters"
run 0 inspect adapters
says "q_proj"

# The loss on a text is that of the merged model, by any layout.
for model in whole adapters merged; do
  run 0 evaluate $model data.text=text.txt data.seq_len=16 train.batch=2 dtype=fp32 --json
  sed 's/.*"loss": *\([^,]*\),.*/\1/' output >>evaluated
done
run 0 evaluate whole data.text=text.txt mesh.tp=2 -n 2 --json
sed 's/.*"loss": *\([^,]*\),.*/\1/' output >>evaluated
awk 'NR == 1 { a = $1 } { n++; if (($1 - a) ^ 2 > 1e-10 || !($1 > 0)) bad = 1 }
  END { exit bad || n != 4 }' evaluated || fail "losses: $(cat evaluated)"

# Groups of other ranks; several adapters merged, one of them half: half the way from the first alone.
run 0 train keys.yaml model=base lora.rank=2 "lora.groups=[{match: down_proj, rank: 5}, {match: layers.0.attention, rank: 1, alpha: 3}]" \
  train.lr=3e-2 train.steps=3 out=second
says "of ranks 1 to 5, which count 2 to 3 times"
run 0 export second second-adapters
grep -q '"mlp.down_proj": 5' second-adapters/adapter_config.json || fail "$(cat second-adapters/adapter_config.json)"
run 2 train keys.yaml model=base lora.rank=2 "lora.groups=[{match: down_porj, rank: 5}]" out=none
says "lora.groups: no product with adapters is called down_porj; the nearest is down_proj"
run 2 train keys.yaml model=base lora.rank=2 "lora.groups=[{match: down_proj, lr: 5}]" out=none
says "expected match, rank or alpha as the key"
run 2 train keys.yaml model=base "lora.groups=[{match: down_proj, rank: 5}]" out=none
says "found a value without lora.rank"
run 0 export whole both --merge --also second-adapters
run 0 export whole half --merge --also second=0.5
for model in both half; do
  run 0 evaluate $model data.text=text.txt data.seq_len=16 train.batch=2 dtype=fp32 --json
done
run 2 export whole none --merge --also base
says "base has no adapters"
run 2 export whole none --also second
says "without --merge"
run 2 export whole none --merge --also second=much
says "expected FOLDER or FOLDER=TIMES"
run 2 export whole none --merge --also second,
says 'found no folder in "second,"'
cp -r base moved
sed 's|"base_model_name_or_path": "[^"]*"|"base_model_name_or_path": "'"$PWD"'/moved"|' second-adapters/adapter_config.json >config
cp -r second-adapters third
cp config third/adapter_config.json
run 2 export whole none --merge --also third
says "third is beside the weights in"
rm -r moved

# Training goes on from PEFT's folder, whose base is still frozen.
run 0 train keys.yaml model=adapters train.steps=2 out=on
says "starting from the weights in adapters"
run 2 train keys.yaml model=adapters lora.rank=2 out=none
says "adapters has adapters of its own, which stay as they are: alpha of the adapters: found 4; expected 6"
run 2 train keys.yaml model=adapters lora.rank=2 lora.alpha=6 "lora.targets=[q_proj]" out=none
says "products with adapters: found attention.query; expected attention.query, "
run 2 train keys.yaml model=adapters lora.rank=2 lora.alpha=6 lora.rslora=true out=none
says "rslora of the adapters: found true; expected false"
run 2 train keys.yaml model=adapters lora.alpha=2 out=none
says "lora.alpha: found a value without lora.rank; expected none, since the model's folder has adapters of its own"
mv base elsewhere
run 2 generate adapters "It was"
says "write where it is now"
run 2 train keys.yaml model=adapters out=none
mv elsewhere base

# Other commands have them too.
run 0 check keys.yaml $words mesh.tp=2 -n 2
says "proved to stay as they are"
run 0 verify keys.yaml $words mesh.dp_shard=2 zero=3 -n 2
run 0 show keys.yaml $words --memory
echo "adapters_command_test: $passed commands"

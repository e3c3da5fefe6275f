#!/bin/sh
# Optimizers and groups of parameters as a user trains with them: shown, resumed on other layouts,
# beside adapters, with state at the host, compared with one device; and what is refused.
set -eu
. "$(dirname "$0")/support/small_run.sh"

losses() { sed 's/.*"loss":\([^,]*\),.*/\1/' "$1/metrics.jsonl"; }
alike() { # RUN RUN: as many steps, the same losses but for rounding
  losses "$1" >one
  losses "$2" >two
  [ "$(wc -l <one)" -eq "$(wc -l <two)" ] || fail "$1 and $2: other steps"
  paste one two | awk '{ if (($1 - $2) ^ 2 > 1e-16) exit 1 }' || fail "$1, $2: $(paste one two)"
}

# What is not right is refused in one line, before a folder is made.
refused() { # WHAT words...
  what=$1
  shift
  run 2 train keys.yaml out=none "$@"
  says "$what"
  [ "$(wc -l <log)" -eq 1 ] || fail "$*: expected one line: $(cat log)"
  [ ! -e none ] || fail "$*: made a folder"
}
refused "no parameter is called model.nrom; the nearest is model.norm" \
  "optimizer.groups=[{match: model.nrom, lr: 2x}]"
refused "expected a list of groups such as" optimizer.groups=3
refused "expected a group with match" "optimizer.groups=[{lr: 2x}]"
refused "expected weight_decay or lr in it" "optimizer.groups=[{match: layers.0}]"
refused "expected match, weight_decay or lr as the key" "optimizer.groups=[{match: norm, rate: 3}]"
refused "expected a number above 0, or one with x such as 0.1x" \
  "optimizer.groups=[{match: norm, lr: 2y}]"
refused "expected a number above 0, or one with x such as 0.1x" \
  "optimizer.groups=[{match: norm, lr: 0}]"
refused "expected a number of at least 0" "optimizer.groups=[{match: norm, weight_decay: -1}]"
refused "expected a number above 0, at most 1" optimizer.layer_decay=0
refused "expected adamw, sgd, lion, adamw8bit, muon, schedulefree or adafactor" optimizer.name=lyon
refused "found 0.02 with optimizer.name: adamw, which has one rate" optimizer.muon_lr=0.02
refused "optimizer.name: adamw, whose rates do not depend on weights" optimizer.scale_parameter=true

# Six steps in one go, and in parts on other layouts.
groups="[{match: '*norm*', weight_decay: 0.1, lr: 0.5x}, {match: embedding, lr: 2e-3}]"
for name in adamw lion adafactor; do
  for layout in "zero=1 -n 2" "mesh.tp=2 -n 2" "mesh.dp_shard=2 zero=3 offload.optimizer=host"; do
    set -- keys.yaml dtype=fp64 train.lr_schedule=constant optimizer.name=$name optimizer.layer_decay=0.8
    rm -rf whole parts
    run 0 train "$@" "optimizer.groups=$groups" train.steps=6 out=whole
    run 0 train "$@" "optimizer.groups=$groups" train.steps=3 out=parts
    run 0 train "$@" "optimizer.groups=$groups" train.steps=6 out=parts $layout
    says "resuming after step 3"
    alike whole parts
  done
done
run 2 train "$@" train.steps=8 out=whole
says "optimizer.groups (was [{match: \"*norm*\", weight_decay: 0.1, lr: 0.5x}, {match: embedding, lr: 0.002}], now [])"
run 2 train "$@" "optimizer.groups=$groups" train.steps=8 out=whole optimizer.layer_decay=0.9
says "optimizer.layer_decay (was 0.8, now 0.9)"

# Optimizers of whole parameters: matrices of 4,096 elements, on other layouts; codes are the same.
sed 's/"hidden_size": 16, "intermediate_size": 24/"hidden_size": 64, "intermediate_size": 72/' config.json >large.json
for name in adamw8bit muon; do
  for layout in "mesh.dp_shard=2 zero=3 offload.optimizer=host -n 2" "mesh.tp=2 -n 2"; do
    set -- keys.yaml model=large.json dtype=fp64 train.lr_schedule=constant optimizer.name=$name
    rm -rf whole parts
    run 0 train "$@" train.steps=4 out=whole
    run 0 train "$@" train.steps=2 out=parts $layout
    run 0 train "$@" train.steps=4 out=parts
    says "resuming after step 2"
    alike whole parts
  done
done
run 0 show keys.yaml model=large.json optimizer.name=muon optimizer.muon_lr=0.02 --groups
says "muon has 7 of these parameters, "
says "each matrix is made orthogonal by one rank, its owner: "
run 0 show keys.yaml model=large.json optimizer.name=adamw8bit --groups
says "adamw8bit has 9 of these parameters, "

# Schedule-free: evaluations are of the mean and leave training alone; what is saved, evaluated and
# exported is the mean; the same bits after a stop, and on other layouts but for rounding.
free="optimizer.name=schedulefree train.lr_schedule=constant train.warmup=3 train.lr=1e-2 data.validation=0.2"
for layout in "dtype=fp32" "dtype=bf16 mesh.dp_shard=2 zero=1 -n 2" "dtype=bf16 mesh.dp_shard=2 mesh.tp=2 zero=2 -n 4"; do
  rm -rf whole parts quiet
  run 0 train keys.yaml $free train.steps=6 eval.every=1 out=whole $layout
  run 0 train keys.yaml $free train.steps=6 out=quiet $layout
  run 0 train keys.yaml $free train.steps=2 out=parts $layout
  run 0 train keys.yaml $free train.steps=6 out=parts $layout
  says "resuming after step 2"
  for other in quiet parts; do
    losses whole >one; losses $other >two
    cmp -s one two || fail "$layout: $other: $(paste one two)"
    for file in model optimizer; do
      cmp -s whole/checkpoints/step-6/$file.safetensors $other/checkpoints/step-6/$file.safetensors ||
        fail "$layout: $other: other $file.safetensors"
    done
  done
done
rm -rf whole parts
run 0 train keys.yaml $free train.steps=6 eval.every=6 eval.batches=200 out=whole dtype=fp64
told=$(sed -n 's/.*"validation_loss":\([^,}]*\).*/\1/p' whole/metrics.jsonl | tail -n 1)
run 0 evaluate whole dtype=fp64 --json
sed 's/.*"loss": *\([^,]*\),.*/\1/' output >found
[ -n "$told" ] && awk "{ exit (\$1 - $told) ^ 2 > 1e-24 }" found || fail "told $told: $(cat output)"
run 0 export whole mean
cmp -s mean/model.safetensors whole/checkpoints/step-6/model.safetensors || fail "another export"
run 0 train keys.yaml $free train.steps=3 out=parts dtype=fp64
run 0 train keys.yaml $free train.steps=6 eval.every=6 out=parts dtype=fp64 mesh.tp=2 zero=3 -n 2
says "resuming after step 3"
alike whole parts
refused "needs none; expected train.lr_schedule: constant" optimizer.name=schedulefree
refused "expected a number of steps" $free train.warmup=10%
refused "optimizer.name=schedulefree with offload.optimizer" $free offload.optimizer=host

# The user's layout against one device.
for name in adamw sgd lion adafactor "schedulefree train.lr_schedule=constant"; do
  run 0 verify keys.yaml optimizer.name=$name "optimizer.groups=$groups" optimizer.layer_decay=0.8 \
    mesh.dp_shard=2 mesh.tp=2 zero=3
done
says "optimizer.groups"
# A bias of keys has no gradient but rounding, whose sign says nothing of a layout.
run 0 verify keys.yaml model=gpt2-10m optimizer.name=lion mesh.dp_shard=2 mesh.tp=2
says "zero but for rounding, of which lion takes the sign"

# Groups are shown: 2 norms, the embedding and head, the layer's matrices, the last norm.
run 0 show keys.yaml --groups
[ "$(wc -l <output)" -eq 4 ] || fail "$(cat output)"
grep -q ' 0\.001 *1 *0\.1 ' output && grep -q ' 0\.001 *1 *0 ' output || fail "$(cat output)"
run 0 show keys.yaml --groups --json "optimizer.groups=$groups" optimizer.layer_decay=0.5
grep -q '"times": 0.25' output || fail "$(cat output)"
run 0 show keys.yaml "optimizer.groups=$groups"
says "weight decay"

# Beside adapters: one factor learns faster; what is frozen is no group.
run 0 train keys.yaml train.steps=2 out=first
run 0 export first base
lora="model=base lora.rank=2 train.steps=4 dtype=fp64"
run 2 train keys.yaml $lora "optimizer.groups=[{match: '*norm*', lr: 2x}]" out=none
says "all that *norm* covers is frozen"
run 0 train keys.yaml $lora "optimizer.groups=[{match: '*lora_B*', lr: 16x}]" out=lora1
run 0 train keys.yaml $lora "optimizer.groups=[{match: '*lora_B*', lr: 16x}]" out=lora2 zero=3 -n 2
run 0 train keys.yaml $lora out=plain
alike lora1 lora2
losses lora1 >one
losses plain >two
cmp -s one two && fail "a group of adapters changed nothing"

# A Lion keeps one moment where AdamW keeps two.
moments() { run 0 show keys.yaml --memory optimizer.name=$1; awk '/optimizer moments/ { print $3 }' output; }
[ "$(moments adamw)" != "$(moments lion)" ] || fail "moments: $(cat output)"

echo "$passed commands"

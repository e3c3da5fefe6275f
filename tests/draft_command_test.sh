#!/bin/sh
# Smaller models of a run file, of a run and of a folder, and training that begins with their layers.
set -eu
lockstep=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "draft_command_test: $1" >&2; exit 1; }

cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
i=0
while [ $i -lt 300 ]; do echo "In the beginning was line $i."; i=$((i + 1)); done >"$work/text.txt"
cat >"$work/run.yaml" <<YAML
model: $work/config.json
data: {text: $work/text.txt, seq_len: 32}
train: {batch: 4, steps: 3, lr: 1e-2}
out: $work/run
YAML
"$lockstep" train "$work/run.yaml" >"$work/log" 2>&1 || { cat "$work/log"; fail "the training failed"; }
draft() { "$lockstep" draft "$@" 2>"$work/errors"; }

# Of the run: its weights, and its keys.
draft "$work/run" layers=2 -o "$work/shallow.yaml" train.steps=2 >"$work/output" || fail "$(cat "$work/errors")"
grep -q "^$work/shallow: layers 0, 2 of $work/run/checkpoints/step-3$" "$work/output" || fail "$(cat "$work/output")"
grep -q 'M parameters in place of .*, with weights$' "$work/output" || fail "$(cat "$work/output")"
grep -q 'match: "layers.\*", lr: 0.8165x' "$work/shallow.yaml" || fail "no rule: $(cat "$work/shallow.yaml")"
"$lockstep" train "$work/shallow.yaml" out="$work/tuned" >"$work/log" 2>&1 || { cat "$work/log"; fail "training the draft failed"; }
grep -q "$work/shallow" "$work/tuned/resolved.yaml" || fail "another model was trained"
grep -q 'starting from' "$work/log" && ! grep -q 'starting from scratch' "$work/log" || fail "not from its weights: $(cat "$work/log")"
plain=$("$lockstep" generate "$work/run" "In the" --greedy --max-new-tokens 9 2>/dev/null)
drafted=$("$lockstep" generate "$work/run" "In the" --greedy --max-new-tokens 9 --draft "$work/shallow" 2>/dev/null)
[ "$plain" = "$drafted" ] || fail "the draft changed the text: $drafted"

# All layers are the model itself.
draft "$work/run/checkpoints/step-3" layers=3 -o "$work/same.yaml" >/dev/null || fail "$(cat "$work/errors")"
same=$("$lockstep" generate "$work/same" "In the" --greedy --max-new-tokens 9 2>/dev/null)
[ "$plain" = "$same" ] || fail "all layers are another model: $same"

# Narrower, from scratch, of a run file.
draft "$work/run.yaml" layers=1 width=16 -o "$work/narrow.yaml" >"$work/output" || fail "$(cat "$work/errors")"
grep -q 'in place of .*, from scratch$' "$work/output" || fail "$(cat "$work/output")"
[ ! -e "$work/narrow/model.safetensors" ] || fail "a narrower model has weights"
grep -q '"hidden_size": 16' "$work/narrow/config.json" || fail "$(cat "$work/narrow/config.json")"
"$lockstep" show "$work/narrow.yaml" >/dev/null || fail "the narrower model's run file cannot be shown"
rule=$(sed -n 's/^#   lockstep train .* train.batch=B //p' "$work/narrow.yaml" | sed "s/'//g; s/^optimizer.groups=//")
"$lockstep" show "$work/run.yaml" optimizer.groups="$rule" --groups >"$work/output" 2>&1 || fail "the rule: $(cat "$work/output")"

# Narrower, with the weights that are largest: a beginning for distillation, better than none.
draft "$work/run" width=16 --weights -o "$work/cut.yaml" train.steps=8 >"$work/output" || fail "$(cat "$work/errors")"
grep -q 'in place of .*, with weights$' "$work/output" || fail "$(cat "$work/output")"
for model in cut narrower; do
  [ $model = cut ] || draft "$work/run" width=16 -o "$work/narrower.yaml" train.steps=8 >/dev/null || fail "$(cat "$work/errors")"
  "$lockstep" train "$work/$model.yaml" task=distill teacher="$work/run" out="$work/$model-run" >"$work/log" 2>&1 || { cat "$work/log"; fail "distilling $model failed"; }
  tail -n 1 "$work/$model-run/metrics.jsonl" | sed 's/.*"loss": *\([^,]*\),.*/\1/' >"$work/$model.loss"
done
grep -q 'from scratch' "$work/log" || fail "the narrow model has weights: $(cat "$work/log")"
paste "$work/cut.loss" "$work/narrower.loss" | awk '{ exit !($1 < $2) }' || fail "cut weights are no better: $(cat "$work/cut.loss" "$work/narrower.loss")"

refused() { # words...: exit status 2, one line, and nothing is written
  code=0
  draft "$@" -o "$work/no.yaml" >"$work/output" || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  [ ! -e "$work/no" ] && [ ! -e "$work/no.yaml" ] || fail "$*: something was written"
}
refused "$work/run"
refused "$work/run" layers=0
refused "$work/run" layers=4
refused "$work/run" width=20
refused "$work/run" layers=2 width=64
refused "$work/run" layers=2 --weights
refused "$work/run.yaml" width=16 --weights
refused "$work/none" layers=2
refused "$work" layers=two
mkdir "$work/empty"
refused "$work/empty" layers=2
refused "$work/run.yaml" layers=2 train.lrr=1
code=0
draft "$work/run" layers=2 -o "$work/shallow.yaml" >/dev/null || code=$?
[ $code -eq 2 ] || fail "a run file was written over"
"$lockstep" draft --help | grep -q 'examples:' || fail "--help has no examples"

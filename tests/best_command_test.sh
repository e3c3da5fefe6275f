#!/bin/sh
# Keeps the best checkpoint and stops early, as a user sees it: the same in every layout, stopped and
# gone on with at any moment, taken by the other commands, and what has no effect refused.
set -eu
. "$(dirname "$0")/support/small_run.sh"

# Words in an order that nobody can learn: the model learns the words, and then by heart.
awk 'BEGIN { srand(7); split("cat dog sees the a big red runs to from house tree", w, " ")
  for (i = 0; i < 400; i++) printf "%s%s", w[int(rand() * 12) + 1], rand() < 0.8 ? " " : "\n" }' >text.txt
sed -i 's/hidden_size": 16/hidden_size": 32/' config.json
best="model=config.json data.text=text.txt data.seq_len=32 data.validation=0.15 train.batch=8 train.steps=400 \
train.lr=8e-3 train.warmup=5 eval.every=10 checkpoint.every=30 checkpoint.keep=1 checkpoint.best=true eval.patience=3 \
dtype=fp64 device.threads=1"
rounded() { sed -n 's/.*"step": \([0-9]*\),.*"validation_loss": \([0-9.]*\).*/\1 \2/p' "runs/$1/metrics.jsonl" | awk '{printf "%d %.8f\n", $1, $2}'; }

run 0 train $best out=runs/one
grep -q '^ended early after [0-9]* steps: 3 evaluations found no lower loss (eval.patience: 3); ' output ||
  fail "it did not end early: $(cat output)"
says ", the lowest so far"
end=$(sed 's/ended early after \([0-9]*\) steps.*/\1/' output)
step=$(rounded one | sort -k2,2g | head -n 1 | cut -d' ' -f1)
[ $((step + 30)) -eq "$end" ] || fail "the best is of step $step, and the run ended after $end"
says "in runs/one/best"
[ "$(readlink runs/one/best)" = "checkpoints/step-$step" ] || fail "best: $(readlink runs/one/best)"
[ "$(ls runs/one/checkpoints | sort | tr '\n' ' ')" = "$(printf 'step-%s\n' "$step" "$end" | sort | tr '\n' ' ')" ] ||
  fail "kept: $(ls runs/one/checkpoints)"

# Each layout ends at the same step, with the same best.
n=0
for layout in "mesh.dp_shard=2 zero=3" "mesh.dp_replicate=2 mesh.dp_shard=1" "mesh.tp=2 mesh.dp_shard=1" \
  "mesh.pp=2 mesh.dp_shard=1 schedule=zbh1 post_validation=true train.microbatches=2"; do
  n=$((n + 1))
  run 0 train $best $layout -n 2 out=runs/many$n
  rounded one >a
  rounded many$n | cmp -s - a || fail "$layout: other validation losses: $(rounded many$n | diff - a | head -4)"
  [ "$(readlink runs/many$n/best)" = "checkpoints/step-$step" ] || fail "$layout: best: $(readlink runs/many$n/best)"
done

# Parts of a run, on other layouts: patience goes on where it was.
for part in 37 $((step + 11)) $((end - 1)); do
  run 0 train $best out=runs/part train.steps=$part train.lr_schedule=constant
done
run 0 train $best out=runs/part train.lr_schedule=constant mesh.tp=2 mesh.dp_shard=1 -n 2
run 0 train $best out=runs/whole train.lr_schedule=constant
grep -o 'ended early after [0-9]* steps' output >whole
run 0 train $best out=runs/part train.lr_schedule=constant
grep -q "^had $(cat whole)" output || fail "the parts ended otherwise than $(cat whole): $(cat output)"
run 0 train $best out=runs/part train.lr_schedule=constant eval.patience=4
grep -q '^ended early' output || fail "more patience: $(cat output)"

# The other commands take it.
run 0 generate runs/one/best "the " --greedy --max-new-tokens 8
run 0 evaluate runs/one/best data.text=text.txt data.seq_len=32
# What is evaluated without a text is what the run keeps for validation, with the run's keys.
for best_of in runs/one/best runs/one/best/; do
  run 0 evaluate $best_of --json
  awk -v a="$(sed 's/.*"loss": \([^,]*\),.*/\1/' output)" \
    -v b="$(sed -n "${step}s/.*\"validation_loss\": \([^,}]*\).*/\1/p" runs/one/metrics.jsonl)" \
    'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' || fail "$best_of: $(cat output)"
done
(cd runs/one && run 0 evaluate best)
run 0 export runs/one/best out
cmp -s out/model.safetensors "runs/one/checkpoints/step-$step/model.safetensors" || fail "another model is exported"
run 0 inspect runs/one/best
grep -q "^  step  *$step\$" output || fail "inspect: $(cat output)"
grep -q "^  best_step  *$step\$" output || fail "inspect: $(cat output)"
run 0 train $best model=runs/one/best out=runs/next train.steps=1
says "starting from the weights in runs/one/best"

# --fresh begins without it; what has no effect, or is in the way, is refused before the run.
run 0 train $best out=runs/one train.steps=1 --fresh eval.every=1
[ "$(readlink runs/one/best)" = checkpoints/step-1 ] || fail "after --fresh: $(readlink runs/one/best)"
[ -d "runs/one/checkpoints.old-1/step-$step" ] || fail "--fresh: $(ls runs/one)"
run 2 train $best model=runs/whole/best out=runs/whole --fresh=delete train.steps=1
says "the run starts from weights that --fresh=delete removes"
run 0 train $best model=runs/whole/best out=runs/whole --fresh train.steps=1
grep -q "^model: .*/runs/whole/checkpoints.old-1/step-[0-9]*\"*$" runs/whole/resolved.yaml ||
  fail "the weights it began with: $(grep model: runs/whole/resolved.yaml)"
run 2 train $best eval.every=0 out=runs/x
says "nothing is evaluated with eval.every=0: give eval.every=N"
run 2 train $best data.validation=0 out=runs/x
says "the run keeps nothing for validation"
run 2 train $best eval.patience=none eval.min_delta=1 out=runs/x
says "has no effect without eval.patience"
run 2 train $best eval.patience=0 out=runs/x
says "eval.patience"
run 2 train $best load_best_model_at_end=true out=runs/x
says "checkpoint.best"
run 2 train $best early_stopping_patience=2 out=runs/x
says "eval.patience"
[ ! -e runs/x ] || fail "something is left of refused runs"
mkdir -p runs/y/best
run 2 train $best out=runs/y
says "runs/y/best: is no link to a checkpoint"
echo "$passed passed, 0 failed"

#!/bin/sh
# A model of fewer layers that learns from the whole one: layers are left out, and the rest is
# distilled on texts. The loss of the model, of what is left, and of what that has learned is told.
#   examples/recipes/prune.sh MODEL LAYERS TEXT OUT [key=value ...]
# MODEL is a run, a checkpoint or a folder of Hugging Face's; keys are the training's.
set -eu
[ $# -ge 4 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
model=$1 layers=$2 text=$3 out=$4
shift 4
length=data.seq_len=512 # what is compared is of the same sequences
for key in "$@"; do case $key in data.seq_len=*) length=$key ;; esac; done
lockstep=${LOCKSTEP:-$(dirname "$0")/../../build/lockstep}
mkdir -p "$out"
"$lockstep" draft "$model" "layers=$layers" "data.text=$text" "$length" -o "$out/pruned.yaml"
"$lockstep" train "$out/pruned.yaml" task=distill "teacher=$model" distill.mix=0.5 "out=$out/run" "$@"
for each in "$model" "$out/pruned" "$out/run"; do
  "$lockstep" evaluate "$each" "data.text=$text" "$length" | sed "s|^loss|$each: loss|;t;d"
done

#!/usr/bin/env bash
# What memory strategies and pipelines cost: time of a step against the plain run, and memory.
#   bench/strategies.sh TEXT [ROUNDS]      MODEL=llama-8m BATCH=8 SEQ=512 OFFLOAD=folder on a drive
# All rows in turn, ROUNDS times; medians. Works on build/lockstep; prints a table row for each.
set -euo pipefail
text=${1:?usage: bench/strategies.sh TEXT [ROUNDS]}
rounds=${2:-3}
lockstep=${LOCKSTEP:-build/lockstep}
steps=${STEPS:-8}
model=${MODEL:-llama-8m}
batch=${BATCH:-8}
seq=${SEQ:-512}
scratch=$(mktemp -d)
drive=${OFFLOAD:-$scratch}
trap 'rm -rf "$scratch"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

base=(data.text="$text" model="$model" dropout=0 dtype=fp32 data.seq_len="$seq" data.validation=0
  train.batch="$batch" train.steps="$steps" eval.every=0 train.lr=3e-4 check=false)

names=()
declare -A keys
row() { # NAME KEYS...
  names+=("$1")
  local name=$1
  shift
  keys[$name]="$*"
}

# Seconds of a step: the median of those after two to warm up.
seconds() {
  rm -rf "$scratch/run"
  # shellcheck disable=SC2086
  "$lockstep" train "${base[@]}" out="$scratch/run" $1 >/dev/null 2>"$scratch/log" ||
    { cat "$scratch/log" >&2; exit 1; }
  sed -n '3,$p' "$scratch/run/metrics.jsonl" | sed 's/.*"step_seconds": *\([0-9.e+-]*\).*/\1/' | median
}

# Largest of the programs' arenas, MiB, and the work that is done again.
memory() {
  # shellcheck disable=SC2086
  "$lockstep" show "${base[@]}" $1 --memory |
    awk '/^memory of one rank/ { d = 1 } /^memory of its host|^its file/ { d = 0 }
         d && /laid out/ { arena = $3 } /done again/ { again = $3 } /moved/ { moved += $(NF - 3) }
         END { printf "%s | %s | %s", arena, again == "" ? "0" : again, moved + 0 }'
}

plain="-n 1 device.threads=2"
row "one device, 2 threads" $plain
row "recompute: selective" $plain recompute=selective
row "recompute: [attention]" $plain "recompute=[attention]"
row "recompute: full" $plain recompute=full
row "recompute: full, groups of 2" $plain recompute=full recompute_layers=2
row "offload.activations: host" $plain offload.activations=host
row "offload.activations: nvme" $plain offload.activations=nvme "offload.path=$drive"
row "offload.optimizer: host" $plain offload.optimizer=host
row "offload.optimizer: nvme" $plain offload.optimizer=nvme "offload.path=$drive"
row "offload.parameters: host" $plain offload.parameters=host
row "all three: nvme" $plain offload.optimizer=nvme offload.parameters=nvme \
  offload.activations=nvme "offload.path=$drive"
two="-n 2 device.threads=1 mesh.pp=2 train.microbatches=8"
row "one device, 8 microbatches" $plain train.microbatches=8
row "2 stages, 1f1b, 8 microbatches" $two schedule=1f1b
row "2 stages, zbh1" $two schedule=zbh1
row "2 stages, zbh2" $two schedule=zbh2
row "2 stages, zbv" $two schedule=zbv
row "2 stages, interleaved" $two schedule=interleaved

for _ in $(seq "$rounds"); do
  for name in "${names[@]}"; do seconds "${keys[$name]}" >>"$scratch/$(echo "$name" | tr -c 'a-z0-9\n' _)"; done
done
first=$(median <"$scratch/$(echo "${names[0]}" | tr -c 'a-z0-9\n' _)")
echo "| $model, B $batch, T $seq | s a step | against the first | arena MiB | done again, % | moved a step, MiB |"
echo "|---|---|---|---|---|---|"
for name in "${names[@]}"; do
  s=$(median <"$scratch/$(echo "$name" | tr -c 'a-z0-9\n' _)")
  printf '| %s | %.3f | %s | %s |\n' "$name" "$s" "$(echo "$s $first" | awk '{ printf "%.2f", $1 / $2 }')" \
    "$(memory "${keys[$name]}")"
done

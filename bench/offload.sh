#!/usr/bin/env bash
# Steps with what waits on the host or a drive, against none of it and against the bytes that move
# over what the tier can do: rounds interleaved, medians.
#   bench/offload.sh TEXT FOLDER [ROUNDS]     FOLDER: on the drive. MODEL, BATCH, SEQ, STEPS, KEYS
# Works on build/lockstep; prints a table row for each kind.
set -euo pipefail
text=${1:?usage: bench/offload.sh TEXT FOLDER [ROUNDS]}
folder=${2:?usage: bench/offload.sh TEXT FOLDER [ROUNDS]}
rounds=${3:-3}
lockstep=${LOCKSTEP:-build/lockstep}
steps=${STEPS:-5}
common=("model=${MODEL:-gpt2-124m}" dropout=0 "data.text=$text" "data.seq_len=${SEQ:-512}"
  data.validation=0 "train.batch=${BATCH:-4}" eval.every=0 "offload.path=$folder")
read -r -a more <<<"${KEYS:-}"
common+=("${more[@]}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" "$folder/lockstep-bench"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# MiB/s of a copy that dd makes.
rate() {
  local begin end
  begin=$(date +%s.%N)
  dd "$@" bs=4M count=256 status=none
  end=$(date +%s.%N)
  awk -v a="$begin" -v b="$end" 'BEGIN { print 1024 / (b - a) }'
}
writes=$(rate if=/dev/zero "of=$folder/lockstep-bench" oflag=direct)
reads=$(rate "if=$folder/lockstep-bench" of=/dev/null iflag=direct)
rm -f "$folder/lockstep-bench"
dd if=/dev/zero of=/dev/shm/lockstep-bench bs=4M count=256 status=none
copies=$(rate if=/dev/shm/lockstep-bench of=/dev/null)
rm -f /dev/shm/lockstep-bench
printf 'drive: %.0f MiB/s read, %.0f written; copies in memory: %.0f MiB/s\n' "$reads" "$writes" "$copies"

kinds=("" "offload.optimizer=host" "offload.parameters=host" "offload.activations=host"
  "offload.optimizer=nvme" "offload.parameters=nvme" "offload.activations=nvme"
  "offload.optimizer=nvme offload.parameters=nvme offload.activations=nvme")

# The step's median, warm-up steps left out.
run() {
  rm -rf "$scratch/run"
  # shellcheck disable=SC2086
  "$lockstep" train "${common[@]}" "train.steps=$steps" checkpoint.every=0 "out=$scratch/run" $1 \
    >/dev/null 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
  sed -n '3,$p' "$scratch/run/metrics.jsonl" | sed 's/.*"step_seconds": *\([0-9.e+-]*\).*/\1/' | median
}

for ((round = 0; round < rounds; round++)); do
  for k in "${!kinds[@]}"; do run "${kinds[$k]}" >>"$scratch/times.$k"; done
done

printf '%-44s %9s %9s %9s %9s %9s\n' "" "device" "step" "against" "moves" "floor"
printf '%-44s %9s %9s %9s %9s %9s\n' "what waits elsewhere" "MiB" "s" "none" "MiB" "s"
none=$(median <"$scratch/times.0")
for k in "${!kinds[@]}"; do
  # shellcheck disable=SC2086
  "$lockstep" show "${common[@]}" ${kinds[$k]} --memory >"$scratch/memory"
  awk -v kind="${kinds[$k]:-nothing}" -v time="$(median <"$scratch/times.$k")" -v none="$none" \
    -v r="$reads" -v w="$writes" -v c="$copies" '
    /laid out/ && !device { device = $3 }
    /moved/ {
      all += $5
      if ($4 == "nvme") written += $5; else if ($2 == "nvme") read += $5; else copied += $5
    }
    END {
      gsub("offload.", "", kind)
      floor = written / w > read / r ? written / w : read / r
      if (copied / c > floor) floor = copied / c
      printf "%-44s %9.0f %9.3f %9.2f %9.0f %9.3f\n", kind, device, time, time / none, all, floor
    }' "$scratch/memory"
done

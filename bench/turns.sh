#!/usr/bin/env bash
# Runs of one model in turn, each with keys of its own: what an option costs, or ranks against one
# device. Tokens/s (median of the rounds, each the median of its steps after two to warm up), range
# of the rounds, share of the first, resident memory.
#   bench/turns.sh TEXT ROUNDS "COMMON KEYS" "KEYS" "OTHER KEYS" ...        STEPS=6
#   bench/turns.sh book.txt 5 "model=gpt2-124m dropout=0 data.seq_len=512 train.batch=4" \
#     "-n 1 device.threads=2" "-n 2 device.threads=1 mesh.dp_replicate=2"
# Works on build/lockstep; prints a table row for each.
set -euo pipefail
usage='usage: bench/turns.sh TEXT ROUNDS "COMMON KEYS" "KEYS" "OTHER KEYS" ...'
text=${1:?$usage}
rounds=${2:?$usage}
read -r -a common <<<"${3:?$usage}"
shift 3
[ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }
lockstep=${LOCKSTEP:-build/lockstep}
steps=${STEPS:-6}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# once NUMBER KEYS: a round of that row, to the files of its tokens/s and its bytes.
once() {
  rm -rf "$scratch/run"
  # shellcheck disable=SC2086
  "$lockstep" train "${common[@]}" "data.text=$text" data.validation=0 "train.steps=$steps" \
    train.warmup=0 eval.every=0 checkpoint.every=0 check=false "out=$scratch/run" $2 \
    >/dev/null 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
  sed -n '3,$p' "$scratch/run/metrics.jsonl" |
    sed 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/' | median >>"$scratch/$1.speed"
  tail -n 1 "$scratch/run/metrics.jsonl" |
    sed 's/.*"memory_bytes": *\([0-9]*\).*/\1/' >>"$scratch/$1.bytes"
}

for _ in $(seq "$rounds"); do
  n=0
  for keys in "$@"; do
    n=$((n + 1))
    once $n "$keys"
  done
done

echo "| ${common[*]} | tokens/s, median of $rounds | rounds | of the first | resident MiB |"
echo "|---|---|---|---|---|"
first=$(median <"$scratch/1.speed")
n=0
for keys in "$@"; do
  n=$((n + 1))
  sort -g "$scratch/$n.speed" | awk -v keys="$keys" -v first="$first" \
    -v bytes="$(median <"$scratch/$n.bytes")" '
    { v[NR] = $1 }
    END { m = (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
          printf "| %s | %.0f | %.0f to %.0f | %.0f %% | %.0f |\n", keys, m, v[1], v[NR],
                 100 * m / first, bytes / 1048576 }'
done

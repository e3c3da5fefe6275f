#!/usr/bin/env bash
# Decoding of a run's weights as they are stored: bf16, int8 and NF4, in turns on one thread.
# Tokens/s (median of the rounds and their range), share of the first, largest resident memory.
#   bench/decode.sh RUN ROUNDS [TOKENS]
# Works on build/lockstep; prints a table row for each.
set -euo pipefail
usage='usage: bench/decode.sh RUN ROUNDS [TOKENS]'
run=${1:?$usage} rounds=${2:?$usage} tokens=${3:-128}
lockstep=${LOCKSTEP:-build/lockstep}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
formats=(bf16 int8 nf4)

for format in "${formats[@]}"; do
  if [ "$format" = bf16 ]; then how=(--dtype bf16); else how=(--quantize "$format"); fi
  "$lockstep" export "$run" "$scratch/$format" "${how[@]}" >/dev/null
done
for ((round = 0; round < rounds; round++)); do
  for format in "${formats[@]}"; do
    /usr/bin/time -f %M -o "$scratch/kib" "$lockstep" generate "$scratch/$format" \
      "In the beginning" --greedy --max-new-tokens "$tokens" dtype=bf16 device.threads=1 \
      >/dev/null 2>"$scratch/log"
    sed -n 's/.* tokens, \([0-9.]*\) a second$/\1/p' "$scratch/log" | tail -1 >>"$scratch/$format.rate"
    cat "$scratch/kib" >>"$scratch/$format.kib"
  done
done
echo "| stored as | tokens/s | range | share | MB |"
echo "|---|---|---|---|---|"
for format in "${formats[@]}"; do
  sort -g "$scratch/$format.rate" | awk -v format="$format" -v first="$(sort -g "$scratch/bf16.rate" |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')" \
    -v kib="$(sort -g "$scratch/$format.kib" | tail -1)" '{ v[NR] = $1 } END {
      middle = v[int((NR + 1) / 2)]
      printf "| %s | %.0f | %.0f to %.0f | %.2f | %.0f |\n", format, middle, v[1], v[NR],
        middle / first, kib * 1024 / 1e6 }'
done

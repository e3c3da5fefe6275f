#!/usr/bin/env bash
# Lockstep beside transformers and PEFT on the same folders of weights: adapters, evaluation,
# classifiers, experts. Tokens/s and memory, rounds in turn, medians.
#   bench/hf_peers.sh TEXT [ROUNDS]    PYTHON=python3 with torch, transformers, peft and bitsandbytes
#                                      ONLY=words of a row; FOLDERS=where random weights are made
# Works on build/lockstep; both read the text's bytes. Prints a table row for each kind of work.
set -euo pipefail
text=$(realpath "${1:?usage: bench/hf_peers.sh TEXT [ROUNDS]}")
rounds=${2:-5}
python=${PYTHON:-python3}
lockstep=${LOCKSTEP:-build/lockstep}
only=${ONLY:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
folders=${FOLDERS:-$scratch}
peer=$(dirname "$0")/hf_peer.py

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# Texts of as many words as fill a sequence, each a token, for a classifier: no padding, no packing.
labelled() {
  awk -v n="$1" -v words=$(($2 - 2)) 'BEGIN {
    for (i = 0; i < n; i++) {
      printf "{\"text\": \"w%d", i % 900
      for (j = 1; j < words; j++) printf " w%d", (i * 31 + j * 7) % 995
      printf "\", \"label\": \"%s\"}\n", i % 2 ? "good" : "bad"
    } }'
}

# ours WORK FOLDER B T STEPS KEYS...: prints "tokens/s MiB"
ours() {
  local work=$1 folder=$2 batch=$3 seq=$4 steps=$5
  shift 5
  local keys=("data.text=$text" "train.batch=$batch" "data.seq_len=$seq" dtype=bf16 device.threads=2)
  if [ "$work" = classify ]; then
    labelled $((batch * steps)) "$seq" >"$scratch/labelled.jsonl"
    keys+=(task=classify "data.text=$scratch/labelled.jsonl")
  fi
  if [ "$work" = evaluate ]; then
    command time -f %M -o "$scratch/kib" "$lockstep" evaluate "$folder" "${keys[@]}" "eval.batches=$steps" --json \
      >"$scratch/json" 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
    sed 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/' "$scratch/json" | tail -n 1 | tr '\n' ' '
  else
    rm -rf "$scratch/run"
    command time -f %M -o "$scratch/kib" "$lockstep" train "model=$folder" "${keys[@]}" "train.steps=$steps" \
      train.lr=3e-4 train.warmup=0 optimizer.weight_decay=0 eval.every=0 checkpoint.every=0 data.validation=0 \
      "out=$scratch/run" "$@" >/dev/null 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
    sed -n '3,$p' "$scratch/run/metrics.jsonl" |
      sed 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/' | median | tr '\n' ' '
  fi
  tail -n 1 "$scratch/kib" | awk '{ printf "%.0f\n", $1 / 1024 }'
}

once() {
  local work=$1 folder=$2 batch=$3 seq=$4 steps=$5
  shift 5
  "$python" "$peer" "$work" "$folder" --batch "$batch" --seq "$seq" --steps "$steps" --data "$text" "$@" \
    2>"$scratch/log" | grep tokens_per_s |
    sed 's/.*"tokens_per_s": *\([0-9.]*\).*"peak_rss_mib": *\([0-9.]*\).*/\1 \2/' || {
    tail -n 3 "$scratch/log" >&2
    echo "0 0"
  }
}

# The first round tells which is better, eager or compiled.
theirs() {
  local way
  way=$(cat "$scratch/way")
  if [ -n "$way" ]; then
    # shellcheck disable=SC2046
    once "$@" $([ "$way" = eager ] || echo --compile)
    return
  fi
  once "$@" >"$scratch/eager"
  once "$@" --compile >"$scratch/compile"
  way=$(awk '{ v[NR] = $1 } END { print (v[2] > v[1]) ? "compile" : "eager" }' "$scratch/eager" "$scratch/compile")
  echo "$way" >"$scratch/way"
  cat "$scratch/$way"
}

# row NAME WORK SHAPE B T STEPS KEYS...
row() {
  local name=$1 work=$2 shape=$3 batch=$4 seq=$5 steps=$6
  shift 6
  case "$name" in *"$only"*) ;; *) return 0 ;; esac
  [ -d "$folders/$shape" ] || "$python" "$peer" make "$shape" "$folders/$shape" 2>/dev/null
  : >"$scratch/a"; : >"$scratch/b"; : >"$scratch/way"
  for _ in $(seq "$rounds"); do
    ours "$work" "$folders/$shape" "$batch" "$seq" "$steps" "$@" >>"$scratch/a"
    theirs "$work" "$folders/$shape" "$batch" "$seq" "$steps" >>"$scratch/b"
  done
  local a b ma mb spread
  a=$(cut -d' ' -f1 "$scratch/a" | median); b=$(cut -d' ' -f1 "$scratch/b" | median)
  ma=$(cut -d' ' -f2 "$scratch/a" | median); mb=$(cut -d' ' -f2 "$scratch/b" | median)
  spread=$(paste -d' ' "$scratch/a" "$scratch/b" |
    awk '$3 > 0 { r = $1 / $3; if (!n || r < lo) lo = r; if (!n || r > hi) hi = r; n++ }
         END { printf "%.2f to %.2f", lo, hi }')
  awk -v n="$name" -v w="$(cat "$scratch/way")" -v a="$a" -v b="$b" -v ma="$ma" -v mb="$mb" -v s="$spread" 'BEGIN {
    if (b > 0) printf "| %s | %.0f | %.0f (%s) | %.2f (%s) | %.0f | %.0f | %.2f |\n", n, a, b, w, a / b, s, ma, mb, ma / mb
    else printf "| %s | %.0f | - | - | %.0f | - | - |\n", n, a, ma }'
}

echo "| work | Lockstep tokens/s | peer tokens/s (its better way) | ratio (range of rounds) | Lockstep MiB | peer MiB | share |"
echo "|---|---|---|---|---|---|---|"
row "LoRA, smollm2-135m, 4 x 512" lora smollm2-135m 4 512 5 lora.rank=16
row "QLoRA, smollm2-135m, 4 x 512" qlora smollm2-135m 4 512 5 lora.rank=16 quantize=nf4
row "evaluate, smollm2-135m, 4 x 512" evaluate smollm2-135m 4 512 20
row "LoRA, qwen2.5-0.5b, 2 x 256" lora qwen2.5-0.5b 2 256 5 lora.rank=16
row "QLoRA, qwen2.5-0.5b, 2 x 256" qlora qwen2.5-0.5b 2 256 5 lora.rank=16 quantize=nf4
row "evaluate, qwen2.5-0.5b, 2 x 256" evaluate qwen2.5-0.5b 2 256 20
row "classifier, bert-base, 16 x 128" classify bert-base 16 128 5
row "train, mixtral-268m, 2 x 512" train mixtral-268m 2 512 5

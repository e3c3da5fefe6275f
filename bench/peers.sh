#!/usr/bin/env bash
# Lockstep beside PyTorch on the same work: tokens/s and memory, rounds interleaved, medians.
#   bench/peers.sh TORCH_TRAIN.py TEXT [ROUNDS]      PYTHON=python3 of an environment with PyTorch
# TORCH_TRAIN.py trains a GPT-2 shape in PyTorch, on the token ids of --data (16 bits each), and
# prints one line of JSON with tokens_per_s and peak_rss_mib. Both sides read the text's bytes. Works on build/lockstep; prints a table row for each kind of work.
set -euo pipefail
script=${1:?usage: bench/peers.sh TORCH_TRAIN.py TEXT [ROUNDS]}
text=${2:?usage: bench/peers.sh TORCH_TRAIN.py TEXT [ROUNDS]}
rounds=${3:-5}
python=${PYTHON:-python3}
lockstep=${LOCKSTEP:-build/lockstep}
steps=${STEPS:-6}
only=${ONLY:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

iconv -f latin1 -t utf-16le "$text" >"$scratch/bytes.u16" # each byte as a number of 16 bits

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# ours MODEL DTYPE B T KEYS...: prints "tokens/s MiB" (median step after two warm-up steps)
ours() {
  local model=$1 dtype=$2 batch=$3 seq=$4
  shift 4
  rm -rf "$scratch/run"
  "$lockstep" train "model=$model" dropout=0 "dtype=$dtype" "data.text=$text" "data.seq_len=$seq" \
    data.validation=0 "train.batch=$batch" "train.steps=$steps" eval.every=0 train.lr=3e-4 \
    optimizer.weight_decay=0 "out=$scratch/run" "$@" >/dev/null 2>"$scratch/log" ||
    { cat "$scratch/log" >&2; exit 1; }
  sed -n '3,$p' "$scratch/run/metrics.jsonl" | sed 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/' |
    median | tr '\n' ' '
  tail -n 1 "$scratch/run/metrics.jsonl" | sed 's/.*"memory_bytes": *\([0-9]*\).*/\1/' |
    awk '{ printf "%.0f\n", $1 / 1048576 }'
}

# theirs MODEL DTYPE B T MODE RANKS: prints "tokens/s MiB" (MiB: of the largest rank); one device
# is what was better in the row's first round, eager or compiled
theirs() {
  if [ "$5" != single ]; then
    once "$@"
    return
  fi
  case $(cat "$scratch/way") in
    eager) once "$@" ;;
    compile) once "$@" --compile ;;
    *)
      once "$@" >"$scratch/eager"; once "$@" --compile >"$scratch/compile"
      sort -g "$scratch/eager" "$scratch/compile" | tail -n 1
      awk '{ v[NR] = $1 } END { print (v[2] > v[1]) ? "compile" : "eager" }' "$scratch/eager" \
        "$scratch/compile" >"$scratch/way"
      ;;
  esac
}

once() {
  local model=$1 dtype=$2 batch=$3 seq=$4 mode=$5 ranks=$6
  shift 6
  [ "$mode" != none ] || { echo "0 0"; return; } # the script has no such work
  local run=("$python" "$script")
  [ "$ranks" = 1 ] || run=("$python" -m torch.distributed.run --nproc-per-node "$ranks" "$script")
  "${run[@]}" --model "$model" --dtype "$dtype" --mode "$mode" --batch "$batch" --seq "$seq" \
    --steps "$steps" --data "$scratch/bytes.u16" "$@" 2>"$scratch/log" | grep tokens_per_s |
    sed 's/.*"tokens_per_s": *\([0-9.]*\).*"peak_rss_mib": *\([0-9.]*\).*/\1 \2/' || {
    tail -n 5 "$scratch/log" >&2
    echo "0 0"
  }
}

# row NAME MODEL DTYPE B T MODE RANKS KEYS...
row() {
  local name=$1 model=$2 dtype=$3 batch=$4 seq=$5 mode=$6 ranks=$7
  shift 7
  case "$name" in *"$only"*) ;; *) return 0 ;; esac
  : >"$scratch/a"; : >"$scratch/b"; : >"$scratch/way"
  for _ in $(seq "$rounds"); do
    ours "$model" "$dtype" "$batch" "$seq" "$@" >>"$scratch/a"
    theirs "$model" "$dtype" "$batch" "$seq" "$mode" "$ranks" >>"$scratch/b"
  done
  local a b ma mb spread
  a=$(cut -d' ' -f1 "$scratch/a" | median); b=$(cut -d' ' -f1 "$scratch/b" | median)
  ma=$(cut -d' ' -f2 "$scratch/a" | median); mb=$(cut -d' ' -f2 "$scratch/b" | median)
  spread=$(paste -d' ' "$scratch/a" "$scratch/b" |
    awk '$3 > 0 { r = $1 / $3; if (!n || r < lo) lo = r; if (!n || r > hi) hi = r; n++ }
         END { printf "%.2f to %.2f", lo, hi }')
  awk -v n="$name" -v a="$a" -v b="$b" -v ma="$ma" -v mb="$mb" -v s="$spread" 'BEGIN {
    if (b > 0) printf "| %s | %.0f | %.0f | %.2f (%s) | %.0f | %.0f |\n", n, a, b, a / b, s, ma, mb
    else printf "| %s | %.0f | - | - | %.0f | - |\n", n, a, ma }'
}

echo "| work | Lockstep tokens/s | PyTorch tokens/s | ratio (range of rounds) | Lockstep MiB, all ranks | PyTorch MiB, largest rank |"
echo "|---|---|---|---|---|---|"
one=(mesh.dp_shard=1 device.threads=2 -n 1)
for dtype in ${DTYPES:-fp32 bf16}; do
  row "gpt2-124m, one device, $dtype" gpt2-124m "$dtype" 4 512 single 1 "${one[@]}"
  row "smollm2-135m, one device, $dtype" smollm2-135m "$dtype" 4 512 single 1 "${one[@]}"
  row "llama-60m, one device, $dtype" llama-60m "$dtype" 8 512 single 1 "${one[@]}"
  row "gpt2-10m, one device, $dtype" gpt2-10m "$dtype" 16 256 single 1 "${one[@]}"
  two=(device.threads=1 -n 2)
  row "gpt2-124m, DDP, $dtype" gpt2-124m "$dtype" 4 512 ddp 2 mesh.dp_replicate=2 "${two[@]}"
  row "gpt2-124m, ZeRO-1 / DDP, $dtype" gpt2-124m "$dtype" 4 512 ddp 2 mesh.dp_shard=2 zero=1 "${two[@]}"
  row "gpt2-124m, ZeRO-2 / FSDP2, $dtype" gpt2-124m "$dtype" 4 512 fsdp 2 mesh.dp_shard=2 zero=2 "${two[@]}"
  row "gpt2-124m, ZeRO-3 / FSDP2, $dtype" gpt2-124m "$dtype" 4 512 fsdp 2 mesh.dp_shard=2 zero=3 "${two[@]}"
  row "llama-60m, TP + SP / TP, $dtype" llama-60m "$dtype" 8 512 tp 2 mesh.tp=2 "${two[@]}"
  pipe=(mesh.pp=2 mesh.dp_shard=1 train.microbatches=4 "${two[@]}")
  row "gpt2-124m, 1F1B, 4 microbatches, $dtype" gpt2-124m "$dtype" 4 512 pp 2 schedule=1f1b "${pipe[@]}"
  row "gpt2-124m, ZB-V / 1F1B, $dtype" gpt2-124m "$dtype" 4 512 pp 2 schedule=zbv "${pipe[@]}"
done

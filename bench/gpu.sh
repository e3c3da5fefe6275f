#!/usr/bin/env bash
# What a GPU shows: kernels and libraries against the reference, runs against the CPU's, speed,
# memory, and PyTorch on the same work.
#   bench/gpu.sh RESULTS PART...      parts: doctor tests sanitize equal generate loopback speed tune trace torch
# Works on build/lockstep and build/tests (BUILD=DIR). MODELS, DTYPE, STEPS, BATCH, LENGTH, RECOMPUTE and KEYS say what is
# timed; TORCH_PYTHON: a python3 with PyTorch, for the part torch; TEXT: any text; RUN_FOLDER: where a
# run would save its checkpoint, for which there has to be room; SHAPES: a folder with other llama.json,
# gpt2.json, gemma.json and mixtral.json; ONLY: one of these four; PROMPT and NEW: bytes to go on from, and tokens.
# Every part goes on whatever fails.
set -uo pipefail
results=${1:?usage: bench/gpu.sh RESULTS PART...}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${BUILD:-$root/build}" && pwd)
lockstep=$build/lockstep
text=$(realpath "${TEXT:-$root/README.md}")
python=${TORCH_PYTHON:-python3}
shapes=${SHAPES:+$(realpath "$SHAPES")}
mkdir -p "$results"
results=$(cd "$results" && pwd)
scratch=$(mktemp -d)
out=${RUN_FOLDER:-$scratch/run}
trap 'rm -rf "$scratch" "$out"' EXIT
cd "$scratch" || exit
export XDG_CACHE_HOME=$scratch/cache

part_doctor() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,power.limit --format=csv,noheader
  timeout 60 "$lockstep" doctor
  echo "status $?"
}

# The tests of kernels and libraries, on the GPU itself.
part_tests() {
  export LS_NATIVE_GPU=1
  local name
  for name in cuda_kernels cuda_attention cuda_products cuda_plans; do
    ( timeout "${TEST_SECONDS:-60}" "$build/tests/${name}_test" >"$results/$name.log" 2>&1
      echo "$name: status $?, $(grep -E '^\[  (PASSED|FAILED)' "$results/$name.log" | tail -n 2 | tr '\n' ' ')" ) &
  done
  wait
  unset LS_NATIVE_GPU
}

# The same under compute-sanitizer. Kernels are looked for in one module after another, so a name
# that is not found is no error.
part_sanitize() {
  export LS_NATIVE_GPU=1
  local tool name
  for tool in memcheck racecheck; do
    for name in cuda_kernels cuda_attention; do
      ( timeout "${TEST_SECONDS:-60}" compute-sanitizer --tool $tool --report-api-errors no \
          "$build/tests/${name}_test" >"$results/$tool-$name.log" 2>&1
        echo "$tool of $name: status $?, $(grep -E 'SUMMARY|^\[  (PASSED|FAILED)' "$results/$tool-$name.log" | tail -n 2 | tr '\n' ' ')" ) &
    done
  done
  wait
  unset LS_NATIVE_GPU
}

cat >llama.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 704,
 "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 512}
END
cat >gpt2.json <<'END'
{"model_type": "gpt2", "vocab_size": 262, "n_embd": 192, "n_layer": 2, "n_head": 3,
 "n_positions": 512, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
END
cat >gemma.json <<'END'
{"model_type": "gemma2", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 384,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
 "max_position_embeddings": 512, "sliding_window": 64, "query_pre_attn_scalar": 64,
 "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
END
cat >mixtral.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 320,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "num_local_experts": 6, "num_experts_per_tok": 2, "max_position_embeddings": 512}
END
[ -z "$shapes" ] || cp "$shapes"/*.json .
cat >run.yaml <<END
data: {text: $text, tokenizer: bytes, seq_len: ${SEQ:-256}, validation: 0}
train: {batch: 8, lr: 1e-3, steps: ${EQUAL_STEPS:-8}, warmup: 1}
eval: {every: 0}
checkpoint: {every: 0}
END

# difference BAND A B: the worst of losses and norms of two runs.
difference() {
  paste "$2/metrics.jsonl" "$3/metrics.jsonl" | sed 's/[{},"]/ /g' | awk -v band="$1" '
    { n = 0
      for (i = 1; i < NF; i++) if ($i == "loss" || $i == "grad_norm") seen[n++] = $(i + 2)
      if (n != 4) next
      steps++
      for (k = 0; k < 2; k++) { d = seen[k] / seen[k + 2] - 1; if (d < 0) d = -d
        if (d > worst[k]) worst[k] = d } }
    END { printf "%d steps, loss within %.1e, norm within %.1e: %s\n", steps, worst[0], worst[1],
            steps && worst[0] <= band && worst[1] <= 10 * band ? "ok" : "BEYOND " band }'
}
compared=0
# both NAME BAND words...: on the CPU and on the GPU.
both() {
  local name=$1 band=$2 here=equal-$compared
  [ "$name" = "${ONLY:-$name}" ] || return
  compared=$((compared + 1))
  shift 2
  (
    mkdir "$here" && cd "$here" || exit
    cp ../*.json .
    timeout "${RUN_SECONDS:-100}" "$lockstep" train ../run.yaml out=cpu device.kind=cpu device.threads=2 "$@" >cpu.log 2>&1 ||
      { echo "$name: $*: the CPU failed: $(tail -n 1 cpu.log)"; exit; }
    timeout "${RUN_SECONDS:-100}" "$lockstep" train ../run.yaml out=gpu device.kind=cuda "$@" >gpu.log 2>&1 ||
      { echo "$name: $*: FAILED: $(tail -n 3 gpu.log)"; cp gpu.log "$results/$here.log"; exit; }
    echo "$name: $*: $(difference "$band" cpu gpu)"
    cp gpu/metrics.jsonl "$results/$here.jsonl"
  ) &
  [ $((compared % 4)) != 0 ] || wait
}

part_equal() {
  both llama 2e-5 model=llama.json dtype=fp32
  both llama 2e-5 model=llama.json dtype=fp32 device.graphs=false train.microbatches=2
  both gpt2 2e-5 model=gpt2.json dtype=fp32 logits_rows=64
  both gemma 2e-5 model=gemma.json dtype=fp32 logits_rows=512
  both llama 2e-2 model=llama.json dtype=bf16
  both llama 2e-2 model=llama.json dtype=bf16 numerics=exact
  both gemma 2e-2 model=gemma.json dtype=bf16
  both gpt2 2e-2 model=gpt2.json dtype=bf16 recompute=full
  both llama 2e-2 model=llama.json dtype=fp16
  both llama 2e-2 model=llama.json dtype=bf16 data.documents=masked
  both mixtral 2e-5 model=mixtral.json dtype=fp32
  both mixtral 2e-2 model=mixtral.json dtype=bf16
  both gpt2 2e-5 model=gpt2.json dtype=fp32 dropout=0.1
  both gpt2 2e-2 model=gpt2.json dtype=bf16 dropout=0.1
  both llama 2e-5 model=llama.json dtype=fp32 offload.optimizer=host offload.activations=host
  wait
}

# Likeliest tokens against the CPU's, and how fast they come. Without a tokenizer ids are bytes.
part_generate() {
  local name dtype kind status both
  sed -i 's/"vocab_size": [0-9]*/"vocab_size": 256/' ./*.json
  for name in ${ONLY:-llama gpt2 gemma mixtral}; do
    timeout "${RUN_SECONDS:-100}" "$lockstep" train run.yaml "model=$name.json" out="text-$name" device.kind=cpu \
      device.threads=2 dtype=fp32 train.steps=40 >"$name.log" 2>&1 || { echo "$name: $(tail -n 1 "$name.log")"; continue; }
    for dtype in fp32 bf16; do
      both=0
      for kind in cpu cuda; do
        head -c "${PROMPT:-200}" "$text" | timeout "${RUN_SECONDS:-100}" "$lockstep" generate "text-$name" - --greedy \
          --max-new-tokens "${NEW:-100}" dtype=$dtype device.kind=$kind >"$kind.txt" 2>"$kind.log"
        status=$?
        both=$((both + status))
        echo "$name, $dtype, $kind: status $status, $(tail -n 1 "$kind.log")"
      done
      [ $both != 0 ] || ! cmp cpu.txt cuda.txt || echo "$name, $dtype: the same text"
    done
  done
  for name in ${MODELS:-smollm2-135m}; do
    timeout "${RUN_SECONDS:-100}" "$lockstep" train run.yaml "model=$name" out="text-$name" device.kind=cpu dtype=fp32 \
      train.steps=1 train.batch=1 data.seq_len=16 >"$name.log" 2>&1 || { echo "$name: $(tail -n 1 "$name.log")"; continue; }
    for kind in "" device.graphs=false device.tune=true; do
      head -c "${PROMPT:-4000}" "$text" | timeout "${RUN_SECONDS:-100}" "$lockstep" generate "text-$name" - --greedy \
        --max-new-tokens "${NEW:-400}" dtype=bf16 device.kind=cuda $kind 2>&1 >"$name.txt" | tail -n 1 | sed "s/^/$name, bf16, $kind: /"
    done
  done
}

part_loopback() {
  local loop=(device.loopback=true)
  both llama 2e-5 model=llama.json dtype=fp32 mesh.dp_shard=2 zero=3 mesh.tp=2 recompute=full "${loop[@]}"
  both llama 2e-5 model=llama.json dtype=fp32 mesh.pp=2 mesh.dp_replicate=2 schedule=zbh1 train.microbatches=2 "${loop[@]}"
  both llama 2e-5 model=llama.json dtype=fp32 mesh.pp=4 schedule=gpipe train.microbatches=2 post_validation=true train.clip=1000 "${loop[@]}"
  both gpt2 2e-5 model=gpt2.json dtype=fp32 mesh.tp=3 "${loop[@]}"
  both llama 2e-5 model=llama.json dtype=fp32 mesh.dp_shard=2 zero=2 offload.optimizer=host "${loop[@]}"
  both llama 2e-2 model=llama.json dtype=bf16 mesh.tp=2 sequence_parallel=true mesh.pp=2 train.microbatches=2 "${loop[@]}"
  both llama 2e-5 model=llama.json dtype=fp32 mesh.cp=2 context=ring "${loop[@]}"
  both llama 2e-2 model=llama.json dtype=bf16 mesh.cp=2 context=gather mesh.tp=2 "${loop[@]}"
  both mixtral 2e-5 model=mixtral.json dtype=fp32 mesh.dp_shard=2 mesh.ep=2 mesh.tp=2 "${loop[@]}"
  wait
}

# shape MODEL: what it is trained with on one device.
shape() {
  case $1 in
    gpt2-124m) echo "train.batch=${BATCH:-32} data.seq_len=${LENGTH:-1024}" ;;
    gpt2-1.5b) echo "train.batch=${BATCH:-16} data.seq_len=${LENGTH:-1024}" ;;
    *1.5b | *1b | *1.7b) echo "train.batch=${BATCH:-8} data.seq_len=${LENGTH:-4096} recompute=${RECOMPUTE:-none}" ;;
    *) echo "train.batch=${BATCH:-2} data.seq_len=${LENGTH:-4096} recompute=${RECOMPUTE:-full}" ;;
  esac
}

# trained MODEL NAME words...: trains on the GPU; its log and metrics are kept.
trained() {
  local model=$1 name=$2 begin peak=0 used lines
  shift 2
  rm -rf "$out"
  begin=$(date +%s%N)
  # shellcheck disable=SC2046
  "$lockstep" train model="$model" dropout=0 dtype="${DTYPE:-bf16}" data.text="$text" \
    data.tokenizer=bytes data.validation=0 eval.every=0 checkpoint.every=0 train.lr=1e-4 train.steps=100000 \
    device.kind=cuda out="$out" $(shape "$model") "$@" >"$results/$name.log" 2>&1 &
  local process=$! end=$((SECONDS + ${RUN_SECONDS:-120}))
  while kill -0 $process 2>/dev/null; do
    used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -n 1)
    [ "${used:-0}" -le "$peak" ] || peak=$used
    # A run that ends by itself saves what it trained, which is not what is measured.
    lines=$(grep -c . "$out/metrics.jsonl" 2>/dev/null)
    [ "${lines:-0}" -le "${STEPS:-12}" ] && [ $SECONDS -lt $end ] || { kill -9 $process; break; }
    sleep 0.2
  done
  wait $process 2>/dev/null
  echo "$name: status $?, $((($(date +%s%N) - begin) / 1000000)) ms in all, NVML's peak $peak MiB, $(tail -n 1 "$results/$name.log" | cut -c 1-300)"
  [ ! -e "$out/metrics.jsonl" ] || {
    cp "$out/metrics.jsonl" "$results/$name.jsonl"
    tail -n +4 "$out/metrics.jsonl" | grep -o '"\(tokens_per_second\|mfu\|memory_bytes\)": *[0-9.e+-]*' | sort -t: -k1,1 -k2,2g |
      awk -F': *' '{ v[$1, ++n[$1]] = $2 } END { for (k in n) printf "  %s median %s (%s to %s)\n", k, v[k, int((n[k] + 1) / 2)], v[k, 1], v[k, n[k]] }'
  }
}

part_speed() {
  local model
  # shellcheck disable=SC2086
  for model in ${MODELS:-gpt2-124m gpt2-1.5b}; do trained "$model" "speed-$model" ${KEYS:-}; done
}

# Products by the library's first guess and by what is timed, in turns: a run that finds what is kept
# times nothing and is to have the losses of the run that kept it, where attention's sums have an
# order (KEYS="numerics=exact": cuDNN's gradients have none).
part_tune() {
  local model name
  for model in ${MODELS:-gpt2-124m gpt2-1.5b}; do
    "$lockstep" cache clear >/dev/null
    for name in guessed timed kept guessed-again kept-again; do
      # shellcheck disable=SC2086
      trained "$model" "tune-$name-$model" device.tune="$(case $name in guessed*) echo false ;; *) echo true ;; esac)" ${KEYS:-}
      grep 'the kernels of' "$results/tune-$name-$model.log" | tail -n 1
    done
    "$lockstep" cache >"$results/tune-$model.kept"
    for name in kept kept-again; do
      head -n "${STEPS:-12}" "$results/tune-timed-$model.jsonl" | grep -o '"loss": *[0-9.]*' >timed.losses
      head -n "${STEPS:-12}" "$results/tune-$name-$model.jsonl" | grep -o '"loss": *[0-9.]*' |
        cmp -s timed.losses - && echo "$model: $name has the losses of timed" || echo "$model: $name: OTHER LOSSES"
    done
  done
}

part_trace() {
  local model
  # shellcheck disable=SC2086
  for model in ${MODELS:-gpt2-124m gpt2-1.5b}; do
    STEPS=4 trained "$model" "trace-$model" trace=true ${KEYS:-}
    [ ! -e "$out/trace.json" ] || xz -T4 -c "$out/trace.json" >"$results/trace-$model.json.xz"
  done
}

part_torch() {
  local model of
  for model in ${MODELS:-gpt2-124m gpt2-1.5b}; do
    if [ -f "$model" ]; then
      cp "$model" config.json
    else
      "$lockstep" models "$model" --json >of.json 2>/dev/null || { echo "$model: no config"; continue; }
      "$python" -c 'import json,sys; d=json.load(open("of.json")); json.dump(d[0]["config"], open("config.json","w"))'
    fi
    of=$(shape "$model")
    for way in ${TORCH_WAYS:-autocast}; do
      # shellcheck disable=SC2086,SC2046
      echo "torch $model $way: $(timeout "${RUN_SECONDS:-120}" "$python" "$root/bench/torch_gpu.py" config.json \
        $(echo "$of" | sed -E 's/train.batch=([0-9]+) data.seq_len=([0-9]+).*/\1 \2/') "${STEPS:-12}" $way \
        ${TORCH_KEYS:-} 2>"$results/torch-$model-$way.log" || tail -n 3 "$results/torch-$model-$way.log")"
    done
  done
}

for part in "$@"; do
  echo "== $part =="
  "part_$part"
  echo "part: $part, $SECONDS s"
done 2>&1 | tee -a "$results/all.log"

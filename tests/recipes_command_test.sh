#!/bin/sh
# Recipes in examples/recipes run as they are, of models of the same families with few numbers in place
# of those that they name; and tools/finetune.sh, of a small model in place of the quick start's.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$(dirname "$0")/support/small_run.sh"

stand_in() { # FOLDER TOKENIZER MORE: with weights
  mkdir "$1-shape"
  cp "$root/tests/data/tokenizers/$2/tokenizer.json" "$1-shape/"
  cp "$root/examples/chat/chatml.jinja" "$1-shape/chat_template.jinja"
  echo "{$3, \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4}" >"$1-shape/config.json"
  run 0 train "model=$1-shape" $4 data.text=text.txt data.seq_len=16 data.validation=0 train.steps=1 train.batch=2 \
    eval.every=0 dtype=fp32 "out=$1-run"
  run 0 export "$1-run" "$1"
  cp "$root/examples/chat/chatml.jinja" "$1/chat_template.jinja"
}
long='"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "num_key_value_heads": 2, "tie_word_embeddings": true'
stand_in smollm2-135m bytes-falcon "\"model_type\": \"llama\", \"vocab_size\": 512, $long" ""
stand_in qwen2.5-0.5b bytes-falcon "\"model_type\": \"qwen2\", \"vocab_size\": 512, $long" ""
stand_in llama3.2-1b bytes-falcon "\"model_type\": \"llama\", \"vocab_size\": 512, $long, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 1024}" ""
stand_in bert word-piece '"model_type": "bert", "vocab_size": 520, "max_position_embeddings": 512' task=mlm

# From the root, whose texts they name; all but the model, the folder and how long is the recipe's.
recipe() { # NAME more...
  name=$1
  shift
  (cd "$root" && timeout 120 "$lockstep" train "examples/recipes/$name.yaml" "model=$work/$name" "out=$work/runs/$name" \
    train.steps=2 train.batch=2 "$@" >"$work/output" 2>"$work/log" </dev/null) || fail "$name: $(cat log)"
  passed=$((passed + 1))
  says "starting from the weights in $work/$name"
  says "trained 2 steps"
}
recipe smollm2-135m data.seq_len=128 eval.every=1 eval.max_new_tokens=4
says "of rank 16, which count 2 times"
says "dropout: adapters 0.05"
[ -e runs/smollm2-135m/best ] && [ -s runs/smollm2-135m/samples.jsonl ] || fail "no best checkpoint, or no samples"
run 0 export runs/smollm2-135m/best merged --merge
recipe qwen2.5-0.5b data.seq_len=128 eval.every=1
says "of ranks 16 to 32, which count 2 times"
run 0 export runs/qwen2.5-0.5b/best quantised --merge --quantize nf4
run 0 generate quantised "It was" --greedy --max-new-tokens 4
recipe llama3.2-1b data.seq_len=128 eval.every=1 -n 2
says "of rank 32, which count 1 times"
recipe bert eval.every=1
says "texts of 3 classes"
run 0 evaluate runs/bert/best data.text="$root/examples/classify/reviews.jsonl"
says "accuracy"

# Layers left out, and what is left distilled from the whole.
LOCKSTEP=$lockstep "$root/examples/recipes/prune.sh" smollm2-135m-run 1 text.txt pruned train.steps=12 train.lr=1e-2 \
  train.batch=4 data.seq_len=16 >output 2>log </dev/null || fail "prune.sh: $(cat log)"
[ "$(grep -c ': loss [0-9.]*, perplexity' output)" -eq 3 ] || fail "prune.sh: $(cat output)"
awk '/: loss/ { loss[++n] = $3 + 0 } END { exit !(loss[3] < loss[2]) }' output || fail "nothing is learned: $(cat output)"
passed=$((passed + 1))

# The quick start's kind of model, tuned on chats; its template is kept, and the answers counted.
run 0 train "$root/examples/quickstart.yaml" data.text=text.txt data.seq_len=256 train.steps=2 eval.every=0 data.validation=0 \
  out=base -n 2
LOCKSTEP=$lockstep BASE=$work/base OUT=$work/tuned "$root/tools/finetune.sh" train.steps=2 train.batch=2 eval.every=1 >output 2>log </dev/null || fail "finetune.sh: $(cat log)"
[ "$(grep -c ' of 10 answers in the form that is taught' output)" -eq 2 ] || fail "finetune.sh: $(cat output)"
says "chats: "
says "adapters: "
code=0
"$root/tools/finetune.sh" none.jsonl 2>log || code=$?
[ $code -eq 2 ] && says "none.jsonl: missing or empty" || fail "a missing file: $code, $(cat log)"
echo "$passed passed, 0 failed"

#!/bin/sh
# `models`: the built-in shapes by name, in full, as JSON; what cannot be built, and what is unknown.
set -eu
. "$(dirname "$0")/support/small_run.sh"

run 0 models
says "llama3.1-405b"
says "mixtral-8x7b"
run 0 models qwen3
says "qwen3-8b"
run 0 models LLaMA3-405B
says "parameters   405853388800, published 405.9 billion"
run 0 models mixtral-8x7b
says "parameters   46702792704, published 46.7 billion"
run 0 models gpt-oss-20b
says "parameters   20914757184, published 20.91 billion"
run 0 models nemotron-4-340b
says "cannot be built: the family nemotron"
run 0 models gpt2-124m --json
says '"n_layer": 12'
run 2 models lama3-8c
says "the nearest are llama3-8b"
run 2 models a b
says "expected one word"

# A name of the catalog goes wherever a model does.
cat > keys.yaml <<'KEYS'
model: Llama-3.2-1B
data.seq_len: 512
train.batch: 8
KEYS
run 0 simulate keys.yaml --on 8xh100-sxm
says "Llama-3.2-1B: 1235.81 M parameters"
run 0 check keys.yaml dtype=auto --on 8xh100-sxm
run 2 simulate keys.yaml model=nemotron-4-340b --on 8xh100-sxm
says "nemotron-4-340b cannot be built yet: the family nemotron"

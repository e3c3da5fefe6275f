#!/bin/sh
# Quantised models as a user makes them: exported in NF4, FP4 and int8, evaluated beside what they were
# made of, generated from, trained beside; with adapters merged; and what is refused.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "tie_word_embeddings": true}
END
run 0 train keys.yaml train.steps=40 train.lr=1e-2 checkpoint.every=0 out=first
run 0 export first base
for kind in nf4 int8 fp4; do run 0 export first $kind --quantize $kind; done
bytes() { wc -c <"$1/model.safetensors"; }
[ "$(bytes nf4)" = "$(bytes fp4)" ] && [ "$(bytes nf4)" -lt "$(bytes int8)" ] && [ "$(bytes int8)" -lt "$(bytes base)" ] ||
  fail "bytes: $(bytes base) $(bytes int8) $(bytes nf4)"

# The loss on a text before and after; the run and its plain export have the same.
loss() {
  run 0 evaluate $1 data.text=text.txt data.seq_len=16 train.batch=2 eval.batches=8 dtype=fp32 --json
  sed 's/.*"loss": *\([^,]*\),.*/\1/' output
}
for model in first base int8 nf4 fp4; do loss $model >>losses; done
awk '{ loss[NR] = $1 } END { base = loss[2]
  exit !(loss[1] == base && loss[3] != base && loss[4] != base && loss[3] != loss[4] &&
         loss[5] != base && loss[5] != loss[4] &&
         (loss[3] - base) ^ 2 < 1e-4 && (loss[4] - base) ^ 2 < 0.09 && (loss[5] - base) ^ 2 < 0.16) }' losses ||
  fail "losses: $(cat losses)"
run 0 evaluate nf4 data.text=text.txt data.seq_len=16 mesh.tp=2 dtype=fp32 -n 2
for kind in nf4 int8 fp4; do
  run 0 generate $kind "It was a bright" --max-new-tokens 12 --greedy
  says "It was a bright"
  run 0 inspect $kind
  says "$kind"
done

# Training beside the folder is training beside the plain weights that are quantised as they are read.
lines() { sed 's/"tokens_per_second.*//' "$1/metrics.jsonl"; }
for kind in nf4 int8 fp4; do
  for model in $kind base; do
    words="model=$model lora.rank=2 train.lr=1e-2 train.steps=3 out=beside-$kind-$model"
    [ $model = $kind ] || words="$words quantize=$kind"
    run 0 train keys.yaml $words
  done
  lines beside-$kind-$kind >one; lines beside-$kind-base >other
  [ "$(wc -l <one)" -eq 3 ] && cmp -s one other || fail "$kind: $(cat one other)"
done

# What is quantised keeps its blocks; numbers of it again are what they stand for.
run 0 export nf4 again --quantize nf4
run 0 export int8 numbers
[ "$(loss again)" = "$(sed -n 4p losses)" ] || fail "NF4 is not what it was"
[ "$(loss numbers)" = "$(sed -n 3p losses)" ] || fail "numbers are not those of int8"
if grep -q quantization_config numbers/config.json; then fail "numbers are called quantised"; fi

# Scales in 8 bits: the same codes, and scales that stay as they are from there on.
for kind in nf4 fp4; do
  run 0 export base $kind-double --quantize $kind-double
  grep -q nested_absmax $kind-double/model.safetensors || fail "$kind-double has single scales"
  grep -q '"bnb_4bit_use_double_quant": true' $kind-double/config.json || fail "no double quantisation"
  run 0 export $kind-double $kind-double-again --quantize $kind-double
  [ "$(loss $kind-double-again)" = "$(loss $kind-double)" ] || fail "$kind: other scales"
  run 0 export $kind-double $kind-single --quantize $kind
  [ "$(bytes $kind-single)" = "$(bytes $kind)" ] || fail "$kind: scales are not single"
  [ "$(loss $kind-single)" = "$(loss $kind-double)" ] || fail "$kind: single scales are others"
done

# Scales of 8 bits in memory: beside the folder is beside the plain weights that are quantised so, on one
# rank and on others, whose checkpoints go on on any; and what is exported has the folder's bits.
parameters() { sed -n 's/^ *weights *\([0-9.]* [kKMG]*i*B\).*/\1/p' output; }
for kind in nf4 fp4; do
  words="lora.rank=2 train.lr=1e-2 train.steps=3"
  run 0 train keys.yaml model=$kind-double $words out=twice-$kind
  run 0 train keys.yaml model=base quantize=$kind-double $words out=twice-$kind-base
  lines twice-$kind >one; lines twice-$kind-base >other
  [ "$(wc -l <one)" -eq 3 ] && cmp -s one other || fail "$kind-double: $(cat one other)"
  run 0 train keys.yaml model=$kind-double quantize=$kind $words out=once-$kind
  lines once-$kind >other
  cmp -s one other || fail "$kind: scales in fp32 are others: $(cat one other)"
done
words="lora.rank=2 train.lr=1e-2 train.lr_schedule=constant"
run 0 train keys.yaml model=base quantize=nf4-double $words train.steps=6 out=whole
run 0 train keys.yaml model=base quantize=nf4-double $words train.steps=4 out=parts zero=3 -n 2
run 0 train keys.yaml model=base quantize=nf4-double $words train.steps=6 out=parts mesh.tp=2 -n 2
for of in whole parts; do sed 's/.*"loss": *\([^,]*\),.*/\1/' $of/metrics.jsonl | tail -n 1; done >ends
awk '{ loss[NR] = $1 } END { exit !((loss[1] - loss[2]) ^ 2 < 1e-9) }' ends || fail "on other ranks: $(cat ends)"
run 0 evaluate nf4-double data.text=text.txt data.seq_len=16 mesh.tp=2 dtype=fp32 -n 2
run 0 generate nf4-double "It was a bright" --max-new-tokens 12 --greedy
says "It was a bright"
# Merged are what the blocks stand for, which a checkpoint's config.json says.
run 0 export whole merged-twice --merge
run 0 export parts parts-merged --merge --quantize nf4-double
run 0 export parts parts-plain --merge
run 0 export parts-plain parts-two --quantize nf4-double
cmp -s parts-two/model.safetensors parts-merged/model.safetensors || fail "merged in one go beside scales of 8 bits it is another model"
awk -v a="$(loss whole)" -v b="$(loss merged-twice)" 'BEGIN { exit !((a - b) ^ 2 < 1e-9) }' ||
  fail "merged: $(loss whole) and $(loss merged-twice)"

# Adapters are merged before.
run 0 train keys.yaml model=base lora.rank=2 train.lr=3e-2 out=adapted
run 0 export adapted merged --merge
run 0 export merged two --quantize nf4
run 0 export adapted one-go --merge --quantize nf4
cmp -s two/model.safetensors one-go/model.safetensors || fail "merged in one go it is another model"
run 0 export beside-nf4-base eight --merge --quantize int8

refused() { # WHAT words...
  what=$1
  shift
  run 2 "$@"
  says "$what"
  [ "$(wc -l <log)" -eq 1 ] || fail "$*: expected one line: $(cat log)"
  [ ! -e none ] || fail "$*: made a folder"
}
refused "--quantize: found int4; expected nf4, fp4, int8, nf4-double or fp4-double" export base none --quantize int4
refused "add --merge" export adapted none --quantize nf4
refused "nf4: something is there" export base nf4 --quantize nf4
refused "expected fp32, bf16 or fp16 beside it" export base none --quantize nf4 --dtype fp64
refused "is quantised as nf4, and would be quantised again" export nf4 none --quantize int8
refused "is quantised as fp4, and would be quantised again" export fp4 none --quantize nf4
refused "is quantised as int8, and would be quantised again" train keys.yaml model=int8 lora.rank=2 quantize=nf4 out=none
refused "has scales in fp32, which would be quantised again: use quantize=nf4" train keys.yaml model=nf4 lora.rank=2 quantize=nf4-double out=none
refused "is quantised as fp4, and would be quantised again" train keys.yaml model=fp4-double lora.rank=2 quantize=nf4-double out=none
refused "give lora.rank" train keys.yaml model=int8 out=none
model() { # NAME KEYS
  mkdir "$1"
  echo "$2" >"$1.json"
  run 0 train keys.yaml model="$1.json" train.steps=1 out="$1/run"
}
model narrow '{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 64,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}'
refused "hidden_size is 16, and rows of weights are quantised in whole blocks of 64" export narrow/run none --quantize int8
# GPT-2's matrices are stored transposed; their blocks are of the rows that products read.
model gpt2 '{"model_type": "gpt2", "vocab_size": 256, "n_embd": 128, "n_layer": 1, "n_head": 2, "n_positions": 32}'
refused "is stored transposed, as [in, out], of which compressed-tensors has no groups: expected nf4 or fp4" \
  export gpt2/run none --quantize int8
refused "has the weights of several products, whose scales would be quantised together" \
  train keys.yaml model=gpt2/run/checkpoints/step-1 lora.rank=2 quantize=nf4-double out=none
run 0 export gpt2/run gpt2-plain
run 0 export gpt2/run gpt2-nf4 --quantize nf4
run 0 export gpt2-nf4 gpt2-numbers
[ "$(loss gpt2-nf4)" = "$(loss gpt2-numbers)" ] || fail "gpt2 in nf4 is not what it stands for"
[ "$(loss gpt2-nf4)" != "$(loss gpt2-plain)" ] || fail "gpt2 in nf4 is as before"
run 0 export gpt2-numbers gpt2-again --quantize nf4
[ "$(loss gpt2-again)" = "$(loss gpt2-nf4)" ] || fail "gpt2 in nf4 again is another"
words="lora.rank=2 train.lr=1e-2 train.steps=3 quantize=nf4"
for model in gpt2-nf4 gpt2-plain; do
  run 0 train keys.yaml model=$model $words out=beside-$model
  # Adapters merged into what they were trained beside: the same of either folder.
  run 0 export beside-$model merged-$model --merge
done
lines beside-gpt2-nf4 >one; lines beside-gpt2-plain >other
[ "$(wc -l <one)" -eq 3 ] && cmp -s one other || fail "gpt2 in nf4: $(cat one other)"
[ "$(loss merged-gpt2-nf4)" = "$(loss merged-gpt2-plain)" ] || fail "gpt2 in nf4 is merged into something else"
[ "$(loss merged-gpt2-plain)" != "$(loss gpt2-nf4)" ] || fail "gpt2 in nf4: nothing is merged"
run 0 train keys.yaml model=gpt2-plain $words mesh.tp=2 -n 2 out=beside-tp
run 0 export beside-gpt2-plain blocks --merge --quantize nf4
run 0 generate blocks "It was a" --max-new-tokens 3 --greedy
run 0 train keys.yaml model=gpt2-plain $words quantize=int8 train.steps=1 out=beside-int8-gpt2
# Of a tensor of several products scales are quantised together: it is read with scales in fp32.
model phi3 '{"model_type": "phi3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64, "pad_token_id": 0,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}'
run 0 export phi3/run fused --quantize nf4-double
run 0 generate fused "It was a" --max-new-tokens 3 --greedy
words="lora.rank=2 lora.targets=[o_proj,down_proj] train.steps=1"
run 0 train keys.yaml model=fused $words out=fused-run
refused "has the weights of several products, whose scales would be quantised together: use quantize=nf4" \
  train keys.yaml model=fused $words quantize=nf4-double out=none
changed() { # FROM TO WHAT
  rm -rf changed
  cp -r int8 changed
  sed "s/$1/$2/" int8/config.json >changed/config.json
  refused "$3" generate changed "It was"
}
changed '"group_size": 64' '"group_size": 128' "group_size: found 128; expected 64"
changed '"int-quantized"' '"pack-quantized"' 'found "pack-quantized"; expected "int-quantized"'
changed '"symmetric": true' '"symmetric": false' "symmetric: found false"
changed '"strategy": "group"' '"strategy": "channel"' 'strategy: found "channel"'
echo "quantise_command_test: $passed commands"

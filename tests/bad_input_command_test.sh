#!/bin/sh
# What is wrong with a user's files ends in one line and exit status 2, and leaves nothing behind.
set -eu
lockstep=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
fail() { echo "bad_input_command_test: $1" >&2; exit 1; }
count=0

refused() { # TEXT words...: exit status 2, one line that has the text
  expected=$1
  shift
  code=0
  timeout 60 "$lockstep" "$@" >"$work/log" 2>"$work/errors" </dev/null || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2: $(cat "$work/errors")"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  ! grep -q '[[:cntrl:]]' "$work/errors" || fail "$*: control characters: $(cat -v "$work/errors")"
  grep -qF -e "$expected" "$work/errors" || fail "$*: \"$expected\" is not in: $(cat "$work/errors")"
  for left in "$work"/run/checkpoints "$work"/run/metrics.jsonl "$work"/out* \
    "$work"/cache/lockstep/*.bin.* ${no_run:+"$work"/run}; do
    [ ! -e "$left" ] || fail "$*: left $left behind"
  done
  count=$((count + 1))
}
keys="data.text=$work/text.txt data.seq_len=16 train.steps=1 train.batch=2 data.validation=0
  eval.every=0 dtype=fp32 out=$work/run"
no_run=  # set: not even a run's folder may be there
train() { refused "$1" train "model=$2" $keys; }
# A model's folder: training, exporting and generating refuse it alike.
model() { # TEXT
  train "$1" "$work/model"
  refused "$1" export "$work/model" "$work/out"
  refused "$1" generate "$work/model" "a" --max-new-tokens 1
}

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 200 >"$work/text.txt"
"$lockstep" train model=llama-3m $keys out="$work/good-run" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
[ -n "$(find "$work/cache/lockstep" -name 'tokens-*.bin')" ] || fail "no token file where they are looked for"
"$lockstep" export "$work/good-run" "$work/good" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
"$lockstep" export "$work/good-run" "$work/shards" --max-shard-size 4MB >"$work/log" 2>&1
fresh() { rm -rf "$work/model"; cp -r "$work/$1" "$work/model"; }
bytes=$(wc -c <"$work/good/model.safetensors")

no_run=yes
# What is to be frozen: nothing of that name, or everything.
refused "train.freeze: no parameter is called embeding; the nearest is embedding" \
  train model=llama-3m $keys train.freeze=embeding
refused "no parameter is called layers.4 (of layers.2-9)" train model=llama-3m $keys train.freeze=layers.2-9
refused "freezes all 38 parameters" check model=llama-3m $keys "train.freeze=[embedding, layers.0-3, head]"
# Weights: cut anywhere, with something behind, of another kind, or not there at all.
fresh good
for length in 0 7 8 100 $((bytes / 2)) $((bytes - 1)); do
  head -c $length "$work/good/model.safetensors" >"$work/model/model.safetensors"
  model "model.safetensors: found"
done
{ cat "$work/good/model.safetensors"; echo; } >"$work/model/model.safetensors"
model "something after the last tensor"
{ printf '\377\377\377\377\377\377\377\177'; tail -c +9 "$work/good/model.safetensors"; } >"$work/model/model.safetensors"
model "expected at most"
sed 's/F32/I32/' "$work/good/model.safetensors" >"$work/model/model.safetensors"
model "expected F32, BF16, F16 or F64"
fresh good
rm "$work/model/model.safetensors"
mkfifo "$work/model/model.safetensors"
model "expected a regular file"
rm "$work/model/model.safetensors"
ln -s nowhere "$work/model/model.safetensors"
train "init=scratch to start without weights" "$work/model"
fresh shards
shard=$(basename "$(find "$work/model" -name 'model-00002-of-*')")
rm "$work/model/$shard"
model "$shard"
fresh shards
head -c 200 "$work/shards/model.safetensors.index.json" >"$work/model/model.safetensors.index.json"
model "model.safetensors.index.json"
rm "$work/model/model.safetensors.index.json"
train "init=scratch to start without weights" "$work/model"

# A name with a line end and an escape sequence, shown and refused on one line.
header='{"evil\nname\u001b[31m":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{ printf "\\$(printf '%03o' ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf '%sabcd' "$header"; } >"$work/evil.safetensors"
"$lockstep" inspect "$work/evil.safetensors" --tensors >"$work/log"
grep -qF 'evil?name?[31m ' "$work/log" || fail "inspect: $(cat -v "$work/log")"
fresh good
cp "$work/evil.safetensors" "$work/model/model.safetensors"
model "no tensor"

# Configurations.
config() { # KEY VALUE
  sed "s/\"$1\": [^,]*/\"$1\": $2/" "$work/good/config.json" >"$work/config.json"
  grep -q "\"$1\": $2" "$work/config.json" || fail "no $1 in config.json"
  train "" "$work/config.json"
}
for key in vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size \
  num_key_value_heads max_position_embeddings head_dim; do
  for value in NaN -1 0 1000000000000000000 1e400 '"8"'; do config $key $value; done
done
for value in NaN -1 1e400; do config rms_norm_eps $value; config rope_theta $value; done
printf '{"model_type": "rwkv"}' >"$work/config.json"
train "expected one of bert, bloom, deepseek_v2, deepseek_v3, distilbert, falcon, gemma" "$work/config.json"
sed 's/{/{"attention_multiplier": 2,/' "$work/good/config.json" >"$work/config.json"
train "attention_multiplier: found 2; this key is not known" "$work/config.json"

# Sizes that no program can have: of the mesh, and of keys and a configuration together.
check() { refused "$1" check "model=${config:-$work/good/config.json}" $keys ${2:-}; }
sed 's/"head_dim": [^,]*/"head_dim": 1073741824/' "$work/good/config.json" >"$work/config.json"
config=$work/config.json
check "heads of 1073741824 elements (head_dim); expected at most 65536"
config=
check "mesh: found dp_shard 65536 x tp 65536 = 4294967296 devices; expected at most 1048576" \
  "mesh.tp=65536 mesh.dp_shard=65536"
check "mesh: found dp_shard 65537 x tp 65537 = 4295098369 devices; expected at most 1048576" \
  "mesh.tp=65537 mesh.dp_shard=65537"
check "mesh.pp: found 2147483647; expected at most 1048576" "mesh.pp=2147483647"
check "mesh.dp_shard: found 536870911; expected at most 1048576" "mesh.dp_shard=536870911"
check "1048576 stages x chunks for a model of" "mesh.pp=1048576"
check "-n: found 1048577 devices; expected 1 to 1048576" "-n 1048577"
check "-n: found" "-n 99999999999999999999"
check "train.microbatches: found 1000000 microbatches of a model with" \
  "train.batch=1000000 train.micro_batch=1"
check "train.micro_batch: found 2147483647 sequences of 16 tokens at a time" "train.batch=2147483647"
printf '{"model_type": "llama", "vocab_size": 256, "hidden_size": 65536, "intermediate_size": 262144,
  "num_hidden_layers": 256, "num_attention_heads": 512, "max_position_embeddings": 64}' >"$work/config.json"
config=$work/config.json
check "numbers; expected fewer than 17.6 x 10^12: give a smaller wrap" wrap=256
config=
for key in vocab_size intermediate_size; do
  sed "s/\"$key\": [^,]*/\"$key\": 2147483647/" "$work/good/config.json" >"$work/config.json"
  config=$work/config.json
  check "train.micro_batch: found 1000000 sequences" train.batch=1000000
done

# Texts.
with_text() { # TEXT FILE [key=value]
  refused "$1" train model=llama-3m $keys data.text="$work/$2" ${3:+"$3"}
}
printf '{"text": "%s"}\n' $(seq 1 400) | sed '200s/.*/{"text": "cut/' >"$work/lines.jsonl"
with_text "lines.jsonl:200:" lines.jsonl
"$lockstep" train model=llama-3m $keys data.text="$work/lines.jsonl" data.on_bad_line=skip \
  out="$work/skipped" >"$work/log" 2>&1 || fail "on_bad_line=skip: $(cat "$work/log")"
grep -q '399 documents; 1 bad line skipped' "$work/log" || fail "skip: $(cat "$work/log")"
with_text 'found no key "body"' lines.jsonl data.text_key=body
gzip -c "$work/text.txt" | head -c 100 >"$work/cut.txt.gz"
with_text "is cut short" cut.txt.gz
: >"$work/empty.txt"
with_text "is empty" empty.txt
printf '\000\001\000' >"$work/nul.txt"
cat "$work/nul.txt" "$work/text.txt" "$work/nul.txt" >"$work/zeros.txt"
"$lockstep" train model=llama-3m $keys data.text="$work/zeros.txt" out="$work/zeros" >"$work/log" 2>&1 ||
  fail "NUL bytes: $(cat "$work/log")"
grep -q 'zeros.txt: bytes that are NUL or no UTF-8: 4, the first at offset 0; they are kept' "$work/log" || fail "NUL bytes: $(cat "$work/log")"
printf '%%PDF-1.7\n' | cat - "$work/text.txt" >"$work/paper.txt"
with_text "paper.txt is a PDF: convert it first" paper.txt
iconv -f UTF-8 -t UTF-16LE "$work/text.txt" >"$work/utf16.txt"
with_text "convert it: iconv -f UTF-16LE -t UTF-8" utf16.txt
head -c 100000 /dev/zero >"$work/empty.bin"
with_text "65536 of its first 65536 bytes are NUL" empty.bin
gzip -c "$work/text.txt" >"$work/packed.txt"
with_text "give it a name that ends in .gz" packed.txt
tokens=$("$lockstep" tokenize "$work/zeros.txt" --tokenizer "$work/good" --count)
[ "$tokens" -eq "$(wc -c <"$work/zeros.txt")" ] || fail "NUL bytes: $tokens tokens"
printf '\357\273\277' | cat - "$work/text.txt" >"$work/mark.txt"
"$lockstep" train model=llama-3m $keys data.text="$work/mark.txt" out="$work/mark" >"$work/log" 2>&1 ||
  fail "a byte order mark: $(cat "$work/log")"
grep -o '"loss":[^,]*' "$work/mark/metrics.jsonl" >"$work/mark.loss"
grep -o '"loss":[^,]*' "$work/good-run/metrics.jsonl" | cmp -s - "$work/mark.loss" ||
  fail "a byte order mark is no part of a text: $(cat "$work/mark.loss")"

# Tokenizers.
tokenizer() { refused "$1" tokenize "$work/text.txt" --tokenizer "$work/tokenizer.json" --ids; }
whole=tests/data/tokenizers/bytes-prefix-space/tokenizer.json
for length in 0 1 100 1000 $(($(wc -c <$whole) - 3)); do
  head -c $length $whole >"$work/tokenizer.json"
  tokenizer "tokenizer.json:"
done
printf '{"model": {"vocab": {"a": 0}, "merges": ["a b"]}}' >"$work/tokenizer.json"
tokenizer 'names "b", which is not in "vocab"'
printf '{"normalizer": {"type": "Foo\\n\\u001b"}, "model": {"vocab": {"a": 0}, "merges": []}}' >"$work/tokenizer.json"
tokenizer "is not supported"
echo "$count refusals"

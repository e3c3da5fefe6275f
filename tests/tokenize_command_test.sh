#!/bin/sh
# Tokenizes as a user does, and trains and generates with tokenizers of several kinds.
set -eu
lockstep=$1
data=tests/data/tokenizers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "tokenize_command_test: $1" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: found \"$2\", expected \"$3\""; }

tokenize() { "$lockstep" tokenize "$@" 2>"$work/errors"; }
refused() { # TEXT words...: exit status 2, one line that has the text, nothing printed
  expected=$1
  shift
  code=0
  tokenize "$@" >"$work/output" || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  [ ! -s "$work/output" ] || fail "$*: wrote to standard output"
  grep -qF -e "$expected" "$work/errors" || fail "$*: $(cat "$work/errors")"
}

printf 'Hello  world, don'\''t\n<|end|>x' >"$work/a.txt"
: >"$work/empty.txt"
t=$data/bytes-nfc-split
ids=$(tokenize "$work/a.txt" --tokenizer $t --ids)
set -- $ids
count=$#
same "--count" "$(tokenize "$work/a.txt" --tokenizer $t --count)" "$count"
same "a file for a folder" "$(tokenize "$work/a.txt" --tokenizer $t/tokenizer.json --ids)" "$ids"
same "standard input" "$(tokenize - --tokenizer $t --ids <"$work/a.txt")" "$ids"
special=$(tokenize "$work/a.txt" --tokenizer=$t --ids --special)
same "--special" "${special#* }" "$ids"
echo "$ids" >"$work/ids.txt"
tokenize "$work/ids.txt" --tokenizer $t --decode --special >"$work/again.txt"
cmp -s "$work/a.txt" "$work/again.txt" || fail "--decode --special gave another text"
printf 'Hello  world, don'\''t\nx' >"$work/plain.txt"
tokenize "$work/ids.txt" --tokenizer $t --decode >"$work/again.txt"
cmp -s "$work/plain.txt" "$work/again.txt" || fail "--decode shows special tokens"
same "an empty text" "$(tokenize "$work/empty.txt" --tokenizer $t --ids)" ""
same "an empty text's count" "$(tokenize "$work/empty.txt" --tokenizer $t --count)" 0
same "several" "$(tokenize "$work/a.txt" "$work/empty.txt" --tokenizer $t --count)" \
  "$count $work/a.txt
0 $work/empty.txt"

# A text of some MB has the same ids on one thread and on three, and comes back.
i=0
while [ $i -lt 12 ]; do cat ARCHITECTURE.md CONTRIBUTING.md "$work/a.txt" README.md; i=$((i + 1)); done >"$work/b"
i=0
while [ $i -lt 8 ]; do cat "$work/b"; i=$((i + 1)); done >"$work/big.txt"
for t in $data/bytes-nfc-split $data/sentencepiece-bpe $data/characters-byte-fallback; do
  tokenize "$work/big.txt" --tokenizer $t --ids --threads 1 >"$work/one"
  tokenize "$work/big.txt" --tokenizer $t --ids --threads 3 >"$work/three"
  cmp -s "$work/one" "$work/three" || fail "$t: three threads gave other ids"
  tokenize "$work/one" --tokenizer $t --decode --special >"$work/again.txt"
  [ "${t##*/}" = characters-byte-fallback ] || cmp -s "$work/big.txt" "$work/again.txt" ||
    fail "$t: the text did not come back"
done

pattern='[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|\s++|[^\s\p{L}\p{N}]++'
tokenize "$work/a.txt" --tokenizer $data/tiktoken/ranks.tiktoken --pattern "$pattern" --ids >"$work/ids.txt"
tokenize "$work/ids.txt" --tokenizer $data/tiktoken/ranks.tiktoken --pattern "$pattern" --decode >"$work/again.txt"
cmp -s "$work/a.txt" "$work/again.txt" || fail "tiktoken's ranks gave another text back"

refused "--tokenizer is missing" "$work/a.txt" --ids
refused "expected one of --ids" "$work/a.txt" --tokenizer $t
refused "expected one of --ids" "$work/a.txt" --tokenizer $t --ids --count
refused "found no text" --tokenizer $t --ids
refused "cannot be read" "$work/none.txt" --tokenizer $t --ids
refused "none" "$work/a.txt" --tokenizer "$work/none" --ids
refused "found no tokenizer" "$work/a.txt" --tokenizer "$work" --ids
refused "give it with --pattern" "$work/a.txt" --tokenizer $data/tiktoken/ranks.tiktoken --ids
refused "an escape" "$work/a.txt" --tokenizer $data/tiktoken/ranks.tiktoken --ids --pattern 'a\b'
refused "expected a whole number" "$work/a.txt" --tokenizer $t --decode
refused "is not one of the tokenizer's" - --tokenizer $t --decode <<'IDS'
1 2 99999
IDS
refused "--threads: found" "$work/a.txt" --tokenizer $t --ids --threads 0
refused "unknown flag --id" "$work/a.txt" --tokenizer $t --id
refused "takes no keys" "$work/a.txt" --tokenizer $t --ids data.seq_len=3
printf '{"model": {"type": "WordLevel"}}' >"$work/tokenizer.json"
refused "the model WordLevel is not supported" "$work/a.txt" --tokenizer "$work/tokenizer.json" --ids
cat >"$work/slow.json" <<'JSON'
{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+\\p{N}"}, "behavior": "Isolated"},
 "model": {"vocab": {"a": 0, "b": 1}, "merges": []}}
JSON
printf 'b\n%064d' 0 | tr 0 a >"$work/letters.txt"
refused "reaches its match limit" "$work/letters.txt" --tokenizer "$work/slow.json" --ids
"$lockstep" tokenize --help | grep -q 'examples:' || fail "--help has no examples"

# A tokenizer trained here is read by all commands, and is the same however the texts lie.
learn() { "$lockstep" tokenizer train "$@" 2>"$work/errors"; }
learn "$work/big.txt" --vocab 700 --threads 3 -o "$work/learned" || fail "training: $(cat "$work/errors")"
same "what is said" "$(wc -l <"$work/errors")" 1
grep -q 'learned: 700 tokens, 443 merges' "$work/errors" || fail "training: $(cat "$work/errors")"
tokenize "$work/big.txt" --tokenizer "$work/learned" --ids >"$work/one"
tokenize "$work/one" --tokenizer "$work/learned" --decode --special >"$work/again.txt"
cmp -s "$work/big.txt" "$work/again.txt" || fail "the text did not come back from a trained tokenizer"
gzip -k "$work/big.txt"
learn "$work/big.txt.gz" --vocab=700 --threads 1 -o "$work/learned-gz"
cmp -s "$work/learned/tokenizer.json" "$work/learned-gz/tokenizer.json" || fail "a packed text trains another"
printf '{"body": "low low lower"}\n{"body": "newest low"}\n' >"$work/documents.jsonl"
learn "$work/documents.jsonl" --text-key body --vocab 260 --special '<s>,</s>' -o "$work/small"
same "the first merges" "$(grep -A2 '"merges"' "$work/small/tokenizer.json" | tr -d ' \n')" '"merges":["lo","low"'
same "special tokens" "$(echo '<s></s>' | tokenize - --tokenizer "$work/small" --ids | cut -d ' ' -f 1,2)" "0 1"
not_learned() { # TEXT words...: exit status 2, one line that has the text, no folder
  expected=$1
  shift
  code=0
  learn "$@" -o "$work/not" >"$work/output" || code=$?
  [ $code -eq 2 ] || fail "tokenizer train $*: exit status $code, expected 2"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  grep -qF -e "$expected" "$work/errors" || fail "$*: $(cat "$work/errors")"
  [ "$(echo "$work"/not*)" = "$work/not*" ] || fail "$*: something was written"
}
not_learned "documents.jsonl:1: " "$work/documents.jsonl"
not_learned "at least 257" "$work/a.txt" --vocab 256
not_learned "--vocab: found" "$work/a.txt" --vocab many
not_learned "special token" "$work/a.txt" --special 'a,a'
not_learned "no file matches" "$work/none.txt"
not_learned "found no text"
learn "$work/a.txt" -o "$work/learned" && fail "trained over a tokenizer"
grep -q 'something is there' "$work/errors" || fail "trained over a tokenizer: $(cat "$work/errors")"
"$lockstep" tokenizer 2>"$work/errors" && fail "tokenizer without a word"
grep -q 'expected the word train' "$work/errors" || fail "tokenizer: $(cat "$work/errors")"
"$lockstep" tokenizer --help | grep -q 'examples:' || fail "tokenizer --help has no examples"

# Training and generating: the run's tokenizer goes into its checkpoints, and comes out of them.
cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 600, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
train() { "$lockstep" train model="$work/config.json" data.text="$work/b" data.seq_len=32 \
  train.batch=4 train.steps=3 train.lr=1e-2 "$@" >"$work/log" 2>&1; }
for name in bytes-nfc-split sentencepiece-bpe metaspace-first; do
  train data.tokenizer=$data/$name out="$work/$name" || { cat "$work/log"; fail "training with $name"; }
  for file in "$data/$name"/tokenizer.*; do
    cmp -s "$file" "$work/$name/checkpoints/step-3/${file##*/}" || fail "$file is not in the checkpoint"
  done
  text=$("$lockstep" generate "$work/$name" "The tokens" --max-new-tokens 9 2>"$work/errors") ||
    fail "generating with $name: $(cat "$work/errors")"
  case $text in "The tokens"*) ;; *) fail "$name: the prompt is not printed: $text" ;; esac
  # A model's folder brings its tokenizer along.
  "$lockstep" train model="$work/$name/checkpoints/step-3" data.text="$work/b" data.seq_len=32 \
    train.batch=4 train.steps=1 train.lr=1e-3 out="$work/$name-on" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "fine-tuning with $name"; }
  cmp -s "$work/$name/checkpoints/step-3/${file##*/}" "$work/$name-on/checkpoints/step-1/${file##*/}" ||
    fail "$name: another tokenizer after fine-tuning"
done
code=0
train data.tokenizer="$work/slow.json" data.text="$work/letters.txt" out="$work/slow" || code=$?
[ $code -eq 2 ] || fail "a pattern that blows up: exit status $code"
grep -q 'letters.txt: .*reaches its match limit' "$work/log" || fail "slow: $(cat "$work/log")"
code=0
train data.tokenizer=$data/none out="$work/none" || code=$?
[ $code -eq 2 ] || fail "a tokenizer that is not there: exit status $code"
grep -q 'data.tokenizer' "$work/log" || fail "no key is named: $(cat "$work/log")"
sed 's/600/300/' "$work/config.json" >"$work/small.json"
code=0
train model="$work/small.json" data.tokenizer=$data/bytes-nfc-split out="$work/small" || code=$?
[ $code -eq 2 ] || fail "a vocabulary that is too small: exit status $code"
grep -q 'vocabulary of 300' "$work/log" || fail "too small: $(cat "$work/log")"

#!/bin/sh
# Texts made into token files, and trained on: the losses of training on the texts themselves, to the
# last digit; what changed is made again, what does not fit is refused, an interrupt leaves nothing.
# $1: the lockstep program.
set -eu
lockstep=$1
data=tests/data/tokenizers
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "tokenize_folder_test: $1" >&2; exit 1; }
said() { grep -qF -e "$1" "$2" || fail "nothing like \"$1\" in: $(cat "$2")"; }
unset XDG_CACHE_HOME

tokenizer=$data/bytes-nfc-split
tokenize() { "$lockstep" tokenize "$@" --tokenizer $tokenizer >"$work/output" 2>"$work/errors"; }
refused() { # TEXT words...: exit status 2 and one line that has the text
  expected=$1
  shift
  code=0
  tokenize "$@" || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  said "$expected" "$work/errors"
}

mkdir "$work/books"
cat ARCHITECTURE.md CONTRIBUTING.md >"$work/books/one.txt"
gzip -c README.md >"$work/books/two.md.gz"
awk 'BEGIN { for (i = 0; i < 300; i++) printf "{\"body\": \"line %d of a text %d\\nand more\"}\n", i * i % 97, i % 7 }' \
  >"$work/lines.jsonl"
echo '{"other": "no text"}' >>"$work/lines.jsonl"
: >"$work/empty.txt"
texts="$work/lines.jsonl $work/books $work/empty.txt"

# shellcheck disable=SC2086
{
  refused 'lines.jsonl:1: ' $texts -o "$work/tokens"
  refused 'lines.jsonl:301: ' $texts -o "$work/tokens" --text-key body
  [ ! -e "$work/tokens" ] || fail "a refused text left a folder"
  refused '--on-bad-line: found "pass"' $texts -o "$work/tokens" --on-bad-line pass
  refused 'expected it with -o' $texts --count --text-key body
  refused 'token files have the end of text alone' $texts -o "$work/tokens" --special
  refused 'expected one of' $texts -o "$work/tokens" --ids
  refused 'no file matches' "$work/none.txt" -o "$work/tokens"
  tokenize $texts -o "$work/tokens/" --text-key body --on-bad-line skip || fail "$(cat "$work/errors")"
}
said "/tokens/00001-lines.jsonl.tokens: " "$work/output"
said "300 documents" "$work/output"
said "1 bad line skipped" "$work/output"
said "/tokens/00002-books.tokens: " "$work/output"
said "2 documents" "$work/output"
said "empty.txt: no text in it" "$work/output"
[ "$(cd "$work/tokens" && echo *)" = "00001-lines.jsonl.tokens 00002-books.tokens" ] ||
  fail "found other files: $(ls "$work/tokens")"
"$lockstep" inspect "$work/tokens/00001-lines.jsonl.tokens" >"$work/output"
said "documents          300" "$work/output"
said "skipped_lines      1" "$work/output"
said "tokenizer.json-" "$work/output"
"$lockstep" inspect "$work/tokens" >"$work/output"
said "00001-lines.jsonl.tokens" "$work/output"
said "00002-books.tokens" "$work/output"

# Trained on, in several ways of splitting and packing.
cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 600, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
train() { # OUT TEXTS key=value...
  out=$1
  text=$2
  shift 2
  "$lockstep" train model="$work/config.json" data.text="$text" data.seq_len=32 train.batch=4 train.steps=6 \
    train.lr=1e-2 eval.every=3 device.threads=1 dtype=fp32 data.tokenizer=$tokenizer data.text_key=body \
    data.on_bad_line=skip out="$work/$out" "$@" >"$work/log" 2>&1
}
losses() { grep -oE '"(step|loss|grad_norm|validation_loss)": *[^,}]+' "$work/$1/metrics.jsonl"; }
both="[$work/lines.jsonl, $work/books, $work/empty.txt]"
for option in data.split=auto data.split=tail data.documents=masked data.validation=0.3; do
  train "text-$option" "$both" $option || fail "$option: $(cat "$work/log")"
  train "tokens-$option" "$work/tokens" $option || fail "$option, of token files: $(cat "$work/log")"
  losses "text-$option" >"$work/expected"
  losses "tokens-$option" >"$work/found"
  [ "$(grep -c '"loss"' "$work/found")" -eq 6 ] || fail "$option: found no 6 losses: $(cat "$work/found")"
  grep -q '"validation_loss": [0-9]' "$work/found" || fail "$option: no validation loss"
  cmp -s "$work/expected" "$work/found" || fail "$option: other losses: $(diff "$work/expected" "$work/found")"
done
# By weight, one of each kind.
train weights-text "[{path: $work/lines.jsonl, weight: 1}, {path: $work/books, weight: 2}]" || fail "$(cat "$work/log")"
train weights-tokens "[{path: $work/lines.jsonl, weight: 1}, {path: $work/tokens/00002-books.tokens, weight: 2}]" ||
  fail "$(cat "$work/log")"
losses weights-text >"$work/expected"
losses weights-tokens >"$work/found"
cmp -s "$work/expected" "$work/found" || fail "weights: other losses"
# Both are one corpus to a checkpoint.
corpus_of() { grep -o '"corpus": *"[0-9a-f]*"' "$work/$1/checkpoints/step-6/state.json"; }
[ -n "$(corpus_of text-data.split=auto)" ] || fail "no fingerprint in the checkpoint"
[ "$(corpus_of text-data.split=auto)" = "$(corpus_of tokens-data.split=auto)" ] ||
  fail "other fingerprints: $(corpus_of text-data.split=auto), $(corpus_of tokens-data.split=auto)"

# Another tokenizer, another kind, another list.
code=0
train other "$work/tokens" data.tokenizer=$data/sentencepiece-bpe || code=$?
[ $code -eq 2 ] || fail "another tokenizer: exit status $code"
said "00001-lines.jsonl.tokens was made with the tokenizer tokenizer.json-" "$work/log"
said "this one is tokenizer." "$work/log"
code=0
train other "[$work/tokens, $work/books]" || code=$?
[ $code -eq 2 ] || fail "texts among token files: exit status $code"
said "expected one kind" "$work/log"
refused "is a token file; expected a text" "$work/tokens" -o "$work/again"
refused "00001-lines.jsonl.tokens is there, of other texts than these" "$work/books" -o "$work/tokens"

# Again: nothing changed, then one text did.
again() { tokenize "$work/lines.jsonl" "$work/books" -o "$work/tokens" --text-key body --on-bad-line skip || fail "again: $(cat "$work/errors")"; }
again
[ "$(grep -c 'as it was: nothing changed' "$work/output")" -eq 2 ] || fail "not reused: $(cat "$work/output")"
echo "one line more" >>"$work/books/one.txt"
again
[ "$(grep -c 'as it was: nothing changed' "$work/output")" -eq 1 ] || fail "a changed text: $(cat "$work/output")"
code=0
train tokens-data.split=auto "$work/tokens" data.split=auto train.steps=9 || code=$?
[ $code -eq 2 ] || fail "a run goes on with other texts: exit status $code"
said "is not the text that" "$work/log"

# An interrupt, while one is being written: exit status 4, and what is left is whole.
i=0
while [ $i -lt 4000 ]; do cat README.md; i=$((i + 1)); done >"$work/large.txt"
"$lockstep" tokenize "$work/books" "$work/large.txt" --tokenizer $tokenizer -o "$work/cut" --threads 1 \
  >"$work/output" 2>"$work/errors" &
running=$!
tries=0
until [ -n "$(find "$work/cut" -name '00002-large.txt.tokens.*' 2>/dev/null)" ]; do
  tries=$((tries + 1))
  [ $tries -lt 600 ] || fail "nothing is written within a minute"
  sleep 0.1
done
kill -INT $running
code=0
wait $running || code=$?
running=
[ $code -eq 4 ] || fail "SIGINT: exit status $code, $(cat "$work/output" "$work/errors")"
said "stopped; nothing is left of" "$work/errors"
[ "$(ls "$work/cut")" = 00001-books.tokens ] || fail "SIGINT left $(ls "$work/cut")"
echo "tokenize_folder_test: passed"

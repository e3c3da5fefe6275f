#!/bin/sh
# Trains a tiny model for some steps, and generates from the run as a user does.
set -eu
lockstep=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "generate_command_test: $1" >&2; exit 1; }

cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
i=0
while [ $i -lt 300 ]; do echo "In the beginning was line $i."; i=$((i + 1)); done >"$work/text.txt"
"$lockstep" train model="$work/config.json" data.text="$work/text.txt" data.seq_len=32 \
  train.batch=4 train.steps=4 train.lr=1e-2 out="$work/run" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "the training failed"; }

generate() { "$lockstep" generate "$work/run" "$@" 2>"$work/errors"; }
refused() { # words...: exit status 2 and one line
  code=0
  generate "$@" >"$work/output" || code=$?
  [ $code -eq 2 ] || fail "$*: exit status $code, expected 2"
  [ "$(wc -l <"$work/errors")" -eq 1 ] || fail "$*: expected one line, found: $(cat "$work/errors")"
  [ ! -s "$work/output" ] || fail "$*: wrote to standard output"
}

first=$(generate "In the" --max-new-tokens 20 --seed 3)
again=$(generate "In the" --max-new-tokens 20 --seed 3)
other=$(generate "In the" --max-new-tokens 20 --seed 4)
[ "$first" = "$again" ] || fail "the same seed gave another text"
[ "$first" != "$other" ] || fail "another seed gave the same text"
case $first in "In the"*) ;; *) fail "the prompt is not printed: $first" ;; esac
piped=$(printf 'In the' | generate - --max-new-tokens 20 --seed 3)
[ "$first" = "$piped" ] || fail "the prompt from standard input gave another text"
greedy=$(generate "In the" --max-new-tokens 9 --greedy)
cold=$("$lockstep" generate "$work/run/checkpoints/step-4" "In the" --max-new-tokens 9 \
  --temperature 0 2>/dev/null)
[ "$greedy" = "$cold" ] || fail "--greedy and --temperature 0 differ"
for dtype in bf16 fp16 fp64; do
  generate "In the" --max-new-tokens 5 dtype=$dtype >"$work/$dtype" || fail "dtype=$dtype"
  grep -q '^In the' "$work/$dtype" || fail "dtype=$dtype: $(cat "$work/$dtype")"
done
json=$(generate "In the" --max-new-tokens 5 --json --greedy)
case $json in '{"prompt": "In the", "text": "'*'"tokens": '[1-5]', "tokens_per_second": '*'"prompt_tokens": 6, "prompt_tokens_per_second": '*) ;;
  *) fail "--json: $json" ;; esac
generate "In the" --max-new-tokens 1000 --top-k 5 >/dev/null
grep -q 'the 64 positions\|ended the text' "$work/errors" || fail "no reason: $(cat "$work/errors")"

# Over devices, and several prompts at once: the same texts.
for mesh in "-n 2" mesh.tp=2 mesh.pp=2 "mesh.pp=2 mesh.tp=2 -n 4" mesh.cp=3 "mesh.cp=2 mesh.tp=2"; do
  # shellcheck disable=SC2086
  cut=$(generate "In the" --max-new-tokens 9 --greedy $mesh) || fail "$mesh: $(cat "$work/errors")"
  [ "$greedy" = "$cut" ] || fail "$mesh gave another text: $cut"
done
printf 'In the\nIt\n\nA longer one than others\nEnd\n' >"$work/prompts.txt"
generate --prompts "$work/prompts.txt" --max-new-tokens 25 --seed 3 --batch 1 >"$work/single"
[ "$(grep -c '^==> ' "$work/single")" -eq 4 ] || fail "--prompts: $(cat "$work/single")"
for words in "" "--batch 3" "--batch 2 mesh.tp=2" "mesh.pp=3" "--batch 3 mesh.cp=2"; do
  # shellcheck disable=SC2086
  generate --prompts "$work/prompts.txt" --max-new-tokens 25 --seed 3 $words >"$work/batch" ||
    fail "--prompts $words: $(cat "$work/errors")"
  cmp -s "$work/single" "$work/batch" || fail "--prompts $words: $(cat "$work/batch")"
done
generate --prompts "$work/prompts.txt" --max-new-tokens 25 --batch 3 >/dev/null
grep -q '^4 prompts, 3 at once: ' "$work/errors" || fail "no total: $(cat "$work/errors")"
generate --prompts "$work/prompts.txt" --json >"$work/output"
[ "$(grep -c '^{"prompt": ' "$work/output")" -eq 4 ] || fail "--prompts --json: $(cat "$work/output")"
# What drafts changes no greedy text, on no layout; a draft of other tokens is refused.
sed 's/"hidden_size": 16/"hidden_size": 8/' "$work/config.json" >"$work/smaller.json"
"$lockstep" train model="$work/smaller.json" data.text="$work/text.txt" data.seq_len=32 \
  train.batch=4 train.steps=4 train.lr=1e-2 out="$work/smaller" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "the training of a draft failed"; }
for words in "$work/smaller" "ngram --draft-tokens 7" "$work/smaller mesh.tp=2" "ngram mesh.cp=2" \
  "$work/run --draft-tokens 2 mesh.pp=2"; do
  # shellcheck disable=SC2086
  drafted=$(generate "In the" --max-new-tokens 9 --greedy --draft $words) ||
    fail "--draft $words: $(cat "$work/errors")"
  [ "$greedy" = "$drafted" ] || fail "--draft $words gave another text: $drafted"
  grep -q 'a second; of [0-9]* drafted [0-9]* kept ([0-9]*%), [0-9.]* tokens a round$' "$work/errors" ||
    fail "--draft $words: $(cat "$work/errors")"
done
generate --prompts "$work/prompts.txt" --max-new-tokens 25 --greedy --batch 1 >"$work/single"
generate --prompts "$work/prompts.txt" --max-new-tokens 25 --greedy --draft "$work/smaller" >"$work/batch"
cmp -s "$work/single" "$work/batch" || fail "--prompts --draft: $(cat "$work/batch")"
grep -q '^4 prompts, 4 at once: .* tokens a round$' "$work/errors" || fail "no total: $(cat "$work/errors")"
json=$(generate "In the" --max-new-tokens 9 --json --greedy --draft "$work/run")
case $json in *'"rounds": 2, "drafted_tokens": 7, "kept_tokens": 7}') ;; *) fail "--draft --json: $json" ;; esac
sed 's/"vocab_size": 256/"vocab_size": 200/' "$work/config.json" >"$work/other.json"
mkdir "$work/other"
cp "$work/other.json" "$work/other/config.json"
for words in "layers=1" "layers=0" "layers=x" "$work/none" "$work/other" "ngram --draft-tokens 17" \
  "ngram --draft-tokens 0"; do
  # shellcheck disable=SC2086
  refused "In" --draft $words
done
refused "In" --draft-tokens 3
"$lockstep" generate --help | grep -q 'examples:' || fail "--help has no examples"

# Threads that wait let others have their core, unless the user says how they wait.
waits() { # ENV TRIES: whether the process has it, while it reads its prompt
  mkfifo "$work/prompt"
  env $1 "$lockstep" generate "$work/run" - --max-new-tokens 1 <"$work/prompt" >/dev/null 2>&1 &
  exec 3>"$work/prompt"
  found=no
  for i in $(seq "$2"); do
    sleep 0.2
    if tr '\0' '\n' <"/proc/$!/environ" | grep -q '^GOMP_SPINCOUNT='; then found=yes; break; fi
  done
  echo In >&3
  exec 3>&-
  wait $!
  rm "$work/prompt"
  echo $found
}
if [ -r /proc/self/environ ]; then
  [ "$(waits "-u GOMP_SPINCOUNT -u OMP_WAIT_POLICY" 50)" = yes ] || fail "waiting threads keep their core"
  [ "$(waits "-u GOMP_SPINCOUNT OMP_WAIT_POLICY=active" 5)" = no ] || fail "OMP_WAIT_POLICY is not heeded"
else
  echo "skipped: how threads wait (no /proc/self/environ here)"
fi

refused
refused ""
refused "In" --max-new-tokens 0
refused "In" --temperature hot
refused "In" --top-p 2
refused "In" --top-p 0
refused "In" dtype=fp8
refused "In" --sed 1
refused "In" train.lr=1
for words in "--batch 2" "-n 0" "-n x" mesh.dp_shard=2 "mesh.cp=2 mesh.tp=3" mesh.tp=3 mesh.pp=4 \
  "mesh.tp=1 -n 2" zero=1; do
  # shellcheck disable=SC2086
  refused "In" $words
done
refused "In" mesh.dp_replicate=2
grep -q 'mesh.dp_replicate=2: generating cuts a model over mesh.tp, mesh.cp and mesh.pp: use mesh.tp=2$' "$work/errors" ||
  fail "mesh.dp_replicate=2: $(cat "$work/errors")"
refused "In" mesh.tp=3
grep -q 'tp=3 and 2 heads, 1 KV heads: use tp=1 or 2$' "$work/errors" || fail "mesh.tp=3: $(cat "$work/errors")"
refused --prompts "$work/prompts.txt" --batch 33
refused --prompts "$work/prompts.txt" --batch 0
refused "$(cat "$work/text.txt")"
code=0
generate "In" >/dev/full || code=$?
[ $code -eq 3 ] || fail "a full disk: exit status $code, expected 3"

# A model that memory cannot hold is refused before its weights are read, with what would do.
mkdir "$work/huge"
cat >"$work/huge/config.json" <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 65536, "intermediate_size": 262144,
 "num_hidden_layers": 400, "num_attention_heads": 64, "max_position_embeddings": 32}
END
printf '\002\0\0\0\0\0\0\0{}' >"$work/huge/model.safetensors"
code=0
"$lockstep" generate "$work/huge" a >"$work/log" 2>&1 || code=$?
[ $code -eq 1 ] && grep -q 'memory: .* GiB are needed, .* give dtype=bf16' "$work/log" ||
  fail "a model beyond the memory: exit status $code: $(cat "$work/log")"

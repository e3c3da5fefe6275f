#!/bin/sh
# Trains on chats as a user does: every layout the same losses, resumed the same, what is wrong named.
set -eu
tokenizer=$(cd "$(dirname "$0")" && pwd)/data/tokenizers/bytes-falcon
. "$(dirname "$0")/support/small_run.sh"

cat >chat.jinja <<'END'
{%- for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
END
i=0
while [ $i -lt 40 ]; do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"Say $i\"}, {\"role\": \"assistant\", \"content\": \"It is $((i * i % 97))\"}]}"
  i=$((i + 1))
done >chats.jsonl
sed -i 's/max_position_embeddings": 32/max_position_embeddings": 128/' config.json
chat="model=config.json data.text=chats.jsonl data.tokenizer=bytes data.template=chat.jinja \
data.seq_len=128 data.validation=0 train.batch=4 train.steps=3 train.lr=1e-3 dtype=fp64 eval.every=0"
losses() { sed 's/.*"loss": \([^,]*\),.*/\1/' "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses within 1e-10
  losses "$1" >a && losses "$2" >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
  paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  passed=$((passed + 1))
}

run 0 train $chat out=runs/one
says "chats: 40 examples in "
says " tokens are trained"
grep -q "documents: masked" runs/one/resolved.yaml || fail "chats are not masked documents"
run 0 train $chat eval.every=2 data.validation=0.0001 out=runs/none
says "data.validation: 0.0001 keeps none of 40 documents, so that nothing is evaluated"
run 0 evaluate runs/one data.text=chats.jsonl
says "loss "
grep -q "left out\|too long" output && fail "nothing is too long: $(cat output)"
run 0 evaluate runs/one data.text=chats.jsonl data.seq_len=36
says "too long, dropped"
run 0 evaluate runs/one data.text=chats.jsonl data.seq_len=24 data.too_long=split
says "; 40 too long, split"
run 0 evaluate runs/one data.text=chats.jsonl data.seq_len=24 data.too_long=split --json
grep -qE '"left_out": [0-9]' output || fail "less than nothing is left out: $(cat output)"
n=0
for layout in "mesh.dp_shard=2 zero=3" "mesh.dp_shard=2 zero=1" "mesh.dp_replicate=2 mesh.dp_shard=1" \
  "mesh.tp=2 mesh.dp_shard=1" "mesh.dp_shard=1 train.microbatches=4" "mesh.dp_shard=4 zero=2" \
  "mesh.cp=2 mesh.dp_shard=1" "mesh.cp=4 mesh.dp_shard=1 zero=3" \
  "mesh.cp=2 mesh.dp_shard=1 context=ulysses"; do
  n=$((n + 1))
  devices=2
  case $layout in *microbatches*) devices=1 ;; *dp_shard=4* | *cp=4*) devices=4 ;; esac
  run 0 train $chat $layout -n $devices out=runs/many$n
  same one many$n
done
run 0 train $chat train.steps=2 train.lr_schedule=constant out=runs/part
run 0 train $chat train.lr_schedule=constant out=runs/part
run 0 train $chat train.lr_schedule=constant out=runs/whole
same whole part
run 0 train $chat data.loss_on=all out=runs/all
paste runs/all/metrics.jsonl runs/one/metrics.jsonl | head -n 1 | awk -F'"loss": ' \
  '{split($2, a, ","); split($3, b, ","); exit a[1] == b[1]}' || fail "loss_on=all changes nothing"
run 2 train $chat data.loss_on=last out=runs/one
says "data.loss_on"

cp "$tokenizer/tokenizer.json" .
head -n 2 chats.jsonl >two.jsonl
run 0 tokenize two.jsonl --tokenizer tokenizer.json --template-file chat.jinja --show
tr -d '|' <output >plain
grep -qF '<user>Say 0</><assistant>⟦It is 0</>⟧' plain || fail "the answer is not shown: $(cat output)"
grep -q '^two.jsonl:2: [0-9]* tokens, [0-9]* trained$' output || fail "no counts: $(cat output)"
run 0 tokenize two.jsonl --tokenizer tokenizer.json --template-file chat.jinja --count --loss-on all
grep -qE '^2 examples, ([0-9]+) tokens, \1 trained$' output || fail "not all is trained: $(cat output)"
run 0 tokenize two.jsonl --tokenizer bytes --template-file chat.jinja --show
tr -d '|' <output >plain
grep -qF '<user>Say 0</><assistant>⟦It is 0</>⟧' plain || fail "the bytes of an answer are not shown: $(cat output)"
echo '{"prompt": "Say 0", "chosen": "It is 0", "rejected": "No"}' >pair.jsonl
run 0 tokenize pair.jsonl --tokenizer tokenizer.json --template-file chat.jinja --show
tr -d '|' <output >plain
grep -q '^pair.jsonl:1: chosen: [0-9]* tokens, [0-9]* trained$' plain && grep -qF '<assistant>⟦It is 0</>⟧' plain &&
  grep -q '^pair.jsonl:1: rejected: ' plain && grep -qF '<user>Say 0</><assistant>⟦No</>⟧' plain ||
  fail "a pair is not shown: $(cat output)"
run 2 tokenize - --tokenizer bytes --template-file chat.jinja --show
says "-: chats are read from files alone; expected .jsonl or .json"
run 2 tokenize text.txt --tokenizer bytes --template-file chat.jinja --show
says "text.txt: found a plain text; expected chats as JSON"
run 2 tokenize two.jsonl --tokenizer tokenizer.json --show
says "--show: expected --template with it"
run 2 tokenize two.jsonl --tokenizer tokenizer.json --template --show
says "has no chat template"

run 2 train $chat data.template=auto out=runs/x
says "has no chat template; expected chat_template.jinja"
echo '{"messages": [{"role": "user", "content": "x"}]}' >bad.jsonl
run 2 train $chat data.text=bad.jsonl out=runs/x
says "bad.jsonl:1: found a chat without an answer"
printf '{%% if messages[0].role != "system" %%}{{ raise_exception("No system prompt") }}{%% endif %%}' >no.jinja
run 2 train $chat data.template=no.jinja out=runs/x
says "chats.jsonl:1: no.jinja:1: the template refuses the chat: No system prompt"
echo '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}' >endless.jinja
run 2 train $chat data.template=endless.jinja out=runs/x
says "endless.jinja:1: the template"
[ ! -e runs/x ] || fail "something is left of refused runs"
echo "$passed passed, 0 failed"

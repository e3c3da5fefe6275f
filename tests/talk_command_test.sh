#!/bin/sh
# Asks a model as a user does: one question, a conversation, and prompts of files. The model is made
# here: it learns three answers by heart, and where they end.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >chat.jinja <<'END'
{%- for m in messages %}
{%- if m.role == 'system' and m.content == 'none' %}{{ raise_exception('No system prompt here') }}{% endif %}
{{- '<' + m.role + '>' + m.content + '</>' }}{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
END
i=0
while [ $i -lt 20 ]; do
  echo '{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "It is <a>"}]}'
  echo '{"messages": [{"role": "user", "content": "B"}, {"role": "assistant", "content": "Yes"}]}'
  echo '{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "It is <a>"}, {"role": "user", "content": "B"}, {"role": "assistant", "content": "No"}]}'
  i=$((i + 1))
done >chats.jsonl
sed -i 's/hidden_size": 16/hidden_size": 32/; s/max_position_embeddings": 32/max_position_embeddings": 100000/' config.json
run 0 train model=config.json data.text=chats.jsonl data.tokenizer=bytes data.template=chat.jinja \
  data.seq_len=64 data.validation=0 train.batch=4 train.steps=200 train.lr=1e-2 eval.every=0 out=run
model=$(ls -d run/checkpoints/step-*)
cmp -s chat.jinja "$model/chat_template.jinja" || fail "the checkpoint has not the template"
# Training from it finds the template, and keeps it; a folder without one is refused.
for key in "" data.template=chat.jinja; do
  run 0 train model="$model" data.text=chats.jsonl data.seq_len=64 data.validation=0 train.batch=4 train.steps=2 \
    eval.every=0 $key out=further$key
  cmp -s chat.jinja further$key/checkpoints/step-2/chat_template.jinja || fail "further$key has not the template"
done
cmp -s further/checkpoints/step-2/model.safetensors furtherdata.template=chat.jinja/checkpoints/step-2/model.safetensors ||
  fail "the template that is found is another"
cp -r "$model" untold && rm untold/chat_template.jinja
run 2 train model=untold data.text=chats.jsonl data.seq_len=64 out=none
says "has no chat template"

asked() { # TEXT words...: what is printed, exactly
  wanted=$1
  shift
  run 0 generate run "$@" --greedy
  [ "$(cat output)" = "$wanted" ] || fail "$*: \"$(cat output)\", expected \"$wanted\""
}
asked "It is <a>" A --chat
says "the model ended the text"
asked "Yes" B --chat
asked "It is <" A --chat --max-new-tokens 7
asked "It is " A --chat --max-new-tokens 6
run 0 generate run A --chat --greedy --json
grep -q '^{"prompt": "A", "text": "It is <a>", "tokens": 12, .*"finish_reason": "stop"}$' output ||
  fail "--json: $(cat output)"
run 0 generate run A --chat --greedy --json --max-new-tokens 3
grep -q '"text": "It ", "tokens": 3, .*"finish_reason": "length"}$' output || fail "--json: $(cat output)"
run 0 generate run A --chat --system "Be brief." --max-new-tokens 1
says "prompt of 41 tokens"

# Prompts of files give what each gives alone.
printf 'A\r\n\n  \nB\n' >lines.txt
asked "==> lines.txt:1 <==
It is <a>
==> lines.txt:4 <==
Yes" --prompts lines.txt --chat
{
  echo '{"prompt": "It is a bright"}'
  echo '{"messages": [{"role": "user", "content": "A"}]}'
  echo '{"prompt": [{"role": "user", "content": "B"}], "chosen": "x"}'
  echo '{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "It is <a>"}, {"role": "user", "content": "B"}]}'
} >many.jsonl
run 0 generate run --prompts many.jsonl --greedy --json --max-new-tokens 13
sed 's/, "tokens_per.*//' output >many
[ "$(wc -l <many)" -eq 4 ] || fail "many.jsonl: $(cat output)"
run 0 generate run "It is a bright" --greedy --json --max-new-tokens 13
sed 's/, "tokens_per.*//' output | cmp -s - many && fail "one prompt is four"
sed 's/, "tokens_per.*//' output >one
head -n 1 many | cmp -s - one || fail "one by one: $(cat one), of many: $(head -n 1 many)"
sed -n 2p many | grep -qF '"text": "It is <a>", "tokens": 12' || fail "the second: $(cat many)"
sed -n 3p many | grep -qF '{"prompt": [{"role": "user", "content": "B"}], "text": "Yes"' || fail "the third: $(cat many)"
for form in json jsonl.gz; do
  case $form in json) sed 's/$/,/; 1s/^/[/; $s/,$/]/' many.jsonl >"many.$form" ;; *) gzip -c many.jsonl >"many.$form" ;; esac
  run 0 generate run --prompts "many.$form" --greedy --json --max-new-tokens 13
  sed 's/, "tokens_per.*//' output | cmp -s - many || fail "many.$form: $(cat output)"
done

# A conversation: the same answers as of the whole history, from the cache.
talk() { # words...: lines of standard input to a conversation
  timeout 120 "$lockstep" generate run --interactive --greedy "$@" >output 2>log || fail "--interactive $*: $(cat log)"
  passed=$((passed + 1))
}
printf 'A\nB\n' | talk
sed -n 4p many | sed 's/.*"text": "\([^"]*\)".*/\1/' >second
[ "$(cat output)" = "It is <a>
$(cat second)" ] || fail "a conversation: $(cat output log)"
[ "$(cat second)" = No ] || fail "what was said before is not heeded: $(cat second)"
kept=$(sed -n 's/^prompt of \([0-9]*\) tokens, \([0-9]*\) of them kept.*/\1 \2/p' log)
# "<user>A</><assistant>It is <a></>" and what follows it; of the end the last byte was not computed.
[ "$kept" = "54 32" ] || fail "the cache: $kept: $(cat log)"
cp output alone
printf 'A\nB\n' | talk mesh.cp=2
cmp -s output alone || fail "a conversation over devices that share its rows: $(cat output log)"
grep -q '^prompt of 54 tokens, 32 of them kept' log || fail "the caches of mesh.cp=2: $(cat log)"
printf 'A\nB\n' | talk -n 2
cmp -s output alone || fail "a conversation on two devices: $(cat output log)"
# Who takes longer than comm.timeout to ask is waited for.
{ echo A; sleep 3; echo B; } | talk -n 2 comm.timeout=1
cmp -s output alone || fail "a slow person: $(cat output log)"
printf 'A\n/reset\nB\n/help\n/what\n\nA\n/quit\nB\n' | talk
[ "$(head -n 2 output)" = "It is <a>
Yes" ] || fail "/reset: $(cat output)"
[ "$(wc -l <output)" -eq 3 ] || fail "/quit: $(cat output)"
says "a new conversation"
says "/what: no such command"
printf 'A\nB\n/reset\nB' | talk --context 50
[ "$(cat output)" = "It is <a>
Yes" ] || fail "--context: $(cat output)"
says "the conversation has 54 tokens and there is room for 50 with an answer: /reset"
printf '\377\nB\n' | talk
says "no UTF-8"
[ "$(cat output)" = "Yes" ] || fail "a line that is no UTF-8: $(cat output)"

# Ctrl-C ends an answer, and not the program. Without an end in the template none comes for long.
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >endless.jinja
mkfifo lines
"$lockstep" generate run --interactive --template endless.jinja --greedy --context 100000 \
  --max-new-tokens 99000 <lines >output 2>log &
running=$!
exec 3>lines
waits() { # WHAT command...: until it is so
  what=$1
  shift
  for i in $(seq 300); do "$@" && return; sleep 0.1; done
  fail "$what does not come: $(cat log)"
}
echo 'It is' >&3
waits "an answer" test -s output
kill -INT $running
waits "its end" grep -q "; stopped" log
grep -q "99000 tokens" log && fail "Ctrl-C came too late"
kill -INT $running
echo '/quit' >&3
exec 3>&-
code=0
wait $running || code=$?
running=
[ $code -eq 0 ] || fail "after Ctrl-C: exit status $code: $(cat log)"
passed=$((passed + 1))

refused() { # TEXT words...
  text=$1
  shift
  run 2 generate "$@"
  says "$text"
  [ "$(wc -l <log)" -eq 1 ] && [ ! -s output ] || fail "$*: $(cat log output)"
}
cp -r "$model" bare && rm bare/chat_template.jinja bare/state.json
refused "has no chat template; expected chat_template.jinja, or chat_template in its tokenizer_config.json: give --template FILE.jinja" bare A --chat
refused "has no chat template" bare --interactive
refused "has no chat template" bare --prompts many.jsonl
run 0 generate bare A --chat --template chat.jinja --greedy
says "It is <a>"
# A system prompt that is null is none: the one that is given holds.
for system in '' ', "system": null' ', "system": ""'; do
  echo '{"messages": [{"role": "user", "content": "A"}]'"$system"'}' >system.jsonl
  run 0 generate run --prompts system.jsonl --system "Be brief." --max-new-tokens 1 --json
  sed 's/.*"prompt_tokens": \([0-9]*\).*/\1/' output
done >counts
[ "$(sed -n 1p counts)" = "$(sed -n 2p counts)" ] && [ "$(sed -n 1p counts)" -gt "$(sed -n 3p counts)" ] ||
  fail "tokens of questions with a system prompt: $(cat counts)"

refused "--system: chat.jinja:2: the template refuses the chat: No system prompt here" run --interactive --system none --template chat.jinja
refused "--system: expected --chat with it" run A --system x
refused "--template: expected --chat with it" run A --template chat.jinja
refused "--prompts and --interactive: expected one of them" run --prompts lines.txt --interactive
refused "--json: has no effect on a conversation" run --interactive --json
refused "--context: expected --interactive with it" run A --context 5
refused "expected a run or checkpoint alone" run A --interactive
refused "expected a run or checkpoint and a prompt in quotes" run
refused "--prompts" run --prompts absent.txt
printf '\n\n' >empty.txt
refused "--prompts: empty.txt: found no prompt; expected one a line" run --prompts empty.txt
{ echo '{"prompt": "A"}'; echo '{"text": "A"}'; } >bad.jsonl
refused 'bad.jsonl:2: found no prompt; expected {"prompt": "..."} or {"messages": [...]}' run --prompts bad.jsonl
{ echo '{"prompt": "A"}'; echo '{"prompt": "A"'; } >bad.jsonl
refused "bad.jsonl:2:" run --prompts bad.jsonl
head -n 1 chats.jsonl >bad.jsonl
refused "bad.jsonl:1: found a chat that ends with an answer" run --prompts bad.jsonl
{ echo short; yes 'too long for it' | head -n 7000 | tr '\n' ' '; } >long.txt
refused "long.txt:2: the prompt has 112000 tokens; the model is made for 100000: shorten it" run --prompts long.txt
echo "$passed passed, 0 failed"

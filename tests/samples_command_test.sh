#!/bin/sh
# Samples during training, as a user sees them: the same on every layout and after every stop, those
# that `lockstep generate` gives of the checkpoint, of texts, files and chats, and of adapters.
set -eu
. "$(dirname "$0")/support/small_run.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

sed -i 's/max_position_embeddings": 32/max_position_embeddings": 64/' config.json
keys="data.seq_len=16 data.validation=0.1 train.batch=4 train.lr=1e-2 train.warmup=1 train.lr_schedule=constant \
eval.every=5 eval.batches=2 eval.max_new_tokens=12 checkpoint.every=5 checkpoint.keep=9 dtype=fp64 device.threads=1"
own="model=config.json data.text=text.txt $keys train.steps=20"
two='eval.prompts=[It was, "the \"clocks"]'

run 0 train $own "$two" out=runs/one
[ "$(wc -l <runs/one/samples.jsonl)" -eq 8 ] || fail "samples: $(cat runs/one/samples.jsonl)"
grep -q '^{"step": 5, "prompt": "the \\"clocks", "text": "' runs/one/samples.jsonl || fail "$(cat runs/one/samples.jsonl)"
says 'step 20: "It was": "'
left=$(ls runs/one/checkpoints | grep -v '^step-[0-9]*$' || true)
[ -z "$left" ] || fail "left behind: $left"
for step in 5 20; do
  run 0 generate runs/one/checkpoints/step-$step "It was" --greedy --max-new-tokens 12 --json dtype=fp64
  said=$(sed 's/.*"text": "\(.*\)", "tokens".*/\1/' output)
  grep -qF "{\"step\": $step, \"prompt\": \"It was\", \"text\": \"$said\"}" runs/one/samples.jsonl ||
    fail "generate says \"$said\" at step $step: $(cat runs/one/samples.jsonl)"
done

same() { # RUN WHAT
  cmp -s runs/one/samples.jsonl "runs/$1/samples.jsonl" || fail "$2: other samples: $(diff runs/one/samples.jsonl "runs/$1/samples.jsonl")"
  passed=$((passed + 1))
}
for layout in "mesh.dp_shard=2 zero=3" "mesh.tp=2 mesh.dp_shard=1" "mesh.pp=2 mesh.dp_shard=1 train.microbatches=2"; do
  rm -rf runs/many
  run 0 train $own "$two" $layout -n 2 out=runs/many
  same many "$layout"
done
if command -v mpirun >/dev/null; then
  # Some MPI libraries keep memory to the end; that is theirs to free.
  ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" timeout 120 mpirun --oversubscribe -n 2 "$lockstep" train $own "$two" zero=3 out=runs/mpi >output 2>log </dev/null ||
    fail "under MPI: $(cat log)"
  same mpi "two processes"
else
  echo "skipped: samples of processes (no mpirun)"
fi

# Parts of a run have what the whole has; what was written of steps that are made again is cut off.
run 0 train $own "$two" out=runs/part train.steps=12
sed -i '/"step": 12/d' runs/part/samples.jsonl # a whole run does not end there
echo '{"step": 15, "prompt": "It was", "text": "killed here"}' >>runs/part/samples.jsonl
printf '{"step": 15, "pro' >>runs/part/samples.jsonl
run 0 train $own "$two" out=runs/part
same part "in two parts"
run 0 train $own "$two" out=runs/part --fresh
same part "--fresh"
[ -f runs/part/samples.old-1.jsonl ] || fail "--fresh: $(ls runs/part)"
run 0 train $own eval.prompts=none out=runs/none
[ ! -e runs/none/samples.jsonl ] || fail "samples that nobody asked for"

# A stop amid the samples, by whoever makes them, leaves the evaluation to be repeated, all of it.
i=0
while [ $i -lt 400 ]; do echo "It was"; i=$((i + 1)); done >prompts.txt
long="$own eval.prompts=prompts.txt eval.max_new_tokens=50"
run 0 train $long out=runs/whole train.steps=5
"$lockstep" train $long out=runs/stopped train.steps=5 >output 2>log </dev/null &
running=$!
for i in $(seq 300); do ls -d runs/stopped/checkpoints/step-5.tmp-* >/dev/null 2>&1 && break; sleep 0.02; done
kill -TERM $running
code=0
wait $running || code=$?
running=
if [ $code -eq 4 ]; then
  run 0 train $long out=runs/stopped train.steps=5
  passed=$((passed + 1))
else
  echo "skipped: a stop amid the samples (the run had ended: status $code)"
fi
cmp -s runs/whole/samples.jsonl runs/stopped/samples.jsonl || fail "stopped: $(diff runs/whole/samples.jsonl runs/stopped/samples.jsonl | head -3)"
grep -o '"step": [0-9]*,\|"validation_loss": [^,}]*' runs/whole/metrics.jsonl >a
grep -o '"step": [0-9]*,\|"validation_loss": [^,}]*' runs/stopped/metrics.jsonl | sed 's/ *$//' | cmp -s - a ||
  fail "stopped: other validation losses"

# Questions where the texts are chats, and adapters beside the weights they were made for.
cat >chat.jinja <<'END'
{%- for m in messages %}{{- '<' + m.role + '>' + m.content + '</>' }}{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
END
i=0
while [ $i -lt 40 ]; do
  echo '{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "It is <a>"}]}'
  i=$((i + 1))
done >chats.jsonl
head -n 4 chats.jsonl >valid.jsonl
echo '{"messages": [{"role": "user", "content": "A"}]}' >questions.jsonl
chat="model=config.json data.text=chats.jsonl data.tokenizer=bytes data.template=chat.jinja $keys data.seq_len=64 data.validation=valid.jsonl \
train.steps=120 eval.every=60 eval.batches=1"
run 0 train $chat eval.prompts=A out=runs/chat
says 'step 120: "A": "It is <a>"'
run 0 train $chat eval.prompts=questions.jsonl out=runs/asked
tail -n 1 runs/asked/samples.jsonl | grep -qF '"prompt": [{"role": "user", "content": "A"}], "text": "It is <a>"}' ||
  fail "questions of a file: $(tail -n 1 runs/asked/samples.jsonl)"
run 0 train model=runs/one/checkpoints/step-20 data.text=text.txt $keys train.steps=5 lora.rank=2 "$two" out=runs/lora
run 0 generate runs/lora "It was" --greedy --max-new-tokens 12 --json dtype=fp64
said=$(sed 's/.*"text": "\(.*\)", "tokens".*/\1/' output)
grep -qF "{\"step\": 5, \"prompt\": \"It was\", \"text\": \"$said\"}" runs/lora/samples.jsonl ||
  fail "adapters: generate says \"$said\": $(cat runs/lora/samples.jsonl)"

refused() { # TEXT words...
  text=$1
  shift
  run 2 train "$@" out=runs/x
  says "$text"
  [ ! -e runs/x ] || fail "$*: something is left of a refused run"
}
refused "nothing is evaluated with eval.every=0" $own "$two" eval.every=0
refused "keeps nothing for validation" $own "$two" data.validation=0
refused "eval.prompts: absent.txt: no file matches" $own eval.prompts=absent.txt
refused "questions.jsonl:1: found messages; expected a text to go on with" $own eval.prompts=questions.jsonl
refused "prompt 2: the prompt has 65 tokens; the model is made for 64: shorten it" $own \
  "eval.prompts=[a, $(printf '%065d' 0 | tr 0 a)]"
refused 'eval.prompts[0]: found the text ""; expected none' $own 'eval.prompts=[""]'
echo mine >runs/none/samples.jsonl
run 2 train $own "$two" out=runs/none train.steps=25
says "runs/none/samples.jsonl:1: is no line of a run's samples"
[ "$(cat runs/none/samples.jsonl)" = mine ] || fail "somebody's file was touched"
echo "$passed passed, 0 failed"

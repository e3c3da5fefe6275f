#!/bin/sh
# A model learns of what a teacher has said before, in a file: of all ids the same as beside the
# teacher, of a few the same on every layout and after every stop; the file is the same whichever ranks
# write it; what is wrong is named.
set -eu
. "$(dirname "$0")/support/small_run.sh"

sed -i 's/hidden_layers": 1/hidden_layers": 2/' config.json
mkdir -p large
sed 's/hidden_layers": 2/hidden_layers": 3/; s/"hidden_size": [0-9]*/"hidden_size": 48/' config.json >large/config.json
data="data.text=text.txt data.tokenizer=bytes data.seq_len=16 data.validation=0.1 train.batch=4"
text="$data train.lr_schedule=constant train.warmup=0 eval.every=0"
run 0 train model=large/config.json $text train.steps=6 train.lr=3e-3 dtype=fp32 out=runs/large
teacher=runs/large/checkpoints/step-6
keys="model=config.json $text task=distill train.lr=3e-3 train.steps=6 dtype=fp64 eval.every=3"
column() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "runs/$1/metrics.jsonl"; }
near() { # RUN RUN WITHIN: losses, norms, both parts of the loss
  for what in loss grad_norm cross_entropy kl validation_loss; do
    column "$1" $what >a && column "$2" $what >b && [ -s a ] && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] ||
      fail "$2: other steps"
    paste a b | awk -v most="$3" '{d = $1 - $2; if (d > most || d < -most) exit 1}' ||
      fail "$2 differs: $what $(paste a b)"
  done
  passed=$((passed + 1))
}

# All ids: what the teacher itself teaches, but for the file's fp32.
run 0 evaluate $teacher $data dtype=fp64 --logits all.safetensors --top-k 256
says "all.safetensors: the 256 likeliest of 256 ids for each token of "
says "they have 100.00% of the probability"
run 0 train $keys teacher=$teacher out=runs/online
run 0 train $keys distill.logits=all.safetensors out=runs/all
says "teacher $teacher, as "
says "256 likeliest ids of each token; 50% of the loss, at temperature 2"
near online all 2e-6

# So it is with chats, and with a mix of texts.
cat >chat.jinja <<'END'
{%- for m in messages %}{{ '{' if m.role == 'user' }}{{ m.content }}{{ '|' if m.role == 'user' else '}' }}{% endfor %}
END
seq 1 60 | sed 's/.*/{"messages": [{"role": "user", "content": "S&"}, {"role": "assistant", "content": "No &"}]}/' >chats.jsonl
seq 1 400 | sed 's/^/And so on: /' >other.txt
alike() { # NAME, keys of data
  name=$1
  shift
  run 0 evaluate $teacher $data dtype=fp64 --logits $name.safetensors --top-k 256 "$@"
  run 0 train $keys teacher=$teacher out=runs/online.$name "$@"
  run 0 train $keys distill.logits=$name.safetensors out=runs/told.$name "$@"
  near online.$name told.$name 2e-6
}
alike chats data.text=chats.jsonl data.template=chat.jinja
alike mix 'data.text=[{path: text.txt, weight: 0.3}, {path: other.txt, weight: 0.7}]' data.seed=3

# A few: whoever writes it, whoever reads it.
run 0 evaluate $teacher $data dtype=fp64 --logits few.safetensors --top-k 5 --json
says '"top_k": 5'
for layout in "mesh.tp=2 mesh.dp_shard=1" "mesh.cp=2 mesh.dp_shard=1" "mesh.pp=2 mesh.dp_shard=1 train.microbatches=2" \
  "mesh.dp_shard=2"; do
  run 0 evaluate $teacher $data dtype=fp64 --logits again.safetensors --top-k 5 $layout -n 2
  cmp -s few.safetensors again.safetensors || fail "$layout: another file"
done
run 0 train $keys distill.logits=few.safetensors out=runs/one
grep -q teacher runs/one/checkpoints/step-6/model.safetensors && fail "a teacher in the checkpoint"
n=0
for layout in "mesh.dp_shard=2 zero=3" "mesh.tp=2 mesh.dp_shard=1 recompute=full logits_rows=8" \
  "mesh.pp=2 mesh.dp_shard=1 train.microbatches=2" "mesh.cp=2 context=ring mesh.dp_shard=1"; do
  n=$((n + 1))
  run 0 train $keys distill.logits=few.safetensors $layout -n 2 out=runs/many$n
  near one many$n 1e-10
done

# Stopped and gone on with: the same bits, of the same file alone.
run 0 train $keys distill.logits=few.safetensors train.steps=3 out=runs/part
run 0 train $keys distill.logits=few.safetensors mesh.dp_shard=1 out=runs/part
says "resuming after step 3"
cmp -s runs/one/checkpoints/step-6/model.safetensors runs/part/checkpoints/step-6/model.safetensors ||
  fail "resumed, the model is another"
cp few.safetensors mine.safetensors
run 0 train $keys distill.logits=mine.safetensors train.steps=3 out=runs/other
cp all.safetensors mine.safetensors
run 2 train $keys distill.logits=mine.safetensors out=runs/other
says "has other logits now than those that"
cp few.safetensors mine.safetensors
run 0 train $keys distill.logits=mine.safetensors out=runs/other
run 0 evaluate runs/one
says perplexity
run 0 check $keys distill.logits=few.safetensors mesh.tp=2 mesh.dp_shard=2 zero=3 -n 4
says "5 likeliest ids of each token"
run 0 verify $keys distill.logits=few.safetensors mesh.tp=2 mesh.dp_shard=1 -n 2

# Of documents that see themselves alone.
seq 1 200 | sed 's/.*/{"text": "Chapter &: the clocks were striking thirteen."}/' >apart.jsonl
run 0 evaluate $teacher $data data.text=apart.jsonl data.documents=masked --logits apart.safetensors --top-k 3
run 0 train $keys data.text=apart.jsonl data.documents=masked distill.logits=apart.safetensors out=runs/apart

# What is wrong: one line, exit 2, and no run's folder.
refuses() { # WORD... -- what is said: $1
  said=$1
  shift
  run 2 train $keys out=runs/refused "$@"
  says "$said"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  [ ! -e runs/refused ] || fail "a run's folder was made"
}
few=distill.logits=few.safetensors
refuses "nowhere.safetensors" distill.logits=nowhere.safetensors
refuses "is a folder; expected the file of a teacher's logits" distill.logits=large
refuses "found beside teacher; expected one of both" $few teacher=$teacher
refuses "found a value without task=distill; expected that too" $few task=next_token
refuses "tells of sequences of 16; expected 8, as data.seq_len says" $few data.seq_len=8
sed 's/"vocab_size": [0-9]*/"vocab_size": 300/' config.json >wide.json
refuses "tells of a vocabulary of 256; expected 300, that of the model" $few model=wide.json
sed 's/April/March/' text.txt >march.txt
refuses "was made of another text" $few data.text=march.txt
refuses "was made of another text" $few data.validation=0.2
refuses "was made with data.documents=masked; expected stream, as here" distill.logits=apart.safetensors data.text=apart.jsonl
head -c 3000 few.safetensors >cut.safetensors
head -c -4 few.safetensors >damaged.safetensors
printf 'oops' >>damaged.safetensors
refuses "is of other tokens than the run's" distill.logits=damaged.safetensors
refuses "cut.safetensors" distill.logits=cut.safetensors
refuses "in its metadata; expected a file that lockstep evaluate --logits has written" \
  distill.logits=$teacher/model.safetensors
few_refused() { # what is said, words of evaluate
  said=$1
  shift
  run 2 evaluate $teacher $data "$@"
  says "$said"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  [ ! -e refused.safetensors ] || fail "a file was made"
}
few_refused "found 257; expected at most the vocabulary" --logits refused.safetensors --top-k 257
few_refused 'found "0"; expected a whole number from 1' --logits refused.safetensors --top-k 0
few_refused "found without --logits FILE" --top-k 4
few_refused "leave one of them out" --logits refused.safetensors --per-document
few_refused "leave one of them out" --logits refused.safetensors eval.batches=2
echo "$passed passed, 0 failed"

#!/bin/sh
# Preferences are learned as a user asks for it: the same on every layout and after every stop, with
# adapters too; what is preferred is told; and what is wrong is named.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >chat.jinja <<'END'
{%- for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
END
i=0
while [ $i -lt 40 ]; do
  echo "{\"prompt\": \"Say $i\", \"completion\": \"It is $((i * i % 97))\"}" >&3
  echo "{\"prompt\": \"Say $i\", \"chosen\": \"It is $((i * i % 97)).\", \"rejected\": \"No, $i\"}" >&4
  i=$((i + 1))
done 3>chats.jsonl 4>pairs.jsonl
sed -i 's/max_position_embeddings": 32/max_position_embeddings": 160/; s/hidden_layers": 1/hidden_layers": 2/' config.json
chat="data.tokenizer=bytes data.template=chat.jinja data.seq_len=160 data.validation=0 train.batch=4 \
eval.every=0 train.lr_schedule=constant train.warmup=0"
run 0 train model=config.json data.text=chats.jsonl $chat train.steps=4 train.lr=3e-3 dtype=fp32 out=runs/base
keys="model=runs/base/checkpoints/step-4 data.text=pairs.jsonl task=dpo $chat train.lr=3e-3 train.steps=8 dtype=fp64"
column() { sed "s/.*\"$2\": \([^,}]*\)[,}].*/\1/" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses and margins within 1e-10
  for what in loss rewards.margins; do
    column "$1" $what >a && column "$2" $what >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
    paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  done
  passed=$((passed + 1))
}

run 0 train $keys out=runs/one
says "pairs of answers: 40 examples in "
says "preferred 100%"
[ "$(column one loss | head -n 1)" = 0.6931471805599453 ] || fail "the first loss is not log 2: $(column one loss)"
[ "$(column one rewards.accuracies | head -n 1)" = 0 ] || fail "somebody is preferred at the start"
[ "$(column one rewards.accuracies | tail -n 1)" = 1 ] || fail "not all are preferred: $(column one rewards.accuracies)"
column one rewards.margins | tail -n 1 | awk '{exit !($1 > 0.2)}' || fail "the margin stays low: $(column one rewards.margins)"
paste runs/one/metrics.jsonl | awk -F'"rewards/' '{
  split($2, c, /[:,} ]+/); split($3, r, /[:,} ]+/); split($5, m, /[:,} ]+/)
  d = c[2] - r[2] - m[2]; if (d > 1e-9 || d < -1e-9) exit 1}' || fail "margins are no differences"
n=0
for layout in "mesh.dp_shard=2 zero=3" "mesh.tp=2 mesh.dp_shard=2 recompute=full" \
  "mesh.pp=2 schedule=zbh1 post_validation=true mesh.dp_shard=1" "mesh.cp=2 mesh.dp_shard=1"; do
  n=$((n + 1))
  devices=2
  case $layout in *tp=2*dp_shard=2*) devices=4 ;; esac
  run 0 train $keys $layout -n $devices out=runs/many$n
  same one many$n
done

# Stopped and gone on with, and killed: the same bits.
run 0 train $keys train.steps=3 out=runs/part
run 0 train $keys out=runs/part
says "resuming after step 3"
cmp -s runs/one/checkpoints/step-8/model.safetensors runs/part/checkpoints/step-8/model.safetensors ||
  fail "resumed, the model is another"
"$lockstep" train $keys train.steps=30 checkpoint.every=2 out=runs/killed >output 2>log </dev/null &
running=$!
while ! [ -e runs/killed/checkpoints/step-6 ]; do kill -0 $running 2>/dev/null || break; sleep 0.02; done
kill -9 $running 2>/dev/null || true
wait $running 2>/dev/null || true
running=
run 0 train $keys train.steps=30 checkpoint.every=2 out=runs/killed
says "resuming after step"
run 0 train $keys train.steps=30 checkpoint.every=2 out=runs/unharmed
cmp -s runs/killed/checkpoints/step-30/model.safetensors runs/unharmed/checkpoints/step-30/model.safetensors ||
  fail "killed, the model is another"

# Adapters: the weights below them are the reference. Smoothing: a larger loss at the same margin.
run 0 train $keys lora.rank=4 data.validation=0.2 eval.every=4 out=runs/adapters
[ "$(column adapters loss | head -n 1)" = 0.6931471805599453 ] || fail "adapters begin elsewhere"
says "step 8: validation loss 0."
column adapters rewards.margins | tail -n 1 | awk '{exit !($1 > 0)}' || fail "adapters learn nothing"
for layout in "mesh.tp=2" "mesh.cp=2 context=ring"; do
  run 0 train $keys lora.rank=4 data.validation=0.2 eval.every=4 $layout mesh.dp_shard=1 -n 2 --fresh out=runs/adapters2
  same adapters adapters2
done
run 0 train $keys dpo.label_smoothing=0.2 out=runs/smooth
paste runs/smooth/metrics.jsonl runs/one/metrics.jsonl | tail -n 1 | awk -F'"loss": ' \
  '{split($2, a, ","); split($3, b, ","); exit !(a[1] > b[1])}' || fail "smoothing changes nothing"
run 0 verify $keys mesh.tp=2 -n 2
run 0 check $keys mesh.pp=2 mesh.dp_shard=2 train.micro_batch=1 -n 4
says "proved"

# Odds ratios, without a reference: from scratch too, with adapters, the same on layouts and after a stop.
odds="$keys task=orpo"
run 0 train $odds out=runs/odds
says "pairs of answers: 40 examples in "
says "preferred 100%"
[ "$(column odds loss | head -n 1)" != "$(column one loss | head -n 1)" ] || fail "the loss is that of dpo"
awk 'NR == 1 { first = $1 } END { exit !($1 < first) }' <<END || fail "nothing is learned: $(column odds loss)"
$(column odds loss)
END
run 0 train $odds mesh.tp=2 mesh.dp_shard=2 zero=3 -n 4 out=runs/odds-many
same odds odds-many
run 0 train $odds train.steps=3 out=runs/odds-part
run 0 train $odds mesh.pp=2 mesh.cp=2 mesh.dp_shard=1 -n 4 out=runs/odds-part
says "resuming after step 3"
same odds odds-part
run 0 train $odds lora.rank=4 data.validation=0.2 eval.every=4 out=runs/odds-adapters
says "step 8: validation loss "
run 0 train $odds model=config.json train.steps=1 out=runs/odds-scratch
run 0 train $odds orpo.lambda=2 train.steps=1 out=runs/odds-strong
[ "$(column odds-strong loss)" != "$(column odds loss | head -n 1)" ] || fail "orpo.lambda changes nothing"
run 0 verify $odds mesh.tp=2 -n 2
run 0 check $odds mesh.pp=2 mesh.dp_shard=2 train.micro_batch=1 -n 4
says "proved"

refused() { # WORDS of the message, keys...
  words=$1
  shift
  run 2 train $keys out=runs/x "$@"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  says "$words"
  [ ! -e runs/x ] || fail "something is left of a refused run"
}
refused "data.loss_on: found all with task=dpo" data.loss_on=all
refused "data.too_long: found cut with task=dpo" data.too_long=cut
refused "data.documents: found stream with task=dpo" data.documents=stream
refused "logits_rows: found 8 with task=dpo" logits_rows=8
refused "task: answers are preferred beyond what the starting weights make of them" model=config.json
refused "dpo.beta: found a value without task=dpo" task=next_token dpo.beta=0.2
refused "dpo.beta" dpo.beta=0
refused "orpo.lambda: found a value without task=orpo" orpo.lambda=0.2
refused "dpo.beta: found a value without task=dpo" task=orpo dpo.beta=0.2
refused "orpo.lambda" task=orpo orpo.lambda=0
cat >mixture.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 1,
 "num_attention_heads": 2, "max_position_embeddings": 160, "num_local_experts": 4, "num_experts_per_tok": 2}
END
run 0 train $odds model=mixture.json mesh.cp=2 mesh.dp_shard=1 -n 2 train.steps=1 out=runs/mixture
refused "mesh.cp=2 with task=orpo and what experts add to the loss" task=orpo model=mixture.json experts.aux_loss=0.01 \
  experts.aux_form=sequence mesh.cp=2 -n 2
refused "sequences of 158 tokens over mesh.cp=2" data.seq_len=158 mesh.cp=2 -n 2
refused "data.loss_on: found all with task=orpo" task=orpo data.loss_on=all
refused "use seq_len 320 or less" data.seq_len=512
refused "40 more are too long" data.seq_len=40
refused "chats.jsonl:1: found no \"chosen\"" data.text=chats.jsonl
echo '{"prompt": "x", "chosen": "y", "rejected": "y"}' >equal.jsonl
refused "equal.jsonl:1: found equal \"chosen\" and \"rejected\"" data.text=equal.jsonl

# A mixture pays for the balance of its experts beside pairs, the same on every layout.
cat >mixture.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 160, "num_local_experts": 6, "num_experts_per_tok": 2}
END
odds="model=mixture.json data.text=pairs.jsonl task=orpo $chat train.steps=2 dtype=fp64"
pays="experts.aux_loss=0.1 experts.aux_form=sequence experts.z_loss=0.01"
run 0 train $odds out=runs/free
run 0 train $odds $pays out=runs/pays
run 0 train $odds $pays out=runs/pays-four mesh.dp_shard=2 mesh.ep=2 mesh.tp=2 -n 4
same pays pays-four
[ "$(column free loss | head -n 1)" != "$(column pays loss | head -n 1)" ] || fail "balance costs nothing"
refused "experts.aux_form: found with pairs of answers" experts.aux_loss=0.1 model=mixture.json task=orpo
refused "experts.z_loss: given for a model without experts" $pays experts.aux_loss=0
run 2 evaluate runs/one
says "give task=next_token"
run 0 evaluate runs/one task=next_token data.text=chats.jsonl
echo "$passed passed, 0 failed"

#!/bin/sh
# Encoders are trained as a user asks for it: the same on every layout and after a stop, with adapters
# and documents too; what is masked is never special; and what cannot be is named.
set -eu
tests=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/support/small_run.sh"

mkdir bert
cp "$tests/data/tokenizers/word-piece/tokenizer.json" bert/
cat >bert/config.json <<'END'
{"model_type": "bert", "vocab_size": 520, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "intermediate_size": 48, "max_position_embeddings": 32, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
END
head -n 60 "$tests/../README.md" >text.txt
keys="model=bert data.text=text.txt data.seq_len=24 data.validation=0.1 train.batch=4 eval.every=6 task=mlm \
train.lr_schedule=constant train.warmup=0 train.lr=3e-3 train.steps=6 dtype=fp64 data.documents=masked"
column() { sed "s/.*\"$2\": \([^,}]*\)[,}].*/\1/" "runs/$1/metrics.jsonl"; }
same() { # RUN RUN: losses within 1e-10
  column "$1" loss >a && column "$2" loss >b && [ "$(wc -l <a)" -eq "$(wc -l <b)" ] || fail "$2: other steps"
  paste a b | awk '{d = $1 - $2; if (d > 1e-10 || d < -1e-10) exit 1}' || fail "$2 differs: $(paste a b)"
  passed=$((passed + 1))
}

run 0 train $keys out=runs/one
run 0 train $keys mesh.dp_shard=2 zero=3 -n 2 out=runs/zero
same one zero
run 0 train $keys mesh.tp=2 mesh.cp=2 mesh.dp_shard=1 -n 4 out=runs/cut
same one cut
run 0 train $keys train.steps=3 out=runs/part
run 0 train $keys out=runs/part
says "resuming after step 3"
cmp -s runs/one/checkpoints/step-6/model.safetensors runs/part/checkpoints/step-6/model.safetensors ||
  fail "resumed, the model is another"

for name in bert.encoder.layer.1.attention.self.query.weight cls.predictions.transform.LayerNorm.bias; do
  grep -qaF "\"$name\"" runs/one/checkpoints/step-6/model.safetensors || fail "$name is not saved"
done
run 0 evaluate runs/one task=mlm data.text=text.txt data.seq_len=24
says "loss"
run 0 train $keys lora.rank=2 model=runs/one/checkpoints/step-6 train.lr=1e-2 out=runs/adapters
run 0 verify $keys mesh.tp=2 mesh.pp=2 train.microbatches=2 -n 4

run 2 generate runs/one "the"
says "bert is an encoder, whose tokens see those behind them: it predicts masked tokens and continues no text"
run 2 train $keys task=next_token out=runs/wrong
says "bert is an encoder, whose tokens see those behind them: give task=mlm"
run 2 train $keys mesh.cp=2 context=ring -n 2 out=runs/wrong
says "use context=gather or ulysses"
run 2 train $keys data.tokenizer=bytes out=runs/wrong
says "a tokenizer without a mask such as [MASK]"
run 2 train $keys model=config.json out=runs/wrong
says "expected an encoder, such as bert"
run 2 train $keys mlm.mask_replace=0.95 out=runs/wrong
says "expected at most 1 together"
run 2 train $keys mlm_probability=0.3 out=runs/wrong
says "mlm.probability"
[ ! -e runs/wrong ] || fail "something was written"
echo "$passed passed, 0 failed"

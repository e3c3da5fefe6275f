#!/bin/sh
# Models, tasks, layouts and optimizers with ops of their own on GPUs without one, as
# cuda_command_test.sh has it: frozen weights in blocks, pairs of answers, mixtures of experts, sequences
# that are shared out, dropout of attention, latent attention, sinks, encoders, classes, a teacher,
# vectors of texts, products in fp8: of codes where the GPU and cuBLASLt have them.
# A run ends where the CPU's run of the same file ends. $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
. "$tests/support/gpu_models.sh"
. "$tests/support/cpu_and_gpus.sh"

# Rows and columns in whole blocks of 64, by halves too; and dropout.
cat >wide.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64}
END
sed 's/"n_embd": 48/"n_embd": 32/; s/"n_head": 3/"n_head": 2/; s/"vocab_size": 262/"vocab_size": 256/
  s/pdrop": 0/pdrop": 0.1/g' gpt2.json >dropout.json
# The third step takes what two updates have made, the second of them by kept moments.
steps=3
cat >run.yaml <<END
data: {text: text.txt, tokenizer: bytes, seq_len: 16, validation: 0}
train: {batch: 4, lr: 1e-3, steps: $steps, warmup: 1}
eval: {every: 0}
checkpoint: {every: 0}
END

# Experts: whole, shared out, with other axes; graphs of a step are replayed whatever tokens choose.
both 5e-6 model=mixtral.json dtype=fp32
both 5e-6 model=qwen.json dtype=fp32 mesh.dp_shard=2 mesh.ep=2 zero=3
both 5e-6 model=qwen.json dtype=fp32 mesh.tp=2 recompute=full train.microbatches=2
both 2e-2 model=mixtral.json dtype=bf16 mesh.dp_shard=2 mesh.ep=2
both 2e-2 model=qwen.json dtype=fp16

# Routers of sigmoids in groups, experts that are balanced, biased, held to a capacity, sent to; latent
# attention, sinks.
both 5e-6 model=deepseek.json dtype=fp32 experts.bias_rate=0.1 experts.aux_loss=0.1
sent="mesh.dp_shard=2 mesh.ep=2 experts.exchange=all_to_all"
both 5e-6 model=deepseek.json dtype=fp32 $sent zero=3 experts.z_loss=0.01
both 2e-2 model=deepseek.json dtype=bf16 mesh.tp=2 recompute=full
both 5e-6 model=mixtral.json dtype=fp32 $sent experts.drop=1.25 experts.aux_loss=0.1 experts.aux_form=sequence
both 5e-6 model=oss.json dtype=fp32 mesh.cp=2 context=ring experts.drop=1
both 2e-2 model=oss.json dtype=bf16 mesh.dp_shard=2 mesh.ep=2 mesh.tp=2 experts.aux_loss=0.1

# Sequences shared out: keys gathered, heads exchanged, blocks of keys round a ring.
both 5e-6 model=small.json dtype=fp32 mesh.cp=2
both 5e-6 model=small.json dtype=fp32 mesh.cp=2 context=ring mesh.dp_shard=2 zero=3 recompute=full
both 2e-2 model=wide.json dtype=bf16 mesh.cp=2 context=ulysses mesh.tp=2
both 2e-2 model=small.json dtype=bf16 mesh.cp=4 context=ring
both 5e-6 model=small.json dtype=fp32 mesh.cp=4 context=hybrid
both 2e-2 model=wide.json dtype=bf16 mesh.cp=4 context=hybrid zero=3
both 5e-6 model=mixtral.json dtype=fp32 mesh.cp=2 mesh.ep=2

# Dropout drops what it drops elsewhere.
both 5e-6 model=dropout.json dtype=fp32 dropout=auto
both 2e-2 model=dropout.json dtype=bf16 dropout=auto mesh.tp=2

# From a base: adapters beside blocks, and pairs of answers.
run 0 train run.yaml out=base model=wide.json dtype=fp32 train.steps=4 checkpoint.every=4
base=model=base/checkpoints/step-4
lora="lora.rank=4 lora.alpha=8"
both 5e-6 $base dtype=fp32 quantize=nf4 $lora
both 5e-6 $base dtype=fp32 quantize=int8 $lora mesh.dp_shard=2 zero=3
both 2e-2 $base dtype=bf16 quantize=nf4 $lora mesh.tp=2

cat >chat.jinja <<'END'
{%- for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
END
i=0
while [ $i -lt 8 ]; do
  echo "{\"prompt\": \"S$i\", \"chosen\": \"$((i * i)).\", \"rejected\": \"No, $i\"}"
  i=$((i + 1))
done >pairs.jsonl
run 0 train run.yaml out=base-small model=small.json dtype=fp32 train.steps=4 checkpoint.every=4
base=model=base-small/checkpoints/step-4
dpo="task=dpo data.text=pairs.jsonl data.template=chat.jinja data.seq_len=64 train.batch=2 train.lr=3e-3"
both 5e-6 $base dtype=fp32 $dpo
both 5e-6 $base dtype=fp32 $dpo mesh.dp_shard=2 zero=2 $lora
both 2e-2 $base dtype=bf16 $dpo mesh.tp=2
both 5e-6 $base dtype=fp32 $dpo mesh.cp=2

# Texts with a class: logits of three columns.
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do echo "{\"text\": \"$i times $i\", \"label\": $((i % 3))}"; done >texts.jsonl
classes="task=classify data.text=texts.jsonl data.seq_len=32 data.validation=0.4 train.batch=2 train.lr=3e-3 eval.every=3"
both 5e-6 $base dtype=fp32 $classes mesh.tp=2
both 2e-2 $base dtype=bf16 $classes mesh.dp_shard=2 zero=3
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
  case $((i % 3)) in 0) labels= ;; 1) labels='"a"' ;; *) labels='"a", "b"' ;; esac
  echo "{\"text\": \"$i times $i\", \"label\": [$labels]}"
done >several.jsonl
both 5e-6 $base dtype=fp32 $classes mesh.tp=2 classes.weights=[1,2,0.5]
several="$classes data.text=several.jsonl classes.several=true train.batch=1"
both 5e-6 $base dtype=fp32 $several classes.weights=[2,0.5]
both 2e-2 $base dtype=bf16 $several mesh.tp=2

# A teacher, whose checkpoint is the base.
distill="model=small.json task=distill teacher=base-small/checkpoints/step-4"
both 5e-6 $distill dtype=fp32 mesh.tp=2
both 2e-2 $distill dtype=bf16 mesh.dp_shard=2 zero=3

# What it has said, in a file.
run 0 evaluate base-small/checkpoints/step-4 data.text=text.txt data.tokenizer=bytes data.seq_len=16 \
  data.validation=0 --logits told.safetensors --top-k 9
told="model=small.json task=distill distill.logits=told.safetensors"
both 5e-6 $told dtype=fp32 mesh.tp=2
both 2e-2 $told dtype=bf16 mesh.dp_shard=2 zero=3

# Encoders: both directions, near and far, shares of sequences, no biases of norms.
mkdir modernbert roberta
cp "$tests/data/tokenizers/word-piece/tokenizer.json" modernbert/
cp modernbert/tokenizer.json roberta/
cat >modernbert/config.json <<'END'
{"model_type": "modernbert", "vocab_size": 520, "num_hidden_layers": 2, "num_attention_heads": 2,
 "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 64, "local_attention": 8}
END
cat >roberta/config.json <<'END'
{"model_type": "roberta", "vocab_size": 520, "num_hidden_layers": 2, "num_attention_heads": 4,
 "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 34, "type_vocab_size": 1}
END
mlm="task=mlm data.tokenizer=auto"
both 5e-6 model=modernbert dtype=fp32 $mlm
both 5e-6 model=roberta dtype=fp32 $mlm mesh.tp=2 mesh.cp=2 dropout=auto
both 2e-2 model=modernbert dtype=bf16 $mlm mesh.dp_shard=2 zero=3

# Vectors of texts: of a last token, and of the mean of all.
i=0
while [ $i -lt 12 ]; do
  echo "{\"query\": \"$i * $i\", \"positive\": \"$((i * i)).\", \"negative\": \"No, $i\"}"
  i=$((i + 1))
done >asked.jsonl
embed="task=embed data.text=asked.jsonl data.seq_len=32 data.validation=0.3 embed.negatives=1 embed.pairs=2 \
train.batch=2 train.lr=3e-3 eval.every=3"
both 5e-6 $base dtype=fp32 $embed mesh.dp_shard=2 zero=2
both 5e-6 model=modernbert data.tokenizer=auto dtype=fp32 $embed mesh.tp=2 embed.group=1 train.microbatches=2
both 2e-2 $base dtype=bf16 $embed embed.pooling=mean mesh.cp=2

# Products in fp8: of codes, with scales in the product or by a pass; some of them, or none.
codes="products y and dx are of codes of 8 bits"
settings=gpus=1,log=$work/calls
both 2e-2 model=small.json dtype=fp8
says "fp8: 28 of 28 $codes, scales of tokens in the product"
grep -q "^products of codes [1-9]" calls || fail "no product of codes: $(cat calls)"
settings=gpus=4
both 2e-2 model=small.json dtype=fp8 mesh.dp_shard=2 zero=3 mesh.tp=2 recompute=full
says "$codes, scales of tokens in the product; the other 10 are of bf16: rows"
both 2e-2 model=small.json dtype=fp8 mesh.dp_shard=2 zero=1 train.microbatches=2
says "weights are gathered as codes of 8 bits"
settings=gpus=4,cc=89
both 2e-2 model=dropout.json dtype=fp8 mesh.dp_shard=2 zero=3
says "$codes, scales of tokens by a pass over what it gives (cuBLASLt takes scales of rows on sm_90 alone)"
settings=gpus=1,driver=12080,cublaslt=120803,cublaslt_cuda=12080
both 2e-2 model=small.json dtype=fp8
says "by a pass over what it gives (cuBLASLt before 12.9 takes no scales of rows)"
for settings in gpus=1,codes=none gpus=1,codes=found; do
  both 2e-2 model=small.json dtype=fp8
  says "cuBLASLt has no product of"
done
emulated() { # REASON SETTINGS
  settings=gpus=1,$2,log=$work/emulated
  rm -rf gpu-run emulated
  on_gpu 0 train run.yaml out=gpu-run device.kind=cuda model=small.json dtype=fp8 train.steps=1
  says "fp8 is emulated: operands are rounded to it and held in bf16, which is no faster ($1"
  ! grep -q "^products of codes" emulated || fail "emulated, and a product of codes: $(cat emulated)"
}
emulated "cuBLASLt before 12.1.3 " cc=89,driver=12010,cublaslt=120101,cublaslt_cuda=12010
emulated "GPUs before sm_89 " cc=80
settings=gpus=4

# The other optimizers: the fourth step takes what graphs have updated that were captured before.
steps=4
sed -i "s/steps: 3/steps: $steps/" run.yaml
both 5e-6 model=small.json dtype=fp32 optimizer.name=adamw8bit mesh.dp_shard=2 zero=3
both 5e-6 model=small.json dtype=fp32 optimizer.name=muon mesh.tp=2
both 5e-6 model=small.json dtype=fp32 optimizer.name=muon mesh.dp_shard=2 mesh.tp=2 zero=3
both 5e-6 model=small.json dtype=fp32 optimizer.name=muon mesh.dp_shard=2 zero=1 offload.optimizer=host
both 5e-6 model=small.json dtype=fp32 optimizer.name=adafactor mesh.dp_shard=2 zero=3
both 2e-2 model=small.json dtype=bf16 optimizer.name=adafactor optimizer.scale_parameter=true mesh.tp=2
free="optimizer.name=schedulefree train.lr_schedule=constant"
both 2e-2 model=small.json dtype=bf16 $free mesh.dp_shard=2 zero=2
echo "$passed runs"

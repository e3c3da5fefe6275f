#!/bin/sh
# Balance of experts as a user trains with it: loads are told of every step, losses are the same on
# every layout, and what cannot be is refused with what can, before anything starts.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >mixture.json <<'JSON'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 32, "num_local_experts": 6, "num_experts_per_tok": 2,
 "sliding_window": null}
JSON
words="model=mixture.json data.text=text.txt data.tokenizer=bytes data.seq_len=16 data.validation=0 train.batch=8"
words="$words train.warmup=0 train.steps=3 eval.every=0 checkpoint.every=0 dtype=fp32"
of() { sed "s/.*\"$2\": *\([^,}]*\)[,}].*/\1/" "$1/metrics.jsonl"; } # RUN KEY: by step
# same RUN OTHER: their losses and their loads are equal, step by step.
same() {
  for key in loss expert_load experts_idle; do
    of "$1" $key >a
    of "$2" $key >b
    paste a b | awk '{ n++; if (($1 - $2) ^ 2 > 1e-10) bad = 1 } END { exit bad || n != 3 }' ||
      fail "$1 and $2, $key: $(paste a b)"
  done
}

run 0 train $words out=plain
grep -q '"expert_load": [1-6][.0-9]*, "expert_load_layer": [01], "experts_idle": 0' plain/metrics.jsonl ||
  fail "no loads: $(cat plain/metrics.jsonl)"
run 0 train $words out=untold experts.loads=false
! grep -q expert_load untold/metrics.jsonl || fail "loads are told: $(cat untold/metrics.jsonl)"

for form in model layer sequence; do
  run 0 train $words out=$form experts.aux_loss=0.5 experts.aux_form=$form experts.z_loss=0.01
  paste -d ' ' plain/metrics.jsonl $form/metrics.jsonl | head -n 1 >first
  [ "$(of plain loss | head -n 1)" != "$(of $form loss | head -n 1)" ] || fail "$form adds nothing"
  run 0 train $words out=$form-two experts.aux_loss=0.5 experts.aux_form=$form experts.z_loss=0.01 \
    mesh.dp_shard=2 mesh.ep=2 mesh.tp=2 -n 4
  same $form $form-two
done
run 0 train $words out=stages experts.aux_loss=0.5 experts.aux_form=sequence experts.z_loss=0.01 \
  mesh.pp=2 train.microbatches=4 mesh.dp_shard=1 -n 2
same sequence stages
run 0 train $words out=parts experts.aux_loss=0.5 experts.aux_form=layer train.microbatches=2 \
  experts.aux_microbatches=2
run 0 train $words out=parts-two experts.aux_loss=0.5 experts.aux_form=layer train.microbatches=2 \
  experts.aux_microbatches=2 mesh.pp=2 mesh.dp_shard=2 -n 4
same parts parts-two

run 2 train $words out=no experts.aux_loss=0.5 train.microbatches=2
says "use train.microbatches=1, experts.aux_microbatches=2 or experts.aux_form=sequence"
run 2 train $words out=no experts.aux_loss=0.5 mesh.pp=2 -n 2
says "use mesh.pp=1, experts.aux_form=layer or experts.aux_form=sequence"
run 2 train $words out=no experts.bias_rate=0.001
says "experts.bias_rate: given for a model whose routers have no correction bias; expected 0"
run 2 train keys.yaml data.tokenizer=bytes out=no experts.z_loss=0.001
says "experts.z_loss: given for a model without experts; expected 0"
run 2 train keys.yaml experts.exchange=all_to_all out=no
says "experts.exchange: given for a model without experts; expected auto"
# Routers' corrections are not frozen: no gradient reaches them, and none is made up.
large="model=deepseek-v3 data.seq_len=4096 mesh.pp=16 mesh.ep=64 mesh.dp_shard=128 zero=1 dtype=bf16 recompute=full \
train.batch=8192 train.micro_batch=1 schedule=dualpipev"
run 0 show $large -n 2048 --memory
! grep -q frozen output || fail "corrections count as frozen: $(cat output)"
run 0 show $large train.freeze=embedding -n 2048 --memory
says "more would be needed to train the 926.68 M parameters that are frozen"
[ ! -e no ] || fail "a refused run left its folder"
run 0 train $words out=plain train.steps=4 experts.loads=false
run 2 train $words out=plain train.steps=5 experts.aux_loss=0.5
says "experts.aux_loss"

# Rows are sent where a bound is given, unless all tokens are to be gathered.
over="$words train.steps=1 mesh.dp_shard=2 mesh.ep=2 -n 2"
run 0 show $over --collectives
! grep -q "for to_slots\|to_slots:" output || fail "rows are sent without a bound"
run 0 show $over experts.bound=1.5 --collectives
says "to_slots: S(1) on ep -> S(0)"
run 2 train $over out=no experts.exchange=gather experts.bound=1.5
says "experts.bound: given with experts.exchange=gather"
run 2 train $over out=no experts.again=2
says "experts.again: given without experts.bound"

# Correction biases follow loads; a run that goes on, on whatever layout, has the same.
cat >latent.json <<'JSON'
{"model_type": "deepseek_v3", "vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 24,
 "moe_intermediate_size": 8, "max_position_embeddings": 32, "q_lora_rank": 8, "kv_lora_rank": 8,
 "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4, "n_routed_experts": 8,
 "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
 "first_k_dense_replace": 1}
JSON
words="model=latent.json data.text=text.txt data.tokenizer=bytes data.seq_len=16 data.validation=0 train.batch=8"
words="$words train.warmup=0 train.lr=1e-3 train.lr_schedule=constant eval.every=0 checkpoint.every=2"
for dtype in fp32 bf16; do
  with="$words dtype=$dtype experts.bias_rate=0.01"
  run 0 train $with out=whole-$dtype train.steps=3
  run 0 train $with out=on-$dtype train.steps=2
  run 0 train $with out=on-$dtype train.steps=3
  same whole-$dtype on-$dtype
done
run 0 train $words dtype=fp32 experts.bias_rate=0.01 out=relaid train.steps=2
run 0 train $words dtype=fp32 experts.bias_rate=0.01 out=relaid train.steps=3 mesh.dp_shard=2 \
  mesh.tp=2 mesh.ep=2 zero=3 -n 4
same whole-fp32 relaid
run 0 train $words dtype=fp32 out=still train.steps=3
of still loss >a
of whole-fp32 loss >b
! cmp -s a b || fail "biases that move change nothing"
echo "balance_command_test: $passed commands"

#!/bin/sh
# dtype: fp8 as a user meets it: a training beside that in bf16, on several layouts, resumed,
# evaluated, verified, checked and simulated for GPUs; and what is refused.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 32}
END
words="keys.yaml train.steps=6 train.batch=4 train.lr=1e-2 device.threads=1"
losses() { sed -n 's/.*"loss": *\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }

run 0 train $words dtype=fp8 out=fp8
says "in fp8 on 1 device"
says "fp8 is emulated: operands are rounded to it and held in bf16, which is no faster"
run 0 train $words dtype=bf16 out=bf16
run 0 train $words dtype=fp8 mesh.tp=2 -n 2 out=tp
run 0 train $words dtype=fp8 mesh.dp_shard=2 zero=3 recompute=full -n 2 out=zero
says "which is no faster; weights are gathered as codes of 8 bits"
for of in fp8 bf16 tp zero; do losses $of >$of.losses; done
cmp -s fp8.losses bf16.losses && fail "fp8 rounds nothing: $(cat fp8.losses)"
paste fp8.losses bf16.losses tp.losses zero.losses |
  awk '{ n++; for (i = 2; i <= 4; i++) { d = $i / $1 - 1; if (d < 0) d = -d; if (d > 0.02) bad = 1 } }
       END { exit !(n == 6 && !bad) }' ||
  fail "losses: $(paste fp8.losses bf16.losses tp.losses zero.losses)"

# A run goes on as what it was; what it saves is a model like any other.
run 2 train $words dtype=bf16 out=fp8 train.steps=8
says "dtype"
run 0 train $words dtype=fp8 out=fp8 train.steps=8
if grep -rq fp8 fp8/checkpoints/*/config.json; then fail "a config.json tells of fp8"; fi
for dtype in fp8 bf16; do
  run 0 evaluate fp8 data.text=text.txt data.seq_len=16 train.batch=2 eval.batches=8 dtype=$dtype --json
  sed -n 's/.*"loss": *\([^,]*\),.*/\1/p' output >>evaluated
done
awk '{ loss[NR] = $1 } END { d = loss[1] / loss[2] - 1; exit !(d != 0 && d < 0.02 && d > -0.02) }' \
  evaluated || fail "evaluated: $(cat evaluated)"

run 0 verify keys.yaml dtype=fp8 train.batch=4 mesh.tp=2 mesh.dp_shard=2 zero=3 -n 4
says "nothing is rounded but to fp8"
run 0 verify keys.yaml dtype=fp8 train.batch=4 mesh.dp_shard=2 zero=3 -n 2 optimizer.name=schedulefree train.lr_schedule=constant

# For devices that are not here: proved, and products that may be at the rate of fp8 take less time.
run 0 check keys.yaml model=llama3-8b data.seq_len=2048 train.batch=8 mesh.tp=8 dtype=fp8 --on 8xh100-sxm
says "in fp8 on 8 devices"
codes="products y and dx are of codes of 8 bits, scales of tokens"
says "fp8: 448 of 448 $codes in the product"
run 0 check keys.yaml model=llama3-8b data.seq_len=2048 train.batch=8 mesh.dp_shard=8 zero=3 dtype=fp8 --on 8xh100-sxm
says "$codes in the product; weights are gathered as codes of 8 bits"
# The parameters of a layer go over the wires in a byte each, its norms in two.
for dtype in fp8 bf16; do
  run 0 show keys.yaml dtype=$dtype mesh.dp_shard=2 zero=3 -n 2 --collectives
  cp output $dtype.collectives
done
grep -q "codes of layers.0 (fp8)" fp8.collectives || fail "no codes: $(cat fp8.collectives)"
if grep -q "codes of" bf16.collectives; then fail "codes: $(cat bf16.collectives)"; fi
# So they do where updates are in shards; of a layer its norms alone are published.
run 0 show keys.yaml dtype=fp8 mesh.dp_shard=2 zero=1 -n 2 --collectives
grep -q "all-gather  *1 .* codes of layers.0 (fp8)" output || fail "no codes: $(cat output)"
if grep -q "parameters of layers.0 (fp8)" output; then fail "published in bf16: $(cat output)"; fi
run 0 show keys.yaml dtype=fp8 mesh.dp_shard=2 zero=3 offload.parameters=host -n 2 --collectives
if grep -q "codes of" output; then fail "codes: $(cat output)"; fi
run 0 show keys.yaml dtype=fp8 --on 1xl40s --memory
says "$codes by a pass over what it gives (cuBLASLt takes scales of rows on sm_90 alone)"
run 0 show keys.yaml dtype=fp8
tail -n 1 output | grep -qF "fp8 is emulated" || fail "show ends with $(tail -n 1 output)"
for dtype in fp8 bf16; do
  for on in h100-sxm a100-sxm-80; do
    run 0 simulate keys.yaml model=llama3-8b data.seq_len=2048 train.batch=32 dtype=$dtype --on 8x$on --json
    sed -n 's/.*"step_seconds": *\([^,]*\),*/\1/p' output >>seconds
  done
done
awk '{ s[NR] = $1 } END { exit !(NR == 4 && s[1] < 0.95 * s[3] && s[2] > s[4]) }' seconds ||
  fail "seconds: $(cat seconds)"

# What is not built.
cat >mixture.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
 "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 32}
END
run 2 train keys.yaml model=mixture.json dtype=fp8
says "a mixture of experts, whose products in fp8 are not built: use dtype=bf16"
run 2 train keys.yaml lora.rank=2 quantize=nf4 dtype=fp8
says "quantised weights, whose products in fp8 are not built: use dtype=bf16, or quantize=none"
run 2 generate fp8 "It was" dtype=fp8
says "dtype: fp8 is built for training and evaluation; expected bf16, fp16, fp32 or fp64"
[ "$(wc -l <log)" -eq 1 ] || fail "more than one line: $(cat log)"
echo "fp8_command_test: $passed commands"

#!/bin/sh
# Every axis and more in one run: a mixture of experts on 16 ranks with pp, dp_shard, cp, tp and ep,
# ZB-V, recomputation by budget, the optimizer's state on a drive, packed documents. Proved, equal to
# one device, killed, and gone on with on another layout.
set -eu
. "$(dirname "$0")/support/small_run.sh"

cat >moe.json <<'JSON'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
 "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2}
JSON
head -n 40 text.txt | awk '{ printf "{\"text\": \"%s\"}\n", substr($0, 1, 20 + NR) }' >texts.jsonl
cat >run.yaml <<'YAML'
model: moe.json
data: {text: texts.jsonl, tokenizer: bytes, seq_len: 64, documents: masked, validation: 0}
train: {batch: 16, microbatches: 4, steps: 6, lr: 1e-3, warmup: 1}
eval: {every: 0}
checkpoint: {every: 2}
YAML
mkdir drive
all="mesh.pp=2 mesh.dp_shard=2 mesh.cp=2 mesh.tp=2 mesh.ep=4 schedule=zbv recompute=budget"
all="$all offload.optimizer=nvme offload.path=$work/drive -n 16 device.threads=1"

# A little more than what it needs where every layer runs again.
run 1 check run.yaml dtype=fp32 $all device.memory=64KiB
least=$(sed -n 's/.* needs \([0-9.]*\) MiB even where.*/\1/p' log)
all="$all device.memory=$(awk "BEGIN { print int(1024 * ($least + 0.1)) }")KiB"
run 0 check run.yaml dtype=fp32 $all
says "proved for 2 stages"

# same RUN BAND: losses are those of one device.
same() {
  paste one-$3/metrics.jsonl "$1/metrics.jsonl" | sed 's/[{},"]/ /g' | awk -v band="$2" '
    { n = 0; for (i = 1; i < NF; i++) if ($i == "loss") seen[n++] = $(i + 2)
      if (n != 2) next
      steps++; d = seen[0] / seen[1] - 1; if (d < 0) d = -d; if (d > worst) worst = d }
    END { printf "%d steps, worst %.1e\n", steps, worst; exit !(steps == 6 && worst <= band) }'
}
for dtype in fp32 bf16; do
  band=1e-6
  [ $dtype = fp32 ] || band=4e-3
  run 0 train run.yaml dtype=$dtype out=one-$dtype device.threads=1 checkpoint.every=0 -n 1
  run 0 train run.yaml dtype=$dtype out=all-$dtype $all
  [ $dtype = bf16 ] || says "runs again to fit"
  found=$(same all-$dtype $band $dtype) || fail "$dtype: not one device's: $found"
  echo "$dtype: $found"
done

# Killed amid the steps, and gone on with by four ranks that share experts otherwise.
"$lockstep" train run.yaml dtype=fp32 out=killed $all >output 2>log </dev/null &
running=$!
until [ -e killed/checkpoints/step-2 ] || ! kill -0 $running 2>/dev/null; do sleep 0.05; done
kill -9 $running 2>/dev/null || true
wait $running 2>/dev/null || true
running=
[ -e killed/checkpoints/step-2 ] || fail "no checkpoint before the kill: $(cat log)"
cp -r killed over-tp
run 0 train run.yaml dtype=fp32 out=killed mesh.dp_shard=4 mesh.ep=2 zero=2 -n 4
found=$(same killed 1e-6 fp32) || fail "killed: not one device's: $found"
echo "killed: $found"

# And by ranks of tp that have whole experts; from these again by others.
whole="mesh.dp_shard=2 mesh.tp=2 mesh.ep=4 experts.tensor_parallel=false experts.bound=1.25 zero=1"
run 0 verify run.yaml dtype=fp32 $whole -n 4
run 0 train run.yaml dtype=fp32 out=over-tp $whole -n 4
found=$(same over-tp 1e-6 fp32) || fail "over tp: not one device's: $found"
rm -r over-tp/checkpoints/step-6
run 0 train run.yaml dtype=fp32 out=over-tp mesh.tp=4 zero=0 -n 4
found=$(same over-tp 1e-6 fp32) || fail "from over tp: not one device's: $found"
echo "over tp: $found"
echo "everything_command_test: $passed commands"

#!/bin/sh
# GPUs of this machine, without one: bench measures stand-ins of them and keeps it; simulate, plan
# and machines go by it where nothing is said of --on; what cannot be is refused in one line.
# $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
export XDG_CACHE_HOME="$work/cache"

settings=gpus=2
seconds() { grep "\"step_seconds\"" output; }

cat >llama.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 512, "intermediate_size": 1024,
 "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 512}
END
step="model=llama.json data.tokenizer=none data.seq_len=512 train.batch=16 mesh.dp_shard=2 -n 2"

# Before it is measured a machine is what the catalog says of such GPUs.
# shellcheck disable=SC2086
on_gpu 0 simulate $step
says "rates of its data sheet, as lockstep bench has not measured this machine"
says "memory"
on_gpu 1 bench --kept
says "nothing is kept of Stand-in GPU, driver"
# shellcheck disable=SC2086
on_gpu 0 simulate $step --json
seconds >sheet

on_gpu 0 bench -o here.yaml
says "2 GPUs, h100-sxm-80"
says "measuring GPUs has run on stand-ins alone so far"
says "bf16 192x192x192"
says "from the host"
says "from GPU 1"
grep -q "^reached: {bf16_tflops: .*peer_gb_per_s: " here.yaml || fail "here.yaml: $(cat here.yaml)"
on_gpu 0 bench --kept
says "accelerator: h100-sxm-80"
cmp -s output here.yaml || fail "what is kept is not what was written"
on_gpu 0 machines here
says "this machine: 2 devices on 1 host of 2"
says "reached, memory, GB/s"
on_gpu 0 cache
says "lockstep bench"

# A stand-in is slow, and so is what is simulated of it, here and, by the file, where no GPU is.
# shellcheck disable=SC2086
on_gpu 0 simulate $step --json
seconds >measured
[ ! -s measured ] || cmp -s sheet measured && fail "what was measured is not taken: $(cat measured)"
# shellcheck disable=SC2086
run 0 simulate $step --on here.yaml --json
seconds >carried
cmp -s carried measured || fail "by the file: $(cat carried), here: $(cat measured)"
on_gpu 0 plan llama.json --task pretrain data.seq_len=512 train.batch=16
says "on 2 x NVIDIA H100 SXM5 80GB"
# shellcheck disable=SC2086
on_gpu 0 bench --model llama.json data.seq_len=16 train.batch=2 -n 2 --steps 1
says "GB/s of a rank, as lockstep bench found"
grep -q "thread" output && fail "threads of a GPU: $(cat output)"
on_gpu 0 bench --json
grep -q '"accelerator": "h100-sxm-80"' output || fail "--json: $(cat output)"

# The processor, where it is asked for or GPUs cannot be used.
on_gpu 1 bench --cpu --kept
says "not measured yet"
# shellcheck disable=SC2086
on_gpu 2 simulate $step device.kind=cpu
says "run \`lockstep bench\` first"
run 0 train keys.yaml out=runs/learned train.steps=2 trace=true
on_gpu 2 plan --learn runs/learned
says "it takes this machine's GPUs, and what is learned is of the processor"
settings=gpus=1
on_gpu 0 bench
says "1 GPU, h100-sxm-80"
grep -q "from GPU" output && fail "one GPU has no other: $(cat output)"
# shellcheck disable=SC2086
on_gpu 2 simulate $step
says "-n 2 beside --on here: expected at most 1"
on_gpu 2 bench --folder .
says "--folder without --cpu"
on_gpu 2 bench --model llama.json --cpu
says "--cpu beside --model"
settings=gpus=1,code=none
on_gpu 1 bench --kept
says "is visible and not used"

# What the catalog does not know is measured, and no more.
settings=gpus=1,memory=37
on_gpu 2 bench -o other.yaml
says "-o: this machine's Stand-in GPU (sm_90, 132 processors, 37888 MiB) is none that the catalog knows"
[ -e other.yaml ] && fail "a file of a machine that is not known"
on_gpu 0 bench
says "which the catalog does not know"
says "not kept: this machine's"
on_gpu 2 simulate model=llama.json data.tokenizer=none data.seq_len=64
says "add it to ~/.config/lockstep/machines.yaml"
echo "$passed commands"

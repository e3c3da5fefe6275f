#!/bin/sh
# Generating on GPUs without one, as cuda_command_test.sh has training: of each kind of model the
# likeliest tokens are the CPU's, on one GPU and on several, one text and many, drafted, of weights
# as they are stored. What cannot be is refused in one line. $1: the lockstep program.
set -u
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/support/small_run.sh"
. "$tests/support/stand_ins.sh"
. "$tests/support/gpu_models.sh"
# Without a tokenizer tokens are bytes; blocks of weights are of 64.
sed -i 's/"vocab_size": 262/"vocab_size": 256/' gpt2.json
sed -i 's/"intermediate_size": 96/"intermediate_size": 128/' llama.json

# Trained until one token is far likelier than the next, whatever is rounded.
for model in llama gemma qwen deepseek oss gpt2; do
  run 0 train model=$model.json data.text=text.txt data.tokenizer=bytes data.seq_len=32 \
    data.validation=0 train.batch=4 train.steps=60 train.lr=5e-3 dtype=fp32 out=$model eval.every=0
done

# alike NAME words...: the text, and with several prompts the texts, as the CPU gives them.
prompt="It was a bright cold day in "
alike() {
  of=$1
  shift
  if [ ! -e "expected-$of" ]; then
    run 0 generate "$of" "$prompt" --greedy --max-new-tokens 12 dtype=fp32 device.kind=cpu
    cp output "expected-$of"
  fi
  cp "expected-$of" expected
  rm -f calls
  settings=gpus=4,log=$work/calls
  on_gpu 0 generate "$of" "$prompt" --greedy --max-new-tokens 12 dtype=fp32 "$@"
  settings=gpus=4
  grep -q "^cuLaunchKernelEx [1-9]" calls || fail "$of $*: no kernel was launched: $(cat calls)"
  says "are visible and taken; device.kind=cpu leaves them"
  says "generating on a GPU has run on stand-ins alone so far"
  cmp -s expected output || fail "$of $*: the CPU's text is \"$(cat expected)\", not \"$(cat output)\""
}
alike llama
alike llama mesh.tp=2 -n 2
alike llama mesh.pp=2 mesh.cp=2 -n 4
alike llama --draft layers=2
alike llama device.graphs=false
alike gemma
alike qwen mesh.tp=2 -n 2
alike deepseek
alike oss mesh.cp=2 -n 2
alike gpt2 --draft ngram
run 0 export llama four --quantize nf4
alike four
settings=gpus=1,seed=3
cp expected-llama expected
on_gpu 0 generate llama "$prompt" --greedy --max-new-tokens 12 dtype=fp32
says "1 GPU (Stand-in GPU) is visible and taken"
cmp -s expected output || fail "streams in another order: $(cat output)"
on_gpu 0 generate llama "$prompt" --greedy --max-new-tokens 12 dtype=fp32 device.loopback=true mesh.tp=2 -n 2
cmp -s expected output || fail "two ranks on one GPU: $(cat output)"
settings=gpus=4

# Many prompts at once; 16-bit types.
head -c 200 text.txt | fold -w 20 >prompts.txt
run 0 generate llama --prompts prompts.txt --greedy --max-new-tokens 6 dtype=fp32
cp output expected
on_gpu 0 generate llama --prompts prompts.txt --greedy --max-new-tokens 6 dtype=fp32
cmp -s expected output || fail "--prompts: $(cat output)"
on_gpu 0 generate llama "$prompt" --greedy --max-new-tokens 4 dtype=bf16
on_gpu 0 generate llama "$prompt" --greedy --max-new-tokens 2 dtype=fp16
! grep -q "the kernels of" log || fail "timed without being asked: $(cat log)"
settings=gpus=4,ways=2
on_gpu 0 generate llama "$prompt" --greedy --max-new-tokens 2 dtype=fp16 device.tune=true
says "timed the kernels of"
settings=gpus=4
on_gpu 0 generate llama "$prompt" --greedy --max-new-tokens 4 dtype=fp64
says "are visible and not used, the CPU is: dtype: GPUs compute in fp32"

# A text is as likely as on the CPU.
head -c 600 text.txt >short.txt
for model in llama qwen deepseek; do
  text="data.text=short.txt data.tokenizer=bytes data.seq_len=32 dtype=fp32"
  # shellcheck disable=SC2086
  run 0 evaluate $model $text --json
  grep -o '"loss": *[0-9.]*' output >expected
  # shellcheck disable=SC2086
  on_gpu 0 evaluate $model $text --json
  says "evaluating on a GPU has run on stand-ins alone so far"
  grep -o '"loss": *[0-9.]*' output >found
  [ -s found ] && paste expected found | awk '{ d = $2 / $4 - 1; exit !(d < 1e-5 && d > -1e-5) }' ||
    fail "evaluate $model: $(cat expected found)"
done

# What cannot be.
on_gpu 2 generate llama "$prompt" dtype=fp64 device.kind=cuda
says "GPUs compute in fp32, bf16 or fp16"
on_gpu 1 generate llama "$prompt" dtype=fp32 device.memory=64KiB
says "lockstep generate: device.memory: a device needs"
run 1 generate llama "$prompt" dtype=fp32 device.memory=64KiB
says "lockstep generate: device.memory: a device needs"
on_gpu 2 generate llama "$prompt" dtype=fp32 device.kind=cuda mesh.tp=2 -n 8
settings=gpus=1
on_gpu 2 generate llama "$prompt" dtype=fp32 mesh.tp=2 -n 2
says "has no GPU of its own: 1 is visible"
run 2 generate llama "$prompt" device.kind=cuda
says "NVIDIA driver"
for at in 1 5 10 20 40 80 160 320; do
  settings=gpus=1,fail=$at
  printf '%s' "$settings" >settings
  code=0
  timeout 60 ./gpu generate llama "$prompt" --greedy --max-new-tokens 6 dtype=fp32 >output 2>log || code=$?
  case $code in
    0 | 2 | 3) ;;
    *) fail "call $at: exit status $code: $(tail -n 3 log)" ;;
  esac
  [ $code = 0 ] || grep -q '^lockstep generate: ' log || fail "call $at: nothing is said: $(cat log)"
  passed=$((passed + 1))
done
echo "$passed runs"

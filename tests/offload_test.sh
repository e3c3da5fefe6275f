#!/bin/sh
# A run that offloads, as a person meets it: a model too large for its devices trains once what waits
# goes elsewhere, with the bits of a run that has the room; what cannot be is refused in one line.
# $1: the lockstep program.
set -u
case $1 in
  /*) lockstep=$1 ;;
  *) lockstep=$PWD/$1 ;;
esac
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }
work=$(mktemp -d /var/tmp/lockstep-offload-test-XXXXXX)
small=
running=
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; [ -z "$small" ] || umount "$small"; rm -rf "$work"' EXIT
cd "$work" || exit 1
unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS WORLD_SIZE XDG_CACHE_HOME
export OMP_NUM_THREADS=1
failed=0
passed=0
fail() {
  echo "FAILED: $1"
  [ ! -s errors ] || sed 's/^/  stderr: /' errors | head -12
  failed=$((failed + 1))
}
pass() {
  echo "ok: $1"
  passed=$((passed + 1))
}

mkdir model drive
cat >model/config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
 "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true}
JSON
awk 'BEGIN { for (i = 0; i < 800; i++) print "line", i * i % 97, "of a text", i % 7, "and more" }' \
  >text.txt
cat >run.yaml <<'YAML'
model: model/config.json
data: {text: text.txt, tokenizer: bytes, seq_len: 32, validation: 0.1}
mesh: {dp_shard: -1}
dtype: fp32
device: {threads: 1}
train: {steps: 8, batch: 4, lr: 1e-3, warmup: 4}
eval: {every: 4, batches: 2}
checkpoint: {every: 4}
YAML

# bad WHAT STATUS PATTERN WORD...: must end with the status and one line that matches.
bad() {
  what=$1 expected=$2 pattern=$3
  shift 3
  "$lockstep" "$@" >output 2>errors
  status=$?
  [ $status = "$expected" ] || { fail "$what: exit status $status, expected $expected"; return; }
  grep -qE -- "$pattern" errors || { fail "$what: does not say $pattern"; return; }
  pass "$what"
}
# same WHAT A B STEP: both runs end with the same model and optimizer state.
same() {
  for file in model optimizer; do
    cmp "$2/checkpoints/step-$4/$file.safetensors" "$3/checkpoints/step-$4/$file.safetensors" \
      >>errors 2>&1 || { fail "$1: $file differs"; return; }
  done
  pass "$1"
}
train() { "$lockstep" train run.yaml "$@" >output 2>errors || fail "train $*: exit status $?"; }

all="offload.optimizer=nvme offload.parameters=nvme offload.activations=nvme offload.path=drive"

# In fp32 the state of one device is 16 bytes a parameter, here with gradients 26 MiB.
train out=plain
"$lockstep" show run.yaml --memory --json >output 2>errors || fail "show"
state=$(tr -d ' ,"' <output | awk -F: '/^(parameters|masterweights|optimizermoments):/ { s += $2 }
  /^parameters:/ { s += $2 } END { printf "%d", s }')
limit=$((state / 4))
bad "a model four times too large, refused with what would help" 1 \
  'device.memory: a device needs .* offload' train run.yaml out=large device.memory=$limit
# shellcheck disable=SC2086
train out=large device.memory=$limit $all
echo "  state of $state bytes, a device of $limit"
same "a model four times too large trains from a file as with room enough" large plain 8
# shellcheck disable=SC2086
[ -z "$(ls drive)" ] && pass "the file is gone after the run" || fail "files are left in the drive"

# Checkpoints go over: begun without, gone on with, and on another mesh.
train out=goes train.steps=8 checkpoint.every=4
rm -rf goes/checkpoints/step-8
# shellcheck disable=SC2086
train out=goes $all
same "a checkpoint without offload goes on with it" goes plain 8
train out=two -n 2 zero=3
# shellcheck disable=SC2086
train out=two_away -n 2 zero=3 $all
same "on two devices, cut" two two_away 8
train out=host -n 2 zero=1 offload.optimizer=host offload.activations=host
train out=host_plain -n 2 zero=1
same "on two devices, the optimizer's state on the host" host host_plain 8

bad "no path" 2 'offload.path: none given' train run.yaml out=none offload.optimizer=nvme
bad "a path that is not there" 2 'offload.path: absent is no folder' \
  train run.yaml out=none offload.optimizer=nvme offload.path=absent
bad "an unknown tier" 2 'offload.optimizer: found ram.*none, host or nvme' \
  train run.yaml out=none offload.optimizer=ram
bad "too little memory of the host" 1 'host.memory: a device offloads' \
  train run.yaml out=none offload.optimizer=host host.memory=64KiB
bad "parameters that every rank stores whole" 2 'offload.parameters=host with zero=1.*zero=3' \
  train run.yaml out=none -n 2 zero=1 offload.parameters=host
[ -e none ] && fail "a refused run has left a folder" || pass "refused runs leave nothing behind"

# A drive in memory that is too small: refused before the run; one that is not fails nothing.
mkdir tiny
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=1m tmpfs tiny 2>/dev/null; then
  small=$work/tiny
  bad "a full drive" 1 'offload.path: tiny has .* MiB free' \
    train run.yaml out=none offload.optimizer=nvme offload.path=tiny
  mount -o remount,size=256m tiny
  train out=memory offload.optimizer=nvme offload.path=tiny
  same "a file system in memory" memory plain 8
else
  echo "skipped: a drive that is too small (no file system can be mounted here)"
fi
if [ "$(id -u)" != 0 ]; then
  chmod 500 drive
  bad "a drive that cannot be written" 2 'offload.path: drive' \
    train run.yaml out=none offload.optimizer=nvme offload.path=drive
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]

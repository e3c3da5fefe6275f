#!/bin/sh
# What is legal and hardly meant is told in a warning; help and output are what a user expects.
set -eu
. "$(dirname "$0")/support/small_run.sh"
silent() { ! grep -F -e "$1" log output || fail "\"$1\" is in: $(cat log)"; }

# The first lines name what is trained on; what is as one means it has no warning.
run 0 train keys.yaml out=plain
says "tokenizer bytes, 256 ids; 14800 training tokens of 1 document"
silent "warning"

# A warm-up that is not over when the run is.
run 0 train keys.yaml out=warm train.warmup=10
says "warning: train.warmup: 10 steps, and train.steps is 4: the learning rate rises to the end, to 0.0004"

# Going on where a schedule of more steps is elsewhere.
run 0 train keys.yaml out=linear train.lr_schedule=linear
run 0 train keys.yaml out=linear train.lr_schedule=linear train.steps=8
says "warning: train.steps: 8, and was 4: the learning rate goes from 0.000333 in step 4 to 0.000571 in the next"
run 0 train keys.yaml out=constant train.lr_schedule=constant
run 0 train keys.yaml out=constant train.lr_schedule=constant train.steps=8
silent "warning"

# A tokenizer that the model's weights do not know, and one that has few of its ids.
cp -r plain/checkpoints/step-4 weights
run 0 train keys.yaml model=weights out=own
silent "warning"
run 0 train keys.yaml model=weights data.tokenizer=weights out=same
silent "warning"
sed 's/"vocab_size": 256/"vocab_size": 40000/' config.json >wide.json
run 0 train keys.yaml model=wide.json out=wide
says "wide.json: a vocabulary of 40000, and the tokenizer (bytes) has 256 ids: the others are never seen"

# Another tokenizer, of the same ids or fewer.
cat >short.txt <<'END'
aaab aaab aaab bbba abab abab
END
run 0 tokenizer train short.txt --vocab 270 -o made
sed 's/"vocab_size": 256/"vocab_size": 280/' config.json >280.json
run 0 train keys.yaml model=280.json data.tokenizer=made out=made-run
silent "warning"
run 0 train keys.yaml model=made-run/checkpoints/step-4 data.tokenizer=bytes out=foreign
says "warning: data.tokenizer: bytes gives other ids than the tokenizer in made-run/checkpoints/step-4"

# A refusal to go on says how to.
run 2 train keys.yaml out=plain train.lr=1e-4
says "model=plain/checkpoints/step-4 with another out (see lockstep help resume)"
run 0 help resume
says "train.steps train.epochs"
run 0 train --help resume
says "train.steps train.epochs"
run 0 help train.lr
says "learning rate"
run 0 help generate
says "usage: lockstep generate"
run 0 version
run 2 help nonsense
run 2 train
says "expected a run file, as in"
run 2 generate plain --temp 1
says "did you mean --temperature?"

# What cannot be written is a failure, of every command.
[ -c /dev/full ] || { echo "skipped: no /dev/full"; exit 0; }
lost() { # words...
  code=0
  timeout 60 "$lockstep" "$@" >/dev/full 2>log </dev/null || code=$?
  [ $code -eq 3 ] || fail "$* to a full disk: exit status $code, expected 3: $(cat log)"
  says "cannot be written"
  passed=$((passed + 1))
}
lost --help
lost version
lost help train.lr
lost show keys.yaml
lost show keys.yaml --json
lost show keys.yaml --memory
lost show keys.yaml --compare -n 2
lost check keys.yaml
lost verify keys.yaml -n 2
lost inspect plain
lost inspect plain --json
lost generate plain a --max-new-tokens 2
lost tokenize text.txt --tokenizer made --ids
lost train keys.yaml out=full
lost export plain exported
lost evaluate plain data.text=text.txt
lost plan config.json --on 1xH100-SXM
lost simulate keys.yaml --on 1xH100-SXM
lost machines
lost models
lost doctor
lost cache
lost plot plain
lost draft plain layers=1 -o small.yaml

# What is named as the place of a file may be a device, a pipe or a link, and stays what it is.
ln -s /dev/full drain
ln -s page.html link.html
ln -s /dev/full drain.svg
for words in "--html drain" "--memory-map drain.svg" "-n 2 mesh.pp=2 mesh.dp_shard=1 --timeline drain.svg"; do
  # shellcheck disable=SC2086
  run 3 show keys.yaml $words
  says "cannot be written: No space left on device"
done
[ "$(readlink drain)" = /dev/full ] && [ -c /dev/full ] || fail "a device was replaced"
run 0 show keys.yaml --html link.html
[ -L link.html ] && [ -s page.html ] || fail "a link was replaced: $(ls -l)"
mkfifo pipe
cat pipe >piped &
running=$!
run 0 show keys.yaml --html pipe
[ -p pipe ] || fail "a pipe was replaced"
wait $running
running=
cmp page.html piped || fail "a pipe has other bytes"
run 2 evaluate plain --logits drain
says "found a device or a pipe"
if [ "$(id -u)" = 0 ] && mknod node c 1 7 2>/dev/null && (: >node) 2>/dev/null; then
  run 3 show keys.yaml --html node
  [ -c node ] || fail "a device was replaced"
else
  echo "skipped: a device of the test's own (none can be made here)"
fi
echo "$passed passed, 0 failed"

#!/bin/sh
# What lies in a run's checkpoints is never lost: damaged, unreadable or somebody else's, it stops
# the run or stays, and each is named.
set -eu
lockstep=$1
work=$(mktemp -d)
small=
trap '[ -z "$small" ] || umount "$small"; rm -rf "$work"' EXIT
fail() { echo "checkpoint_command_test: $1" >&2; exit 1; }
passed=0

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 200 >"$work/text.txt"
cat >"$work/config.json" <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
END
as=  # a command that runs others with fewer rights
# train OUT STEPS WORDS...: into $work/log (stderr) and $code
train() {
  out=$1 steps=$2
  shift 2
  code=0
  timeout 120 $as "$lockstep" train "model=$work/config.json" "data.text=$work/text.txt" \
    data.seq_len=16 train.batch=2 data.validation=0 eval.every=0 dtype=fp32 checkpoint.every=2 \
    "train.steps=$steps" "out=$out" "$@" >"$work/output" 2>"$work/log" </dev/null || code=$?
}
expect() { # STATUS TEXT...: and every text in what was said
  [ $code -eq "$1" ] || fail "exit status $code, expected $1: $(cat "$work/log")"
  shift
  for text in "$@"; do
    grep -qF -e "$text" "$work/log" "$work/output" || fail "\"$text\" is not in: $(cat "$work/log")"
  done
  passed=$((passed + 1))
}
# Names, sizes and contents of all that lies in a folder.
picture() { (cd "$1" && find . -type f -exec cksum {} + | sort -k 3); }

train "$work/run" 6
expect 0 "step-6"
[ "$(ls "$work/run/checkpoints" | tr '\n' ' ')" = "step-4 step-6 " ] || fail "$(ls "$work/run/checkpoints")"

# A byte behind a file that no run needs: a warning, no more.
cp -r "$work/run" "$work/edited"
printf ' ' >>"$work/edited/checkpoints/step-6/tokenizer_config.json"
rm -f "$work/edited/checkpoints/step-6/run.yaml"
train "$work/edited" 8
expect 0 "resuming after step 6" "step-6/tokenizer_config.json: is not as it was written"

# The newest is damaged: the one before is taken, the damaged one kept.
cp -r "$work/run" "$work/one"
printf 'x' >>"$work/one/checkpoints/step-6/model.safetensors"
before=$(cksum <"$work/one/checkpoints/step-6/model.safetensors")
train "$work/one" 10
expect 0 "resuming after step 4" "step-6/model.safetensors: damaged" "step-6.damaged"
[ "$(cksum <"$work/one/checkpoints/step-6.damaged/model.safetensors")" = "$before" ] || fail "step-6.damaged is another"
[ -d "$work/one/checkpoints/step-10" ] || fail "no step-10"

# All are damaged: nothing is begun, nothing is touched.
cp -r "$work/run" "$work/all"
printf 'x' >>"$work/all/checkpoints/step-6/model.safetensors"
printf '\001' | dd of="$work/all/checkpoints/step-4/optimizer.safetensors" bs=1 seek=3000 conv=notrunc status=none
picture "$work/all/checkpoints" >"$work/before"
cp "$work/all/metrics.jsonl" "$work/metrics"
train "$work/all" 10
expect 2 "step-6/model.safetensors: damaged" "step-4/optimizer.safetensors: damaged" \
  "no checkpoint in it can be used" "--fresh"
picture "$work/all/checkpoints" | cmp -s - "$work/before" || fail "damaged checkpoints were touched"
cmp -s "$work/all/metrics.jsonl" "$work/metrics" || fail "metrics.jsonl was touched"

# Not readable is not damaged. As root everything is readable, so the file leads to itself.
cp -r "$work/run" "$work/loop"
rm "$work/loop/checkpoints/step-6/model.safetensors"
ln -s model.safetensors "$work/loop/checkpoints/step-6/model.safetensors"
train "$work/loop" 10
expect 3 "step-6/model.safetensors: cannot be read: Too many levels of symbolic links"
[ -L "$work/loop/checkpoints/step-6/model.safetensors" ] || fail "an unreadable checkpoint was touched"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  cp -r "$work/run" "$work/closed"
  chmod 711 "$work"
  chmod 000 "$work"/closed/checkpoints/step-*/model.safetensors
  chown -R 65534 "$work/closed"
  mkdir "$work/cache-of-nobody"
  chown 65534 "$work/cache-of-nobody"
  as="env XDG_CACHE_HOME=$work/cache-of-nobody setpriv --reuid 65534 --regid 65534 --clear-groups"
  train "$work/closed" 10
  expect 3 "step-6/model.safetensors: cannot be read: Permission denied" "it may be good" \
    "step-4/model.safetensors: cannot be read"
  chmod 600 "$work"/closed/checkpoints/step-*/model.safetensors
  # A save that would not be allowed: the reason before the first step, and what is safe.
  chmod a-w "$work/closed/checkpoints"
  train "$work/closed" 10
  expect 3 "checkpoints cannot be written there: Permission denied" \
    "the last checkpoint is $work/closed/checkpoints/step-6"
  ! grep -q '^step 7/' "$work/log" || fail "it was found after a step: $(cat "$work/log")"
  as=
else
  echo "skipped: rights of another user (needs root and setpriv)"
fi

# A drive without the space of what is saved is found before the first step.
mkdir "$work/tiny"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=300k tmpfs "$work/tiny" 2>/dev/null; then
  small=$work/tiny
  train "$work/tiny/run" 6
  expect 1 "its drive has 0.3 MiB free, and 3 more checkpoints of 0.2 MiB are there at a time (checkpoint.keep=2"
  ! grep -q '^step 1/' "$work/log" || fail "it was found after a step: $(cat "$work/log")"
  train "$work/tiny/run" 1
  expect 0 "step-1"
  # What --fresh=delete removes is space, too.
  mount -o remount,size=700k "$work/tiny"
  train "$work/tiny/run" 6 --fresh=delete
  expect 0 "step-6"
  train "$work/tiny/run" 6 --fresh
  expect 1 "its drive has"
  train "$work/tiny/run" 6 --fresh=delete
  expect 0 "step-6"
  # A drive that is filled while the run saves: what is there is named, nothing half-written stays,
  # and with space again the run goes on.
  mount -o remount,size=2m "$work/tiny"
  (
    until [ -d "$work/tiny/full/checkpoints/step-4" ] || [ -e "$work/done" ]; do sleep 0.02; done
    cat /dev/zero >"$work/tiny/fill" 2>/dev/null || true
  ) &
  filler=$!
  train "$work/tiny/full" 100000000 train.lr_schedule=constant train.warmup=0
  touch "$work/done"
  wait $filler || true
  expect 3 "No space left on device" "the last checkpoint is $work/tiny/full/checkpoints/step-"
  [ -z "$(ls "$work/tiny/full/checkpoints" | grep -v '^step-[0-9]*$' || true)" ] ||
    fail "left behind: $(ls "$work/tiny/full/checkpoints")"
  # How much the run itself had written by then is chance.
  rm "$work/tiny/fill"
  mount -o remount,size=16m "$work/tiny"
  last=$(sed -n 's/.*the last checkpoint is .*step-//p' "$work/log")
  train "$work/tiny/full" $((last + 2)) train.lr_schedule=constant train.warmup=0
  expect 0 "resuming after step $last"
else
  echo "skipped: a drive that is too small (no file system can be mounted here)"
fi

# What is not of the run stays, wherever it lies; a folder of checkpoints may be a link.
mkdir -p "$work/linked" "$work/drive/step-0" "$work/drive/mine"
ln -s "$work/drive" "$work/linked/checkpoints"
echo precious >"$work/drive/step-0/x"
echo precious >"$work/drive/mine/thesis.doc"
echo precious >"$work/drive/a.txt"
train "$work/linked" 2 checkpoint.keep=1
expect 2 "step-0/state.json: damaged: it is missing"
rm -r "$work/drive/step-0"
train "$work/linked" 2 checkpoint.keep=1
expect 0 "step-2"
mkdir "$work/drive/step-0"
echo precious >"$work/drive/step-0/x"
echo precious >"$work/drive/step-2/notes.txt"
train "$work/linked" 8 checkpoint.keep=1
expect 0 "step-2: removed; the files in it that the run did not write are kept in"
[ "$(ls "$work/drive" | tr '\n' ' ')" = "a.txt mine step-0 step-2.rest step-8 " ] || fail "$(ls "$work/drive")"
[ "$(cat "$work/drive/step-0/x" "$work/drive/step-2.rest/notes.txt" "$work/drive/mine/thesis.doc" | sort -u)" = precious ] ||
  fail "a stranger's file is gone"

# A checkpoint that its owner moved elsewhere, and left a link to, is not the run's to remove.
mkdir -p "$work/kept"
train "$work/archived" 2
expect 0 "step-2"
mv "$work/archived/checkpoints/step-2" "$work/kept/step-2"
ln -s "$work/kept/step-2" "$work/archived/checkpoints/step-2"
picture "$work/kept/step-2" >"$work/before"
train "$work/archived" 6 checkpoint.keep=1
expect 0 "resuming after step 2"
picture "$work/kept/step-2" | cmp -s - "$work/before" || fail "what a link leads to was removed: $(ls "$work/kept/step-2")"
[ -L "$work/archived/checkpoints/step-2" ] || fail "a link was removed: $(ls "$work/archived/checkpoints")"

# One that cannot be removed keeps its name, and ends no run.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  cp -r "$work/run" "$work/others"
  chown -R 65534 "$work/others"
  chown 0 "$work/others/checkpoints/step-4"
  as="env XDG_CACHE_HOME=$work/cache-of-nobody setpriv --reuid 65534 --regid 65534 --clear-groups"
  train "$work/others" 10
  as=
  expect 0 "checkpoints/step-4: cannot be removed: Permission denied"
  [ "$(ls "$work/others/checkpoints" | tr '\n' ' ')" = "step-10 step-4 step-8 " ] || fail "$(ls "$work/others/checkpoints")"
  timeout 60 "$lockstep" inspect "$work/others/checkpoints/step-4" >"$work/output" 2>"$work/log" || fail "$(cat "$work/log")"
fi

# A name like ours in the path of the run is nobody's business, and a checkpoint that a kill left
# without its name counts, whether it is good, damaged or cannot be read.
mkdir -p "$work/job.tmp-1"
train "$work/job.tmp-1/run" 2 checkpoint.keep=1
expect 0 "step-2"
echo precious >"$work/job.tmp-1/run/checkpoints/step-2/notes.txt"
train "$work/job.tmp-1/run" 4 checkpoint.keep=1
expect 0 "step-2.rest"
[ -f "$work/job.tmp-1/run/checkpoints/step-2.rest/notes.txt" ] || fail "$(ls "$work" "$work/job.tmp-1/run/checkpoints")"
mv "$work/job.tmp-1/run/checkpoints/step-4" "$work/job.tmp-1/run/checkpoints/step-4.tmp-77-old"
train "$work/job.tmp-1/run" 6 checkpoint.keep=1
expect 0 "resuming after step 4"
mv "$work/job.tmp-1/run/checkpoints/step-6" "$work/job.tmp-1/run/checkpoints/step-6.tmp-77-old"
truncate -s -1 "$work/job.tmp-1/run/checkpoints/step-6.tmp-77-old/model.safetensors"
train "$work/job.tmp-1/run" 8 checkpoint.keep=1
expect 2 "step-6/model.safetensors: damaged" "no checkpoint in it can be used"
mv "$work/job.tmp-1/run/checkpoints/step-6" "$work/job.tmp-1/run/checkpoints/step-6.tmp-77-whole"
rm "$work/job.tmp-1/run/checkpoints/step-6.tmp-77-whole/model.safetensors"
ln -s model.safetensors "$work/job.tmp-1/run/checkpoints/step-6.tmp-77-whole/model.safetensors"
train "$work/job.tmp-1/run" 8 checkpoint.keep=1
expect 3 "step-6.tmp-77-whole/model.safetensors: cannot be read"
[ -d "$work/job.tmp-1/run/checkpoints/step-6.tmp-77-whole" ] || fail "a whole checkpoint was removed"
"$lockstep" inspect "$work/run" >"$work/output" 2>"$work/log" || fail "$(cat "$work/log")"
! grep -q trust "$work/log" || fail "inspect: $(cat "$work/log")"

# A step whose line cannot be written ends the run with its state saved.
cp -r "$work/run" "$work/full"
first=$(head -n 1 "$work/full/metrics.jsonl")
yes "$first" | head -c 200000 | sed '$d' >"$work/lines"
cat "$work/full/metrics.jsonl" >>"$work/lines"
mv "$work/lines" "$work/full/metrics.jsonl"
limit=$(($(wc -c <"$work/full/metrics.jsonl") / 512 + 2))
# The limit is of every file, and the others are smaller.
cat >"$work/limited" <<END
#!/bin/sh
trap '' XFSZ
ulimit -f $limit
exec "\$@"
END
chmod +x "$work/limited"
as="$work/limited"
train "$work/full" 40
as=
expect 3 "metrics.jsonl: writing step"
[ "$(ls "$work/full/checkpoints" | wc -l)" = 2 ] || fail "the state was not saved: $(ls "$work/full/checkpoints")"
ln -sf /dev/zero "$work/full/metrics.jsonl"
train "$work/full" 40
expect 2 "metrics.jsonl: expected a regular file"

# One that is named is verified as well, whoever reads it, unless it is to be trusted.
cp -r "$work/run" "$work/named"
at=$(($(wc -c <"$work/named/checkpoints/step-6/model.safetensors") - 40))
printf '\001' | dd of="$work/named/checkpoints/step-6/model.safetensors" bs=1 seek=$at conv=notrunc status=none
reads() { # WORDS...: a command that reads step-6
  code=0
  timeout 60 "$lockstep" "$@" >"$work/output" 2>"$work/log" </dev/null || code=$?
}
for trust in "" --trust; do
  reads generate "$work/named/checkpoints/step-6" hello --max-new-tokens 2 $trust
  [ -z "$trust" ] && expect 2 "step-6/model.safetensors: damaged" || expect 0 "its checksums are not looked at (--trust)"
  reads export "$work/named/checkpoints/step-6" "$work/exported" $trust
  [ -z "$trust" ] && expect 2 "step-6/model.safetensors: damaged" || expect 0 "its checksums are not looked at (--trust)"
  reads generate "$work/named" hello --max-new-tokens 2
  expect 0 "step-6/model.safetensors: damaged" "step-4: is taken, the newest that is good"
  train "$work/from$trust" 1 "model=$work/named/checkpoints/step-6" data.tokenizer=bytes $trust
  [ -z "$trust" ] && expect 2 "step-6/model.safetensors: damaged" || expect 0 "its checksums are not looked at (--trust)"
done

echo "$passed passed, 0 failed"

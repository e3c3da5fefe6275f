#!/bin/sh
# What lies in a run's folder is the user's: a run file, metrics, checkpoints of the run before. A
# run is gone on with from anywhere.
set -eu
. "$(dirname "$0")/support/small_run.sh"
names() { ls "$1" | tr '\n' ' '; }

# A run file in its own out stays as it is, and the folder of the run goes on from anywhere.
mkdir proj
cp keys.yaml config.json text.txt proj/
echo "out: ." >>proj/keys.yaml
mv proj/keys.yaml proj/run.yaml
cp proj/run.yaml before.yaml
(cd proj && run 0 train run.yaml)
cmp -s proj/run.yaml before.yaml || fail "run.yaml was changed"
grep -q '^# Written by lockstep train: .*/proj/run.yaml' proj/resolved.yaml || fail "$(head -3 proj/resolved.yaml)"
mkdir elsewhere
(cd elsewhere && run 0 train ../proj train.steps=6 && says "resuming after step 4")
(cd elsewhere && run 0 train "$work/proj/resolved.yaml" train.steps=8 && says "resuming after step 6")
grep -q '^# Written by lockstep train: .*/proj/run.yaml' proj/resolved.yaml || fail "$(head -3 proj/resolved.yaml)"
[ "$(ls elsewhere | grep -v log | grep -v output | wc -l)" -eq 0 ] || fail "trained in $(names elsewhere)"
mv proj moved
run 2 train moved train.steps=10
sed -i "s#$work/proj/#$work/moved/#" moved/resolved.yaml
run 0 train moved train.steps=10
says "resuming after step 8"
[ ! -e proj ] || fail "the folder that was moved is there again"
run 2 train elsewhere
says "a folder without resolved.yaml"

run 2 train moved out=another
says "out: moved goes on where it is"
[ ! -e another ] || fail "it trained elsewhere"
run 2 train moved --out another

# A checkpoint is no run's folder: nothing is trained inside it.
ls -a moved/checkpoints/step-10 >before
run 2 train moved/checkpoints/step-10
says "moved/checkpoints/step-10: a checkpoint; expected a run file, or the folder of a run"
ls -a moved/checkpoints/step-10 | cmp -s - before || fail "left in a checkpoint: $(names moved/checkpoints/step-10)"

# What a killed process was writing is removed by the next.
echo half >moved/resolved.yaml.tmp-4711
run 0 train moved train.steps=11
[ ! -e moved/resolved.yaml.tmp-4711 ] || fail "left: $(names moved)"

# Files that are not ours are not overwritten.
mkdir foreign
echo "my: notes" >foreign/resolved.yaml
run 2 train keys.yaml out=foreign
says "foreign/resolved.yaml: is not one that lockstep wrote"
rm foreign/resolved.yaml
printf 'epoch,loss\n1,2\n' >foreign/metrics.jsonl
cp foreign/metrics.jsonl before
run 2 train keys.yaml out=foreign
says "foreign/metrics.jsonl:1: is no line of a run's metrics"
cmp -s foreign/metrics.jsonl before || fail "a foreign metrics.jsonl was changed"
# Other programs' lines begin with a step, too, and a file may end without a line's end.
for text in '{"step": 1, "loss": 3.2}\n' '{"mine": 1}'; do
  printf "$text" >foreign/metrics.jsonl
  cp foreign/metrics.jsonl before
  run 2 train keys.yaml out=foreign
  says "foreign/metrics.jsonl:1: is no line of a run's metrics"
  run 0 train keys.yaml out=foreign --fresh=delete
  cmp -s foreign/metrics.old-1.jsonl before || fail "--fresh=delete: $(names foreign)"
  rm -r foreign
  mkdir foreign
done
# A picture may be somebody's: it is not told from the run's.
echo mine >foreign/timeline.svg
run 0 train keys.yaml out=foreign
run 0 train keys.yaml out=foreign --fresh=delete
[ "$(cat foreign/timeline.old-1.svg)" = mine ] || fail "--fresh=delete: $(names foreign)"
[ ! -e foreign/metrics.old-1.jsonl ] || fail "--fresh=delete: $(names foreign)"

# Lines of steps whose checkpoints are gone are not written over.
run 0 train keys.yaml out=bare
cp bare/metrics.jsonl before
rm -r bare/checkpoints
run 0 train keys.yaml out=bare
says "there is no checkpoint of these steps; they are kept in bare/metrics.old-1.jsonl"
cmp -s bare/metrics.old-1.jsonl before || fail "$(names bare)"
[ "$(wc -l <bare/metrics.jsonl)" -eq 4 ] || fail "$(cat bare/metrics.jsonl)"

# --fresh touches nothing before the new run has made its first step ...
run 0 train keys.yaml out=a
# A run's folder is a model: its newest checkpoint.
run 0 train keys.yaml out=begun model=a data.tokenizer=bytes
says "model: a: its newest checkpoint, a/checkpoints/step-4"
grep -q "^model: .*a/checkpoints/step-4" begun/resolved.yaml || fail "$(grep model begun/resolved.yaml)"
mkdir -p empty/checkpoints
run 2 train keys.yaml out=begun model=empty
says "model: empty: no good checkpoint in it; let the run save one first"
mkdir a/checkpoints/mine
echo precious >a/checkpoints/mine/thesis.doc
picture() { (cd "$1" && find . -type f ! -name lock -exec cksum {} + | sort -k 3); }
picture a >before
run 2 train keys.yaml out=a --fresh data.text=nowhere.txt
run 2 train keys.yaml out=a --fresh model=nothing
run 1 train keys.yaml out=a --fresh device.memory=64KiB
picture a | cmp -s - before || fail "--fresh touched something: $(picture a | diff - before)"
# ... then moves all of it aside.
run 0 train keys.yaml out=a --fresh train.lr=2e-3
says "are kept in a/checkpoints.old-1"
[ "$(names a/checkpoints.old-1)" = "mine step-2 step-4 " ] || fail "$(names a/checkpoints.old-1)"
[ "$(names a/checkpoints)" = "step-2 step-4 " ] || fail "$(names a/checkpoints)"
[ "$(wc -l <a/metrics.old-1.jsonl)" -eq 4 ] && [ "$(wc -l <a/metrics.jsonl)" -eq 4 ] || fail "metrics"
run 0 train keys.yaml out=a --fresh
says "are kept in a/checkpoints.old-2"
# Deleted is what the run wrote; the rest stays.
echo precious >a/checkpoints/a.txt
run 0 train keys.yaml out=a --fresh=delete
[ "$(names a/checkpoints.old-3)" = "a.txt " ] || fail "$(names a)"
run 0 train keys.yaml out=a --fresh=delete
[ "$(names a | tr ' ' '\n' | grep -c checkpoints)" -eq 4 ] || fail "$(names a)"
# From its own checkpoint: the weights have another name then, and the run goes on with them.
run 2 train keys.yaml out=a --fresh=delete model=a/checkpoints/step-4
says "--fresh=delete removes"
run 0 train keys.yaml out=a --fresh model=a/checkpoints/step-4 data.tokenizer=bytes
says "starting from the weights in a/checkpoints/step-4"
run 0 train a train.steps=5
says "resuming after step 4"
# With another -n the data axis follows.
run 0 train a train.steps=6 -n 2
says "on 2 devices (dp_replicate 1, dp_shard 2,"
run 0 train a train.steps=7 -n 1
says "on 1 device (dp_replicate 1, dp_shard 1,"
run 2 train a train.steps=8 -n 2 mesh.tp=4
says "expected 2 (-n)"

# Checkpoints on another drive, by a link.
mkdir b drive
ln -s "$work/drive" b/checkpoints
run 0 train keys.yaml out=b
run 0 train keys.yaml out=b --fresh
[ "$(names drive)" = "step-2 step-4 " ] && [ "$(names drive.old-1)" = "step-2 step-4 " ] || fail "drive: $(names drive)"
[ "$(names b/checkpoints.old-1/)" = "step-2 step-4 " ] || fail "the link aside: $(ls -l b)"
run 0 train keys.yaml out=b --fresh=delete
[ -L b/checkpoints ] && [ "$(names drive)" = "step-2 step-4 " ] || fail "delete by a link: $(names drive)"
# A link to a drive that is not mounted is found before the first step.
mkdir unmounted
ln -s "$work/nowhere" unmounted/checkpoints
run 2 train keys.yaml out=unmounted
says "unmounted/checkpoints: this folder cannot be made: a link that leads nowhere is in the way"
[ ! -e unmounted/metrics.jsonl ] || fail "it was found after a step"
ln -s b c
run 0 train keys.yaml out=c train.steps=5
says "resuming after step 4"

# Validation files by name, and the home folder.
cp text.txt other.txt
HOME=$work run 0 train keys.yaml out=d data.validation=other.txt eval.every=2 data.text='~/text.txt'
says "validation loss"

echo "$passed passed, 0 failed"

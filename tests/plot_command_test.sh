#!/bin/sh
# `lockstep plot`: the picture, the table and the CSV of runs, one of them still going on.
set -eu
. "$(dirname "$0")/support/small_run.sh"
[ -x "$lockstep" ] || { echo "skipped: $lockstep is not built"; exit 77; }

run 0 train keys.yaml out=a eval.every=2 data.validation=0.2
run 0 train keys.yaml out=b train.lr=2e-3 train.steps=3
run 0 plot a b
says "written: plot.svg"
says "best validation loss"
grep -q '^a  *4  *128 .* at step [24] ' output || fail "a is not told: $(cat output)"
grep -q '^b  *3  *96 .*  - ' output || fail "b is not told: $(cat output)"
[ "$(grep -c "class='frame'" plot.svg)" -eq 4 ] || fail "four panels were expected"
[ "$(grep -c "class='line'" plot.svg)" -eq 8 ] || fail "a line of each run in each panel was expected"
[ "$(grep -c "class='marked'" plot.svg)" -eq 1 ] || fail "one run was validated"

# What the last step's line says is what the table and the CSV say.
loss=$(sed -n '4s/.*"loss": \([^,]*\),.*/\1/p' a/metrics.jsonl)
run 0 plot a b/metrics.jsonl --csv all.csv -o other.svg --x tokens --smooth 0
[ "$(wc -l <all.csv)" -eq 8 ] || fail "seven steps and a head were expected: $(cat all.csv)"
grep -q "^a,4,128,[^,]*,$loss," all.csv || fail "loss $loss is not in: $(cat all.csv)"
grep -q "^b/metrics.jsonl,3," all.csv || fail "the second run is not in: $(cat all.csv)"
! grep -q "class='faint'" other.svg || fail "nothing was to be smoothed"

# A run that is being written: its last line has no end yet.
printf '{"step": 5, "lo' >>a/metrics.jsonl
run 0 plot a --x hours
grep -q '^a  *4 ' output || fail "a line without its end was read: $(cat output)"

# Events for TensorBoard: a file for each start. What is in their way costs a warning, not the run.
run 0 train keys.yaml out=c tensorboard=true
run 0 train c train.steps=6
[ "$(ls c/tensorboard | grep -c '^events.out.tfevents.')" -eq 2 ] || fail "$(ls c/tensorboard)"
[ "$(cat c/tensorboard/* | grep -ao train/loss | wc -l)" -eq 6 ] || fail "six steps were expected"
mkdir d
echo mine >d/tensorboard
run 0 train keys.yaml out=d tensorboard=true
says "no events are written for TensorBoard"
[ "$(cat d/tensorboard)" = mine ] || fail "a stranger's file was overwritten"

# What is wrong is said in a line, and nothing is written.
rm -f plot.svg
refused() { # TEXT words...
  text=$1
  shift
  run 2 plot "$@"
  says "$text"
  [ "$(wc -l <log)" -eq 1 ] || fail "more than a line: $(cat log)"
  [ ! -e plot.svg ] || fail "a picture was written"
}
mkdir empty
echo '{"step": 1, "loss": "low"}' >bad.jsonl
refused "expected the folder of a run"
refused "empty: no metrics.jsonl there" empty
refused "bad.jsonl:1: is no line of a run's metrics" a bad.jsonl
refused "no-such-run" no-such-run
refused "expected step, tokens or hours" a --x epochs
refused "expected a number from 0 to 0.999" a --smooth 1
refused "no/such/a.svg" a -o no/such/a.svg
refused "takes no keys" a train.lr=1
printf '\nPASSED: %d commands\n' "$passed"

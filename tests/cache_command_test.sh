#!/bin/sh
# Token files are kept for later runs: listed, cleared, held to a limit, and never half-written.
set -eu
. "$(dirname "$0")/support/small_run.sh"
preload=$(dirname "$lockstep")/tests/libfaults_preload.so
if [ ! -x "$lockstep" ] || [ ! -e "$preload" ]; then
  echo "skipped: $lockstep or $preload is not built"
  exit 77
fi
kept=$work/cache/lockstep

text() { yes "$1" | head -c "$2"; }
text 'It was a bright cold day in April, and the clocks were striking thirteen. ' 400000 >a.txt
text 'All happy families are alike; every unhappy family is unhappy in its own way. ' 400000 >b.txt
text 'Call me Ishmael. Some years ago, never mind how long precisely. ' 400000 >c.txt
train() { # TEXT words...
  file=$1
  shift
  run 0 train model=config.json data.text=$file data.seq_len=16 train.batch=2 train.steps=1 \
    train.warmup=0 data.validation=0 eval.every=0 dtype=fp32 "out=out-$file" "$@"
}
tokens() { find "$kept" -name 'tokens-*.bin' | wc -l; }

run 0 cache
says "0 files, 0.0 MiB"
train a.txt
touch -d '2020-01-01' "$kept"/tokens-*.bin
train b.txt
run 0 cache
says "2 files, 0.8 MiB"
says "2020-01-01"
says "400000 tokens of 1 document by bytes"
# What is used is young again.
train a.txt
run 0 cache
! grep -q 2020 output || fail "used and not told: $(cat output)"

# Above the limit, what was used longest ago goes; what the run needs never does.
touch -d '2021-01-01' "$kept"/tokens-*.bin
train b.txt
train c.txt data.cache_limit=900KiB
says "is removed, as used longest ago"
[ "$(tokens)" -eq 2 ] || fail "$(ls "$kept")"
train a.txt data.cache_limit=100KiB
[ "$(tokens)" -eq 1 ] || fail "$(ls "$kept")"
run 0 cache
says "1 file, 0.4 MiB"
train b.txt data.cache_limit=none
[ "$(tokens)" -eq 2 ] || fail "$(ls "$kept")"

# What a killed process left is found and removed, in a cache and beside token files; what a process
# writes now is not, nor anybody else's file. The writer is held in its fourth write until it is
# killed.
text 'It was the best of times, it was the worst of times. ' 400000 >long.txt
hold() { # WHERE words...: writes under it are counted
  rm -f calls
  env LD_PRELOAD="$preload" LS_FAULT_CALLS=write LS_FAULT_UNDER="$1" LS_FAULT_AT=4 LS_FAULT_HOLD=1 \
    LS_FAULT_LOG="$work/calls" ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 \
    "$lockstep" $2 >output 2>log </dev/null &
  running=$!
  until grep -q '^4 ' calls 2>/dev/null; do
    kill -0 $running 2>/dev/null || fail "$2 ended before its fourth write: $(cat log)"
    sleep 0.05
  done
}
end_held() {
  kill -KILL $running
  wait $running 2>/dev/null || true
  running=
}
"$lockstep" tokenizer train b.txt --vocab 300 -o made >log 2>&1 || fail "$(cat log)"
hold "$kept/tokens-" \
  "train model=config.json data.text=long.txt data.seq_len=16 train.batch=2 out=long"
aside=$(echo "$kept"/tokens-*.bin.*)
touch -c -d '2020-01-01' "$aside"
run 0 cache
! grep -q "half-written" output || fail "a file that is written was taken for a leftover: $(cat output)"
[ -e "$aside" ] || fail "what is written now is gone: $(ls "$kept")"
end_held
[ -e "$aside" ] || fail "nothing was left half-written: $(ls "$kept")"
touch -d '2020-01-01' "$aside"
run 0 cache
says "half-written, its process is gone"
echo mine >"$kept/tokens.txt"
echo mine >"$kept/notes.bin.old"
train c.txt out=again
[ -z "$(ls "$kept" | grep 'bin\.[0-9]' || true)" ] || fail "left: $(ls "$kept")"
mkdir folder
hold "$work/folder/" "tokenize long.txt --tokenizer made -o folder"
end_held
ls folder/00001-long.txt.tokens.*.* >/dev/null || fail "nothing was left half-written: $(ls folder)"
others="data.bin.12.0123456789abcdef data.bin.2024.01 tokens-0123456789abcdef.bin.12
tokens-0123456789abcdef.bin.old.0123456789abcdef x.tokens.12.0123456789abcdef
00001-x.text.12.0123456789abcdef"
(cd folder && touch $others)
touch -d '2020-01-01' folder/*
run 0 tokenize a.txt --tokenizer made -o folder
(cd folder && rm $others) || fail "somebody else's file was removed"
[ "$(ls folder)" = "00001-a.txt.tokens" ] || fail "left: $(ls folder)"
mkdir mine
others="$others tokens-train.bin tokens-0123456789abcdef0.bin tokens-0123456789ABCDEF.bin
tokens-0123456789abcdef.bin.bak machine-learning.json"
(cd mine && touch $others tokens-0123456789abcdef.bin tokens-0123456789abcdef.bin.12.0123456789abcdef \
  00001-a.txt.tokens.12.0123456789abcdef machine-0123456789abcdef.json)
touch -d '2020-01-01' mine/*
run 0 cache clear mine --all
says "4 files, 0.0 MiB removed"
(cd mine && rm $others && rmdir ../mine) || fail "not what is ours: $(ls mine)"

# Clearing.
run 0 cache clear --older-than 1
[ "$(tokens)" -eq 3 ] || fail "young files are gone: $(ls "$kept")"
run 2 cache clear --older-than x
run 2 cache clear nowhere
run 2 cache --all
run 0 cache clear
says "3 files, 1.1 MiB removed"
[ "$(ls "$kept" | tr '\n' ' ')" = "notes.bin.old tokens.txt " ] || fail "$(ls "$kept")"
# Of a run that keeps them beside its out.
unset XDG_CACHE_HOME
export HOME="$work"
mkdir runs
train a.txt out=runs/one
run 0 cache
says "runs/cache/tokens-"
run 0 cache clear runs/one
says "1 file, 0.4 MiB removed"
# Under the run's other names, and of a run that is where it is started.
mkdir runs/one/sub
for name in . .. sub/..; do
  case $name in ..) from=runs/one/sub ;; *) from=runs/one ;; esac
  train a.txt out=runs/one
  cd $from
  run 0 cache clear $name
  says "1 file, 0.4 MiB removed"
  cd "$work"
done
ln -s elsewhere/two runs/two
mkdir -p runs/elsewhere/two
train a.txt out=runs/two
run 0 cache clear runs/two
says "1 file, 0.4 MiB removed"
cp a.txt config.json runs/elsewhere
cd runs/elsewhere
train a.txt out=.
run 0 cache clear .
says "1 file, 0.4 MiB removed"
cd "$work"
echo "$passed passed, 0 failed"

#!/bin/sh
# `lockstep bench`: what it says of what is kept and who reads that, of a model's step, and where it
# is stopped; wrong input in one line. How fast anything is, is not looked at.
#   bench_command_test.sh LOCKSTEP
set -u
. tests/support/bench_expect.sh
cat >config.json <<'JSON'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
printf 'model: config.json\ndata: {seq_len: 16}\ntrain: {batch: 4}\ndtype: fp32\n' >run.yaml

# refuse STATUS PATTERN WORDS...: the same, and nothing was kept by it.
refuse() {
  expect "$@"
  [ ! -e cache ] || fail "something was kept"
}

refuse 0 "^usage: lockstep bench" bench --help
refuse 1 "not measured yet; lockstep bench measures it" bench --kept
refuse 2 "bench: gpt2-124m: expected nothing, or --model" bench gpt2-124m
refuse 2 "bench: --steps without --model" bench --steps 3
refuse 2 "bench: --folder beside --model" bench --model run.yaml --folder .
refuse 2 "unknown flag --foldr: did you mean --folder" bench --foldr .
refuse 2 "bench: --steps: found \"0\"; expected 1 to" bench --model run.yaml --steps 0
refuse 2 "missing: No such file or directory; expected a folder" bench --folder missing
refuse 2 "unknown key \"train.btach\"" bench --model run.yaml train.btach=3
refuse 2 "bench: .*no-such-model" bench --model no-such-model
refuse 2 "run.yaml: expected keys (key=value) after --model" bench --model config.json run.yaml
refuse 0 "^no floors: this machine and build were not measured yet" show run.yaml --floor

# Rates of the machine, measured shortly. What `lockstep bench` measures itself is bench_slow_test's.
"${LS_BUILD_DIR:-$(dirname "$lockstep")}/tests/quick_rates" . 2>errors || fail "nothing is kept"
for word in "^matrix products" "^  fp32 2048x2048x2048 " "^  bf16" "^  triad " "^  16MiB, 4 ranks" \
  "^  write, fdatasync"; do
  expect 0 "$word" bench --kept
done
kept=$(echo cache/lockstep/*.json)
cp "$kept" before
expect 0 '"checksum"' bench --kept --json
cmp -s output "$kept" || fail "--json is not what is kept"
expect 0 "^  fp32 2048x2048x2048 " machines here
expect 0 '"checksum"' machines here --json
cmp -s output "$kept" || fail "machines here --json is not what is kept"
expect 0 "^step  " show run.yaml --floor
grep -q "^floors by " output || fail "show --floor: no floors"
expect 0 '"floor_ms"' show run.yaml --floor --json

expect 0 "^step  .* 100.0 " bench --model run.yaml --steps 2
grep -q "measured this machine" errors && fail "what is kept was measured again"
cmp -s before "$kept" || fail "what is kept has changed"
grep -q "^linear  " output || fail "bench --model: no row of an op"
grep -q "^rest  " output || fail "bench --model: no row of the rest"
expect 0 "^linear 64x32x256" bench --model config.json data.seq_len=16 train.batch=4 dtype=fp32 \
  --steps 1 --shapes
expect 0 "^waiting for other ranks" bench --model run.yaml mesh.dp_shard=2 zero=3 -n 2 --steps 1
expect 0 '"of_floor"' bench --model run.yaml --steps 1 --json
if command -v jq >/dev/null; then
  jq -e '([.rows[] | select(.part != "beside") | .ms] | add) as $sum
    | ($sum - .step_ms) / .step_ms | fabs < 1e-4' output >/dev/null || fail "rows are not the step"
else
  echo "skipped: that rows add up to the step (no jq here)"
fi
[ -z "$(find . -name 'runs' -o -name 'out')" ] || fail "a run folder was made"

# The layouts that simulations of this machine are held against: one, run and simulated.
predicted=${LS_BUILD_DIR:-$(dirname "$lockstep")}/bench/predicted
if [ -x "$predicted" ]; then
  "$predicted" layouts.csv --seed 1 --to 1 --steps 1 >output 2>errors || fail "predicted: it runs no layout"
  "$predicted" layouts.csv >output 2>errors || fail "predicted: it simulates none"
  grep -q "^memory: exact in 1 of 1," output || fail "predicted: the memory is another: $(cat output)"
else
  echo "skipped: a layout simulated and run (no bench/predicted here)"
fi

# Damaged, it is measured again where rates are needed; stopped amid that, nothing is kept of it.
printf '{"form": 1' >"$kept"
expect 1 "lockstep bench measures it" bench --kept
"$lockstep" bench --model run.yaml --steps 1 >output 2>errors &
measuring=$!
until grep -q "^[1-9][0-9]*/[0-9]*  " errors || ! kill -0 $measuring 2>/dev/null; do sleep 0.05; done
kill -TERM $measuring
wait $measuring 2>/dev/null && fail "bench: stopped, and it exits with 0"
grep -q "^[1-9][0-9]*/[0-9]*  " errors || fail "bench --model: it does not measure again"
[ "$(cat "$kept")" = '{"form": 1' ] || fail "bench: stopped, and something was kept"
[ $failed -eq 0 ] && echo "bench: all as expected"
exit $failed

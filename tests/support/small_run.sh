# What tests of commands share; sourced with the lockstep command as $1. Works in a folder of its own,
# which goes away at the end, with a text, a tiny model's config.json and a run file keys.yaml.
lockstep=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d)
running= # a process to be ended with the test
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "$(basename "$0" .sh): $1" >&2; exit 1; }
passed=0
cd "$work"
export XDG_CACHE_HOME="$work/cache" XDG_CONFIG_HOME="$work/config"

yes 'It was a bright cold day in April, and the clocks were striking thirteen.' | head -n 200 >text.txt
cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
END
cat >keys.yaml <<'END'
# My thesis, experiment 7: do NOT change lr!
model: config.json
data: {text: text.txt, seq_len: 16, validation: 0}
train: {batch: 2, lr: 1e-3, steps: 4, warmup: 1}
eval: {every: 0}
checkpoint: {every: 2}
dtype: fp32
END
run() { # STATUS words...: into output and log
  expected=$1 code=0
  shift
  timeout 120 "$lockstep" "$@" >output 2>log </dev/null || code=$?
  [ $code -eq "$expected" ] || fail "$*: exit status $code, expected $expected: $(cat log)"
  passed=$((passed + 1))
}
says() { grep -qF -e "$1" log output || fail "\"$1\" is not in: $(cat log output)"; }

#!/bin/sh
# The page of `show --html` in a browser: loads without an error, steps from the start to the end,
# where every layout has updated all it has and keeps nothing. Skipped where there is no Chromium.
# $1: the lockstep program. CHROMIUM: the browser.
set -eu
browser=${CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do
  [ -n "$browser" ] || browser=$(command -v $name || true)
done
[ -n "$browser" ] || { echo "skipped: no chromium here to open the page"; exit 77; }
lockstep=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $1" >&2; [ ! -s errors ] || tail -5 errors >&2; exit 1; }

cat >config.json <<'JSON'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}
JSON
# open PAGE HASH: what the page is after its script has run, in `dom`
open() {
  HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --no-first-run \
    --user-data-dir="$work/profile" --enable-logging=stderr --dump-dom "file://$work/$1$2" \
    >dom 2>log || fail "the browser ended with status $?"
  grep 'CONSOLE' log >errors || true
  [ ! -s errors ] || fail "$1$2: the console has messages"
  grep -q 'data-ready="yes"' dom || fail "$1$2: the script did not reach its end"
  ! grep -q 'data-error' dom || fail "$1$2: an error in the script"
}
count() { grep -o "$1" dom | wc -l; }
# at_end LAYOUTS REFUSED
at_end() {
  [ "$(count '<p class="about done">')" -eq "$1" ] || fail "not all $1 layouts reached their end"
  [ "$(count '<p class="refused">')" -eq "$2" ] || fail "expected $2 refused layouts"
  grep -o '<p class="sums">[^<]*' dom | sed 's/.*">//' >sums
  [ -s sums ] || fail "no sums"
  end='^gathered 0, activations kept 0, gradients 0, updated \([0-9]*\) of \1$'
  ! grep -v "$end" sums >errors || fail "a layout that is not done at its end"
}

"$lockstep" show model=./config.json data.seq_len=32 train.batch=8 mesh.dp_shard=2 mesh.tp=2 \
  train.microbatches=2 -n 4 --html page.html >/dev/null
open page.html ""
grep -q '<body data-step="0"' dom || fail "the page does not begin at step 0"
[ "$(count 'before the step')" -ge 5 ] || fail "not five layouts side by side"
open page.html "#step=9"
grep -q '<body data-step="9"' dom || fail "#step=9 is not step 9"
grep -q 'step 9 of ' dom || fail "step 9 is not said"
grep -q 'activations kept [1-9]' dom || fail "nothing is kept in the middle of a step"
open page.html "#step=end"
at_end 5 0

# A person at it: next, next, an arrow back, End, Home, an arrow, and a layout taken out.
sed '/<\/body>/d; /<\/html>/d' page.html >person.html
cat >>person.html <<'HTML'
<script>
const seen = [], note = () => seen.push(document.body.dataset.step);
const key = name => document.dispatchEvent(new KeyboardEvent('keydown', {key: name}));
for (const id of ['next', 'next']) { document.getElementById(id).click(); note(); }
for (const name of ['ArrowLeft', 'End', 'Home', 'ArrowLeft', 'ArrowRight']) { key(name); note(); }
document.querySelectorAll('#choices input')[1].click();
seen.push([...document.querySelectorAll('.panel')].filter(p => p.offsetWidth > 0).length);
document.body.dataset.seen = seen.join();
</script>
</body>
</html>
HTML
open person.html ""
grep -q 'data-seen="1,2,1,[0-9][0-9]*,0,0,1,4"' dom ||
  fail "buttons and keys: $(grep -o 'data-seen="[^"]*"' dom)"

"$lockstep" show model=./config.json data.seq_len=32 train.batch=64 mesh.pp=4 mesh.dp_shard=2 \
  schedule=zbv train.microbatches=8 zero=2 -n 8 --html eight.html >/dev/null
open eight.html "#step=99999999"
at_end 3 2
echo "page: ok ($("$browser" --version 2>/dev/null))"
